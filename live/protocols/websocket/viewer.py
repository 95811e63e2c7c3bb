"""A viewer's connection after its handshake: frames straight from the hub to the socket, without ASGI.

There may be tens of thousands, so each is small: no task, no queue, no timer, and a parser only for what is not the
answer to a ping. One reaper looks after them all.
"""

import asyncio
import struct
import termios
import time
from fcntl import ioctl
from socket import IPPROTO_TCP, SO_SNDBUF, SOL_SOCKET, TCP_INFO, TCP_USER_TIMEOUT
from typing import Final, cast

from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from live.errors import BAD_REQUEST, CLOSE_CODES, LEAVING
from live.fanout.frames import status_frame
from live.fanout.viewer import PushViewer
from live.protocols.viewer_reaper import ViewerReaper
from live.protocols.websocket.handshake import BAD_TEXT, QUIET

LARGEST_MESSAGE: Final = 1024  # bytes that a viewer may send at once; it has nothing to say
MOST_FRAMES: Final = 256  # that a viewer may send from one of our pings to the next: pings of its own, and its pong
_SLICE: Final = 2048  # bytes that are parsed at a time, so that no flood holds up the event loop
_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_PING: Final = Frame(Opcode.PING, b"").serialize(mask=False)
_PONG: Final = b"\x8a\x80"  # how the answer to it begins: no payload, masked
_PONG_SIZE: Final = 6
_SEND_BUFFER: Final = 16 * 1024  # bytes that the kernel holds for a viewer; it takes twice as much for its own needs
_CLOSE_TIMEOUT: Final = 5.0
_ACKED: Final = struct.Struct("120xQ")  # where the kernel's `tcp_info` has the bytes that were acknowledged


class ViewerSocket(asyncio.Protocol):
    """One viewer's connection."""

    __slots__ = (
        "_closing",
        "_frames",
        "_parser",
        "_reaper",
        "_taken",
        "_text",
        "_transport",
        "address",
        "fd",
        "heard",
        "turn",
        "viewer",
        "waits_since",
    )

    def __init__(self, reaper: ViewerReaper, address: str) -> None:
        self.address = address
        self.viewer: PushViewer | None = None
        self.fd = -1
        self.heard = True  # since the last ping
        self.turn = 0
        self.waits_since: float | None = None
        self._reaper = reaper
        self._frames = 0  # since the last ping of ours
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
        self._reaper.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Let go of the file descriptor: it is closed when this returns, and may be another's then."""
        if self._closing is not None:
            self._closing.cancel()
        self._reaper.discard(self)
        self.viewer = self._transport = None

    def pause_writing(self) -> None:
        """Something waits to be sent.

        Whoever does not take what it is sent is not read either: the answers to its pings would have no end.
        """
        self.waits_since = time.monotonic()
        self.takes()
        self._reaper.watch(self)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Nothing waits any more."""
        self.waits_since = None
        self._reaper.watch_no_more(self)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        if self.viewer is not None and self._closing is None:
            self.viewer.wake()

    def data_received(self, data: bytes) -> None:
        """Take the answer to a ping; let the parser read anything else."""
        self.heard = True
        if self._parser is None:
            if len(data) == _PONG_SIZE and data.startswith(_PONG):
                return
            self._parser = ServerProtocol(state=State.OPEN, max_size=LARGEST_MESSAGE, logger=QUIET)
        for start in range(0, len(data), _SLICE):
            if self._frames > MOST_FRAMES:
                return  # it floods: the connection ends, whatever else it sends
            self._parse(self._parser, data[start : start + _SLICE])

    def _parse(self, parser: ServerProtocol, data: bytes) -> None:
        parser.receive_data(data)
        for frame in parser.events_received():
            self._frames += 1
            if isinstance(frame, Frame) and frame.opcode in _DATA:
                self._hear(frame)
        if self._frames > MOST_FRAMES:
            self.close(BAD_REQUEST)
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
            self._close(BAD_TEXT, "not UTF-8", _CLOSE_TIMEOUT)
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
            self.write(status_frame("the server is shutting down", self._reaper.return_after()).wire)
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
        if self.viewer is not None:
            self.viewer.leave_cohort()
        self._closing = asyncio.get_running_loop().call_later(patience, self.abort)
        # What the kernel holds may outlive the connection, but not for minutes.
        own = self._transport.get_extra_info("socket")
        own.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, round(_CLOSE_TIMEOUT * 1000))

    def shutdown(self) -> None:
        """The server stops."""
        self._reaper.hub.drain()

    def ping(self) -> None:
        """Ask whether the viewer is there; end one that did not answer the last time.

        One that is behind, and takes what it is sent, is not silent, only slow: the ping has not come to it yet.
        """
        if self.waiting:
            return  # it has `slow_timeout`
        if self.heard:
            self.heard, self._taken, self._frames = False, -1, 0
            if not self.write(_PING) and self.viewer is not None:
                self.viewer.leave_cohort()
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
        if self.waiting and self.viewer is not None:
            self.viewer.leave_cohort()
        if b"" not in said:
            return
        if self._parser.close_rcvd is None and self._transport.can_write_eof():
            self._transport.write_eof()  # what it still sends is read: a reset would take our last words from it
        else:
            self._transport.close()
