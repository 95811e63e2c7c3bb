"""The fast path of plain reads: the request goes to the reads and the reply to the connection, without ASGI."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from live.ingest.replies import Reply
from live.protocols.http.requests import RequestHead
from live.protocols.http.transport import Peer

Read: TypeAlias = Callable[["Get"], None]
"""Begins to read, and answers a request once the reply is known."""


class Reads(Protocol):
    """Answers plain reads. The application answers all others, in the same way."""

    def find(self, head: RequestHead, peer: Peer) -> Read | None:
        """The read that a request asks for; None if the application answers it."""


class AnsweringConnection(Protocol):
    """The connection of an exchange; it sends replies in the order of their requests."""

    def send_replies(self) -> None:
        """Send every reply that is due."""


class ViewerConnection(AnsweringConnection, Protocol):
    """A connection that viewers can use."""

    def release_place(self) -> None:
        """Free the place: the current request is a viewer's."""

    def reclaim_place(self) -> bool:
        """Take a place again after a viewer has left; False if none is free."""


class Get:
    """One request without a body, and its reply."""

    __slots__ = ("_connection", "_is_beginning", "_leave", "_read", "abandon", "has_left", "keep_alive", "reply")

    is_full = False

    def __init__(self, connection: ViewerConnection, read: Read, *, keep_alive: bool) -> None:
        self._connection = connection
        self._read = read
        self._is_beginning = False
        self._leave: Callable[[], None] | None = None
        self.keep_alive = keep_alive
        self.abandon: Callable[[], object] | None = None  # ends the work for this request alone, if there is any
        self.has_left = False  # whether the client has disconnected
        self.reply: Reply | None = None

    @property
    def started(self) -> bool:
        """Whether the reply is known, so that no other answer is possible."""
        return self.reply is not None

    def begin(self) -> None:
        """Read: every earlier request is answered, so this one sees what they changed.

        If the reply is known at once, the connection must send it: many requests may follow each other like that.
        """
        self._is_beginning = True
        self._read(self)
        self._is_beginning = False

    def receive(self, data: bytes, *, last: bool) -> None:
        """Do nothing: there is no body."""

    def disconnect(self) -> None:
        """Remove the viewer, if it is one, and end the work for this request; others may share a read."""
        self.has_left = True
        if self.abandon is not None:
            self.abandon()
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def watch(self, leave: Callable[[], None]) -> None:
        """Be a viewer until the reply. `leave` removes it if the client disconnects before."""
        self._leave = leave
        self._connection.release_place()

    def answer(self, reply: Reply) -> None:
        """Set the reply and send every reply that is due."""
        if self._leave is not None:
            self._leave = None
            self.keep_alive = self._connection.reclaim_place() and self.keep_alive
        self.reply = reply
        if not self._is_beginning:
            self._connection.send_replies()
