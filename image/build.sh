#!/bin/sh
# Builds the image without a container engine and without a daemon: sh image/build.sh TAG [BASE]
# It needs buildah. Without BASE, it makes a base image from Debian packages and from the Python that runs here. This
# needs debootstrap and root. BUILD_OPTIONS are further options of `buildah build`. The build trusts the certificates that
# PIP_CERT or SSL_CERT_FILE names, for example those of a proxy that rewrites TLS. The image does not keep them.
set -eu
cd "$(dirname "$0")/.."
tag=$1
base=${2:-}
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
python=${PYTHON:-python3}

if [ -z "$base" ]; then
	base=localhost/live-board-base
	if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
		root=$(mktemp -d)
		trap 'rm -rf "$root"' EXIT
		debootstrap --variant=minbase --include=ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libsqlite3-0,libssl3,zlib1g \
			bookworm "$root" >/dev/null
		rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
		prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
		version=$("$python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')
		tar -C "$prefix" --exclude="lib/$version/site-packages" --exclude="lib/$version/test" --exclude=__pycache__ \
			-cf - "bin/$version" lib/"$version" $(cd "$prefix" && ls -d lib/libpython*.so* 2>/dev/null) |
			tar -C "$root/usr/local" --no-same-owner -xf -
		ln -s "$version" "$root/usr/local/bin/python"
		ln -s "$version" "$root/usr/local/bin/python3"
		chroot "$root" ldconfig
		chroot "$root" /usr/local/bin/python -m ensurepip --default-pip >/dev/null
		container=$(buildah from scratch)
		buildah add --quiet "$container" "$root" / >/dev/null
		buildah config --env PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
		buildah commit --quiet --rm "$container" "$base" >/dev/null
	fi
fi
case $base in *@sha256:* | localhost/*) ;; *) echo "The base image $base is named without a digest, so it may change." >&2 ;; esac
commit=${COMMIT:-$(git rev-parse HEAD 2>/dev/null || true)}
certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
# shellcheck disable=SC2086 # several options
buildah build --quiet --format docker ${certificates:+--secret "id=certificates,src=$certificates"} ${BUILD_OPTIONS:-} \
	--build-arg BASE="$base" --build-arg COMMIT="$commit" --tag "$tag" .
