"""A viewer's WebSocket (RFC 6455): the opening handshake, and the frames from the hub to the socket, without ASGI.

A process may have tens of thousands of viewers, so each is small: no task, no queue, no timer, and no parser until the
viewer sends something other than a pong. One reaper looks after all of them.
"""

import asyncio
import logging
import random
import re
import struct
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl
from socket import IPPROTO_TCP, SO_SNDBUF, SOL_SOCKET, TCP_INFO, TCP_USER_TIMEOUT, socket
from typing import Any, Final, cast

from websockets.datastructures import Headers
from websockets.exceptions import NegotiationError
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import ExtensionParameter

from live.errors import BAD_REQUEST, CLOSE_CODES, SHUTTING_DOWN, SLOW
from live.fanout.cohort import Encoding, Viewer
from live.fanout.frames import status_frame
from live.fanout.hub import Hub
from live.http.parser import RequestHead
from live.metrics import DROPPED_VIEWERS

WINDOW_BITS: Final = 15
QUIET: Final = logging.getLogger("live.websocket")  # `websockets` would log each connection that opens
QUIET.setLevel(logging.WARNING)
LARGEST_MESSAGE: Final = 1024  # bytes of a message from a viewer; viewers need not send messages
MOST_FRAMES: Final = 256  # frames that a viewer may send between two of our pings
_BAD_TEXT: Final = 1007  # the close code for text that is not UTF-8
_SLICE: Final = 2048  # bytes parsed in one piece; a flood must not block the event loop
_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_PING: Final = Frame(Opcode.PING, b"").serialize(mask=False)
_PONG: Final = b"\x8a\x80"  # the first bytes of the answer to a ping: no payload, masked
_PONG_SIZE: Final = 6
_SEND_BUFFER: Final = 16 * 1024  # bytes; the kernel doubles this number for its own bookkeeping
_CLOSE_TIMEOUT: Final = 5.0
_SLOW_CLOSE_TIMEOUT: Final = 1.0  # seconds that a slow viewer has to receive the close frame
_SLOTS: Final = 20  # slots in a round; each second, one slot is checked, so a round takes 20 seconds
_ROUNDS: Final = 3  # one of so many rounds pings every viewer
_RECONNECTS_PER_SECOND: Final = 500  # viewers that may reconnect within one second
_LONGEST_SPREAD: Final = 30.0
_ACKED: Final = struct.Struct("120xQ")  # the offset of `tcpi_bytes_acked` in the kernel's `tcp_info`

PATH: Final = re.compile(rb"/v1/boards/([^/]+)/live")


def inflating() -> PerMessageDeflate:
    """Make the extension with which a parser decompresses what a viewer sends. The extension has no compressor."""
    return PerMessageDeflate(True, True, WINDOW_BITS, WINDOW_BITS)  # noqa: FBT003 - positional in the library


class ViewerReaper:
    """Looks after the viewers of a process, in one task: disconnects dead and slow ones, and spreads reconnects.

    It checks every viewer once in a round. Every viewer receives messages several times in a round. So in two of three
    rounds, the reaper pings only viewers whose system has acknowledged no bytes since the last round. A ping costs
    more, but only a ping reaches a viewer behind a proxy.
    """

    def __init__(self, hub: Hub, slow_timeout: float) -> None:
        self.hub = hub
        self._slow_timeout = slow_timeout
        self._slots: list[set[ViewerSocket]] = [set() for _ in range(_SLOTS)]
        self._next = 0
        self._round = 0
        self.waiting: set[ViewerSocket] = set()  # the viewers with unsent data
        self.connections = set[Any]()  # of the server, which shuts them down when it stops

    def add(self, socket: "ViewerSocket") -> None:
        """Add a viewer. Its slot was checked a moment ago, so its first check comes almost a round later."""
        socket.slot = self._next - 1
        self._slots[socket.slot].add(socket)
        self.connections.add(socket)

    def discard(self, socket: "ViewerSocket") -> None:
        """Remove a viewer that is gone."""
        self._slots[socket.slot].discard(socket)
        self.waiting.discard(socket)
        self.connections.discard(socket)
        if socket.viewer is not None:
            self.hub.leave(socket.viewer)

    def retry_after(self) -> float:
        """Choose after how many seconds a viewer should reconnect: at random, so that not all viewers come at once."""
        spread = min(_LONGEST_SPREAD, 1 + self.hub.viewers / _RECONNECTS_PER_SECOND)
        return round(random.uniform(0.1, spread), 2)  # noqa: S311 - nothing depends on this being unpredictable

    async def run(self) -> None:
        """Sweep once per second until cancelled."""
        while True:
            await asyncio.sleep(1)
            self.sweep()

    def sweep(self) -> None:
        """Check the viewers of the next slot. Disconnect all viewers whose data made no progress for `slow_timeout`."""
        self._next = (self._next + 1) % _SLOTS
        for viewer in list(self._slots[self._next]):
            if self._round:
                viewer.check()
            else:
                viewer.ping()
        if not self._next:
            self._round = (self._round + 1) % _ROUNDS
        now = time.monotonic()
        slowest = now - self._slow_timeout
        for viewer in list(self.waiting):
            if viewer.blocked_since is None or viewer.blocked_since > slowest:
                continue
            if viewer.has_progressed():
                viewer.blocked_since = now
            else:
                self.waiting.discard(viewer)
                DROPPED_VIEWERS.labels("slow").inc()
                viewer.close(SLOW, _SLOW_CLOSE_TIMEOUT)


class ViewerSocket(asyncio.Protocol):
    """One viewer's connection."""

    __slots__ = (
        "_acked", "_closing", "_frames", "_parser", "_reaper", "_text", "_transport", "blocked_since",
        "encoding", "fd", "is_alive", "slot", "viewer",
    )  # fmt: skip

    def __init__(self, reaper: ViewerReaper, *, deflates: bool = False) -> None:
        self.encoding: Encoding = "deflated" if deflates else "plain"
        self.viewer: Viewer | None = None
        self.fd = -1
        self.is_alive = True  # whether anything arrived since the last ping
        self.slot: int  # the reaper sets it
        self.blocked_since: float | None = None
        self._reaper = reaper
        self._frames = 0  # frames received since our last ping
        self._parser: ServerProtocol | None = None
        self._acked = -1  # bytes acknowledged at the last check
        self._text: bytes | None = None  # the text so far of an incomplete message; None for a binary message
        self._transport: asyncio.Transport | None = None
        self._closing: asyncio.TimerHandle | None = None

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start; the answer to the handshake may still be in the write buffer."""
        self._transport = cast("asyncio.Transport", transport)
        own = self._transport.get_extra_info("socket")
        # The buffer size is set here and not on the listener, because large HTTP answers are faster with the kernel's
        # own buffer size.
        own.setsockopt(SOL_SOCKET, SO_SNDBUF, _SEND_BUFFER)
        # The reaper disconnects slow viewers, not the kernel. To the kernel, a viewer that reads a few bytes at a time
        # looks like one that reads nothing, because its window never opens far enough for the next segment.
        own.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, 0)
        is_tls = self._transport.get_extra_info("sslcontext") is not None
        # asyncio calls `pause_writing` as soon as a byte waits. The limit is 1 over TLS, where asyncio ignores 0.
        self._transport.set_write_buffer_limits(high=1 if is_tls else 0)
        if self.blocked_since is None and self._transport.get_write_buffer_size():
            self.pause_writing()  # a large HTTP answer may have paused the transport before
        if not is_tls:
            self.fd = own.fileno()
        self._reaper.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop writing to the file descriptor: it is closed after this call, and the system may reuse its number."""
        if self._closing is not None:
            self._closing.cancel()
        self._reaper.discard(self)
        self.viewer = self._transport = None

    def pause_writing(self) -> None:
        """Stop reading until the waiting data is sent. Otherwise, answers to the viewer's pings could pile up."""
        self.blocked_since = time.monotonic()
        self.has_progressed()
        self._reaper.waiting.add(self)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again, and send the next frame: no data waits to be sent."""
        self.blocked_since = None
        self._reaper.waiting.discard(self)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        if self.viewer is not None and self._closing is None:
            self.viewer.wake()

    def data_received(self, data: bytes) -> None:
        """Take the answer to a ping. If the viewer ever sends anything else, pass all data to a parser from then on."""
        self.is_alive = True
        if self._parser is None:
            if len(data) == _PONG_SIZE and data.startswith(_PONG):
                return
            self._parser = self._new_parser()
        parser = self._parser
        for start in range(0, len(data), _SLICE):
            if self._frames > MOST_FRAMES:
                return  # the viewer sends too many frames, so the connection ends
            parser.receive_data(data[start : start + _SLICE])
            for frame in parser.events_received():
                self._frames += 1
                if not isinstance(frame, Frame) or frame.opcode not in _DATA:
                    continue
                # Viewers may not send messages: close when a message is complete. Text must still be valid UTF-8.
                if frame.opcode is not Opcode.CONT:
                    self._text = b"" if frame.opcode is Opcode.TEXT else None
                if self._text is not None:
                    self._text += frame.data
                if frame.fin:
                    try:
                        (self._text or b"").decode()
                    except UnicodeDecodeError:
                        self._close(_BAD_TEXT, "not UTF-8", _CLOSE_TIMEOUT)
                    else:
                        self.close(BAD_REQUEST)
            if self._frames > MOST_FRAMES:
                self.close(BAD_REQUEST)
            self._send_output()

    def _new_parser(self) -> ServerProtocol:
        parser = ServerProtocol(state=State.OPEN, max_size=LARGEST_MESSAGE, logger=QUIET)
        if self.encoding == "deflated":
            parser.extensions = [inflating()]
        return parser

    def eof_received(self) -> None:
        """Close the connection once the waiting data is sent, or after a timeout: the viewer sends nothing more."""
        self._start_closing(_CLOSE_TIMEOUT)

    # Calls from the hub

    @property
    def waiting(self) -> bool:
        """Whether written data waits to be sent, or the connection is closing."""
        return self.blocked_since is not None or self._closing is not None or self._transport is None

    def write(self, data: bytes | memoryview) -> bool:
        """Send data. Return False if data waits to be sent, or if the connection is closing."""
        if self._transport is not None:
            self._transport.write(data)
        return not self.waiting

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()

    def end(self, code: int) -> None:
        """Close the connection. If the server stops, first tell the viewer when to reconnect."""
        if code == SHUTTING_DOWN and not self.waiting:
            self.write(status_frame("the server is shutting down", self._reaper.retry_after()).wire)
        self.close(code)

    # Ending the connection

    def close(self, code: int, patience: float = _CLOSE_TIMEOUT) -> None:
        """Send a close frame, and wait up to `patience` seconds for the close frame of the viewer."""
        self._close(code, CLOSE_CODES[code].reason, patience)

    def _close(self, code: int, reason: str, patience: float) -> None:
        if self._parser is None:
            self._parser = self._new_parser()
        if self._parser.state is State.OPEN:
            self._parser.send_close(code, reason)
        self._start_closing(patience)
        self._send_output()

    def _start_closing(self, patience: float) -> None:
        """Abort the connection after `patience` seconds."""
        if self._closing is not None or self._transport is None:
            return
        if self.viewer is not None:
            self.viewer.leave_cohort()
        self._closing = asyncio.get_running_loop().call_later(patience, self.abort)
        # The kernel may keep unsent data after the connection has ended, but not for minutes.
        own = self._transport.get_extra_info("socket")
        own.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, round(_CLOSE_TIMEOUT * 1000))

    def shutdown(self) -> None:
        """Disconnect all viewers: the server stops."""
        self._reaper.hub.drain()

    def ping(self) -> None:
        """Send a ping, or abort the connection if the last ping was not answered.

        A slow viewer that makes progress is alive: the ping has not reached it yet.
        """
        if self.waiting:
            return  # the reaper applies `slow_timeout` to this viewer
        if self.is_alive:
            self.is_alive, self._acked, self._frames = False, -1, 0
            if not self.write(_PING) and self.viewer is not None:
                self.viewer.leave_cohort()
        elif not self.has_progressed():
            self.abort()

    def check(self) -> None:
        """Ping, unless the viewer has acknowledged bytes since the last call."""
        if not self.is_alive or self._transport is None or self.waiting:
            self.ping()
        elif self._has_acknowledged(self._transport.get_extra_info("socket")):
            self._frames = 0
        else:
            self.ping()

    def has_progressed(self) -> bool:
        """Return whether the viewer has acknowledged bytes since the last call, and more bytes are in flight."""
        if self._transport is None:
            return False
        own = self._transport.get_extra_info("socket")
        acknowledged = self._has_acknowledged(own)
        return any(ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4))) and acknowledged

    def _has_acknowledged(self, own: socket) -> bool:
        before = self._acked
        (self._acked,) = _ACKED.unpack(own.getsockopt(IPPROTO_TCP, TCP_INFO, _ACKED.size))
        return self._acked > before

    def _send_output(self) -> None:
        """Close the connection when the closing handshake is complete."""
        if self._parser is None or self._transport is None:
            return
        output = self._parser.data_to_send()
        if self._parser.state is not State.OPEN:
            self._start_closing(_CLOSE_TIMEOUT)
        for data in output:
            if data:
                self._transport.write(data)
        if self.waiting and self.viewer is not None:
            self.viewer.leave_cohort()
        if b"" not in output:
            return
        if self._parser.close_rcvd is None and self._transport.can_write_eof():
            self._transport.write_eof()  # `close` could reset the connection, and destroy the close frame
        else:
            self._transport.close()


class _SharedDeflateFactory(ServerPerMessageDeflateFactory):
    """Accepts offers of clients that keep the whole window. Clients compress each message separately."""

    def __init__(self) -> None:
        super().__init__(client_no_context_takeover=True, compress_settings={"memLevel": 1})

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """Agree with a client on the parameters of compression. Return them, and an extension without a compressor.

        The library makes a compressor for each client, which would stay in memory until the next garbage collection.
        After `NegotiationError`, the next offer of the client is used, or no compression.
        """
        answer, extension = super().process_request_params(params, accepted_extensions)
        if extension.local_no_context_takeover or extension.local_max_window_bits != WINDOW_BITS:
            raise NegotiationError("the client keeps less than the last 32 KiB")
        return answer, inflating()


def shake_hands(head: RequestHead) -> tuple[bytes, bool, bool]:
    """Return the response to an upgrade, whether it is a WebSocket now, and whether it takes compressed frames."""
    fields = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.fields)
    handshake = ServerProtocol(logger=QUIET, extensions=[_SharedDeflateFactory()])
    handshake.send_response(handshake.accept(Request(head.target.decode("latin-1"), fields)))
    return b"".join(handshake.data_to_send()), handshake.state is State.OPEN, bool(handshake.extensions)
