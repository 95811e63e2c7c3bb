"""Read every row of the journal, to find damage before somebody needs the data.

SQLite and PostgreSQL notice a damaged page only when they read it. Rows with compressed data also have a checksum in
the column `crc`.
"""

import zlib
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Table, func, inspect, literal, select, tuple_

from live.errors import JournalBrokenError
from live.journal.database import Database
from live.journal.schema import LIFE, METADATA

_ROWS: Final = 500  # maximum rows in one transaction
_BYTES: Final = 1024**2  # maximum packed bytes in one transaction, but at least one row is read
WRONG_TYPES: Final = (TypeError, ValueError, OverflowError, MemoryError)
"""The errors of the database driver when a damaged row holds values of wrong types."""


class Batch(NamedTuple):
    """Rows that were read at once: their number, and the faults, each with its timeline."""

    rows: int
    faults: list[tuple[int | None, str]]


def scan(database: Database, without: Collection[Table] = ()) -> Iterator[Batch]:
    """Read every row of every table, a batch at a time, in the thread of the caller."""
    try:
        names = database.work(lambda connection: inspect(connection).get_table_names())
    except JournalBrokenError as error:
        yield Batch(0, [(None, str(error))])
        return
    for table in METADATA.sorted_tables:
        if table.name not in names:
            continue  # no server has used this journal yet
        after: tuple[Any, ...] | None = None
        while table not in without:
            try:
                keys = database.work(partial(_next_keys, table=table, after=after))
            except JournalBrokenError as error:
                yield Batch(0, [(None, f"{error}, in table {table.name}")])
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
            yield Batch(len(keys), faults)
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
