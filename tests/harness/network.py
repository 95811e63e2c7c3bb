"""Ports of this machine."""

import os
import secrets
import socket
from contextlib import suppress
from typing import Final

_LOWEST: Final = 10_000
_COUNT: Final = 22_000  # the number of ports; they end below those that the system gives to clients
_SHARES: Final = 16  # each test process has its own part, so no other process takes a port while a server restarts
_given: set[int] = set()


def free_port() -> int:
    """A port that a server can use repeatedly. It is never returned again."""
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    while True:
        port = _LOWEST + share * (_COUNT // _SHARES) + secrets.randbelow(_COUNT // _SHARES)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in _given:
                _given.add(port)
                return port
