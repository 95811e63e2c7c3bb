"""A steady sender: a thread of the benchmark that POSTs at a fixed, low rate while something else is measured."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from threading import Event, Thread, get_native_id
from typing import Final

import msgspec

from bench.processes import BenchError, Server

_PATIENCE: Final = 10.0
_ADDRESS: Final = "127.0.0.2"  # viewers use another address, whose connections are limited


class Posting(msgspec.Struct, frozen=True, kw_only=True):
    """The requests to send: the bodies one after another, `rate` per second. Each answer must contain `expect`."""

    path: str
    bodies: Sequence[bytes]
    rate: float
    key: str = ""
    expect: bytes = b""


class Sender(Thread):
    """Sends until it is stopped.

    `spent` are the seconds that each answered POST took, and `failure` is the reason of an early stop.
    """

    def __init__(self, server: Server, posting: Posting) -> None:
        super().__init__(daemon=True)
        self.spent: list[float] = []
        self.failure: Exception | None = None
        self.stopping = Event()
        self._server = server
        self._posting = posting

    def run(self) -> None:
        """Send each body when it is due.

        A late body is sent immediately, and the next one is due a whole pause later.
        """
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(get_native_id(), {cores[-1]})  # the thread must not use the server's core
        connection = HTTPConnection(self._server.address, timeout=_PATIENCE, source_address=(_ADDRESS, 0))
        due = time.monotonic()
        try:
            for body in cycle(self._posting.bodies):
                if self.stopping.wait(max(0.0, due - time.monotonic())):
                    return
                self._send(connection, body)
                due = max(due + 1 / self._posting.rate, time.monotonic())
        except (OSError, HTTPException, BenchError) as failure:
            self.failure = failure
        finally:
            connection.close()

    def _send(self, connection: HTTPConnection, body: bytes) -> None:
        posting = self._posting
        headers = {"Content-Type": "application/json"}
        if posting.key:
            headers["Authorization"] = f"Bearer {posting.key}"
        begun = time.perf_counter()
        connection.request("POST", posting.path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status >= HTTPStatus.BAD_REQUEST or posting.expect not in answer:
            raise BenchError(f"a POST was answered {response.status} {answer[:200]!r}")
        self.spent.append(time.perf_counter() - begun)

    @property
    def sent(self) -> int:
        """The number of answered POSTs."""
        return len(self.spent)


@contextmanager
def posting_to(server: Server, posting: Posting) -> Iterator[Sender]:
    """Send while in the context."""
    sender = Sender(server, posting)
    sender.start()
    try:
        yield sender
    finally:
        sender.stopping.set()
        sender.join()
    if sender.failure is not None:
        raise BenchError(f"the sender failed: {sender.failure}")
