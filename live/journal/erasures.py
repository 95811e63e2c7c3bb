"""Whom the journal must not show any more: the list of erased digests of actors, and what it takes out of contents.

Erasing an actor appends an `erase` entry to the journal of each board. The fold applies it like any other entry, so it
decides exactly what came before. When SQL receives the entry, its digests join the list. Whatever reads an earlier
instant applies the list at the end, so an actor who was erased later is not there either, although raw entries still
name the actor until they are forgotten.

The list goes with the journal into every backup, and `live restore` carries it to older ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import Connection, insert, null, or_, select, update

from live.journal.database import Database
from live.journal.log.entries import Add, Erase, Head, content
from live.journal.schema import ABOUT, ERASED
from live.journal.state.snapshot import Snapshot

_DIGEST: Final = 16  # bytes
_BOARDS: Final = 5  # the schema since which a row names its board
_ADD: Final = msgspec.msgpack.Decoder(Add)


def hidden(key: bytes, digest: bytes) -> bytes:
    """Return the digest of a digest, which reveals nothing without the actor and both secrets."""
    return blake2b(digest, digest_size=_DIGEST, key=key, person=b"erased").digest()


def take_out(data: Snapshot, gone: Iterable[bytes]) -> None:
    """Take digests out of the votes and the identities of a board."""
    gone = set(gone)
    if not gone:
        return
    for ranking in data.rankings.values():
        for field in gone & ranking.votes.keys():
            del ranking.votes[field]
    data.seen = {start: seen - gone for start, seen in data.seen.items()}


def forget_people(data: Snapshot) -> None:
    """Take all votes and identities out of the contents of a board, because no record depends on them."""
    for ranking in data.rankings.values():
        ranking.votes.clear()
    data.seen.clear()


def digests_in(data: Snapshot) -> set[bytes]:
    """Return all digests in the votes and the identities of a board."""
    return set[bytes]().union(*(ranking.votes for ranking in data.rankings.values()), *data.seen.values())


class Erasures:
    """What was erased of a board: the digest of each digest with the newest time of its erasure, in microseconds."""

    def __init__(self, key: bytes, erased: Mapping[bytes, int]) -> None:
        self._key = key
        self._erased = erased
        # A digest of an actor and a member that is not on the list, by the time of the actor's erasure. An older backup
        # can have votes that no longer existed when the list was made.
        self._with_others: dict[bytes, int] = {}
        self._last = max(erased.values(), default=-1)

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """Return which digests, in an entry or contents of a time (microseconds), were erased after it."""
        return {field for field in fields if self._when(field) > time} if time < self._last else set()

    def _when(self, field: bytes) -> int:
        return max(self._erased.get(hidden(self._key, field), -1), self._with_others.get(field, -1))

    def follow(self, head: Head, body: bytes) -> None:
        """Learn from an entry which digests of votes contain an actor who was erased after it."""
        if head.kind == "add" and head.time < self._last and b"\xa5votes" in body:
            for votes in (group.votes for group in _ADD.decode(body).groups if group.votes is not None):
                for actor, pair in zip(votes.actors, votes.pairs, strict=True):
                    if (when := self._when(content(actor))) > head.time:
                        self._with_others[content(pair)] = when

    def clean(self, data: Snapshot) -> None:
        """Take out of contents what was erased after their last entry. Keep what was made after an erasure."""
        if data.time < self._last:
            take_out(data, self.among(digests_in(data), data.time))


def erasures_of(connection: Connection, prefix: str, board: str) -> Erasures:
    """Return what was erased of a board."""
    rows = select(ERASED.c.digest, ERASED.c.time).where(ERASED.c.prefix == prefix)
    if _names_boards(connection):  # older rows are of every board
        rows = rows.where(or_(ERASED.c.board == board, ERASED.c.board.is_(None)))
    key = key_of(connection)
    # The last row of a digest is the newest.
    found = {} if key is None else {row.digest: row.time for row in connection.execute(rows.order_by(ERASED.c.time))}
    return Erasures(key or b"", found)


def add_erasures(connection: Connection, prefix: str, board: str, erased: Sequence[tuple[int, Erase]]) -> None:
    """Add the digests of `erase` entries of a board, each with its time, to the list.

    An entry that another database keyed is left out: what it erased is not in this one.
    """
    key = key_of(connection)
    rows = [
        {"prefix": prefix, "board": name, "time": time, "digest": digest}
        for time, entry in erased
        if entry.key == key
        for name, digests in [(board, entry.digests), *entry.elsewhere]
        for digest in digests
    ]
    if rows:
        connection.execute(insert(ERASED), rows)


def key_of(connection: Connection) -> bytes | None:
    """Return the key of the digests on the list; None if a version that made no list wrote the journal."""
    known = connection.scalar(select(ABOUT.c.value).where(ABOUT.c.name == "erasing"))
    return None if known is None else bytes.fromhex(known)


def _names_boards(connection: Connection) -> bool:
    return int(connection.scalar(select(ABOUT.c.value).where(ABOUT.c.name == "schema")) or 0) >= _BOARDS


class ErasedList(msgspec.Struct, frozen=True):
    """The key of a list, and its rows: the prefix, the board (None for any), the time and the digest of each."""

    key: bytes
    rows: list[tuple[str, str | None, int, bytes]]


def list_in(folder: Path, prefix: str) -> ErasedList | None:
    """Return the list in the SQLite file of a directory; None if nobody was erased there, or there is no journal.

    Raises:
        JournalError: the file can't be read.
    """

    def read(connection: Connection) -> ErasedList | None:
        key = key_of(connection)
        if key is None:
            return None
        board = ERASED.c.board if _names_boards(connection) else null()
        rows = connection.execute(select(ERASED.c.prefix, board, ERASED.c.time, ERASED.c.digest).order_by(ERASED.c.id))
        found = [tuple(row) for row in rows]
        return ErasedList(key, found) if found else None

    with Database("sqlite", folder, prefix, writes=False) as database:
        return database.work(read) if database.path.exists() else None


def import_list(connection: Connection, found: ErasedList, *, replace: bool) -> None:
    """Add another list to that of a backup. One with another key is left out, unless it may `replace` that."""
    columns = (ERASED.c.prefix, ERASED.c.board, ERASED.c.time, ERASED.c.digest)
    known = {tuple(row) for row in connection.execute(select(*columns))}
    if key_of(connection) != found.key:
        if known and not replace:
            return
        known = set()
        connection.execute(update(ABOUT).where(ABOUT.c.name == "erasing").values(value=found.key.hex()))
        connection.execute(ERASED.delete())
    names = [column.name for column in columns]
    if rows := [dict(zip(names, row, strict=True)) for row in found.rows if row not in known]:
        connection.execute(insert(ERASED), rows)
