"""Ports of this machine."""

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """A port that a server can use repeatedly, below those that the system gives to clients at any time."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", secrets.choice(range(10_000, 32_000)))) as taken:
            return int(taken.getsockname()[1])
