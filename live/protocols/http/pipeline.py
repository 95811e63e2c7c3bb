"""The unanswered requests of one HTTP connection, in the order of arrival. This module does no I/O."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, Protocol, TypeAlias

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from live.ingest.replies import Reply, problem_reply
from live.protocols.http.parser import BodyPiece, Peer, RequestHead
from live.protocols.http.request_counts import OTHER

_MOST_AHEAD: Final = 64  # requests in progress on one connection; beyond this, the server reads no more


class Exchange(Protocol):
    """A request and its answer; `keep_alive` is whether another request may follow it on the connection.

    `arrived` is a time of `time.perf_counter()`, or `VIEWERS`.
    """

    keep_alive: bool
    arrived: float

    @property
    def route(self) -> str:
        """The method and the template of the path, for metrics."""

    @property
    def reply(self) -> Reply | None:
        """The complete answer once it is known. It is always None if the application writes the answer itself."""

    @property
    def started(self) -> bool:
        """Whether an answer has begun, so that no other answer is possible."""

    @property
    def is_full(self) -> bool:
        """Whether reading the body must wait."""

    def begin(self) -> None:
        """Begin to answer, now that every earlier request is answered.

        Raises:
            ProblemError: `overloaded`, when there is no room for its body.
        """

    def receive(self, data: bytes, *, last: bool) -> None:
        """Receive a piece of the body."""

    def disconnect(self) -> None:
        """Stop: the client has left, or got another answer."""


class WithBody(Protocol):
    """A request with a body: `size` bytes of it were admitted, or `wanted` bytes wait to be admitted."""

    size: int
    wanted: int


class Flow(FlowControl):
    """Pauses and resumes reading. After a pause, the bytes that were received before it are read first.

    `held` is the number of bytes of admitted bodies without an answer. `waits` is the request whose body waits to be
    admitted. `is_counted` says whether the budget for bodies counts this connection.
    """

    def __init__(self, transport: asyncio.Transport, read_on: Callable[[], None]) -> None:
        super().__init__(transport)
        self._read_on = read_on
        self.held = 0
        self.waits: WithBody | None = None
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

    def hold(self, request: WithBody, size: int | None) -> None:
        """Admit a body, or let it wait. Raises `overloaded` if too many connections wait."""

    def release(self, size: int) -> None:
        """Subtract bytes from the bytes that are held for bodies."""

    def send_replies(self) -> None:
        """Send every reply that is due, in the order of the requests."""

    def response_done(self) -> None:
        """Go on: the application has answered the first request in the pipeline."""


Read: TypeAlias = Callable[["Get"], None]
"""Begins to read, and answers a request once the reply is known."""


class Reads(Protocol):
    """Answers plain reads. The application answers all other requests."""

    def find(self, head: RequestHead, peer: Peer) -> Read | None:
        """Find the read that a request asks for. Return None if the application answers the request."""


class Get:
    """One request without a body, and its reply."""

    __slots__ = (
        "_connection", "_is_beginning", "_read", "abandon", "arrived", "has_left", "keep_alive", "reply", "route",
    )  # fmt: skip

    is_full = False

    def __init__(self, connection: Connection, read: Read, *, keep_alive: bool) -> None:
        self._connection = connection
        self._read = read
        self._is_beginning = False
        self.arrived = perf_counter()
        self.route = OTHER
        self.keep_alive = keep_alive
        self.abandon: Callable[[], object] | None = None  # ends the work that is done for this request alone
        self.has_left = False  # whether the client has disconnected
        self.reply: Reply | None = None

    @property
    def started(self) -> bool:
        """Whether the reply is known, so that no other answer is possible."""
        return self.reply is not None

    def begin(self) -> None:
        """Begin to read.

        Every earlier request is answered, so this request sees what those requests changed. If the reply is known at
        once, `answer` does not send it, and the connection must send it.
        """
        self._is_beginning = True
        self._read(self)
        self._is_beginning = False

    def receive(self, data: bytes, *, last: bool) -> None:
        """Do nothing: there is no body."""

    def disconnect(self) -> None:
        """Stop work that is done for this request alone."""
        self.has_left = True
        if self.abandon is not None:
            self.abandon()

    def answer(self, reply: Reply) -> None:
        """Set the reply. Unless `begin` is still running, send every reply that is due."""
        self.reply = reply
        if not self._is_beginning:
            self._connection.send_replies()


class Refusal:
    """The answer to a request that can't be read or served; the last answer on its connection."""

    __slots__ = ("arrived", "keep_alive", "reply")

    route = OTHER
    started = True
    is_full = False

    def __init__(self, error: Exception) -> None:
        self.arrived = perf_counter()
        self.keep_alive = False
        self.reply: Reply | None = problem_reply(error)

    def begin(self) -> None:
        """Do nothing: the reply is known."""

    def receive(self, data: bytes, *, last: bool) -> None:
        """Drop a piece of the body."""

    def disconnect(self) -> None:
        """Do nothing: nothing is in progress."""


class Pipeline:
    """Exchanges in the order of their requests.

    `arriving` is the exchange whose body is still being read; it may already have its answer. `accepting` is false once
    no further requests are accepted.
    """

    __slots__ = ("_exchanges", "accepting", "arriving")

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque()
        self.accepting = True
        self.arriving: Exchange | None = None

    def __bool__(self) -> bool:
        """Tell whether any exchange has no answer."""
        return bool(self._exchanges)

    @property
    def has_room(self) -> bool:
        """Whether there is room for the next piece of a body, or the next request."""
        if self.arriving is not None:
            return not self.arriving.is_full
        return self.accepting and len(self._exchanges) < _MOST_AHEAD

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is read: no body is incomplete, and no further requests are accepted."""
        return not self.accepting and self.arriving is None

    @property
    def awaits_answer(self) -> bool:
        """Whether a complete request waits for the server, so that the client is not late."""
        return self.first not in {None, self.arriving}

    def add(self, exchange: Exchange, *, has_body: bool) -> bool:
        """Queue a request whose head was read. Return True if it is the first in the queue."""
        self._exchanges.append(exchange)
        if has_body:
            self.arriving = exchange
        return len(self._exchanges) == 1

    def receive(self, piece: BodyPiece) -> None:
        """Pass a piece of a body to its request."""
        arriving = self.arriving
        if piece.last:
            self.arriving = None
        if arriving is not None:
            arriving.receive(piece.data, last=piece.last)

    def take_answered(self) -> Sequence[tuple[Reply, Exchange]]:
        """Remove the exchanges at the front that have replies, and return each with its reply.

        An exchange without `keep_alive` is the last in the result.
        """
        exchanges = self._exchanges
        answered = []
        while exchanges and (reply := exchanges[0].reply) is not None:
            answered.append((reply, exchanges.popleft()))
            if not answered[-1][1].keep_alive:
                break
        return answered

    def take_first(self) -> Exchange:
        """Remove and return the first exchange, without sending a reply of it."""
        return self._exchanges.popleft()

    @property
    def first(self) -> Exchange | None:
        """The exchange that is answered next."""
        return self._exchanges[0] if self._exchanges else None

    @property
    def can_announce_end(self) -> bool:
        """Whether the answer to the last request can still say that the connection ends."""
        return bool(self._exchanges) and not self._exchanges[-1].started

    def begin_first(self) -> None:
        """Start the first exchange. The pipeline must not be empty.

        Raises:
            ProblemError: `overloaded`, when there is no room for its body.
        """
        self._exchanges[0].begin()

    def cut_off(self) -> bool:
        """Withdraw the incomplete request, if there is one. Return False if its answer has begun."""
        arriving, self.arriving = self.arriving, None
        if arriving is None:
            return True
        if arriving.started:
            return False
        if arriving in self._exchanges:
            self._exchanges.remove(arriving)
            arriving.disconnect()
        return True

    def stop(self) -> bool:
        """Accept no more requests. Return False if no exchange is left to answer."""
        self.accepting = False
        if not self._exchanges:
            return False
        self._exchanges[-1].keep_alive = False
        return True

    def clear(self) -> None:
        """Forget all exchanges, and accept no more."""
        self.accepting = False
        self.arriving = None
        self._exchanges.clear()

    def disconnect(self) -> None:
        """Notify all exchanges that the client has disconnected, and forget them."""
        for exchange in self._exchanges:
            exchange.disconnect()
        self.clear()
