"""Find what to delete from the store and the journal when an actor is erased: the digests made from the actor.

These are the digests of a voter, and of a voter and a member, keyed by the secret of the board, and the identities of
the likes of a visitor. A list of what was erased lets a rebuild from an older backup erase it again.
"""

import math
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Final, Protocol

import msgspec
from sqlalchemy import Connection, func, insert, inspect, select, update

from live.domain.event import Identities, IncomingEvent
from live.domain.producer import LIKES
from live.journal.database import Database
from live.journal.schema import ABOUT, ERASED
from live.store.board.write.plan import voter_digests

_DIGEST: Final = 16  # bytes
_VISITOR: Final = re.compile("[0-9a-f]{32}")  # how events name the visitors of pages
_KEY: Final = "erasing"  # the name of the secret that keys the list
_DONE: Final = "erased"  # the name of the last row of the list that was applied
_BYTES: Final = 32


class Erasure(Protocol):
    """Choose the digests that have to go."""

    def add_voted(self, members: Iterable[str]) -> None:
        """Add members that the actor may have voted for."""

    def add_liked(self, members: Iterable[str], periods: Iterable[int | None]) -> None:
        """Add members that the actor may have liked, and in which periods."""

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """Return which digests among `fields`, stored at a time (microseconds since 1970), have to go."""

    def remember(self, fields: Iterable[bytes]) -> None:
        """Add digests that were deleted together with others."""


class ActorErasure:
    """The digests of an actor on a board that has had some secrets.

    There is a digest of the actor with each member. So they are only searched where the digest of the actor is found.
    """

    def __init__(self, actor: str, keys: Iterable[bytes]) -> None:
        self._actor = actor
        self._keys = sorted(set(keys) - {b""})
        self.is_visitor = _VISITOR.fullmatch(actor) is not None
        self._voted: set[str] = set()
        self._liked: set[tuple[str, int | None]] = set()
        self._likes = Identities(LIKES)
        self.voters = frozenset(voter_digests(key, actor, "")[0] for key in self._keys)
        self._digests = set(self.voters)
        self.found: set[bytes] = set()

    def add_voted(self, members: Iterable[str]) -> None:
        """See `Erasure`."""
        new = set(members) - self._voted
        self._voted |= new
        self._digests.update(voter_digests(key, self._actor, member)[1] for member in new for key in self._keys)

    def add_liked(self, members: Iterable[str], periods: Iterable[int | None]) -> None:
        """See `Erasure`."""
        if not self.is_visitor:  # only the server itself makes likes, and names visitors
            return
        new = set(product(members, periods)) - self._liked
        self._liked |= new
        for member, period in new:
            event = IncomingEvent(key=member, source=self._actor, id=f"{period or ''}\n{member}")
            self._digests.add(self._likes.of(event))

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """See `Erasure`. Whatever is found is remembered in `found`."""
        del time
        found = self._digests.intersection(fields)
        self.found |= found
        return found

    def remember(self, fields: Iterable[bytes]) -> None:
        """See `Erasure`."""
        deleted = set(fields)
        self._digests |= deleted
        self.found |= deleted


class RepeatedErasure:
    """The digests that were erased before. The list has a digest of each, and the time when it was erased."""

    def __init__(self, key: bytes, erased: Mapping[bytes, int]) -> None:
        self._key = key
        self._erased = erased
        self._with_others: set[bytes] = set()
        self.last = max(erased.values(), default=-math.inf)

    def add_voted(self, members: Iterable[str]) -> None:
        """See `Erasure`. Members add nothing."""

    def add_liked(self, members: Iterable[str], periods: Iterable[int | None]) -> None:
        """See `Erasure`. Members add nothing."""

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """See `Erasure`. Keep entries made after the erasure."""
        if time > self.last:
            return set()
        known, erased, key = self._with_others, self._erased, self._key
        return {field for field in fields if field in known or erased.get(hidden(key, field), -1) >= time}

    def remember(self, fields: Iterable[bytes]) -> None:
        """See `Erasure`. An older backup can have votes that no longer existed when the list was made."""
        self._with_others.update(fields)


def hidden(key: bytes, digest: bytes) -> bytes:
    """Return the digest of a digest, which reveals nothing without the actor and both secrets."""
    return blake2b(digest, digest_size=_DIGEST, key=key, person=b"erased").digest()


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
    """Return what was erased earlier."""
    rows = connection.execute(select(ERASED.c.digest, ERASED.c.time).where(ERASED.c.prefix == prefix))
    return RepeatedErasure(_secret(connection), {row.digest: row.time for row in rows})


def is_due(connection: Connection) -> bool:
    """Return whether something on the list may not have been erased from this database."""
    return (connection.scalar(select(func.max(ERASED.c.id))) or 0) > int(_about(connection, _DONE) or 0)


def mark_done(connection: Connection) -> None:
    """Record that everything on the list was erased from this database."""
    _keep(connection, _DONE, str(connection.scalar(select(func.max(ERASED.c.id))) or 0))


class ErasedList(msgspec.Struct, frozen=True):
    """The secret of a list, and its rows: the prefix, the time and the digest of each."""

    key: str
    rows: list[tuple[str, int, bytes]]


def export_list(connection: Connection) -> ErasedList:
    """Return the list, for the database of an older backup."""
    rows = connection.execute(select(ERASED.c.prefix, ERASED.c.time, ERASED.c.digest).order_by(ERASED.c.id))
    return ErasedList(_about(connection, _KEY) or "", [(row.prefix, row.time, row.digest) for row in rows])


def list_in(folder: Path, prefix: str) -> ErasedList | None:
    """Return the list in the SQLite file of a directory; None if nobody was erased there, or there is no journal.

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
