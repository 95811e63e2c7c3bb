"""The driver's connections: each sends its next request when an answer arrives, and checks the answers."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

from bench.plans import Gets, Pairs, Plan

_LINES_A_PAIR: Final = 3  # the reply of HINCRBY, and the length and the score of ZINCRBY
_OK: Final = b"HTTP/1.1 200"
_UNCHANGED: Final = b"HTTP/1.1 304"
_END_OF_HEAD: Final = b"\r\n\r\n"


class WrongAnswerError(Exception):
    """An answer is not the expected one, so the figures would be meaningless."""


class Sending:
    """Requests shared by all connections, and the number still unanswered."""

    def __init__(self, requests: list[bytes]) -> None:
        self.requests: Iterator[bytes] = iter(requests)
        self.open = len(requests)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Connection(asyncio.Protocol):
    """A connection with one request in flight. Subclasses parse the answers."""

    def __init__(self, plan: Plan) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.plan = plan
        self.expected = plan.expect.encode()
        self.received = b""
        self.transport: asyncio.Transport | None = None
        self._sending: Sending | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; nothing is sent yet."""
        self.transport = transport  # type: ignore[assignment]
        self.opened.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Report an error to whoever still waits for the connection or for answers."""
        self._fail(f"the connection was closed: {error!r}")

    def send(self, sending: Sending) -> None:
        """Start to send requests."""
        self._sending = sending
        self._next(1)

    def data_received(self, data: bytes) -> None:
        """Receive part of an answer, or several answers."""
        self.received = self.received + data if self.received else data
        try:
            answers = self.take_answers()
        except (WrongAnswerError, ValueError) as error:
            self._fail(f"{error}: {self.received[:500]!r}")
            return
        if answers:
            assert self._sending is not None  # noqa: S101 - answers follow requests
            self._sending.open -= answers
            if self._sending.open == 0:
                self._sending.done.set_result(None)
            self._next(answers)

    def take_answers(self) -> int:
        """Remove the complete answers from `received`. Return their number."""
        raise NotImplementedError

    def _next(self, wanted: int) -> None:
        assert self._sending is not None  # noqa: S101
        assert self.transport is not None  # noqa: S101
        requests = self._sending.requests
        if request := next(requests, b"") if wanted == 1 else b"".join(islice(requests, wanted)):
            self.transport.write(request)

    def _fail(self, reason: str) -> None:
        awaited = self.opened if self._sending is None else self._sending.done
        if not awaited.done():
            awaited.set_exception(WrongAnswerError(reason))


class HttpConnection(Connection):
    """HTTP with keep-alive."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._size = 0  # bytes of the last answer
        self._body = 0  # offset of its body
        is_known = isinstance(plan.content, Gets) and plan.content.etag
        self._status = _UNCHANGED if is_known else _OK

    def take_answers(self) -> int:
        """Remove an answer. Its `Content-Length` gives its size, and a 304 has no body.

        If an answer is as long as the last one, its head is not parsed again: the less work the driver does, the less
        it disturbs the measurement.
        """
        received = self.received
        if (
            len(received) == self._size
            and received.startswith(self._status)
            and received.startswith(self.expected, self._body)
        ):
            self.received = b""
            return 1
        end = self.received.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        if end < len(_END_OF_HEAD):
            return 0
        head = self.received[:end].lower()
        if not self.received.startswith(self._status):
            raise WrongAnswerError(f"not {self._status!r}")
        if self._status == _OK:
            length = head.index(b"content-length: ") + 16
            if len(self.received) < end + int(head[length : head.index(b"\r\n", length)]):
                return 0
        if not self.received.startswith(self.expected, end):
            raise WrongAnswerError(f"not {self.expected!r}")
        self._size, self._body = len(self.received), end
        self.received = b""
        return 1


class StoreConnection(Connection):
    """Bare commands, with all pairs in one write."""

    def take_answers(self) -> int:
        """Remove the replies once every pair has received its replies. Scores are positive, so a minus is an error."""
        if b"-" in self.received:
            raise WrongAnswerError("the store replied with an error")
        if self.received.count(b"\r\n") < _LINES_A_PAIR * self.plan.content.events:
            return 0
        self.received = b""
        return 1


def make_connection(plan: Plan) -> Connection:
    """Make a connection for the content of a plan."""
    match plan.content:
        case Pairs():
            return StoreConnection(plan)
        case _:
            return HttpConnection(plan)
