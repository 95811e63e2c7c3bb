"""The list of digests that were erased: a rebuild from an older backup erases them again."""

import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import Connection, func, insert, inspect, select, update

from live.journal.database import Database
from live.journal.schema import ABOUT, ERASED
from live.maintenance.erasure import RepeatedErasure, hidden

_KEY: Final = "erasing"  # the name of the secret that keys the list
_DONE: Final = "erased"  # the name of the last row of the list that was applied
_BYTES: Final = 32


def remember(connection: Connection, prefix: str, digests: Iterable[bytes]) -> None:
    """Add digests to the list, which holds a digest of each."""
    key = _secret(connection)
    where = (ERASED.c.prefix == prefix,)
    known = {row.digest: row.id for row in connection.execute(select(ERASED.c.id, ERASED.c.digest).where(*where))}
    now = time.time_ns() // 1000
    names = {hidden(key, digest) for digest in digests}
    again = [known[name] for name in names if name in known]
    if again:
        connection.execute(update(ERASED).where(ERASED.c.id.in_(again)).values(time=now))
    rows = [{"prefix": prefix, "time": now, "digest": name} for name in sorted(names - known.keys())]
    if rows:
        connection.execute(insert(ERASED), rows)


def remembered(connection: Connection, prefix: str) -> RepeatedErasure:
    """Everything that was erased."""
    rows = connection.execute(select(ERASED.c.digest, ERASED.c.time).where(ERASED.c.prefix == prefix))
    return RepeatedErasure(_secret(connection), {row.digest: row.time for row in rows})


def is_due(connection: Connection) -> bool:
    """Whether something on the list may not have been erased from this database."""
    return (connection.scalar(select(func.max(ERASED.c.id))) or 0) > int(_about(connection, _DONE) or 0)


def mark_done(connection: Connection) -> None:
    """Record that everything on the list was erased from this database."""
    _keep(connection, _DONE, str(connection.scalar(select(func.max(ERASED.c.id))) or 0))


class ErasedList(msgspec.Struct, frozen=True):
    """The secret of a list, and its rows: the prefix, the time and the digest of each."""

    key: str
    rows: list[tuple[str, int, bytes]]


def export_list(connection: Connection) -> ErasedList:
    """The list, for the database of an older backup."""
    rows = connection.execute(select(ERASED.c.prefix, ERASED.c.time, ERASED.c.digest).order_by(ERASED.c.id))
    return ErasedList(_about(connection, _KEY) or "", [(row.prefix, row.time, row.digest) for row in rows])


def list_in(folder: Path, prefix: str) -> ErasedList | None:
    """The list in the SQLite file of a directory; None if nobody was erased there, or there is no journal.

    Raises:
        JournalError: the file can't be read.
    """
    with Database("sqlite", folder, prefix, writes=False) as database:
        if not database.path.exists():
            return None
        found = database.work(lambda sql: export_list(sql) if inspect(sql).has_table(ERASED.name) else None)
        return found if found is not None and found.rows else None


def import_list(connection: Connection, found: ErasedList) -> None:
    """Replace the list of an older backup by a newer one, which contains it. The next rebuild erases what is on it."""
    _keep(connection, _KEY, found.key)
    if found.rows:
        values = [{"prefix": prefix, "time": at, "digest": digest} for prefix, at, digest in found.rows]
        connection.execute(ERASED.delete())
        connection.execute(insert(ERASED), values)


def _secret(connection: Connection) -> bytes:
    known = _about(connection, _KEY)
    if known is None:
        known = secrets.token_hex(_BYTES)
        _keep(connection, _KEY, known)
    return bytes.fromhex(known)


def _about(connection: Connection, name: str) -> str | None:
    return connection.scalar(select(ABOUT.c.value).where(ABOUT.c.name == name))


def _keep(connection: Connection, name: str, value: str) -> None:
    if connection.execute(update(ABOUT).where(ABOUT.c.name == name).values(value=value)).rowcount == 0:
        connection.execute(insert(ABOUT).values(name=name, value=value))
