#!/bin/sh
# Installs with apt what pip can't install: `venv PYTHON` for virtual environments, `test` for the tests,
# `bench` for the benchmarks.
set -eu

# Nothing can be installed without a Python that is new enough, so say this at once.
if [ "$1" = venv ]; then
	if ! command -v "$2" >/dev/null; then
		echo "Missing: $2. Install Python 3.11 or later, or name yours: make $MAKECMDGOALS PYTHON=python3.12" >&2
		exit 1
	elif ! "$2" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
		echo "$("$2" --version) is too old: name Python 3.11 or later, as in make $MAKECMDGOALS PYTHON=python3.12" >&2
		exit 1
	fi
fi

missing() {
	case "$1" in
	venv) "$2" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv ;;
	test)
		command -v chromium-headless-shell >/dev/null || echo chromium-headless-shell
		command -v redis-server >/dev/null || echo redis-server
		command -v nginx >/dev/null || echo nginx
		command -v zsh >/dev/null || echo zsh
		command -v curl >/dev/null || echo curl
		command -v promtool >/dev/null || echo prometheus
		command -v fail2ban-regex >/dev/null || echo fail2ban
		[ -n "$(find /usr/lib/postgresql -name postgres -type f 2>/dev/null)" ] || echo postgresql
		;;
	bench)
		command -v chromium >/dev/null || echo chromium
		command -v webdis >/dev/null || echo webdis
		command -v nginx >/dev/null && [ -e /usr/lib/nginx/modules/ngx_nchan_module.so ] || echo nginx libnginx-mod-nchan
		;;
	esac
}

packages=$(missing "$@")
[ -z "$packages" ] && exit 0
wanted=$(echo $packages)
mode=$1
give_up() {
	echo "Missing: $wanted - install with: apt-get install --no-install-recommends $wanted" >&2
	[ "$mode" = test ] && echo "Tests that need them will be skipped." >&2 && exit 0
	[ "$mode" = bench ] && echo "Measures that need them will be left out." >&2 && exit 0
	exit 1
}
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	give_up
fi
echo "Installing $wanted..." >&2
apt-get update -q >/dev/null || give_up
# One package that this system does not have would keep apt from installing the others.
known=$(for package in $wanted; do apt-cache show "$package" >/dev/null 2>&1 && echo "$package" || true; done)
# Debian starts every server that it installs, unless RUNLEVEL is 1.
[ -z "$known" ] ||
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -q -y --no-install-recommends $known >/dev/null || give_up
wanted=$(echo $(missing "$@"))
[ -z "$wanted" ] || give_up
