"""The other end of a TCP connection: a client or a proxy."""

import asyncio
import sys
import termios
from fcntl import ioctl
from typing import NamedTuple

from uvicorn.protocols.utils import get_remote_addr, is_ssl


class Peer(NamedTuple):
    """The address, empty for a unix socket, and whether the connection uses TLS."""

    address: str
    tls: bool

    @classmethod
    def of(cls, transport: asyncio.Transport) -> "Peer":
        """The peer of a connection."""
        found = get_remote_addr(transport)
        return cls(found[0] if found else "", is_ssl(transport))


def held_by_kernel(transport: asyncio.Transport) -> int:
    """Bytes that the kernel has accepted and the peer has not acknowledged."""
    held = bytearray(4)
    ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, held)
    return int.from_bytes(held, sys.byteorder)
