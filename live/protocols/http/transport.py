"""The other end of a TCP connection: a client or a proxy."""

import asyncio
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from typing import Final, NamedTuple, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
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


class WithBody(Protocol):
    """A request with a body: `size` bytes of it were admitted, or `wanted` bytes wait."""

    size: int
    wanted: int


class Flow(FlowControl):
    """Pauses and resumes reading. Bytes received before a pause are read first.

    `held` is the number of bytes of bodies that were admitted and are not answered, `waits` the request whose body
    waits. `is_counted` says whether the budget for bodies knows of them.
    """

    def __init__(self, transport: asyncio.Transport, read_on: Callable[[], None]) -> None:
        super().__init__(transport)
        self._read_on = read_on
        self.held = 0
        self.waits: WithBody | None = None
        self.is_counted = False

    def resume_reading(self) -> None:
        """Resume reading, if it was paused."""
        if self.read_paused:
            self._read_on()

    def resume_transport(self) -> None:
        """Receive from the transport again."""
        super().resume_reading()

    def end(self) -> None:
        """Release the connection, which is lost, and every task that waits to write to it."""
        self._read_on = _do_nothing
        self.resume_writing()


def _do_nothing() -> None:
    pass


_SHORT_LINGER: Final = 1.0  # seconds, while the server stops and over TLS, which can't close one direction alone


def close_gently(
    transport: asyncio.Transport, *, is_cut_short: bool, is_stopping: bool, may_linger: Callable[[], bool]
) -> bool:
    """End a connection so that the client can read the last answer; True if the connection lingers.

    A lingering connection is closed for sending, and what the client still sends is read and dropped: closing it
    immediately could reset the connection and destroy the answer (RFC 9112, section 9.6). `is_cut_short` is true if the
    client may still be sending a request. `may_linger` takes a place among the lingering connections, if one is free.
    """
    if transport.is_closing():
        return False
    is_tcp = transport.can_write_eof()  # TLS announces the end itself
    if not (is_tcp or is_cut_short) or not may_linger():
        transport.close()
        return False
    if is_tcp:
        with suppress(OSError):  # the client has reset the connection
            transport.write_eof()
    if is_stopping or not is_tcp:
        asyncio.get_running_loop().call_later(_SHORT_LINGER, transport.close)
    return True
