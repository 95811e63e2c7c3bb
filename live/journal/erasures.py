"""Keep the list of the erased digests of actors, and remove these digests from contents that are read.

Members that were erased are on the list too, because backups may hold them (see `live.journal.forgetting`).

Erasing an actor appends an `erase` entry to the journal of each board. The fold applies this entry like any other, so
the place of the entry decides exactly which data came before. When SQL receives the entry, the digests in it join the
list. Code that reads an earlier instant applies the list at the end. So the past does not show an actor who was erased
later. Raw entries still hold the digests until retention deletes the entries.

Every backup of the journal contains the list. `live restore` adds the newer list to an older backup that it restores.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, insert, select, update

from live.journal.database import Database
from live.journal.log.entries import Add, Erase, Head, content
from live.journal.schema import ABOUT, ERASED
from live.journal.state.snapshot import Snapshot

_DIGEST: Final = 16  # bytes of a digest on the list
_ADD: Final = msgspec.msgpack.Decoder(Add)


def hidden(key: bytes, digest: bytes) -> bytes:
    """Return the keyed digest of a digest. To find the actor of a keyed digest takes `key` and the board's secret."""
    return blake2b(digest, digest_size=_DIGEST, key=key, person=b"erased").digest()


def member_digest(key: bytes, member: str) -> bytes:
    """Return the keyed digest of a member. Somebody who has the key and guesses the member can confirm the guess."""
    return hidden(key, b"member " + member.encode())


def take_out_members(data: Snapshot, gone: Callable[[str], bool]) -> bool:
    """Remove the members for which `gone` is true from contents. Return whether there were any."""
    fields: list[dict[str, Any]] = [data.entrants, *data.slots.values()]
    for ranking in data.rankings.values():
        fields += ranking.reached, ranking.metadata
    names = {member for member in data.hidden.union({event.member for event in data.log}, *fields) if gone(member)}
    for held in fields:
        for name in names & held.keys():
            del held[name]
    data.hidden -= names
    data.log = [event for event in data.log if event.member not in names]
    return bool(names)


def take_out(data: Snapshot, gone: Iterable[bytes]) -> None:
    """Remove digests from the votes and the identities in contents."""
    gone = set(gone)
    if not gone:
        return
    for ranking in data.rankings.values():
        for field in gone & ranking.votes.keys():
            del ranking.votes[field]
    data.seen = {start: seen - gone for start, seen in data.seen.items()}


def forget_people(data: Snapshot) -> None:
    """Remove all votes and identities from contents. No record depends on them."""
    for ranking in data.rankings.values():
        ranking.votes.clear()
    data.seen.clear()


def digests_in(data: Snapshot) -> set[bytes]:
    """Return all digests in the votes and the identities of a board."""
    return set[bytes]().union(*(ranking.votes for ranking in data.rankings.values()), *data.seen.values())


class Erasures:
    """The digests that were erased from a board.

    The keys of `erased` are digests as `hidden` returns them. The values are the times, in microseconds, when these
    digests were erased last.
    """

    def __init__(self, key: bytes, erased: Mapping[bytes, int]) -> None:
        self._key = key
        self._erased = erased
        # The digests of pairs of an erased actor and a member that the list lacks, each with the time when the actor
        # was erased. A backup can have votes that the store no longer had when it erased the actor.
        self._with_others: dict[bytes, int] = {}
        self._last = max(erased.values(), default=-1)

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """Return the digests among `fields` that were erased after `time`, in microseconds."""
        return {field for field in fields if self._when(field) > time} if time < self._last else set()

    def member_gone(self, member: str) -> int:
        """Return when a member was erased last, in microseconds since 1970; -1 if it was not."""
        return self._erased.get(member_digest(self._key, member), -1)

    def _when(self, field: bytes) -> int:
        return max(self._erased.get(hidden(self._key, field), -1), self._with_others.get(field, -1))

    def follow(self, head: Head, body: bytes) -> None:
        """Learn from an entry which digests of votes contain an actor who was erased after the entry."""
        if head.kind == "add" and head.time < self._last and b"\xa5votes" in body:
            for votes in (group.votes for group in _ADD.decode(body).groups if group.votes is not None):
                for actor, pair in zip(votes.actors, votes.pairs, strict=True):
                    if (when := self._when(content(actor))) > head.time:
                        self._with_others[content(pair)] = when

    def clean(self, data: Snapshot) -> None:
        """Remove the digests that were erased after the last entry in the contents."""
        if data.time < self._last:
            take_out(data, self.among(digests_in(data), data.time))


def erasures_of(connection: Connection, prefix: str, board: str) -> Erasures:
    """Return the digests that were erased from a board."""
    rows = select(ERASED.c.digest, ERASED.c.time).where(ERASED.c.prefix == prefix, ERASED.c.board == board)
    # The last row of a digest is the newest.
    found = {row.digest: row.time for row in connection.execute(rows.order_by(ERASED.c.time))}
    return Erasures(key_of(connection), found)


def add_erasures(connection: Connection, prefix: str, board: str, erased: Sequence[tuple[int, Erase]]) -> None:
    """Add the digests in the `erase` entries of a board to the list, each with the time of its entry.

    Skip an entry with the key of another database, because this database has none of the digests that the entry erased.
    """
    key = key_of(connection)
    rows = [
        {"prefix": prefix, "board": name, "time": time, "digest": digest}
        for time, entry in erased
        if entry.key == key
        for name, digests in [(board, [*entry.digests, *filter(None, [entry.member])]), *entry.elsewhere]
        for digest in digests
    ]
    if rows:
        connection.execute(insert(ERASED), rows)


def key_of(connection: Connection) -> bytes:
    """Return the key of the digests on the list."""
    return bytes.fromhex(connection.execute(select(ABOUT.c.value).where(ABOUT.c.name == "erasing")).scalar_one())


class ErasedList(msgspec.Struct, frozen=True):
    """A list of erased digests: its key, and its rows of prefix, board, time and digest."""

    key: bytes
    rows: list[tuple[str, str, int, bytes]]


def list_in(folder: Path, prefix: str) -> ErasedList | None:
    """Return the list from the SQLite journal in a directory. Return None if the list is empty or there is no journal.

    Raises:
        JournalError: the file can't be read.
    """

    def read(connection: Connection) -> ErasedList | None:
        columns = (ERASED.c.prefix, ERASED.c.board, ERASED.c.time, ERASED.c.digest)
        found = [tuple(row) for row in connection.execute(select(*columns).order_by(ERASED.c.id))]
        return ErasedList(key_of(connection), found) if found else None

    with Database("sqlite", folder, prefix, writes=False) as database:
        return database.work(read) if database.path.exists() else None


def import_list(connection: Connection, found: ErasedList, *, replace: bool) -> None:
    """Add `found` to the list in the journal of a backup.

    Two lists with different keys can't be joined. Then `found` replaces the known list if the known list is empty or
    `replace` is true. Otherwise `found` is dropped.
    """
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
