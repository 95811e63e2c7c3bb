"""The entries of a board since a time, from SQL and from the store, also those of the epochs that it continues."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.errors import StoreUnavailableError
from live.journal.database import Database
from live.journal.log.entries import Head, parse_head, position_of
from live.journal.log.reader import entries_of, holds
from live.journal.log.timelines import START, Timeline, continued, find_parent, find_timeline, following
from live.store.board.journal_stream import Entry, read_entries, read_streams
from live.store.connection.client import Store, required

_ATTEMPTS: Final = 20
_PAUSE: Final = 0.25


class Trail(msgspec.Struct, frozen=True):
    """The entries of a board since a time (µs): in SQL, and those that wait in the store.

    `parts` are the timelines of the board, the oldest first, each with the link of its last valid entry. The journal
    has every entry since `reach`. 0 means since the board began.
    """

    parts: Sequence[tuple[Timeline, str]]
    waiting: Sequence[Entry]
    since: int
    reach: int

    def waiting_entries(self) -> Iterator[tuple[Head, bytes]]:
        """Yield the entries that are not in SQL yet."""
        for entry in self.waiting:
            yield parse_head(entry.head), entry.content

    def read(self, connection: Connection) -> Iterator[tuple[Head, bytes]]:
        """Yield all entries since the time, in order."""
        for timeline, last in self.parts:
            end = position_of(last)  # later entries are of a branch that the board has left, or were moved meanwhile
            for head, body in entries_of(connection, timeline, since=self.since):
                if position_of(head.id) > end:
                    break
                if head.time >= self.since:
                    yield head, body
        for head, body in self.waiting_entries():
            if head.time >= self.since:
                yield head, body


async def find_trail(client: Store, database: Database, board: str, epoch: str, since: int) -> Trail:
    """Return the entries of a board since a time (µs), up to now. If some are missing, raise StoreUnavailableError."""
    keys = client.keys_of(board)
    (stream,) = required(await read_streams(client, [(board, epoch)]))
    newest = position_of(stream.link or START)
    for _ in range(_ATTEMPTS):
        known = await database.run(find_timeline, board, epoch)
        timeline = known or Timeline(0, board, epoch)
        waiting: list[Entry] = []
        after, end, missing = timeline.drained, timeline, None
        while missing is None:
            if position_of(after) >= newest:  # producers may go on
                parts, reach = await database.run(_parts, timeline, waiting)
                return Trail(parts, waiting, since, reach)
            (entries,) = required(await read_entries(client, [(keys, timeline.epoch, after)]))
            if not entries:
                break  # the drainer moved the entries to SQL after `known` was read
            followers, missing = following(end, entries)
            waiting += followers
            after, last = entries[-1].id, parse_head(entries[-1].head)
            end = msgspec.structs.replace(end, drained=last.id, link=last.link)
        await asyncio.sleep(_PAUSE)  # read again, because the drainer may have moved entries meanwhile
    raise StoreUnavailableError(f"board {board}: entries of its journal are missing between SQL and the store")


def _parts(
    connection: Connection, timeline: Timeline, waiting: Sequence[Entry]
) -> tuple[list[tuple[Timeline, str]], int]:
    parts, last = [(timeline, timeline.link)], timeline.link
    while True:
        first = next(entries_of(connection, parts[0][0]), None)
        if first is None and len(parts) == 1 and waiting:
            first = parse_head(waiting[0].head), waiting[0].content
        if first is None:
            time = int(last.split(" ")[1])  # a link contains the time of its entry
            return parts, time and time + 1
        head, body = first
        epoch, last, of = continued(head, body), head.before, parts[0][0]
        if head.kind == "adopt" and not epoch and (earlier := find_parent(connection, of, of.epoch)):
            parts.insert(0, (earlier, earlier.link))  # entries between the two timelines are missing
            continue
        parent = find_parent(connection, of, epoch) if epoch else None
        if parent is None or (head.kind == "adopt" and not holds(connection, parent, last)):
            return parts, 0 if head.kind == "begin" else head.time
        parts.insert(0, (parent, last))
