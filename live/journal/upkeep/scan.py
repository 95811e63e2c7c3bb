"""Read the whole journal over and over, a little each second, so that damage is found before somebody needs the data.

SQLite and PostgreSQL notice a damaged page only when they read it. Rows with compressed data also have a checksum in
the column `crc`.
"""

import asyncio
import zlib
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from sqlalchemy import Connection, Table, func, inspect, literal, select, tuple_

from live.errors import JournalBrokenError, JournalError
from live.journal.database import Database, open_journal
from live.journal.log.health import HealthReport
from live.journal.schema import LIFE, METADATA
from live.metrics import JOURNAL_DAMAGED
from live.settings import Settings

log = structlog.get_logger()

_ROWS: Final = 500  # maximum rows that are read in one second
_BYTES: Final = 1024**2  # maximum bytes that are read in one second, but at least one row is read
_PAUSE: Final = 1.0  # seconds between two steps
_REST: Final = 10.0  # seconds between two passes
WRONG_TYPES: Final = (TypeError, ValueError, OverflowError, MemoryError)
"""The errors of the database driver when a damaged row holds values of wrong types."""


class Batch(msgspec.Struct):
    """Rows that were read at once: their number, their packed bytes, and the faults, each with its timeline."""

    rows: int
    size: int
    faults: list[tuple[int | None, str]]


class Scrubber:
    """Look for damage in the journal, in the process that writes it, over a separate connection."""

    def __init__(self, settings: Settings, health: HealthReport) -> None:
        self._settings = settings
        self._health = health

    async def run(self) -> None:
        """Look for damage and report it, until cancelled. A pass of N megabytes takes about N seconds."""
        while True:
            database = open_journal(self._settings, writes=False)
            if database is None:
                return
            try:  # the connection is new, because an old connection may have cached pages from before the damage
                batches, found = scan(database), 0
                while (step := await database.in_thread(partial(_step, batches))) is not None:
                    if step and not self._health.damage:
                        _, fault = step[0]
                        self._health.damage = f"{fault}. See `live journal verify`"
                        log.error("the journal is damaged", reason=fault)
                    if step:
                        found += len(step)
                        JOURNAL_DAMAGED.set(found)
                    await asyncio.sleep(_PAUSE)
                if not found:  # a damage stays reported until a whole pass finds no damage
                    self._health.damage = ""
                    JOURNAL_DAMAGED.set(0)
            except JournalError as error:  # the drainer reports this error
                log.debug("the journal can't be checked", reason=str(error))
            finally:
                await database.aclose()
            await asyncio.sleep(_REST)


def _step(batches: Iterator[Batch]) -> list[tuple[int | None, str]] | None:
    """Read as many rows as one second allows. Return the faults in them, or None at the end."""
    rows = size = 0
    faults: list[tuple[int | None, str]] = []
    for batch in batches:
        rows, size = rows + batch.rows, size + batch.size
        faults += batch.faults
        if rows >= _ROWS or size >= _BYTES:
            return faults
    return faults if rows or faults else None


def scan(database: Database, without: Collection[Table] = ()) -> Iterator[Batch]:
    """Read every row of every table, a batch at a time, in the thread of the caller."""
    try:
        names = database.work(lambda connection: inspect(connection).get_table_names())
    except JournalBrokenError as error:
        yield Batch(0, 0, [(None, str(error))])
        return
    for table in METADATA.sorted_tables:
        if table.name not in names:
            continue  # no server has used this journal yet
        after: tuple[Any, ...] | None = None
        while table not in without:
            try:
                keys = database.work(partial(_next_keys, table=table, after=after))
            except JournalBrokenError as error:
                yield Batch(0, 0, [(None, f"{error}, in table {table.name}")])
                break  # the rows after the damage can't be found
            if not keys:
                break
            last = keys[-1][:-1]
            try:
                faults = database.work(partial(_faults, table=table, after=after, last=last, place=database.place))
            except JournalBrokenError as error:
                faults = [(None, f"{error}, in rows up to {_named(table, last)}")]
            except WRONG_TYPES:
                place = f"{database.place}: rows up to {_named(table, last)}"
                faults = [(None, f"the journal is damaged: {place} have values of other types")]
            yield Batch(len(keys), sum(key[-1] for key in keys), faults)
            after = last


def _next_keys(connection: Connection, table: Table, after: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
    """Return the primary keys of the next rows, each with the number of packed bytes in its row; empty at the end."""
    columns = list(table.primary_key.columns)
    size = func.coalesce(func.length(table.c.data), 0) if "data" in table.c else literal(0)
    wanted = select(*columns, size).order_by(*columns).limit(_ROWS)
    if after is not None:
        wanted = wanted.where(tuple_(*columns) > after)
    found: list[tuple[Any, ...]] = []
    total = 0
    for row in connection.execute(wanted):
        total += row[-1]
        if found and total > _BYTES:
            break
        found.append(tuple(row))
    return found


def _faults(
    connection: Connection, table: Table, after: tuple[Any, ...] | None, last: tuple[Any, ...], place: str
) -> list[tuple[int | None, str]]:
    """Read whole rows, and compare their checksums. Return the faults, each with its timeline."""
    columns = list(table.primary_key.columns)
    wanted = select(table).where(tuple_(*columns) <= last)
    if after is not None:
        wanted = wanted.where(tuple_(*columns) > after)
    faults: list[tuple[int | None, str]] = []
    for row in connection.execute(wanted).mappings():
        if "crc" in table.c and zlib.crc32(row["data"]) != row["crc"]:
            board = connection.scalar(select(LIFE.c.board).where(LIFE.c.id == row["life"]))
            name = _named(table, tuple(row[column.name] for column in columns))
            faults.append(
                (row["life"], f"the journal is damaged: {place}: the checksum of {name}, of board {board}, is wrong")
            )
    return faults


def _named(table: Table, key: tuple[Any, ...]) -> str:
    """Return the table and the primary key of a row as text for people."""
    return f"{table.name} {'/'.join(map(str, key))}"
