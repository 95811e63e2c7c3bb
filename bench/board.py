"""The system under test: a server with its store. Drivers send events to it one after another."""

import json
import time
from contextlib import ExitStack, closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import redis

from bench.plans import Load, Members, Pairs, Plan, Posts
from bench.processes import BenchError, Server, add_api_key, live_server, microseconds, running_store
from bench.table import Scale, median_ratio, medians

# Ties are broken by member, like those of the bare commands. `kinds` measures what ties by time cost in addition.
PLAIN: Final = '[[board]]\nid = "posts"\nties = "key"\n'
BATCH: Final = 1_000
SINGLE_CONNECTIONS: Final = 64
SINGLE_WARMUP: Final = 500
OURS: Final = ("server", "store")
_READY_DEADLINE: Final = 60.0


def single_load(scale: Scale) -> Load:
    """Return the load of many producers that send one event at a time."""
    return Load(requests=scale.single_requests, connections=SINGLE_CONNECTIONS, warmup=SINGLE_WARMUP)


def batch_load(bodies: int) -> Load:
    """Return the load of a few producers that send full bodies."""
    return Load(requests=bodies, connections=8, warmup=10)


class Board:
    """The server under test with its store, an API key, and the number of events that it acknowledged.

    `boards` is the text of the boards file, which must contain the board `posts`. A board that is not `summed` has no
    total to compare with the acknowledged events. `journal` is the setting `LIVE_JOURNAL`.
    """

    def __init__(self, stack: ExitStack, boards: str = PLAIN, *, summed: bool = True, journal: str = "sqlite") -> None:
        self.store = stack.enter_context(running_store())
        self.key = add_api_key(self.store)
        self._file = _file(stack, boards)
        self.server = stack.enter_context(live_server(self.store, self._file, journal))
        self._summed = summed
        self.acknowledged = 0
        self.await_ready(self.server)
        self._expect_key_checked()

    @property
    def processes(self) -> dict[str, Server]:
        """Every process that an event passes through."""
        return {"server": self.server, "store": self.store}

    def second_server(self, stack: ExitStack) -> Server:
        """Start another server on the same store."""
        return stack.enter_context(live_server(self.store, self._file))

    def send(self, content: Posts, load: Load, *, drained: bool = True) -> dict[str, float]:
        """Send events. Return the microseconds of CPU per event, in the server and in the store.

        With `drained`, the figures include the journal, until all of the events are in SQL.
        """
        events = content.events
        plan = Plan(
            address=self.server.address, content=content, load=load, key=self.key, expect=f'{{"accepted":{events},'
        )
        cost = microseconds(plan, self.processes, settle=self.await_drained if drained else None)
        self.acknowledged += (load.warmup + load.requests) * events
        total = self._total() if self._summed else self.acknowledged
        if total != self.acknowledged:
            raise BenchError(f"the board's total is {total:,}, but {self.acknowledged:,} events were acknowledged")
        return cost

    def send_bare(self, content: Pairs, load: Load) -> float:
        """Send bare commands, on separate store keys. Return the microseconds of the store's CPU per event."""
        return microseconds(Plan(address=self.store.address, content=content, load=load), {"store": self.store})[
            "store"
        ]

    def fill(self, members: Members, events: int) -> None:
        """Add events in full bodies."""
        self.send(Posts(members=members, events=BATCH), Load(requests=events // BATCH, connections=8))

    def create_every_member(self, count: int) -> None:
        """Create every member, on the board and for the bare commands, so that no round creates members."""
        each = Members(count=count, order="each")
        self.fill(each, count)
        self.send_bare(Pairs(members=each, events=BATCH), Load(requests=count // BATCH, connections=1))

    def await_drained(self) -> None:
        """Wait until SQL has everything that `posts` has counted."""
        deadline = time.monotonic() + _READY_DEADLINE
        with redis.Redis(unix_socket_path=self.store.address) as client:
            while True:
                journal, drained = client.hmget("live:{posts}:meta", "journal", "drained")
                if journal is None or journal.split()[-1] == drained:
                    return
                if time.monotonic() > deadline:
                    raise BenchError("the journal is not drained")
                time.sleep(0.01)

    def _total(self) -> int:
        with closing(HTTPConnection(self.server.address, timeout=10)) as connection:
            connection.request("GET", "/v1/boards/posts?limit=1")
            return int(json.load(connection.getresponse())["total_score"])

    def await_ready(self, server: Server) -> None:
        """Wait until a server knows the producers and the boards; it starts listening a little earlier."""
        deadline = time.monotonic() + _READY_DEADLINE
        while self._status(server, "GET", "/readyz") != HTTPStatus.OK:
            if time.monotonic() > deadline:
                raise BenchError("the server listens but does not become ready")
            time.sleep(0.05)

    def _expect_key_checked(self) -> None:
        status = self._status(self.server, "POST", "/v1/events", b'{"key":"post-000000"}')
        if status != HTTPStatus.UNAUTHORIZED:
            raise BenchError(f"a POST without an API key was answered {status}")

    def _status(self, server: Server, method: str, path: str, body: bytes | None = None) -> int:
        with closing(HTTPConnection(server.address, timeout=10)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            return connection.getresponse().status


def _file(stack: ExitStack, boards: str) -> Path:
    path = Path(stack.enter_context(TemporaryDirectory(prefix="live-bench-"))) / "boards.toml"
    path.write_text(boards, encoding="utf-8")
    return path


class Cost(NamedTuple):
    """The medians of what a request costs in microseconds, and of its ratio to doing `nothing`."""

    server: float
    store: float
    nothing: float
    ratio: float
    figures: dict[str, object]

    @property
    def total(self) -> float:
        """The cost in all processes."""
        return self.server + self.store


def cost_of(name: str, rounds: list[dict[str, float]]) -> Cost:
    """Return what the requests with a name cost. Each round has figures such as `name-server`, and `nothing`."""
    mid, ours = medians(rounds), tuple(f"{name}-{process}" for process in OURS)
    figures: dict[str, object] = {"microseconds": mid, "rounds": rounds}
    server, store = (mid[figure] for figure in ours)
    return Cost(server, store, mid["nothing"], median_ratio(rounds, ours, ("nothing",)), figures)


def events_a_second(figures: dict[str, float]) -> str:
    """Write how many events are counted per second of CPU time, and what one event costs in each process."""
    server, store = (figures[name] for name in OURS)
    digits = 0 if server >= 10 else 1
    return f"{1e6 / (server + store):,.0f} events/CPU s (server {server:.{digits}f} + store {store:.{digits}f} µs)"
