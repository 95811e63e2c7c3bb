#!/bin/sh
# Installs Python packages into the virtual environment `$1`; the other arguments are those of `pip install`.
# uv needs a fifth of the time of pip. pip is used where uv has no wheel, and where pip is configured to use another
# index, which uv would not know.
set -eu
environment=$1
shift
if [ -x .venv/bin/uv ] && ! "$environment/bin/pip" config list | grep -q '\.index-url=' &&
	.venv/bin/uv pip install --quiet --python "$environment/bin/python" "$@"; then
	exit 0
fi
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-compile "$@"
