"""A viewer's connection after its handshake: frames straight from the hub to the socket, without ASGI.

There may be tens of thousands, so each is small: no task, no queue, no timer, and a parser only for what is not the
answer to a ping. One attendant pings them all in turn, and ends those that are silent or slow.
"""

import asyncio
import random
import time
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
_PING: Final = Frame(Opcode.PING, b"").serialize(mask=False)
_PONG: Final = b"\x8a\x80"  # how the answer to it begins: no payload, masked
_PONG_SIZE: Final = 6
_TURNS: Final = 20  # seconds, or turns, from one ping of a viewer to the next
_CLOSE_TIMEOUT: Final = 5.0
_LAST_WORDS: Final = 1.0  # seconds that a slow viewer has for the reason
_RETURNS_A_SECOND: Final = 500  # viewers that are asked to come back within the same second
_LONGEST_SPREAD: Final = 30.0


class ViewerSocket(asyncio.Protocol):
    """One viewer's connection."""

    __slots__ = (
        "_attendant",
        "_closing",
        "_parser",
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
        self._transport: asyncio.Transport | None = None
        self._closing: asyncio.TimerHandle | None = None

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the handshake is done, and maybe still on its way."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)  # so that we are told of every byte that waits, and of none
        if self._transport.get_extra_info("sslcontext") is None:
            self.fd = self._transport.get_extra_info("socket").fileno()
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
            if isinstance(frame, Frame) and frame.opcode in {Opcode.TEXT, Opcode.BINARY} and self._closing is None:
                self.close(BAD_REQUEST)
        self._say()

    # What the hub says

    @property
    def waiting(self) -> bool:
        """Whether something that was written waits to be sent, or nothing more will be."""
        return self.waits_since is not None or self._closing is not None or self._transport is None

    def write(self, data: bytes) -> bool:
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
        if self._closing is not None or self._transport is None:
            return
        if self.seat is not None:
            self.seat.leave_lane()
        if self._parser is None:
            self._parser = ServerProtocol(state=State.OPEN, max_size=LARGEST_MESSAGE, logger=QUIET)
        if self._parser.state is State.OPEN:
            self._parser.send_close(code, CLOSE_CODES[code].reason)
        self._closing = asyncio.get_running_loop().call_later(patience, self.abort)
        self._say()

    def shutdown(self) -> None:
        """The server stops."""
        self._attendant.hub.drain()

    def ping(self) -> None:
        """Ask whether the viewer is there; end one that did not answer the last time."""
        if not self.heard:
            self.abort()
        elif not self.waiting:
            self.heard = False
            if not self.write(_PING) and self.seat is not None:
                self.seat.leave_lane()

    def _say(self) -> None:
        """Send what the parser wants sent; close when it says so."""
        if self._parser is None or self._transport is None:
            return
        said = self._parser.data_to_send()
        if self._parser.state is not State.OPEN and self._closing is None:
            if self.seat is not None:
                self.seat.leave_lane()
            self._closing = asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT, self.abort)
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
        self._viewers = 0

    def serve(self, state: ServerState) -> None:
        """Take part in a server's stop."""
        self._connections = cast("set[object]", state.connections)  # uvicorn asks no more of them than `shutdown`

    def add(self, socket: ViewerSocket) -> None:
        """Look after a viewer; its turn is one that has passed, so that it is pinged in a whole round."""
        socket.turn = self._next - 1
        self._turns[socket.turn].add(socket)
        self._connections.add(socket)
        self._viewers += 1

    def discard(self, socket: ViewerSocket) -> None:
        """A viewer is gone."""
        self._turns[socket.turn].discard(socket)
        self._waiting.discard(socket)
        self._connections.discard(socket)
        self._viewers -= 1
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
        spread = min(_LONGEST_SPREAD, 1 + self._viewers / _RETURNS_A_SECOND)
        return round(random.uniform(0.1, spread), 2)  # noqa: S311 - nobody gains by a guess

    async def run(self) -> None:
        """Ping each viewer once a round, and end those that are too slow, for ever."""
        while True:
            await asyncio.sleep(1)
            self._next = (self._next + 1) % _TURNS
            for socket in list(self._turns[self._next]):
                socket.ping()
            slowest = time.monotonic() - self._slow_timeout
            for socket in list(self._waiting):
                if socket.waits_since is not None and socket.waits_since <= slowest:
                    self._waiting.discard(socket)
                    SLOW_VIEWERS.inc()
                    socket.close(SLOW, _LAST_WORDS)
