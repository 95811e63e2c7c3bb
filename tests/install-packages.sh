#!/bin/sh
# Installs Python packages into the virtual environment `$1`; the other arguments are those of `pip install`.
# uv needs a fifth of the time. pip serves where uv has no wheel, or where only the configuration of pip names the index.
set -eu
environment=$1
shift
if [ -x .venv/bin/uv ] && .venv/bin/uv pip install --quiet --python "$environment/bin/python" "$@"; then
	exit 0
fi
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-compile "$@"
