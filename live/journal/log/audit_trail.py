"""The audit log in SQL: every entry stays, and has the SHA-256 of the entry before it.

The entries are rows of the table of definitions. The name of a row is the id of the entry in the store and the SHA-256
of the row, so that no byte of any row can change unnoticed.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, insert, select, update

from live.journal.database import prefix_of
from live.journal.schema import DEFINITION
from live.store.registry.audit_trail import AuditEntry, decode, redacted

KIND: Final = "trail"

_OWN: Final = DEFINITION.c.kind == KIND
_Stored = tuple[bytes, list[bytes]]


class ChainedEntry(msgspec.Struct, frozen=True):
    """An entry, and the SHA-256 of the row before it. `before` is empty in the first row."""

    before: str
    entry: AuditEntry


def last_id(connection: Connection) -> str:
    """Return the id of the last entry that SQL has; `0` if it has none."""
    row = _last(connection)
    return "0" if row is None else str(row.name.partition(" ")[0])


def append(connection: Connection, entries: Sequence[_Stored]) -> None:
    """Append entries of the stream, each with its id."""
    row = _last(connection)
    number, before = (0, "") if row is None else (row.version, row.name.partition(" ")[2])
    rows = []
    for name, fields in entries:
        entry = decode(name, fields)
        value = msgspec.json.encode(ChainedEntry(before, entry)).decode()
        number, before = number + 1, _digest(value)
        rows.append(
            {
                "prefix": prefix_of(connection), "kind": KIND, "name": f"{name.decode()} {before}", "version": number,
                "time": entry.at * 1000, "value": value,
            }
        )  # fmt: skip
    connection.execute(insert(DEFINITION), rows)


def read_trail(connection: Connection) -> dict[str, AuditEntry]:
    """Return all entries by their ids in the store, oldest first."""
    rows = _rows(connection)
    return {row.name.partition(" ")[0]: msgspec.json.decode(row.value, type=ChainedEntry).entry for row in rows}


def trail_faults(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each row that was changed, and where rows are missing."""
    before, number = "", 0
    for row in _rows(connection):
        digest, number = row.name.partition(" ")[2], number + 1
        value = row.value or ""
        if _digest(value) != digest:
            yield f"the audit log is damaged: entry {row.version} was changed"
        elif row.version != number or msgspec.json.decode(value, type=ChainedEntry).before != before:
            yield f"the audit log is damaged: what is before entry {row.version} was changed or removed"
        before, number = digest, row.version


def rewrite_trail(connection: Connection, gone: Callable[[str], bool]) -> None:
    """Take the members that are gone out of the audit log.

    From the first entry that changes, each entry gets a new SHA-256.
    """
    rows, before, is_changed = _rows(connection).all(), "", False
    for row in rows:
        chained = msgspec.json.decode(row.value, type=ChainedEntry)
        entry = redacted(chained.entry, gone)
        is_changed |= entry is not chained.entry
        name, _, digest = row.name.partition(" ")
        if is_changed:
            value = msgspec.json.encode(ChainedEntry(before, entry)).decode()
            digest = _digest(value)
            changed = update(DEFINITION).where(DEFINITION.c.id == row.id)
            connection.execute(changed.values(name=f"{name} {digest}", value=value))
        before = digest


def _last(connection: Connection) -> Any:  # noqa: ANN401 - a row, or None
    newest = (
        select(DEFINITION)
        .where(DEFINITION.c.prefix == prefix_of(connection), _OWN)
        .order_by(DEFINITION.c.id.desc())
        .limit(1)
    )
    return connection.execute(newest).first()


def _rows(connection: Connection) -> Any:  # noqa: ANN401 - rows
    rows = select(DEFINITION).where(DEFINITION.c.prefix == prefix_of(connection), _OWN).order_by(DEFINITION.c.id)
    return connection.execute(rows)


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
