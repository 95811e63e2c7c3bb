"""Ports of this machine."""

import os
import secrets
import socket
from contextlib import suppress
from typing import Final

_LOWEST: Final = 10_000
_COUNT: Final = 22_000  # below the ports that the system gives to clients at any time
_SHARES: Final = 16  # of test processes, so that none takes the port of a server that another one starts again
_given: set[int] = set()


def free_port() -> int:
    """A port that a server can use repeatedly. Nobody gets it a second time."""
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    while True:
        port = _LOWEST + share * (_COUNT // _SHARES) + secrets.randbelow(_COUNT // _SHARES)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in _given:
                _given.add(port)
                return port
