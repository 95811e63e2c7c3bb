#!/bin/sh
# Installs into .tools what reads /openapi.json and /asyncapi.json in the tests, and the type checker of the page's
# JavaScript. The Python tools are kept apart because their versions conflict with those of the server. `$1` is a Python
# interpreter.
set -eu
cd "$(dirname "$0")/.."

mkdir -p .tools
cp tests/tools/package.json .tools/
npm_install() {
	command -v npm >/dev/null &&
		npm install --prefix .tools --no-package-lock --ignore-scripts --no-audit --no-fund --silent ||
		echo "Missing: npm (of Node.js 20 or later). Tests that need it will be skipped." >&2
}
npm_install &
"$1" -m venv .tools/python
sh tests/install-packages.sh .tools/python -r tests/tools/requirements.txt
wait
