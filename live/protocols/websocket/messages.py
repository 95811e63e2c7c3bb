"""The messages of one producer that have no answer yet, in the order in which they arrived. No I/O."""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from live.domain.event import Entry
from live.ingest.committer import Committed
from live.ingest.replies import Reply
from live.protocols.websocket.framing import text_frame

_MOST_AHEAD: Final = 256  # messages without an answer; the socket is not read beyond that


class Answering(Protocol):
    """The socket of a message."""

    def resolve(self, message: "Message", outcome: Committed | Exception) -> None:
        """The store has counted the one event of a message, or has not."""

    def answer(self, message: "Message", reply: Reply) -> None:
        """The answer to a message is known."""


class Message:
    """One message, which is also the share of its event if it has only one; `frame` is the answer as it is sent."""

    __slots__ = ("_socket", "body", "entries", "frame")

    def __init__(self, socket: Answering, body: bytes) -> None:
        self._socket = socket
        self.body = body
        self.entries: Sequence[Entry] = ()
        self.frame: bytes | None = None

    def resolve(self, committed: Committed) -> None:
        """The store has counted it."""
        self._socket.resolve(self, committed)

    def reject(self, error: Exception) -> None:
        """The store has not counted it."""
        self._socket.resolve(self, error)

    def reply(self, reply: Reply) -> None:
        """The answer is known."""
        self._socket.answer(self, reply)


class MessageQueue:
    """Messages in order; the last of them may be held, which means that they were not submitted yet."""

    __slots__ = ("_frame", "_held", "_messages", "_reply")

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._held: deque[Message] = deque()
        self._reply: Reply | None = None  # the last one, and its frame: many messages share a reply
        self._frame = b""

    def __bool__(self) -> bool:
        """Whether a message waits for its answer."""
        return bool(self._messages)

    @property
    def is_ahead(self) -> bool:
        """Whether so many messages wait that no more are read."""
        return bool(self._held) or len(self._messages) > _MOST_AHEAD

    @property
    def held(self) -> Message | None:
        """The first message that is held."""
        return self._held[0] if self._held else None

    def add(self, message: Message) -> None:
        """Queue a message."""
        self._messages.append(message)

    def hold(self, message: Message) -> None:
        """Hold a message that was just added."""
        self._held.append(message)

    def release(self) -> None:
        """The first held message is submitted."""
        self._held.popleft()

    def drop_held(self) -> None:
        """Forget the messages that were not submitted."""
        while self._held:
            self._held.pop()
            self._messages.pop()

    def answer(self, message: Message, reply: Reply) -> None:
        """Give a message its answer."""
        if reply is not self._reply:
            self._reply, self._frame = reply, text_frame(reply.body)
        message.frame = self._frame

    def take_answered(self) -> list[bytes]:
        """Remove the messages at the front that have answers; return the answers as frames."""
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
