"""The requests of one HTTP connection that have no complete answer yet, in the order in which they arrived. No I/O."""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from live.ingest.replies import Reply, problem_reply
from live.protocols.http.requests import Piece

_MOST_AHEAD: Final = 64  # requests of one connection that are in progress; the connection is not read beyond that


class Exchange(Protocol):
    """A request and its answer; `keep_alive` says whether another request may follow it on the connection."""

    keep_alive: bool

    @property
    def reply(self) -> Reply | None:
        """The complete answer, once it is known; always None where the application writes the answer itself."""

    @property
    def started(self) -> bool:
        """Whether an answer has begun, so that no other answer is possible."""

    @property
    def is_full(self) -> bool:
        """Whether it takes no more of the body for now."""

    def begin(self) -> None:
        """Answer, now that every request before it is answered."""

    def receive(self, data: bytes, *, last: bool) -> None:
        """Take in a piece of the body."""

    def disconnect(self) -> None:
        """The client gets no answer to this request: it left, or another answer took its place."""


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

    `arriving` is the exchange whose body is still being read; it may have its answer already. `accepting` is false once
    no further request is taken.
    """

    __slots__ = ("_exchanges", "accepting", "arriving")

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque()
        self.accepting = True
        self.arriving: Exchange | None = None

    def __bool__(self) -> bool:
        """Whether an exchange waits for its answer."""
        return bool(self._exchanges)

    @property
    def has_room(self) -> bool:
        """Whether the next piece of a body, or the next request, can be taken."""
        if self.arriving is not None:
            return not self.arriving.is_full
        return self.accepting and len(self._exchanges) <= _MOST_AHEAD

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is read: no further request is taken, and no body is on its way."""
        return not self.accepting and self.arriving is None

    @property
    def awaits_answer(self) -> bool:
        """Whether a complete request waits for the server, so that the client is not late with anything."""
        exchanges = self._exchanges
        return bool(exchanges) and (len(exchanges) > 1 or exchanges[0] is not self.arriving)

    def add(self, exchange: Exchange, *, has_body: bool) -> bool:
        """Queue a request whose head was read; True when it is the first in the queue."""
        self._exchanges.append(exchange)
        if has_body:
            self.arriving = exchange
        return len(self._exchanges) == 1

    def receive(self, piece: Piece) -> None:
        """Give a piece of a body to the request that it belongs to."""
        arriving = self.arriving
        if piece.last:
            self.arriving = None
        if arriving is not None:
            arriving.receive(piece.data, last=piece.last)

    def take_answered(self) -> Sequence[tuple[Reply, bool]]:
        """Remove the exchanges at the front whose replies can be sent; return each reply, and its `keep_alive`.

        Nothing may follow a reply without `keep_alive`, so that one is the last.
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
        """Remove and return the exchange at the front, whose answer the application has written."""
        return self._exchanges.popleft()

    def begin_first(self) -> None:
        """Have the exchange at the front answered; there must be one."""
        self._exchanges[0].begin()

    def cut_off(self) -> bool:
        """Withdraw the request that is being read, if there is one; False when its answer has begun."""
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
        """Take no more requests; False when no exchange is left to answer."""
        self.accepting = False
        if not self._exchanges:
            return False
        self._exchanges[-1].keep_alive = False
        return True

    def clear(self) -> None:
        """Forget all exchanges, and take no more."""
        self.accepting = False
        self.arriving = None
        self._exchanges.clear()

    def disconnect(self) -> None:
        """Tell all exchanges that the client is gone, and forget them."""
        for exchange in self._exchanges:
            exchange.disconnect()
        self.clear()
