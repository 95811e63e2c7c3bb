"""Measures how far SQL is behind the store while many boards count events at the same time."""

import sqlite3
import time
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from itertools import cycle
from threading import Event, Thread
from typing import Final

import msgspec

from bench.nodes import Site, one_node, until
from bench.processes import BenchError, Server
from bench.table import Report, Row, Scale, quantile

_BOARD: Final = '[[board]]\nid = "b-{0}"\ntypes = ["b-{0}"]\nties = "key"\n'
_BODY: Final = 500  # events in a body, each for another board
_POLL: Final = 0.02  # seconds between two looks into SQL
_GOAL: Final = "≤ 1 s"


def busy_boards(scale: Scale, report: Report) -> Row:
    """Send bodies with an event for each of 500 boards, as fast as the server accepts them over one connection.

    The lag of a row in SQL is the time from its first entry until another process sees the row. The entry's time comes
    from the store's clock, which is on the same machine. An event is acknowledged a little after its entry, so the
    lag from the acknowledgement is shorter.
    """
    with ExitStack() as stack:
        report("starting")
        boards = "".join(_BOARD.format(number) for number in range(scale.busy_boards))
        site = Site(stack, one_node(stack), boards, journal="sqlite")
        database = site.data / "journal-live.db"
        until(lambda: _ready(site.server), "the server is not ready")
        sql = stack.enter_context(closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)))
        sender = _Sender(site.server, scale.busy_boards)
        sender.start()
        try:
            until(lambda: sender.rounds > 1, "no board has counted")  # after two rounds, all journals have begun
            report("events for all boards")
            lags, entries, seconds = _watch(sql, scale.busy_seconds)
        finally:
            sender.stopping.set()
            sender.join()
        if sender.failure is not None:
            raise BenchError(f"the sender failed: {sender.failure}")
    rate = entries / seconds
    return Row(
        work=f"replicas: {scale.busy_boards:,} boards busy at once: from an event to its row in SQL",
        measured=f"p50 {quantile(lags, 0.5):.2f}, p99 {quantile(lags, 0.99):.2f}, max {max(lags):.2f} s",
        against=f"{rate:,.0f} events/s, {len(lags):,} rows",
        goal=_GOAL,
        figures={"lags": lags, "events": entries, "seconds": seconds},
    )


def _watch(sql: sqlite3.Connection, seconds: float) -> tuple[list[float], int, float]:
    """Look for new rows. Return the lag of each in seconds, the number of their entries, and the elapsed time."""
    (last,) = sql.execute("SELECT max(id) FROM segment").fetchone()
    lags: list[float] = []
    entries, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        time.sleep(_POLL)
        rows = sql.execute("SELECT id, began, entries FROM segment WHERE id > ?", (last or 0,)).fetchall()
        now = time.time()
        for row, began, count in rows:
            last = max(last or 0, row)
            lags.append(now - began / 1e6)
            entries += count
    if not lags:
        raise BenchError("nothing reached SQL")
    return lags, entries, elapsed


class _Sender(Thread):
    """Sends an event for each board, over and over. `rounds` counts how often every board has counted an event."""

    def __init__(self, server: Server, boards: int) -> None:
        super().__init__(daemon=True)
        self.rounds = 0
        self.failure: Exception | None = None
        self.stopping = Event()
        self._server = server
        self._bodies = [
            (len(some), msgspec.json.encode([{"key": "a", "board": f"b-{board}"} for board in some]))
            for some in _in_bodies(boards)
        ]

    def run(self) -> None:
        with closing(HTTPConnection(self._server.address, timeout=30)) as connection:
            try:
                for place, (count, body) in cycle(enumerate(self._bodies, 1)):
                    if self.stopping.is_set():
                        return
                    connection.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
                    answer = connection.getresponse().read()
                    if not answer.startswith(b'{"accepted":%d,' % count):
                        raise BenchError(f"events were answered {answer[:200]!r}")  # noqa: TRY301
                    self.rounds += place == len(self._bodies)
            except Exception as failure:  # noqa: BLE001 - the benchmark raises it
                self.failure = failure


def _in_bodies(boards: int) -> list[range]:
    return [range(first, min(first + _BODY, boards)) for first in range(0, boards, _BODY)]


def _ready(server: Server) -> bool:
    with closing(HTTPConnection(server.address, timeout=10)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
