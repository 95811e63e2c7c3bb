"""A producer's socket: `GET /v1/events/live` as a WebSocket, from uvicorn's hands straight to the intake.

Almost every frame is one whole message, and is read here; whatever else there is (fragments, pings, the close, what is
against the rules) goes to the protocol of `websockets`, which knows RFC 6455 to the letter. Answers go out in the order
of the messages. A producer that sends faster than it may, or reads no answers, is not read for a while; nothing that it
has sent is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, cast

from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.speedups import apply_mask

from live.domain.event import Entry
from live.errors import CLOSE_CODES, KEY_REVOKED, LEAVING, ProblemError, StoreUnavailableError
from live.ingest.committer import Committed
from live.ingest.intake import Intake
from live.ingest.replies import Reply, problem_reply
from live.ingest.session import Session

_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_FINAL: Final = 0x80
_TEXT: Final = 0x81
_WHOLE: Final = (_TEXT, 0x82)  # the first byte of a frame that is a message, of text or binary
_MASKED: Final = 0x80
_MOST_AHEAD: Final = 256  # messages without an answer; more are not read
_FRAMES_A_TURN: Final = 256  # that are taken before other connections have their turn
_PING_INTERVAL: Final = 20.0
_CLOSE_TIMEOUT: Final = 5.0
_BAD_TEXT: Final = 1007


class _Message:
    """One message, and the share of its one event if it has but one."""

    __slots__ = ("body", "entries", "frame", "socket")

    def __init__(self, socket: "ProducerSocket", body: bytes) -> None:
        self.socket = socket
        self.body = body
        self.entries: Sequence[Entry] = ()
        self.frame: bytes | None = None

    def settle(self, committed: Committed) -> None:
        """The store has answered."""
        self._tell(committed)

    def fail(self, error: Exception) -> None:
        """The store has not answered."""
        self._tell(error)

    def reply(self, reply: Reply) -> None:
        """The answer is known."""
        self.socket.answer(self, reply)

    def _tell(self, outcome: Committed | Exception) -> None:
        socket = self.socket
        socket.answer(self, socket.intake.reply_to_plain(socket.session.head, self.body, outcome))


class ProducerSocket(asyncio.Protocol):
    """One producer's connection after its handshake."""

    def __init__(self, intake: Intake, session: Session, state: ServerState, left: Callable[[], None]) -> None:
        """Take over; `left` is called when the connection is no more."""
        self.intake = intake
        self.session = session
        self._protocol = ServerProtocol(state=State.OPEN, max_size=intake.settings.max_body)
        self._connections = cast("set[object]", state.connections)  # uvicorn asks no more of them than `shutdown`
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()  # the beginning of a frame
        self._wanted = 0  # how long it has to be before there is more to know of it
        self._stopped = False  # there may be whole frames in the buffer
        self._going_on = False  # they will be taken in the next turn of the loop
        self._fragments = False  # a message of several frames is under way
        self._messages: deque[_Message] = deque()  # without an answer, in their order
        self._held: deque[_Message] = deque()  # not taken in yet
        self._holding: asyncio.Task[None] | None = None
        self._flushing = False
        self._ending: tuple[int, str] | None = None
        self._gathered: list[bytes] = []
        self._gathering_text = False
        self._read_paused = self._write_paused = False
        self._heard = True
        self._leaving = False
        self._ping = self._loop.call_later(_PING_INTERVAL, self._keep_alive)
        self._last: tuple[Reply | None, bytes] = (None, b"")

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the handshake is done."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Let go; what was taken in is counted all the same."""
        self._connections.discard(self)
        self._left()
        self._ping.cancel()
        if self._holding is not None:
            self._holding.cancel()
        self._messages.clear()
        self._held.clear()
        self._transport = None

    def pause_writing(self) -> None:
        """The peer does not read its answers."""
        self._write_paused = True
        self._read_or_not()

    def resume_writing(self) -> None:
        """It does again."""
        self._write_paused = False
        self._read_or_not()

    def data_received(self, data: bytes) -> None:
        """Take each whole frame."""
        self._heard = True
        if self._protocol.state is not State.OPEN:
            self._ignore(data)
            return
        if self._buffer:
            self._buffer += data
            if self._stopped or len(self._buffer) < self._wanted:
                return
            data = bytes(self._buffer)
        self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        position = self._take_frames(data)
        if self._buffer or position < len(data):
            self._buffer = bytearray(data[position:])
        self._read_or_not()

    def _go_on(self) -> None:
        """Take the frames that were left for this turn."""
        self._going_on = False
        if self._stopped and self._transport is not None and self._protocol.state is State.OPEN:
            self._take_in(bytes(self._buffer))

    def _take_frames(self, data: bytes) -> int:
        """Take each whole frame; gives where the first begins that is not whole, or not to be taken any more."""
        position, size, most = 0, len(data), self.intake.settings.max_body
        self._stopped = False
        for taken in count():
            if self._is_over():
                break
            if taken == _FRAMES_A_TURN or self._is_ahead():
                self._stopped = position < size
                break
            start = position + 2
            if size < start:
                self._wanted = 2
                break
            length = data[position + 1] & 0x7F
            if length > 125:  # noqa: PLR2004 - the length follows
                start += 2 if length == 126 else 8  # noqa: PLR2004
                if size < start:
                    self._wanted = start - position
                    break
                length = int.from_bytes(data[position + 2 : start])
            end = start + 4 + length
            if length > most or not data[position + 1] & _MASKED:
                self._give(data[position:])  # it is against the rules, which the protocol says to the peer
                return size
            if size < end:
                self._wanted = end - position
                break
            opcode = data[position]
            if opcode in _WHOLE and not self._fragments:
                self._take(apply_mask(data[start + 4 : end], data[start : start + 4]), text=opcode == _TEXT)
            else:
                self._give(data[position:end])
            position = end
        return position

    def _is_ahead(self) -> bool:
        """Whether so much waits for an answer that no more is taken."""
        return bool(self._held) or len(self._messages) > _MOST_AHEAD

    def _is_over(self) -> bool:
        """Whether no message is taken any more."""
        return self._ending is not None or self._protocol.state is not State.OPEN

    # Messages

    def _take(self, body: bytes, *, text: bool) -> None:
        """Take in one message, or hold it until it may be."""
        if text and not body.isascii() and not _is_utf8(body):
            self._end(_BAD_TEXT, "not UTF-8")
            return
        message = _Message(self, body)
        try:
            now = not self._held and self.session.admit_now()
        except ProblemError:
            self._end(KEY_REVOKED, CLOSE_CODES[KEY_REVOKED].reason)
            return
        except StoreUnavailableError as error:
            self._messages.append(message)
            self.answer(message, problem_reply(error))
            return
        self._messages.append(message)
        if not now or not self.session.submit(body, message, message.reply):
            self._held.append(message)
            if self._holding is None:
                self._holding = self._loop.create_task(self._take_held(admitted=now))

    async def _take_held(self, *, admitted: bool) -> None:
        """Take in what is held, in order, each message as soon as it may be."""
        while self._held:
            message = self._held[0]
            try:
                if not admitted:
                    await self.session.admit()
                await self.session.submit_late(message.body, message, message.reply)
            except StoreUnavailableError as error:
                message.reply(problem_reply(error))
            except ProblemError:
                self._drop_held()
                self._end(KEY_REVOKED, CLOSE_CODES[KEY_REVOKED].reason)
                break
            admitted = False
            self._held.popleft()
        self._holding = None
        self._read_or_not()

    def _drop_held(self) -> None:
        """Forget the messages that were not taken in; they are the last of those without an answer."""
        while self._held:
            self._held.pop()
            self._messages.pop()

    def answer(self, message: _Message, reply: Reply) -> None:
        """An answer is known: send it when those before it are, with others that come in the same turn of the loop."""
        if reply is not self._last[0]:
            self._last = (reply, _frame_of(reply.body))
        message.frame = self._last[1]
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        frames = []
        messages = self._messages
        while messages and (frame := messages[0].frame) is not None:
            frames.append(frame)
            messages.popleft()
        self._write(frames)
        self._finish()
        self._read_or_not()

    def _write(self, frames: Sequence[bytes]) -> None:
        if frames and self._transport is not None:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _read_or_not(self) -> None:
        """Read on, or leave the peer's next messages in its own buffers."""
        pause = self._write_paused or self._is_ahead() or (bool(self._messages) and self._is_over())
        if self._stopped and not self._is_over():
            if not (pause or self._going_on):
                self._going_on = True
                self._loop.call_soon(self._go_on)
            pause = True
        if pause != self._read_paused and self._transport is not None and not self._transport.is_closing():
            self._read_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # What is not a plain message

    def _give(self, data: bytes) -> None:
        """Let the protocol read a frame, or what is none, and say what there is to say."""
        if data[0] & 0x0F in _DATA:
            self._fragments = not data[0] & _FINAL
        self._protocol.receive_data(data)
        for frame in self._protocol.events_received():
            if isinstance(frame, Frame) and frame.opcode in _DATA:
                self._gather(frame)
        if self._protocol.state is State.OPEN:
            self._say()
        else:
            self._finish()

    def _gather(self, frame: Frame) -> None:
        """Put a message together that came in several frames."""
        if frame.opcode is not Opcode.CONT:
            self._gathered, self._gathering_text = [], frame.opcode is Opcode.TEXT
        if frame.data:  # there is no end to empty ones
            self._gathered.append(bytes(frame.data))
        if frame.fin:
            self._take(b"".join(self._gathered), text=self._gathering_text)

    def _say(self) -> None:
        """Send what the protocol wants sent; close when it says so."""
        said = self._protocol.data_to_send()
        self._write([data for data in said if data])
        if b"" not in said or self._transport is None:
            return
        if self._protocol.close_rcvd is None and self._transport.can_write_eof():
            self._transport.write_eof()  # what it still sends is read: a reset would take our last words from it
        else:
            self._transport.close()

    def _ignore(self, data: bytes) -> None:
        """Look for the peer's close frame alone, for ours is on its way."""
        self._protocol.receive_data(data)
        self._protocol.events_received()
        self._finish()

    # The end

    def shutdown(self) -> None:
        """The server stops: answer what is under way, and say so."""
        self._end(LEAVING, CLOSE_CODES[LEAVING].reason)

    def _end(self, code: int, reason: str) -> None:
        """Take no more messages, and close when those before are answered."""
        if self._ending is None:
            self._ending = (code, reason)
            self._finish()
            self._read_or_not()

    def _finish(self) -> None:
        """Close when every message is answered, if that is what is waited for."""
        if self._messages or not self._is_over():
            return
        if not self._leaving:
            self._leaving = True
            self._ping.cancel()
            self._ping = self._loop.call_later(_CLOSE_TIMEOUT, self._abort)
        if self._ending is not None and self._protocol.state is State.OPEN:
            self._protocol.send_close(*self._ending)
            rest, self._buffer = self._buffer, bytearray()
            self._ignore(bytes(rest))
        else:
            self._say()

    def _keep_alive(self) -> None:
        """Ping a peer that says nothing; drop one that did not answer the last ping, unless it is us who don't read."""
        if not (self._heard or self._read_paused):
            self._abort()
            return
        self._heard = False
        if self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")
            self._say()
        self._ping = self._loop.call_later(_PING_INTERVAL, self._keep_alive)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _frame_of(body: bytes) -> bytes:
    """A text frame, as a server sends it."""
    return Frame(Opcode.TEXT, body).serialize(mask=False)
