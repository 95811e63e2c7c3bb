"""Requests of an HTTP connection and their answers, in the order of arrival."""

import asyncio
import sys
import termios
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from fcntl import ioctl
from time import perf_counter
from typing import Final, TypeAlias, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from live.http.parser import BodyPiece, Peer, RequestHead
from live.http.reply import Reply
from live.metrics import REQUEST_SECONDS, SECONDS

OTHER: Final = "other"  # stands for the route if no route matches, or if a request is refused before its route is known
VIEWERS: Final = 0.0  # the time of arrival of the request of a viewer; it is not counted
_MOST_AHEAD: Final = 64  # requests in progress on one connection; beyond this, the server reads no more

Begin: TypeAlias = Callable[["Exchange"], None]
"""Begins to work on a request, and answers it once the reply is known."""
FindRead: TypeAlias = Callable[[RequestHead, Peer], Begin | None]
"""Finds the plain read of a board that a request asks for. Returns None if the application answers the request."""


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
    admitted. `is_counted` says whether the limits count the bodies of this connection.
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


class Connection(asyncio.Protocol):
    """A connection, as its requests and its limits see it. `received` is the number of bytes of the current request.

    Limits count it by `network`. With `is_shared`, its peer is a trusted proxy, which can have many clients.
    """

    peer = Peer("", tls=False)
    network = ""
    is_shared = False
    received = 0
    server_state: ServerState
    transport: asyncio.Transport = cast("asyncio.Transport", None)  # None until `connection_made`
    flow: Flow = cast("Flow", None)

    @property
    def held(self) -> int:
        """Bytes of the bodies that were admitted and are not answered."""
        return self.flow.held

    @property
    def wanted(self) -> int:
        """Bytes of the body that waits to be admitted, or 0."""
        waits = self.flow.waits
        return 0 if waits is None else waits.wanted

    @property
    def buffered(self) -> int:
        """Bytes of answers that the kernel has not accepted."""
        return self.transport.get_write_buffer_size()

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not acknowledged, including those in the kernel."""
        in_kernel = bytearray(4)
        ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, in_kernel)
        return self.buffered + int.from_bytes(in_kernel, sys.byteorder)

    def hold(self, request: Exchange, size: int | None) -> None:
        """Admit the body of a request, or let it wait unread. `size` is its length, None for a chunked body."""

    def admit_body(self) -> None:
        """Begin to read the body that waits. It is part of `held` from now on."""
        flow = self.flow
        assert flow.waits is not None, "a body waits"  # noqa: S101
        flow.waits.size, flow.waits.wanted = flow.waits.wanted, 0
        flow.held += flow.waits.size
        flow.waits = None
        asyncio.get_running_loop().call_soon(flow.resume_reading)

    def release(self, size: int) -> None:
        """Subtract bytes from the bytes that are held for bodies."""

    def send_replies(self) -> None:
        """Send every reply that is due, in the order of the requests."""

    def response_done(self) -> None:
        """Go on: the application has answered the first request in the pipeline."""

    def report(self) -> None:
        """Tell the limits whether the client is sending a request or the connection is idle."""

    def refuse(self, error: Exception) -> None:
        """Answer the current request with a problem, unless it has an answer, and accept no more requests."""

    def close_idle(self) -> None:
        """Close an idle connection. Abort it if answers are unread, because they would keep the socket open."""
        if self.buffered:
            self.transport.abort()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Close immediately: the client does not read."""
        self.transport.abort()


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
        """Remove and return the first exchanges that have replies. After one without `keep_alive`, nothing follows."""
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


class RequestTally:
    """The answered requests of a process, by route and status."""

    def __init__(self) -> None:
        # For each route and status: the requests in each bucket, and the sum of their seconds, since the last `fold`.
        self._counts: dict[tuple[str, int], list[float]] = {}

    def count(self, route: str, status: int, arrived: float) -> None:
        """Count a request whose head arrived at `arrived`, a time of `time.perf_counter()`.

        Routes must be few: never take the path that a client has sent.
        """
        if arrived == VIEWERS:
            return
        seconds = perf_counter() - arrived
        try:
            counts = self._counts[route, status]
        except KeyError:
            counts = self._counts[route, status] = [0.0] * (len(SECONDS) + 2)
        counts[bisect_left(SECONDS, seconds)] += 1
        counts[-1] += seconds

    def fold(self) -> None:
        """Add what was counted to the metric."""
        counted, self._counts = self._counts, {}
        for (route, status), (*buckets, seconds) in counted.items():
            histogram = REQUEST_SECONDS.labels(route, str(status))
            histogram._sum.inc(seconds)  # noqa: SLF001 - `observe` takes one request at a time
            for bucket, count in zip(histogram._buckets, buckets, strict=True):  # noqa: SLF001
                if count:
                    bucket.inc(count)
