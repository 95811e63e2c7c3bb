"""The unanswered requests of one HTTP connection, in the order of arrival. No I/O."""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from live.ingest.replies import Reply, problem_reply
from live.protocols.http.requests import BodyPiece

_MOST_AHEAD: Final = 64  # requests in progress on one connection; the server reads no more beyond that


class Exchange(Protocol):
    """A request and its answer; `keep_alive` is whether another request may follow it on the connection."""

    keep_alive: bool

    @property
    def reply(self) -> Reply | None:
        """The complete answer, once it is known; always None if the application writes the answer itself."""

    @property
    def started(self) -> bool:
        """Whether an answer has begun, so that no other answer is possible."""

    @property
    def is_full(self) -> bool:
        """Whether it accepts no more of the body for now."""

    def begin(self) -> None:
        """Answer: every earlier request is answered.

        Raises:
            ProblemError: `overloaded`, when there is no room for its body.
        """

    def receive(self, data: bytes, *, last: bool) -> None:
        """Receive a piece of the body."""

    def disconnect(self) -> None:
        """Stop: the client has left, or got another answer."""


class Refusal:
    """The answer to a request that can't be read or served; the last answer on its connection."""

    __slots__ = ("keep_alive", "reply")

    started = True
    is_full = False

    def __init__(self, error: Exception) -> None:
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
        """Whether any exchange has no answer."""
        return bool(self._exchanges)

    @property
    def has_room(self) -> bool:
        """Whether there is room for the next piece of a body, or the next request."""
        if self.arriving is not None:
            return not self.arriving.is_full
        return self.accepting and len(self._exchanges) <= _MOST_AHEAD

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is read: no body is incomplete, and no further requests are accepted."""
        return not self.accepting and self.arriving is None

    @property
    def awaits_answer(self) -> bool:
        """Whether a complete request waits for the server, so that the client is not late."""
        exchanges = self._exchanges
        return bool(exchanges) and (len(exchanges) > 1 or exchanges[0] is not self.arriving)

    def add(self, exchange: Exchange, *, has_body: bool) -> bool:
        """Queue a request whose head was read; True if it is the first in the queue."""
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

    def take_answered(self) -> Sequence[tuple[Reply, bool]]:
        """Remove the exchanges at the front that have replies; returns each reply and its `keep_alive`.

        A reply without `keep_alive` is the last one.
        """
        exchanges = self._exchanges
        answered = []
        while exchanges and (reply := exchanges[0].reply) is not None:
            keep_alive = exchanges.popleft().keep_alive
            answered.append((reply, keep_alive))
            if not keep_alive:
                break
        return answered

    def take_first(self) -> Exchange:
        """Remove and return the first exchange; the application has written its answer."""
        return self._exchanges.popleft()

    @property
    def first(self) -> Exchange | None:
        """The exchange that is answered next."""
        return self._exchanges[0] if self._exchanges else None

    def begin_first(self) -> None:
        """Start the first exchange; there must be one. Raises as `Exchange.begin`."""
        self._exchanges[0].begin()

    def cut_off(self) -> bool:
        """Withdraw the incomplete request, if there is one; False if its answer has begun."""
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
        """Accept no more requests; False if no exchange is left to answer."""
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
