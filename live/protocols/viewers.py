"""A viewer's connection after its handshake: frames straight from the hub to the socket, without ASGI.

There may be tens of thousands, so each is small: no task, no queue, no timer, and a parser only for what is not the
answer to a ping. One attendant pings them all in turn, and ends those that are silent or slow.
"""

import asyncio
import random
import struct
import termios
import time
from fcntl import ioctl
from socket import IPPROTO_TCP, SO_SNDBUF, SOL_SOCKET, TCP_INFO, TCP_USER_TIMEOUT
from typing import Final, cast

from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from live.errors import BAD_REQUEST, CLOSE_CODES, LEAVING, SLOW
from live.fanout.frames import status_frame
from live.fanout.hub import Hub
from live.fanout.viewer import Seat
from live.metrics import SLOW_VIEWERS
from live.protocols.handshake import QUIET

LARGEST_MESSAGE: Final = 1024  # bytes that a viewer may send at once; it has nothing to say
_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_PING: Final = Frame(Opcode.PING, b"").serialize(mask=False)
_PONG: Final = b"\x8a\x80"  # how the answer to it begins: no payload, masked
_PONG_SIZE: Final = 6
_BAD_TEXT: Final = 1007
_SEND_BUFFER: Final = 16 * 1024  # bytes that the kernel holds for a viewer; it takes twice as much for its own needs
_TURNS: Final = 20  # seconds, or turns, from one ping of a viewer to the next
_CLOSE_TIMEOUT: Final = 5.0
_LAST_WORDS: Final = 1.0  # seconds that a slow viewer has for the reason
_ACKED: Final = struct.Struct("120xQ")  # where the kernel's `tcp_info` has the bytes that were acknowledged
_RETURNS_A_SECOND: Final = 500  # viewers that are asked to come back within the same second
_LONGEST_SPREAD: Final = 30.0


class ViewerSocket(asyncio.Protocol):
    """One viewer's connection."""

    __slots__ = (
        "_attendant",
        "_closing",
        "_parser",
        "_taken",
        "_text",
        "_transport",
        "address",
        "fd",
        "heard",
        "seat",
        "turn",
        "waits_since",
    )

    def __init__(self, attendant: "Attendant", address: str) -> None:
        self.address = address
        self.seat: Seat | None = None
        self.fd = -1
        self.heard = True  # since the last ping
        self.turn = 0
        self.waits_since: float | None = None
        self._attendant = attendant
        self._parser: ServerProtocol | None = None
        self._taken = -1  # bytes, when it was last asked for
        self._text: bytes | None = None  # of a message that has not come whole
        self._transport: asyncio.Transport | None = None
        self._closing: asyncio.TimerHandle | None = None

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the handshake is done, and maybe still on its way."""
        self._transport = cast("asyncio.Transport", transport)
        own = self._transport.get_extra_info("socket")
        # Here and not on the listener: large answers of HTTP go out faster with what the kernel chooses itself.
        own.setsockopt(SOL_SOCKET, SO_SNDBUF, _SEND_BUFFER)
        # Who is slow is our business, and not the kernel's: to that a viewer that takes a little, and again a little,
        # is one that takes nothing, for its window never opens for all of what was to be sent next.
        own.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, 0)
        is_tls = self._transport.get_extra_info("sslcontext") is not None
        # So that we are told of every byte that waits, and of none; over TLS no byte is one too many for a limit of 0.
        self._transport.set_write_buffer_limits(high=1 if is_tls else 0)
        if self.waits_since is None and self._transport.get_write_buffer_size():
            self.pause_writing()  # of an answer of HTTP so large that the one before us was told already
        if not is_tls:
            self.fd = own.fileno()
        self._attendant.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Let go of the file descriptor: it is closed when this returns, and may be another's then."""
        if self._closing is not None:
            self._closing.cancel()
        self._attendant.discard(self)
        self.seat = self._transport = None

    def pause_writing(self) -> None:
        """Something waits to be sent."""
        self.waits_since = time.monotonic()
        self.takes()
        self._attendant.watch(self)

    def resume_writing(self) -> None:
        """Nothing waits any more."""
        self.waits_since = None
        self._attendant.watch_no_more(self)
        if self.seat is not None and self._closing is None:
            self.seat.wake()

    def data_received(self, data: bytes) -> None:
        """Take the answer to a ping; let the parser read anything else."""
        self.heard = True
        if self._parser is None:
            if len(data) == _PONG_SIZE and data.startswith(_PONG):
                return
            self._parser = ServerProtocol(state=State.OPEN, max_size=LARGEST_MESSAGE, logger=QUIET)
        self._parser.receive_data(data)
        for frame in self._parser.events_received():
            if isinstance(frame, Frame) and frame.opcode in _DATA:
                self._hear(frame)
        self._say()

    def eof_received(self) -> None:
        """It says nothing more: the transport closes when what waits is sent; see that this ends."""
        self._part(_CLOSE_TIMEOUT)

    def _hear(self, frame: Frame) -> None:
        """Close when a message has come whole: whatever it says, it may not; but text is to be text."""
        if frame.opcode is not Opcode.CONT:
            self._text = b"" if frame.opcode is Opcode.TEXT else None
        if self._text is not None:
            self._text += frame.data
        if not frame.fin:
            return
        try:
            (self._text or b"").decode()
        except UnicodeDecodeError:
            self._close(_BAD_TEXT, "not UTF-8", _CLOSE_TIMEOUT)
        else:
            self.close(BAD_REQUEST)

    # What the hub says

    @property
    def waiting(self) -> bool:
        """Whether something that was written waits to be sent, or nothing more will be."""
        return self.waits_since is not None or self._closing is not None or self._transport is None

    def write(self, data: bytes | memoryview) -> bool:
        """Send, or let wait; False when some of it waits."""
        if self._transport is not None:
            self._transport.write(data)
        return not self.waiting

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    def end(self, code: int) -> None:
        """Close; when the server stops, say when to come back."""
        if code == LEAVING and self._closing is None and not self.waiting:
            self.write(status_frame("the server stops", self._attendant.return_after()).wire)
        self.close(code)

    # The end

    def close(self, code: int, patience: float = _CLOSE_TIMEOUT) -> None:
        """Say why, and wait a while for the viewer to say so too."""
        self._close(code, CLOSE_CODES[code].reason, patience)

    def _close(self, code: int, reason: str, patience: float) -> None:
        if self._closing is not None or self._transport is None:
            return
        if self._parser is None:
            self._parser = ServerProtocol(state=State.OPEN, max_size=LARGEST_MESSAGE, logger=QUIET)
        if self._parser.state is State.OPEN:
            self._parser.send_close(code, reason)
        self._part(patience)
        self._say()

    def _part(self, patience: float) -> None:
        """Send nothing more but what waits and the last words, and end when there was time for them."""
        if self._closing is not None or self._transport is None:
            return
        if self.seat is not None:
            self.seat.leave_lane()
        self._closing = asyncio.get_running_loop().call_later(patience, self.abort)
        # What the kernel holds may outlive the connection, but not for minutes.
        own = self._transport.get_extra_info("socket")
        own.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, round(_CLOSE_TIMEOUT * 1000))

    def shutdown(self) -> None:
        """The server stops."""
        self._attendant.hub.drain()

    def ping(self) -> None:
        """Ask whether the viewer is there; end one that did not answer the last time.

        One that is behind, and takes what it is sent, is not silent, only slow: the ping has not come to it yet.
        """
        if self.waiting:
            return  # it has `slow_timeout`
        if self.heard:
            self.heard, self._taken = False, -1
            if not self.write(_PING) and self.seat is not None:
                self.seat.leave_lane()
        elif not self.takes():
            self.abort()

    def takes(self) -> bool:
        """Whether it has taken some of what the kernel holds for it since this was last asked, if that holds any."""
        if self._transport is None:
            return False
        own = self._transport.get_extra_info("socket")
        before = self._taken
        (self._taken,) = _ACKED.unpack(own.getsockopt(IPPROTO_TCP, TCP_INFO, _ACKED.size))
        return any(ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4))) and self._taken > before

    def _say(self) -> None:
        """Send what the parser wants sent; close when it says so."""
        if self._parser is None or self._transport is None:
            return
        said = self._parser.data_to_send()
        if self._parser.state is not State.OPEN:
            self._part(_CLOSE_TIMEOUT)
        for data in said:
            if data:
                self._transport.write(data)
        if self.waiting and self.seat is not None:
            self.seat.leave_lane()
        if b"" not in said:
            return
        if self._parser.close_rcvd is None and self._transport.can_write_eof():
            self._transport.write_eof()  # what it still sends is read: a reset would take our last words from it
        else:
            self._transport.close()


class Attendant:
    """Looks after all viewers of a process."""

    def __init__(self, hub: Hub, slow_timeout: float) -> None:
        self.hub = hub
        self._slow_timeout = slow_timeout
        self._turns: list[set[ViewerSocket]] = [set() for _ in range(_TURNS)]
        self._next = 0
        self._waiting: set[ViewerSocket] = set()
        self._connections: set[object] = set()

    def serve(self, state: ServerState) -> None:
        """Take part in a server's stop."""
        self._connections = cast("set[object]", state.connections)  # uvicorn asks no more of them than `shutdown`

    def add(self, socket: ViewerSocket) -> None:
        """Look after a viewer; its turn is one that has passed, so that it is pinged in a whole round."""
        socket.turn = self._next - 1
        self._turns[socket.turn].add(socket)
        self._connections.add(socket)

    def discard(self, socket: ViewerSocket) -> None:
        """A viewer is gone."""
        self._turns[socket.turn].discard(socket)
        self._waiting.discard(socket)
        self._connections.discard(socket)
        if socket.seat is not None:
            self.hub.leave(socket.seat, socket.address)

    def watch(self, socket: ViewerSocket) -> None:
        """It has something waiting: see that this ends in time."""
        self._waiting.add(socket)

    def watch_no_more(self, socket: ViewerSocket) -> None:
        """Nothing waits any more."""
        self._waiting.discard(socket)

    def return_after(self) -> float:
        """When a viewer is to come back that is let go, in seconds: so that not all come at once."""
        spread = min(_LONGEST_SPREAD, 1 + self.hub.viewers / _RETURNS_A_SECOND)
        return round(random.uniform(0.1, spread), 2)  # noqa: S311 - nobody gains by a guess

    async def run(self) -> None:
        """Ping each viewer once a round, and end those that are too slow, for ever."""
        while True:
            await asyncio.sleep(1)
            self.look()

    def look(self) -> None:
        """Ping those whose turn it is, and end those that have taken nothing for too long of what waits for them."""
        self._next = (self._next + 1) % _TURNS
        for socket in list(self._turns[self._next]):
            socket.ping()
        now = time.monotonic()
        slowest = now - self._slow_timeout
        for socket in list(self._waiting):
            if socket.waits_since is None or socket.waits_since > slowest:
                continue
            if socket.takes():
                socket.waits_since = now
            else:
                self._waiting.discard(socket)
                SLOW_VIEWERS.inc()
                socket.close(SLOW, _LAST_WORDS)
