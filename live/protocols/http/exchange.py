"""One request of an HTTP connection and its answer. This module does no I/O."""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Protocol, TypeAlias

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from live.ingest.replies import Reply
from live.protocols.http.parser import Peer, RequestHead
from live.protocols.http.request_counts import OTHER

Begin: TypeAlias = Callable[["Exchange"], None]
"""Begins to work on a request, and answers it once the reply is known."""


class Reads(Protocol):
    """Answers plain reads of boards. The application answers all other requests."""

    route: str

    def find(self, head: RequestHead, peer: Peer) -> Begin | None:
        """Find the read that a request asks for. Return None if the application answers the request."""


class Exchange:
    """A request and its answer. `keep_alive` is whether another request may follow it on the connection.

    `arrived` is a time of `time.perf_counter()`, or `VIEWERS`. `reply` is the complete answer once it is known.
    `abandon` ends the work that is done for this request alone. `has_left` is whether the client has disconnected.
    `size` bytes of the body were admitted, or `wanted` bytes of it wait to be admitted.
    """

    __slots__ = (
        "_begin", "_is_beginning", "_route", "abandon", "arrived", "connection", "has_left", "keep_alive", "reply",
        "size", "wanted",
    )  # fmt: skip

    def __init__(
        self, connection: "Connection", begin: Begin | None = None, *, route: str = OTHER, keep_alive: bool = False
    ) -> None:
        """Make an exchange. `begin` starts the work, once every earlier request is answered."""
        self.connection = connection
        self.arrived = perf_counter()
        self.keep_alive = keep_alive
        self.reply: Reply | None = None
        self.abandon: Callable[[], object] | None = None
        self.has_left = False
        self.size = self.wanted = 0
        self._begin = begin
        self._route = route
        self._is_beginning = False

    @property
    def route(self) -> str:
        """The method and the template of the path, for metrics."""
        return self._route

    @property
    def started(self) -> bool:
        """Whether an answer has begun, so that no other answer is possible."""
        return self.reply is not None

    @property
    def is_full(self) -> bool:
        """Whether reading the body must wait."""
        return self.wanted > 0

    def begin(self) -> None:
        """Begin to answer, now that every earlier request is answered: this request sees what those have changed.

        If the reply is known at once, `answer` does not send it, and the connection must send it.

        Raises:
            ProblemError: `overloaded`, when there is no room for its body.
        """
        if self._begin is not None:
            self._is_beginning = True
            self._begin(self)
            self._is_beginning = False

    def receive(self, data: bytes, *, last: bool) -> None:
        """Receive a piece of the body."""

    def disconnect(self) -> None:
        """Stop: the client has left, or got another answer."""
        self.has_left = True
        if self.abandon is not None:
            self.abandon()

    def answer(self, reply: Reply) -> None:
        """Set the reply. Unless `begin` is still running, send every reply that is due."""
        self.reply = reply
        if not self._is_beginning:
            self.connection.send_replies()


class Flow(FlowControl):
    """Pauses and resumes reading. After a pause, the bytes that were received before it are read first.

    `held` is the number of bytes of admitted bodies without an answer. `waits` is the request whose body waits to be
    admitted. `is_counted` says whether the budget for bodies counts this connection.
    """

    def __init__(self, transport: asyncio.Transport, read_on: Callable[[], None]) -> None:
        super().__init__(transport)
        self._read_on = read_on
        self.held = 0
        self.waits: Exchange | None = None
        self.is_counted = False

    def resume_reading(self) -> None:
        """Resume reading, if it was paused."""
        if self.read_paused:
            self._read_on()

    def resume_transport(self) -> None:
        """Receive from the transport again."""
        super().resume_reading()

    def end(self) -> None:
        """Read no more, and wake every task that waits to write to the connection."""
        self._read_on = lambda: None
        self.resume_writing()


class Connection(Protocol):
    """The connection of an exchange."""

    transport: asyncio.Transport
    server_state: ServerState
    flow: Flow

    def hold(self, request: Exchange, size: int | None) -> None:
        """Admit a body, or let it wait. Raises `overloaded` if too many connections wait."""

    def release(self, size: int) -> None:
        """Subtract bytes from the bytes that are held for bodies."""

    def send_replies(self) -> None:
        """Send every reply that is due, in the order of the requests."""

    def response_done(self) -> None:
        """Go on: the application has answered the first request in the pipeline."""
