#!/bin/sh
# Installs Python packages into the virtual environment `$1`. The other arguments are those of `pip install`. The script
# tries `uv pip install` first, because it takes a fifth of the time. pip installs the packages if uv is missing or
# fails, or if the configuration of pip names another index, because uv does not read that configuration.
set -eu
environment=$1
shift
if [ -x .venv/bin/uv ] && ! "$environment/bin/pip" config list | grep -q '\.index-url=' &&
	.venv/bin/uv pip install --quiet --python "$environment/bin/python" "$@"; then
	exit 0
fi
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-compile "$@"
