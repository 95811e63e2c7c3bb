"""`journal`: what the journal adds to the cost of an event, how fast it is drained, and how many bytes it takes."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import msgspec

from bench.board import BATCH, OURS, Board, batch_load
from bench.plans import Members, Posts
from bench.processes import cpu_seconds, data_of
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total

_JOURNALS: Final = ("sqlite", "off")
_PREFIX: Final = "live"
_Round = dict[str, float]


class _Kind(msgspec.Struct, frozen=True):
    """A kind of body. With `fresh`, every event is the first one of its member."""

    order: Literal["uniform", "zipf", "each"]
    name: str
    fresh: bool = False


_KINDS: Final = (
    _Kind("uniform", "uniform members"),
    _Kind("zipf", "zipf members"),
    _Kind("each", "each event a new member (worst case)", fresh=True),
)


def journal(scale: Scale, report: Report) -> list[Row]:
    """Send 1,000 events per body over 8 connections, with and without a journal in SQLite.

    The CPU time is that of the server, with its drainer and SQLite, and of the store, until all events are in SQL. Each
    server has its own store. The server that is measured first changes with each round.
    """
    rows = [row for kind in _KINDS for row in _ingest_rows(kind, scale, report)]
    return [*rows, _drain_row(scale, report)]


def _ingest_rows(kind: _Kind, scale: Scale, report: Report) -> list[Row]:
    rounds: list[_Round] = []
    with ExitStack() as kept:
        boards = {} if kind.fresh else _boards(kept, scale, report)
        for number in range(1, scale.rounds + 1):
            note = of_round(lambda text: report(f"{kind.name}, {text}"), number)
            with ExitStack() as stack:
                pair = _boards(stack) if kind.fresh else boards
                rounds.append(_round(pair, kind, scale, number, note))
                if number == scale.rounds:
                    megabytes = _size(_path(pair["sqlite"])) / pair["sqlite"].acknowledged
    mid = medians(rounds)
    ours, others = ([f"{name}_{part}" for part in OURS] for name in _JOURNALS)
    return [
        Row(
            work=f"journal: 1,000 events per body, {kind.name}",
            measured=f"{total(mid, ours):.2f} µs (server {mid['sqlite_server']:.2f}, store {mid['sqlite_store']:.2f})",
            against=f"without: {total(mid, others):.2f} µs ({mid['off_server']:.2f}, {mid['off_store']:.2f})",
            ratio=median_ratio(rounds, ours, others),
            goal="" if kind.fresh else "≤ 1.10 x",
            figures={"microseconds": mid, "rounds": rounds},
        ),
        Row(
            work=f"journal: bytes in SQL per 1,000,000 events, {kind.name}",
            measured=f"{megabytes:.2f} MB",
            figures={"megabytes": megabytes},
        ),
    ]


def _boards(stack: ExitStack, scale: Scale | None = None, report: Report | None = None) -> dict[str, Board]:
    """Start a board with a journal and one without. With a scale, all members exist before the measurement."""
    boards = {name: Board(stack, journal=name) for name in _JOURNALS}
    if scale is not None and report is not None:
        report("filling")
        for board in boards.values():
            board.fill(Members(count=scale.members, order="each"), scale.members)
    return boards


def _round(boards: dict[str, Board], kind: _Kind, scale: Scale, number: int, report: Report) -> _Round:
    load = batch_load(scale.journal_bodies)
    count = (load.requests + load.warmup) * BATCH if kind.fresh else scale.members
    content = Posts(members=Members(count=count, order=kind.order, seed=number), events=BATCH)
    used: _Round = {}
    for name in _JOURNALS if number % 2 else reversed(_JOURNALS):
        report(f"journal {name}")
        used |= {f"{name}_{part}": cost for part, cost in boards[name].send(content, load).items()}
    return used


def _drain_row(scale: Scale, report: Report) -> Row:
    """Let a backlog grow while the database is locked; then unlock it, and measure until everything is in SQL."""
    with ExitStack() as stack:
        board = Board(stack)
        board.await_drained()
        events = 4 * scale.journal_bodies * BATCH
        with _locked(_path(board)):
            report("backlog")
            board.send(
                Posts(members=Members(count=scale.members), events=BATCH), batch_load(events // BATCH), drained=False
            )
            before = {name: cpu_seconds(one.pid) for name, one in board.processes.items()}
        report("draining")
        started = time.perf_counter()
        board.await_drained()
        elapsed = time.perf_counter() - started
        used = sum(cpu_seconds(one.pid) - before[name] for name, one in board.processes.items())
    counted = board.acknowledged
    return Row(
        work="journal: drain rate",
        measured=f"{counted / used:,.0f} events/CPU s; {counted:,} in {elapsed:.1f} s",
        figures={"events": counted, "cpu": used, "seconds": elapsed},
    )


def _path(board: Board) -> Path:
    return data_of(board.store) / f"journal-{_PREFIX}.db"


def _size(path: Path) -> int:
    with TemporaryDirectory(prefix="live-bench-") as folder:
        copy = Path(folder) / "copy.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        return copy.stat().st_size


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
