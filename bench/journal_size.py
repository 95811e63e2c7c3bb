"""`python -m bench.journal_size`: the size of the journal for a million events by level, and the use of totals."""

import argparse
import asyncio
import random
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.processes import running_store
from live.domain.board import Board, Boards
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.domain.journaling import Journaling
from live.journal.database import Database
from live.journal.drain import Drainer
from live.journal.keeper import Keeper
from live.journal.moments import Moment
from live.journal.past_reading import read_history, read_ranking
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.connection.client import connect

_BATCH: Final = 1000
_END: Final = 1_700_002_800  # seconds; the board goes by the time of its events
_DAY: Final = 86_400
_BOARD: Final = '[[board]]\nid = "posts"\nclock = "event"\nties = "first"\n'

Names = Callable[[int], str]


class Size(msgspec.Struct, frozen=True):
    """Bytes of the database at each level, rows of totals, and the seconds of the fold and of two questions."""

    events: int
    totals: int
    rows: int
    folding: float
    top: float
    history: float


def short(number: int) -> str:
    """A member with a short name."""
    return f"p{number}"


def long(number: int) -> str:
    """A member with a UUID."""
    return str(uuid.UUID(int=random.Random(number).getrandbits(128)))


def numbers(order: str, events: int, members: int) -> list[int]:
    """Which member each event is for."""
    chance = random.Random(1)
    if order == "uniform":
        return [chance.randrange(members) for _ in range(events)]
    weights = list(accumulate(1 / rank for rank in range(1, members + 1)))
    return chance.choices(range(members), cum_weights=weights, k=events)


async def measure(store: str, folder: Path, order: str, names: Names, events: int, members: int) -> Size:
    """Count events of a day, drain them, and add them up."""
    settings = Settings(store=store, journal="sqlite", data_dir=folder, key_prefix="s" + uuid.uuid4().hex[:8])
    (board,) = parse_boards(_BOARD)
    client = connect(store, settings)
    database = Database("sqlite", folder, settings.key_prefix, writes=True)
    try:
        await database.take()
        drainer = Drainer(client, settings, database)
        await drainer.claim()
        await _count(Ledger(client, board, settings), drainer, [names(one) for one in numbers(order, events, members)])
        kept = _bytes(database.path)
        started = time.perf_counter()
        only_totals = msgspec.structs.replace(board, journal=Journaling(level="totals"))
        await Keeper(settings, database, lambda: Boards([only_totals])).step(
            time.time_ns() // 1000 + 2 * _DAY * 1_000_000
        )
        folding = time.perf_counter() - started
        with closing(sqlite3.connect(f"file:{database.path}?mode=ro", uri=True)) as sql:
            (rows,) = sql.execute("SELECT sum(rows) FROM cell").fetchone()
            (whole,) = sql.execute("SELECT sum(length(data)) FROM checkpoint").fetchone()
        size = _bytes(database.path) - whole
        top, history = await asyncio.to_thread(_questions, settings, board, names(0))
        return Size(kept, size, rows, folding, top, history)
    finally:
        await database.aclose()
        await client.aclose()


async def _count(ledger: Ledger, drainer: Drainer, keys: list[str]) -> None:
    step = _DAY * 1000 / len(keys)
    for first in range(0, len(keys), _BATCH):
        batch = [
            make_entry(key, 1, round((_END - _DAY) * 1000 + number * step), None)
            for number, key in enumerate(keys[first : first + _BATCH], first)
        ]
        added = await ledger.writer.add(batch)
        assert not added.refused, f"{len(added.refused)} events were refused"  # noqa: S101
        if first % (64 * _BATCH) == 0:
            await drainer.sweep()
    await drainer.sweep()


def _bytes(path: Path) -> int:
    """The size of the database without free pages."""
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("VACUUM")
        (pages,) = sql.execute("PRAGMA page_count").fetchone()
        (each,) = sql.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(each)


def _questions(settings: Settings, board: Board, member: str) -> tuple[float, float]:
    """The seconds that it takes to read the first 1,000 records at an hour, and a record at each hour of a day."""
    started = time.perf_counter()
    found = read_ranking(settings, Moment(board, (_END - 3600) * 1000 + 1, None, frozenset()), 0, 1000)
    top = time.perf_counter()
    hours = [(_END - _DAY + 3600 * hour) * 1000 for hour in range(1, 24)]
    read_history(settings, board, frozenset(), [member], hours)
    assert found.ranking.hour is not None  # noqa: S101
    return top - started, time.perf_counter() - top


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--members", type=int, default=100_000)
    asked = parser.parse_args()
    table = Table("members", "MB per million events: events", "totals", "rows", "keeper s", "top s", "history s")
    for order in ("uniform", "zipf"):
        for names in (short, long):
            with running_store() as store, TemporaryDirectory() as folder:
                found = asyncio.run(
                    measure(f"unix://{store.address}", Path(folder), order, names, asked.events, asked.members)
                )
            table.add_row(
                f"{asked.members:,} {names.__name__}, {order}",
                f"{found.events / asked.events:.1f}",
                f"{found.totals / asked.events:.1f}",
                f"{found.rows:,}",
                f"{found.folding:.1f}",
                f"{found.top:.2f}",
                f"{found.history:.2f}",
            )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
