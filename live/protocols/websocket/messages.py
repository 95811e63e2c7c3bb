"""A producer's unanswered messages, in the order of arrival. No I/O."""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from live.domain.event import Entry
from live.ingest.committer import Committed
from live.ingest.replies import Reply
from live.protocols.websocket.framing import text_frame

_MOST_AHEAD: Final = 256  # unanswered messages; the server reads no more beyond that


class AnsweringSocket(Protocol):
    """The socket that a message arrived on."""

    def resolve(self, message: "Message", outcome: Committed | Exception) -> None:
        """The outcome of a message with one event is known."""

    def answer(self, message: "Message", reply: Reply) -> None:
        """The answer to a message is known."""


class Message:
    """One message. If it has only one event, it is also that event's share. `frame` is the encoded answer."""

    __slots__ = ("_socket", "body", "entries", "frame", "producer")

    def __init__(self, socket: AnsweringSocket, body: bytes) -> None:
        self._socket = socket
        self.body = body
        self.entries: Sequence[Entry] = ()
        self.producer = ""
        self.frame: bytes | None = None

    def resolve(self, committed: Committed) -> None:
        """The store has counted the event."""
        self._socket.resolve(self, committed)

    def reject(self, error: Exception) -> None:
        """The store has not counted the event."""
        self._socket.resolve(self, error)

    def reply(self, reply: Reply) -> None:
        """The answer is known."""
        self._socket.answer(self, reply)


class MessageQueue:
    """Messages in order of arrival. The last ones may be held: they were not submitted yet."""

    __slots__ = ("_frame", "_held", "_messages", "_reply")

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._held: deque[Message] = deque()
        self._reply: Reply | None = None  # the last reply and its frame: many messages share a reply
        self._frame = b""

    def __bool__(self) -> bool:
        """Whether any message has no answer."""
        return bool(self._messages)

    @property
    def is_ahead(self) -> bool:
        """Whether to stop reading because too many messages wait."""
        return bool(self._held) or len(self._messages) > _MOST_AHEAD

    @property
    def held(self) -> Message | None:
        """The first held message."""
        return self._held[0] if self._held else None

    def add(self, message: Message) -> None:
        """Queue a message."""
        self._messages.append(message)

    def hold(self, message: Message) -> None:
        """Hold the message that was added last."""
        self._held.append(message)

    def release(self) -> None:
        """Remove the first held message: it is submitted."""
        self._held.popleft()

    def drop_held(self) -> None:
        """Forget the held messages."""
        while self._held:
            self._held.pop()
            self._messages.pop()

    def answer(self, message: Message, reply: Reply) -> None:
        """Set the answer to a message."""
        if reply is not self._reply:
            self._reply, self._frame = reply, text_frame(reply.body)
        message.frame = self._frame

    def take_answered(self) -> list[bytes]:
        """Remove the answered messages at the front; returns their answers as frames."""
        messages = self._messages
        frames = []
        while messages and (frame := messages[0].frame) is not None:
            frames.append(frame)
            messages.popleft()
        return frames

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()
        self._held.clear()
