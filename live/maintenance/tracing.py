"""Reads the entries of a board since a time, over all its lives, from SQL and from what waits in the store."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from live.errors import StoreUnavailableError
from live.journal.database import Database
from live.journal.log.entries import Head, parse_head, unpack_entries
from live.journal.log.reader import holds
from live.journal.log.timelines import Timeline, continued, find_life, find_parent, following
from live.journal.schema import SEGMENT
from live.store.board.journal_stream import Entry, read_entries
from live.store.board.keys import Keys
from live.store.connection.client import Store

_ATTEMPTS: Final = 20
_PAUSE: Final = 0.25

Found = tuple[str, Head, bytes]
"""The epoch, the head and the body of an entry."""


class Trail(msgspec.Struct, frozen=True):
    """The entries of a board since a time.

    Attributes:
        parts: the lives of the board, the oldest first, each with the link of the last entry that is part of the board.
        waiting: the entries that are not in SQL.
        since: the time from which on entries are wanted, in microseconds since 1970.
        reach: the time from which on the journal has every entry: 0 if it has them since the board began.
    """

    parts: Sequence[tuple[Timeline, str]]
    waiting: Sequence[Entry]
    since: int
    reach: int

    def read(self, connection: Connection) -> Iterator[Found]:
        """All entries since the time, in order.

        Raises:
            SetupError: the journal is damaged.
        """
        for life, last in self.parts:
            for head, body in _entries(connection, life, self.since):
                if head.time >= self.since:
                    yield life.epoch, head, body
                if head.link == last:
                    break
        for entry in self.waiting:
            head = parse_head(entry.head)
            if head.time >= self.since:
                yield self.parts[-1][0].epoch, head, entry.content


async def find_trail(client: Store, database: Database, prefix: str, board: str, epoch: str, since: int) -> Trail:
    """The entries of a board since a time (microseconds since 1970).

    Raises:
        StoreUnavailableError: the store or the database is unavailable, or entries are missing.
        SetupError: the journal is damaged.
    """
    keys = Keys(prefix, board)
    for _ in range(_ATTEMPTS):
        known = await database.run(lambda connection: find_life(connection, prefix, board, epoch))
        life = known or Timeline(0, board, epoch)
        waiting = await _waiting(client, keys, life)
        if waiting is not None:
            parts, reach = await database.run(partial(_parts, prefix=prefix, life=life, waiting=waiting))
            return Trail(parts, waiting, since, reach)
        await asyncio.sleep(_PAUSE)  # the drainer has moved entries in between
    raise StoreUnavailableError(f"board {board}: entries of its journal are missing between SQL and the store")


async def _waiting(client: Store, keys: Keys, life: Timeline) -> list[Entry] | None:
    """The entries that follow a life in the store; None if some of them are gone."""
    found: list[Entry] = []
    after, end = life.drained, life
    while True:
        (entries,) = await read_entries(client, [(keys, life.epoch, after)])
        if not entries:
            return found
        followers, missing = following(end, entries)
        if missing is not None:
            return None
        found += followers
        after, last = entries[-1].id, parse_head(entries[-1].head)
        end = msgspec.structs.replace(end, drained=last.id, link=last.link)


def _parts(
    connection: Connection, prefix: str, life: Timeline, waiting: Sequence[Entry]
) -> tuple[list[tuple[Timeline, str]], int]:
    """The lives of which a board consists, and from which time on the journal has every entry."""
    parts, last = [(life, life.link)], life.link
    while True:
        first = next(_entries(connection, parts[0][0], 0), None)
        if first is None and len(parts) == 1 and waiting:
            first = parse_head(waiting[0].head), waiting[0].content
        if first is None:
            return parts, parse_time(last)
        head, body = first
        (epoch, _), last = continued(head, body), head.before
        parent = find_parent(connection, life, prefix, epoch) if epoch else None
        if parent is None or (head.kind == "adopt" and not holds(connection, parent, last)):
            return parts, 0 if head.kind == "begin" else head.time
        parts.insert(0, (parent, last))


def parse_time(link: str) -> int:
    """The time in a link, in microseconds since 1970."""
    return int(link.split(" ")[1])


def _entries(connection: Connection, life: Timeline, since: int) -> Iterator[tuple[Head, bytes]]:
    """The entries of a life in SQL, from the first segment on that ends at a time or later."""
    where = (SEGMENT.c.life == life.id, SEGMENT.c.ended >= since)
    names = connection.execute(select(SEGMENT.c.id).where(*where).order_by(SEGMENT.c.id)).all()
    for name in names:
        row = connection.execute(select(SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.id == name.id)).one()
        for text, body in unpack_entries(row.crc, row.data):
            yield parse_head(text), body
