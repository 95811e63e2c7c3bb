"""The short path of plain reads: the request goes to the reads and the reply to the connection, without ASGI."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from live.ingest.replies import Reply
from live.protocols.http.peer import Peer
from live.protocols.http.requests import RequestHead

Read: TypeAlias = Callable[[Callable[[Reply], None]], None]
"""Begins to read, and passes the reply to a function once it is known."""


class Reads(Protocol):
    """Answers plain reads. The application answers all others, in the same way."""

    def find(self, head: RequestHead, peer: Peer) -> Read | None:
        """The read that a request asks for; None if the application answers it."""


class Answering(Protocol):
    """The connection of an exchange; it sends replies in the order of their requests."""

    def send_replies(self) -> None:
        """Send every reply that is due."""


class Get:
    """One request without a body, and its reply."""

    __slots__ = ("_connection", "_read", "keep_alive", "reply")

    is_full = False

    def __init__(self, connection: Answering, read: Read, *, keep_alive: bool) -> None:
        self._connection = connection
        self._read = read
        self.keep_alive = keep_alive
        self.reply: Reply | None = None

    @property
    def started(self) -> bool:
        """Whether the reply is known, so that no other answer is possible."""
        return self.reply is not None

    def begin(self) -> None:
        """Read: every earlier request is answered, so this one sees what they changed."""
        self._read(self._answer)

    def receive(self, data: bytes, *, last: bool) -> None:
        """Do nothing: there is no body."""

    def disconnect(self) -> None:
        """Do nothing: others may share the read."""

    def _answer(self, reply: Reply) -> None:
        self.reply = reply
        self._connection.send_replies()
