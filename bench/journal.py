"""`journal`: what the journal adds to the cost of an event, how fast it is drained, and how many bytes it takes."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import msgspec
from sqlalchemy import delete

from bench.board import BATCH, OURS, Board, batch_load
from bench.plans import Keys, Posts
from bench.processes import cpu_seconds, data_of
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, total
from live.domain.board_file import BoardChoice, make_board
from live.journal.database import Database
from live.journal.lives import open_lives
from live.journal.schema import CHECKPOINT, SEGMENT
from live.journal.totals import add_totals, add_up

_JOURNALS: Final = ("sqlite", "off")
_PREFIX: Final = "live"
_FAR: Final = 2**60  # microseconds
_Round = dict[str, float]


class _Kept(msgspec.Struct, frozen=True):
    """What keeping events and totals takes: microseconds of CPU per event, and bytes per event."""

    cost: float
    segments: float
    totals: float


class _Kind(msgspec.Struct, frozen=True):
    """A kind of body. With `fresh`, every event is the first one of its member."""

    order: Literal["uniform", "zipf", "each"]
    name: str
    fresh: bool = False


_KINDS: Final = (
    _Kind("uniform", "uniform keys"),
    _Kind("zipf", "zipf keys"),
    _Kind("each", "each event a new member (worst case)", fresh=True),
)


def journal(scale: Scale, report: Report) -> list[Row]:
    """1,000 events per body over 8 connections, with and without a journal in SQLite.

    CPU time of everything until all events are in SQL: the server with its drainer and SQLite, and the store. What the
    hourly totals take later is a row of its own: it depends on how often a member comes in an hour. Both servers have a
    store of their own, and take turns to be measured first.
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
                    note("hourly totals")
                    kept_totals = _totals(pair["sqlite"])
    for figures in rounds:
        figures["sqlite_totals"] = kept_totals.cost
    mid = medians(rounds)
    ours, others = ([f"{name}_{part}" for part in OURS] for name in _JOURNALS)
    return [
        Row(
            work=f"journal: 1,000 a body, {kind.name}",
            measured=f"{total(mid, ours):.2f} µs (server {mid['sqlite_server']:.2f}, store {mid['sqlite_store']:.2f})",
            against=f"without: {total(mid, others):.2f} µs ({mid['off_server']:.2f}, {mid['off_store']:.2f})",
            ratio=median_ratio(rounds, ours, others),
            goal="" if kind.fresh else "≤ 1.10 x",
            figures={"microseconds": mid, "rounds": rounds},
        ),
        Row(
            work=f"journal: … and the hourly totals, {kind.name}",
            measured=f"totals {mid['sqlite_totals']:.2f} µs",
            against="without a journal: the same",
            ratio=median_ratio(rounds, [*ours, "sqlite_totals"], others),
        ),
        Row(
            work=f"journal: bytes in SQL per 1,000,000 events, {kind.name}",
            measured=f"events {kept_totals.segments:.2f} MB, totals {kept_totals.totals:.2f} MB",
            figures={"megabytes": {"events": kept_totals.segments, "totals": kept_totals.totals}},
        ),
    ]


def _boards(stack: ExitStack, scale: Scale | None = None, report: Report | None = None) -> dict[str, Board]:
    """A board with a journal and one without; with a scale, all members are there already."""
    boards = {name: Board(stack, journal=name) for name in _JOURNALS}
    if scale is not None and report is not None:
        report("filling")
        for board in boards.values():
            board.fill(Keys(count=scale.keys, order="each"), scale.keys)
    return boards


def _round(boards: dict[str, Board], kind: _Kind, scale: Scale, number: int, report: Report) -> _Round:
    load = batch_load(scale.journal_bodies)
    count = (load.requests + load.warmup) * BATCH if kind.fresh else scale.keys
    content = Posts(keys=Keys(count=count, order=kind.order, seed=number), events=BATCH)
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
            board.send(Posts(keys=Keys(count=scale.keys), events=BATCH), batch_load(events // BATCH), drained=False)
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


def _totals(board: Board) -> _Kept:
    """Make the totals of a board in a copy of its journal, and look how large a database with each level is."""
    with TemporaryDirectory(prefix="live-bench-") as name:
        folder = Path(name)
        with closing(sqlite3.connect(f"file:{_path(board)}?mode=ro", uri=True)) as connection:
            connection.execute("VACUUM INTO ?", (str(folder / _path(board).name),))
        events = board.acknowledged
        with Database("sqlite", folder, _PREFIX, writes=True) as database:
            database.take_now()
            size = _size(database)
            (life,) = (life for life in database.work(lambda sql: open_lives(sql, _PREFIX)) if life.board == "posts")
            definition = make_board(BoardChoice(id="posts", ties="key"))
            started = time.process_time()
            while (new := database.work(lambda sql: add_up(sql, _PREFIX, life, definition, _FAR))) is not None:
                database.work(partial(add_totals, new=new))
            used = time.process_time() - started
            database.work(lambda sql: sql.execute(delete(SEGMENT)))
            database.work(lambda sql: sql.execute(delete(CHECKPOINT)))
            return _Kept(cost=used / events * 1e6, segments=size / events, totals=_size(database) / events)


def _size(database: Database) -> int:
    """The bytes of a database without free pages."""
    with TemporaryDirectory(prefix="live-bench-") as folder, closing(sqlite3.connect(database.path)) as connection:
        copy = Path(folder) / "copy.db"
        connection.execute("VACUUM INTO ?", (str(copy),))
        return copy.stat().st_size


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep everybody else from writing to a database."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
