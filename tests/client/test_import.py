"""The client is light: importing it does not load the server."""

import json
import subprocess
import sys

import live.client

LOADED = "import sys, json, live.client; print(json.dumps(sorted(sys.modules)))"


def test_the_client_does_not_load_the_server() -> None:
    """The client loads its own package, the domain and the errors, and no library of the server."""
    printed = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, check=True).stdout
    modules = set(json.loads(printed))
    own = {name for name in modules if name.startswith("live.")}
    assert {name.split(".")[1] for name in own} == {"client", "domain", "errors"}
    assert not modules & {"redis", "starlette", "uvicorn", "prometheus_client", "jinja2", "typer", "structlog", "rich"}


def test_every_public_name_is_documented() -> None:
    """Everything that the package exports has a docstring."""
    for name in live.client.__all__:
        assert getattr(live.client, name).__doc__, name
