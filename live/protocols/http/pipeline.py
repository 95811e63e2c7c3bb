"""The unanswered requests of one HTTP connection, in the order of arrival. This module does no I/O."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from live.ingest.replies import Reply
from live.protocols.http.exchange import Exchange
from live.protocols.http.parser import BodyPiece

_MOST_AHEAD: Final = 64  # requests in progress on one connection; beyond this, the server reads no more


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
