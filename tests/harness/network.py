"""Ports of this machine."""

import socket


def free_port() -> int:
    """A port that a server can use repeatedly."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
