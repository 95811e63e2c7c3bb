"""`ingest-single` and `ingest-batch`: CPU time of an acknowledged durable event against the floors."""

import json
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Final, Literal

from bench.plans import Keys, Pairs, Plan, Posts
from bench.processes import BenchError, Server, drive, idle_server, live_server, running_store
from bench.table import Row, Scale, Tell, middle, middle_ratio

SINGLE_CONNECTIONS = 64
BATCH_CONNECTIONS = 8
BATCH = 1_000
SINGLE_WARMUP = 500
BATCH_WARMUP = 10
_BATCH_GOALS: Final[dict[Literal["uniform", "zipf"], str]] = {"uniform": "≤ 1.20 x", "zipf": "≤ 0.90 x"}


class Board:
    """The server under test with its store, and the count of what it has acknowledged."""

    def __init__(self, stack: ExitStack) -> None:
        self.store = stack.enter_context(running_store())
        self.server = stack.enter_context(live_server(self.store))
        self.acknowledged = 0

    @property
    def processes(self) -> dict[str, Server]:
        """Every process that an event passes through."""
        return {"server": self.server, "store": self.store}

    def fill(self, keys: Keys, events: int) -> None:
        """Add events in full bodies."""
        self.post(keys, bodies=events // BATCH, events=BATCH, connections=BATCH_CONNECTIONS, warmup=0)

    def post(self, keys: Keys, *, bodies: int, events: int, connections: int, warmup: int) -> dict[str, float]:
        """POST bodies; gives microseconds of CPU for each event, in the server and in the store.

        Raises:
            BenchError: the board's total is not what was acknowledged.
        """
        content = Posts(events=events, keys=keys)
        plan = Plan(
            address=self.server.address, content=content, connections=connections, requests=bodies, warmup=warmup,
            expect=f'{{"accepted":{events},',
        )  # fmt: skip
        used = drive(plan, self.processes)
        self.acknowledged += (warmup + bodies) * events
        total = self._total()
        if total != self.acknowledged:
            raise BenchError(f"the board holds {total:,} events, and {self.acknowledged:,} were acknowledged")
        return {name: seconds / (bodies * events) * 1e6 for name, seconds in used.items()}

    def pairs(self, keys: Keys, *, writes: int, events: int, connections: int, warmup: int) -> float:
        """Send the same events as bare commands, on keys of their own; microseconds of the store's CPU for each."""
        content = Pairs(events=events, keys=keys)
        plan = Plan(
            address=self.store.address, content=content, connections=connections, requests=writes, warmup=warmup
        )
        return drive(plan, {"store": self.store})["store"] / (writes * events) * 1e6

    def _total(self) -> int:
        connection = HTTPConnection(self.server.address, timeout=10)
        connection.request("GET", "/v1/boards/posts?limit=1")
        answer = json.load(connection.getresponse())
        connection.close()
        return int(answer["total_score"])


def ingest_single(scale: Scale, tell: Tell) -> list[Row]:
    """One event a body over 64 keep-alive connections: server and store together, for each acknowledged event.

    Against it, in turn with it: the same requests to the endpoint that does nothing; and a bare HINCRBY+ZINCRBY for
    each event over as many connections to the same store, of which the store alone is counted.
    """
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        board = Board(stack)
        idle = stack.enter_context(idle_server())
        tell("filling")
        _hold_every_key(board, scale)
        for number in range(1, scale.rounds + 1):
            keys = Keys(count=scale.keys, seed=number)
            count = scale.single_requests
            tell(f"round {number}: durable POST")
            ours = board.post(keys, bodies=count, events=1, connections=SINGLE_CONNECTIONS, warmup=SINGLE_WARMUP)
            tell(f"round {number}: POST that does nothing")
            nothing = drive(
                Plan(
                    address=idle.address, content=Posts(events=1, keys=keys), connections=SINGLE_CONNECTIONS,
                    requests=count, warmup=SINGLE_WARMUP,
                ),
                {"idle": idle},
            )["idle"]  # fmt: skip
            tell(f"round {number}: bare commands")
            bare = board.pairs(keys, writes=count, events=1, connections=SINGLE_CONNECTIONS, warmup=SINGLE_WARMUP)
            rounds.append({**ours, "nothing": nothing / count * 1e6, "bare": bare})
    mid = middle(rounds)
    ours_us = mid["server"] + mid["store"]
    figures: dict[str, object] = {"microseconds": mid, "rounds": rounds}
    return [
        Row(
            work="ingest-single: a durable POST of 1 event",
            measured=f"{1e6 / ours_us:,.0f} events/CPU s (server {mid['server']:.0f} + store {mid['store']:.0f} µs)",
            against=f"do-nothing ASGI POST: {1e6 / mid['nothing']:,.0f}/CPU s ({mid['nothing']:.0f} µs)",
            ratio=middle_ratio(rounds, ("server", "store"), "nothing"),
            goal="≤ 1.00 x",
            figures=figures,
        ),
        Row(
            work="ingest-single: the store's part",
            measured=f"{mid['store']:.1f} µs of the store an event",
            against=f"bare HINCRBY+ZINCRBY, a pair a write: {mid['bare']:.1f} µs",
            ratio=middle_ratio(rounds, ("store",), "bare"),
        ),
    ]


def ingest_batch(scale: Scale, tell: Tell) -> list[Row]:
    """1,000 events a body over 8 connections: server and store together, for each acknowledged event.

    Against it, in turn with it: bare HINCRBY+ZINCRBY for the same keys on the same store, 1,000 pairs a write over as
    many connections, of which the store alone is counted.
    """
    rows = []
    with ExitStack() as stack:
        board = Board(stack)
        tell("filling")
        _hold_every_key(board, scale)
        for order, goal in _BATCH_GOALS.items():
            rows += _batch_rows(board, scale, order, goal, tell)
    return rows


def _batch_rows(board: Board, scale: Scale, order: Literal["uniform", "zipf"], goal: str, tell: Tell) -> list[Row]:
    rounds: list[dict[str, float]] = []
    bodies = scale.batch_bodies
    for number in range(1, scale.rounds + 1):
        keys = Keys(count=scale.keys, order=order, seed=number)
        tell(f"{order}, round {number}: durable POST")
        ours = board.post(keys, bodies=bodies, events=BATCH, connections=BATCH_CONNECTIONS, warmup=BATCH_WARMUP)
        tell(f"{order}, round {number}: bare commands")
        bare = board.pairs(keys, writes=bodies, events=BATCH, connections=BATCH_CONNECTIONS, warmup=BATCH_WARMUP)
        rounds.append({**ours, "bare": bare})
    mid = middle(rounds)
    ours_us = mid["server"] + mid["store"]
    return [
        Row(
            work=f"ingest-batch: 1,000 events a body, {order} keys",
            measured=f"{1e6 / ours_us:,.0f} events/CPU s (server {mid['server']:.1f} + store {mid['store']:.1f} µs)",
            against=f"bare HINCRBY+ZINCRBY: {1e6 / mid['bare']:,.0f}/CPU s ({mid['bare']:.1f} µs)",
            ratio=middle_ratio(rounds, ("server", "store"), "bare"),
            goal=goal,
            figures={"microseconds": mid, "rounds": rounds},
        ),
        Row(
            work=f"ingest-batch: the store's part, {order} keys",
            measured=f"{mid['store']:.1f} µs of the store an event",
            against=f"bare HINCRBY+ZINCRBY: {mid['bare']:.1f} µs",
            ratio=middle_ratio(rounds, ("store",), "bare"),
        ),
    ]


def _hold_every_key(board: Board, scale: Scale) -> None:
    """Give the board and the bare commands' keys every key, so that no round has more to create than another."""
    each = Keys(count=scale.keys, order="each")
    board.fill(each, scale.keys)
    board.pairs(each, writes=scale.keys // BATCH, events=BATCH, connections=1, warmup=0)
