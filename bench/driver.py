"""The driver, a process of its own that is not counted: sends ready-made requests and looks at little of the answers.

It reads a `Plan` as a line of JSON, prints `ready` when it is connected and warm, starts at the next line it reads, and
prints `done` when every request is answered. A wrong answer ends it with status 1.
"""

import asyncio
import sys
from collections.abc import Iterator
from typing import Final

import msgspec
import uvloop

from bench.plans import Pairs, Plan, make_requests

_DEADLINE: Final = 90.0
_LINES_A_PAIR: Final = 3  # `:n` from HINCRBY; `$length` and the score from ZINCRBY


class WrongAnswerError(Exception):
    """An answer that is not the expected one: what was measured would not be the work."""


class Sending:
    """Requests shared by all connections, and how many of them are not answered yet."""

    def __init__(self, requests: list[bytes]) -> None:
        self.requests: Iterator[bytes] = iter(requests)
        self.open = len(requests)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Connection(asyncio.Protocol):
    """One connection: as soon as an answer is whole it sends the next request there is."""

    def __init__(self, plan: Plan) -> None:
        self.received = b""
        self._expected = plan.expect.encode()
        self._lines = _LINES_A_PAIR * plan.content.events if isinstance(plan.content, Pairs) else None
        self._transport: asyncio.Transport | None = None
        self._sending: Sending | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; nothing is sent yet."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """Fail when requests are under way."""
        if self._sending is not None and not self._sending.done.done():
            self._sending.done.set_exception(WrongAnswerError(f"the connection was closed: {error!r}"))

    def send(self, sending: Sending) -> None:
        """Take part in a sending."""
        self._sending = sending
        self._next()

    def data_received(self, data: bytes) -> None:
        """Take a piece of an answer."""
        self.received = self.received + data if self.received else data
        sending = self._sending
        assert sending is not None  # noqa: S101 - nothing answers before it is asked
        try:
            whole = self._is_whole_answer() if self._lines is None else self._are_whole_replies()
        except (WrongAnswerError, ValueError) as error:
            if not sending.done.done():
                sending.done.set_exception(WrongAnswerError(f"{error}: {self.received[:500]!r}"))
            return
        if whole:
            self.received = b""
            sending.open -= 1
            if sending.open == 0:
                sending.done.set_result(None)
            self._next()

    def _next(self) -> None:
        assert self._sending is not None  # noqa: S101
        assert self._transport is not None  # noqa: S101
        request = next(self._sending.requests, None)
        if request is not None:
            self._transport.write(request)

    def _is_whole_answer(self) -> bool:
        """Whether an HTTP answer is there as far as its content-length says."""
        received = self.received
        end = received.find(b"\r\n\r\n") + 4
        if end < 4:
            return False
        if not received.startswith(b"HTTP/1.1 200"):
            raise WrongAnswerError("not 200")
        length = received.index(b"content-length: ", 0, end) + 16
        if len(received) < end + int(received[length : received.index(b"\r\n", length)]):
            return False
        if not received.startswith(self._expected, end):
            raise WrongAnswerError(f"not {self._expected!r}")
        return True

    def _are_whole_replies(self) -> bool:
        """Whether the store has replied to every pair; scores are positive, so a minus is an error."""
        if b"-" in self.received:
            raise WrongAnswerError("the store refused")
        return self.received.count(b"\r\n") == self._lines


async def drive(plan: Plan) -> None:
    """Carry out a plan."""
    requests = make_requests(plan)
    connections = [await _connect(plan) for _ in range(plan.connections)]
    async with asyncio.timeout(_DEADLINE):
        if plan.warmup:
            await _send_all(connections, requests[: plan.warmup])
        print("ready", flush=True)
        sys.stdin.readline()  # blocks the loop, on which nothing happens until then
        await _send_all(connections, requests[plan.warmup :])
    print("done", flush=True)


async def _connect(plan: Plan) -> Connection:
    loop = asyncio.get_running_loop()
    connection = Connection(plan)
    if plan.address.startswith("/"):
        await loop.create_unix_connection(lambda: connection, plan.address)
    else:
        host, _, port = plan.address.rpartition(":")
        await loop.create_connection(lambda: connection, host, int(port))
    return connection


async def _send_all(connections: list[Connection], requests: list[bytes]) -> None:
    sending = Sending(requests)
    for connection in connections:
        connection.send(sending)
    await sending.done


if __name__ == "__main__":
    try:
        uvloop.run(drive(msgspec.json.decode(sys.stdin.readline(), type=Plan)))
    except (WrongAnswerError, TimeoutError, OSError) as failure:
        sys.exit(f"driver: {failure!r}")
