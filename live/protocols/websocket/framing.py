"""Parses the messages on a producer's WebSocket, without I/O.

Almost every frame is one complete message, and is parsed here. Everything else (fragments, pings, the closing
handshake, protocol errors) goes to `websockets`, which implements RFC 6455.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.speedups import apply_mask

DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_FINAL: Final = 0x80
_TEXT: Final = 0x81
_WHOLE: Final = (_TEXT, 0x82)  # the first byte of a complete text or binary message
_MASKED: Final = 0x80
_SHORT: Final = 125  # the largest payload with a length of one byte
_FRAMES_A_TURN: Final = 256  # frames read before other connections have their turn

OnMessage: TypeAlias = Callable[[bytes, bool], bool]


class MessageReader:
    """Reads the messages of one client and answers its control frames.

    `is_open` is true until one side sends a close frame or the client violates the protocol. `has_more` is true if
    complete frames may be left after a `read`.
    """

    __slots__ = (
        "_buffer",
        "_fragmented",
        "_fragments",
        "_is_text",
        "_max_size",
        "_protocol",
        "_used_protocol",
        "_wanted",
        "has_more",
        "is_open",
    )

    def __init__(self, max_size: int) -> None:
        """Read messages of at most `max_size` bytes."""
        self._protocol = ServerProtocol(state=State.OPEN, max_size=max_size)
        self._max_size = max_size
        self._buffer = bytearray()  # the beginning of an incomplete frame
        self._wanted = 0  # size of the buffer at which parsing can continue
        self._fragmented = False  # whether a fragmented message is in progress
        self._fragments: list[bytes] = []
        self._is_text = False  # whether the fragmented message is text
        self._used_protocol = False  # whether the last `read` passed bytes to `_protocol`
        self.is_open = True
        self.has_more = False

    @property
    def is_closed_by_client(self) -> bool:
        """Whether the client has sent a close frame."""
        return self._protocol.close_rcvd is not None

    def read(self, data: bytes, on_message: OnMessage) -> bool:
        """Parse bytes, and call `on_message` with each message and whether it is text.

        `on_message` returns whether to continue. If frames are left, `has_more` is true: call `read` again with no
        bytes. Once the socket is closing, `read` only looks for a close frame. Returns whether there may be `output`.
        """
        self.has_more = False
        if not self.is_open:
            self._receive(data)
            return True
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return False
            data = bytes(self._buffer)
        self._used_protocol = False
        position = self._read_frames(data, on_message)
        if self._buffer or position < len(data):
            self._buffer = bytearray(data[position:])
        return self._used_protocol

    def hold(self, data: bytes) -> None:
        """Keep bytes for a later `read`."""
        self._buffer += data
        self.has_more = True

    def ping(self) -> None:
        """Queue a ping."""
        self._protocol.send_ping(b"")

    def close(self, code: int, reason: str) -> None:
        """Queue a close frame. Unread bytes may contain the client's close frame."""
        self._protocol.send_close(code, reason)
        rest, self._buffer = self._buffer, bytearray()
        self.has_more = False
        self._receive(bytes(rest))

    def output(self) -> Sequence[bytes]:
        """The bytes to send now; an empty item means that the connection ends."""
        return self._protocol.data_to_send()

    def _receive(self, data: bytes) -> None:
        """Look only for a close frame; messages no longer count."""
        self._protocol.receive_data(data)
        self._protocol.events_received()
        self.is_open = False

    def _read_frames(self, data: bytes, on_message: OnMessage) -> int:
        """Read complete frames; returns the position of the first one that is incomplete or left for later."""
        position, size = 0, len(data)
        self._wanted = 0
        for _ in range(_FRAMES_A_TURN):
            start = position + 2
            if size < start:
                self._wanted = 2
                return position
            length = data[position + 1] & 0x7F
            if length > _SHORT:
                start += 2 if length == _SHORT + 1 else 8
                if size < start:
                    self._wanted = start - position
                    return position
                length = int.from_bytes(data[position + 2 : start])
            end = start + 4 + length
            if length > self._max_size or not data[position + 1] & _MASKED:
                self._delegate(data[position:], on_message)  # it answers with a close frame
                return size
            if size < end:
                self._wanted = end - position
                return position
            opcode = data[position]
            if opcode in _WHOLE and not self._fragmented:
                payload = apply_mask(data[start + 4 : end], data[start : start + 4])
                goes_on = on_message(payload, opcode == _TEXT)
            else:
                goes_on = self._delegate(data[position:end], on_message)
            position = end
            if not goes_on:
                break
        self.has_more = position < size and self.is_open
        return position

    def _delegate(self, data: bytes, on_message: OnMessage) -> bool:
        """Pass a frame that is not a complete message, or invalid bytes, to `websockets`."""
        self._used_protocol = True
        if data[0] & 0x0F in DATA:
            self._fragmented = not data[0] & _FINAL
        self._protocol.receive_data(data)
        self.is_open = self._protocol.state is State.OPEN
        goes_on = True
        for frame in self._protocol.events_received():
            if isinstance(frame, Frame) and frame.opcode in DATA:
                goes_on = self._gather(frame, on_message)
        return goes_on and self.is_open

    def _gather(self, frame: Frame, on_message: OnMessage) -> bool:
        """Join the fragments of a message."""
        if frame.opcode is not Opcode.CONT:
            self._fragments, self._is_text = [], frame.opcode is Opcode.TEXT
        if frame.data:  # empty fragments could pile up without limit
            self._fragments.append(bytes(frame.data))
        return not frame.fin or on_message(b"".join(self._fragments), self._is_text)


def text_frame(payload: bytes) -> bytes:
    """Encode a text frame as a server sends it."""
    return Frame(Opcode.TEXT, payload).serialize(mask=False)
