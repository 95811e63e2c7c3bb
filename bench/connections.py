"""The driver's connections: each sends what it is given as soon as an answer has made room, and checks the answers."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

from bench.plans import Frames, Pairs, Plan
from bench.requests import make_handshake

_LINES_A_PAIR: Final = 3  # `:n` from HINCRBY; `$length` and the score from ZINCRBY
_OK: Final = b"HTTP/1.1 200"
_END_OF_HEAD: Final = b"\r\n\r\n"
_TEXT: Final = 0x81  # first byte of a whole text frame
_PING: Final = 0x89
_LONGER: Final = 126  # where the length of a short frame stands: the next two bytes hold it


class WrongAnswerError(Exception):
    """An answer that is not the expected one: what was measured would not be the work."""


class Sending:
    """Requests shared by all connections, and how many of them are not answered yet."""

    def __init__(self, requests: list[bytes]) -> None:
        self.requests: Iterator[bytes] = iter(requests)
        self.open = len(requests)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Connection(asyncio.Protocol):
    """One connection with a fixed number of requests under way; a subclass knows what an answer looks like."""

    def __init__(self, plan: Plan) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.plan = plan
        self.expected = plan.expect.encode()
        self.received = b""
        self.transport: asyncio.Transport | None = None
        self._in_flight = plan.content.in_flight if isinstance(plan.content, Frames) else 1
        self._sending: Sending | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; nothing is sent yet."""
        self.transport = transport  # type: ignore[assignment]
        self.opened.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail when something is awaited."""
        self._fail(f"the connection was closed: {error!r}")

    def send(self, sending: Sending) -> None:
        """Take part in a sending."""
        self._sending = sending
        self._next(self._in_flight)

    def data_received(self, data: bytes) -> None:
        """Take a piece of an answer, or of several."""
        self.received = self.received + data if self.received else data
        try:
            answers = self.take_answers() if self.opened.done() else self.take_opening()
        except (WrongAnswerError, ValueError) as error:
            self._fail(f"{error}: {self.received[:500]!r}")
            return
        if answers:
            assert self._sending is not None  # noqa: S101 - nothing answers before it is asked
            self._sending.open -= answers
            if self._sending.open == 0:
                self._sending.done.set_result(None)
            self._next(answers)

    def take_opening(self) -> int:
        """Take what comes before the connection is open, which is no answer to a request."""
        raise WrongAnswerError("nothing was asked")

    def take_answers(self) -> int:
        """Take the whole answers out of `received`, and tell how many they are."""
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

    _size = 0  # of the last answer
    _body = 0  # where its body began

    def take_answers(self) -> int:
        """Take an answer that is there as far as its content-length says.

        One that is as long as the last, head and all, is read no closer: the less the driver does, the less it is in
        the way of what is measured.
        """
        received = self.received
        if len(received) == self._size and received.startswith(_OK) and received.startswith(self.expected, self._body):
            self.received = b""
            return 1
        end = self.received.find(_END_OF_HEAD) + len(_END_OF_HEAD)
        if end < len(_END_OF_HEAD):
            return 0
        head = self.received[:end].lower()
        if not head.startswith(b"http/1.1 200"):
            raise WrongAnswerError("not 200")
        length = head.index(b"content-length: ") + 16
        if len(self.received) < end + int(head[length : head.index(b"\r\n", length)]):
            return 0
        if not self.received.startswith(self.expected, end):
            raise WrongAnswerError(f"not {self.expected!r}")
        self._size, self._body = len(self.received), end
        self.received = b""
        return 1


class StoreConnection(Connection):
    """Bare commands, all the pairs of a write at once."""

    def take_answers(self) -> int:
        """Take the replies when every pair has its own; scores are positive, so a minus is an error."""
        if b"-" in self.received:
            raise WrongAnswerError("the store refused")
        if self.received.count(b"\r\n") < _LINES_A_PAIR * self.plan.content.events:
            return 0
        self.received = b""
        return 1


class SocketConnection(Connection):
    """The producer's socket: every text frame is answered by one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the WebSocket; the connection is open when that is granted."""
        self.transport = transport  # type: ignore[assignment]
        transport.write(make_handshake(self.plan))  # type: ignore[attr-defined]

    def take_opening(self) -> int:
        """Take the answer to the handshake."""
        head, end, self.received = self.received.partition(_END_OF_HEAD)
        if not end:
            self.received = head
        elif head.startswith(b"HTTP/1.1 101 "):
            self.opened.set_result(None)
        else:
            self.received = head
            raise WrongAnswerError("no WebSocket")
        return 0

    def take_answers(self) -> int:
        """Take the whole frames; a ping needs no answer, since the sending is over long before one is missed."""
        received, position, answers = self.received, 0, 0
        while len(received) >= position + 4:  # an answer is longer than the longest head of a frame that is read here
            length, payload = received[position + 1], position + 2
            if length == _LONGER:
                length, payload = int.from_bytes(received[payload : payload + 2]), payload + 2
            if len(received) < payload + length:
                break
            answers += self._is_answer(received[position], payload)
            position = payload + length
        self.received = received[position:]
        return answers

    def _is_answer(self, kind: int, payload: int) -> bool:
        if kind == _PING:
            return False
        if kind != _TEXT or not self.received.startswith(self.expected, payload):
            raise WrongAnswerError(f"not a text frame {self.expected!r}")
        return True


def make_connection(plan: Plan) -> Connection:
    """A connection of the kind that a plan needs."""
    match plan.content:
        case Pairs():
            return StoreConnection(plan)
        case Frames():
            return SocketConnection(plan)
        case _:
            return HttpConnection(plan)
