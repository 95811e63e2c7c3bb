"""What is measured: a server with its store, filled and fed through one driver after another."""

import json
import time
from contextlib import ExitStack, closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.plans import Frames, Keys, Load, Pairs, Plan, Posts
from bench.processes import BenchError, Server, add_key, live_server, microseconds, running_store
from bench.table import Scale

# Ties by key, as the bare commands have them: `kinds` tells what ties by time cost beside it.
PLAIN: Final = '[[board]]\nid = "posts"\nties = "key"\n'
BATCH: Final = 1_000
SINGLE_CONNECTIONS: Final = 64
SINGLE_WARMUP: Final = 500
OURS: Final = ("server", "store")
_READY_DEADLINE: Final = 10.0


def single_load(scale: Scale) -> Load:
    """Many producers that send one event at a time."""
    return Load(requests=scale.single_requests, connections=SINGLE_CONNECTIONS, warmup=SINGLE_WARMUP)


def batch_load(bodies: int) -> Load:
    """A few producers that send full bodies."""
    return Load(requests=bodies, connections=8, warmup=10)


class Board:
    """The server under test with its store, a producer's key to it, and the count of what it has acknowledged.

    `boards` is the text of its boards file, which has the board `posts`; without it that is the one default board. One
    that is not `summed` has no total to compare the count with.
    """

    def __init__(self, stack: ExitStack, boards: str = PLAIN, *, summed: bool = True) -> None:
        self.store = stack.enter_context(running_store())
        self.key = add_key(self.store)
        self.server = stack.enter_context(live_server(self.store, _file(stack, boards)))
        self._summed = summed
        self.acknowledged = 0
        self._await_ready()
        self._expect_key_checked()

    @property
    def processes(self) -> dict[str, Server]:
        """Every process that an event passes through."""
        return {"server": self.server, "store": self.store}

    def send(self, content: Posts | Frames, load: Load) -> dict[str, float]:
        """Send events; gives microseconds of CPU for each of them, in the server and in the store.

        Raises:
            BenchError: the board's total is not what was acknowledged.
        """
        events = content.events
        plan = Plan(
            address=self.server.address, content=content, load=load, key=self.key, expect=f'{{"accepted":{events},'
        )
        used = microseconds(plan, self.processes)
        self.acknowledged += (load.warmup + load.requests) * events
        total = self._total() if self._summed else self.acknowledged
        if total != self.acknowledged:
            raise BenchError(f"the board holds {total:,} events, and {self.acknowledged:,} were acknowledged")
        return used

    def bare(self, content: Pairs, load: Load) -> float:
        """Send bare commands, on keys of their own; microseconds of the store's CPU for each event."""
        return microseconds(Plan(address=self.store.address, content=content, load=load), {"store": self.store})[
            "store"
        ]

    def fill(self, keys: Keys, events: int) -> None:
        """Add events in full bodies."""
        self.send(Posts(keys=keys, events=BATCH), Load(requests=events // BATCH, connections=8))

    def hold_every_key(self, count: int) -> None:
        """Give the board and the bare commands' keys every key, so that no round has more to create than another."""
        each = Keys(count=count, order="each")
        self.fill(each, count)
        self.bare(Pairs(keys=each, events=BATCH), Load(requests=count // BATCH, connections=1))

    def _total(self) -> int:
        with self._connection() as connection:
            connection.request("GET", "/v1/boards/posts?limit=1")
            return int(json.load(connection.getresponse())["total_score"])

    def _await_ready(self) -> None:
        """Wait until the server knows the producers: it listens a moment earlier."""
        deadline = time.monotonic() + _READY_DEADLINE
        while self._status("GET", "/readyz") != HTTPStatus.OK:
            if time.monotonic() > deadline:
                raise BenchError("the server listens, but does not become ready")
            time.sleep(0.05)

    def _expect_key_checked(self) -> None:
        """See that the server looks at keys: to look at none would be less work."""
        status = self._status("POST", "/v1/events", b'{"key":"post-000000"}')
        if status != HTTPStatus.UNAUTHORIZED:
            raise BenchError(f"a POST without a key was answered {status}")

    def _status(self, method: str, path: str, body: bytes | None = None) -> int:
        with self._connection() as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            return connection.getresponse().status

    def _connection(self) -> closing[HTTPConnection]:
        return closing(HTTPConnection(self.server.address, timeout=10))


def _file(stack: ExitStack, boards: str) -> Path:
    """A boards file that is there until the stack is left."""
    path = Path(stack.enter_context(TemporaryDirectory(prefix="live-bench-"))) / "boards.toml"
    path.write_text(boards, encoding="utf-8")
    return path


def events_a_second(figures: dict[str, float]) -> str:
    """What a second of CPU acknowledges, and what an event costs where."""
    server, store = (figures[name] for name in OURS)
    digits = 0 if server >= 10 else 1
    return f"{1e6 / (server + store):,.0f} events/CPU s (server {server:.{digits}f} + store {store:.{digits}f} µs)"
