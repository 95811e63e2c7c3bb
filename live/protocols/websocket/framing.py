"""The messages in the bytes of a producer's socket, without I/O.

Almost every frame is one complete message, and is read here. Everything else (fragments, pings, the closing handshake,
protocol errors) goes to the protocol of `websockets`, which implements RFC 6455.
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
_WHOLE: Final = (_TEXT, 0x82)  # the first byte of a frame that is a complete message, of text or binary
_MASKED: Final = 0x80
_SHORT: Final = 125  # bytes of a payload whose length takes no further bytes
_FRAMES_A_TURN: Final = 256  # read before other connections have their turn

OnMessage: TypeAlias = Callable[[bytes, bool], bool]


class MessageReader:
    """Reads the messages that one client sends, and answers its control frames.

    `is_open` is true until one side sends a close frame, or the client violates the protocol. `has_more` is true when
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
        self._buffer = bytearray()  # the beginning of a frame
        self._wanted = 0  # size of the buffer from which on more is known about the frame
        self._fragmented = False  # whether a message of several frames is in progress
        self._fragments: list[bytes] = []
        self._is_text = False  # whether the fragmented message is text
        self._used_protocol = False  # whether the last `read` gave the protocol something
        self.is_open = True
        self.has_more = False

    @property
    def is_closed_by_client(self) -> bool:
        """Whether the client has sent a close frame."""
        return self._protocol.close_rcvd is not None

    def read(self, data: bytes, on_message: OnMessage) -> bool:
        """Take in bytes, and call `on_message` with the payload of each message and whether it is text.

        `on_message` returns whether to go on. Frames that are left set `has_more`: call `read` again, with no bytes.
        Once the socket is closing, `read` looks only for a close frame. Returns whether there may be `output`.
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
        """Ask the client for a sign of life."""
        self._protocol.send_ping(b"")

    def close(self, code: int, reason: str) -> None:
        """Send a close frame; bytes that were not read yet may hold the client's."""
        self._protocol.send_close(code, reason)
        rest, self._buffer = self._buffer, bytearray()
        self.has_more = False
        self._receive(bytes(rest))

    def output(self) -> Sequence[bytes]:
        """What to send now; an empty item stands for the end of the connection."""
        return self._protocol.data_to_send()

    def _receive(self, data: bytes) -> None:
        """Let the protocol look for a close frame; messages no longer count."""
        self._protocol.receive_data(data)
        self._protocol.events_received()
        self.is_open = False

    def _read_frames(self, data: bytes, on_message: OnMessage) -> int:
        """Read complete frames; returns the position of the first one that is incomplete, or left for later."""
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
                self._give(data[position:], on_message)  # the protocol answers with the reason
                return size
            if size < end:
                self._wanted = end - position
                return position
            opcode = data[position]
            if opcode in _WHOLE and not self._fragmented:
                payload = apply_mask(data[start + 4 : end], data[start : start + 4])
                goes_on = on_message(payload, opcode == _TEXT)
            else:
                goes_on = self._give(data[position:end], on_message)
            position = end
            if not goes_on:
                break
        self.has_more = position < size and self.is_open
        return position

    def _give(self, data: bytes, on_message: OnMessage) -> bool:
        """Let the protocol read a frame that is no complete message, or bytes that are no frame."""
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
        if frame.data:  # empty fragments would pile up without end
            self._fragments.append(bytes(frame.data))
        return not frame.fin or on_message(b"".join(self._fragments), self._is_text)


def text_frame(payload: bytes) -> bytes:
    """A text frame, as a server sends it."""
    return Frame(Opcode.TEXT, payload).serialize(mask=False)
