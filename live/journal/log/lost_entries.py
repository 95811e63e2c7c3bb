"""Write what a failover lost: the store lacks the last entries in SQL.

The contents of the board are folded up to the last entry that both have, and then with the lost entries. The
difference is written under the store keys of the board, whatever kinds of entries have made it. SQL stays as it is, and
the next entry of the store follows the last entry in SQL. The numbers of batches and the identities of events are
written too, so if a producer sends an event again, it is a duplicate.

No process uses the board meanwhile: it is fenced (see `store/lua/fence.lua`). Until the last step, the store still
names the old entry as its last one, and all that is written are final values. So after an interruption, the next
attempt writes the same.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import groupby, islice
from typing import Final

import structlog
from sqlalchemy import Connection

from live.domain.board import Board
from live.errors import SetupError
from live.journal.database import Database
from live.journal.log.entries import Head, contents
from live.journal.log.reader import EntryReader, after, contents_of, entries_of
from live.journal.log.timelines import Timeline
from live.journal.state.difference import ContentsDifference
from live.journal.state.fold import apply, ruled_by
from live.journal.state.snapshot import IDENTITY, Snapshot, logged_of
from live.store.board.batch import decode_batch
from live.store.board.keys import Keys
from live.store.board.manage.mending import Mending
from live.store.board.manage.swap import ELEMENTS, Write
from live.store.board.requests import MendRequest
from live.store.connection.client import Store

log = structlog.get_logger()

# Kinds of entries whose effect is not in the difference of contents.
_REFUSED: Final = ("begin", "adopt", "renew", "erase", "forget")

Entries = Sequence[tuple[Head, bytes]]


class UnwrittenError(Exception):
    """The lost entries can't be written. The message says why."""


async def write_lost(client: Store, database: Database, timeline: Timeline, board: Board, *, least: int = 0) -> None:
    """Write what the store lacks of a timeline. Afterwards, the board has an offset above `least`.

    After StoreUnavailableError or JournalError, try again.

    Raises:
        UnwrittenError: the store has something that SQL lacks, or an entry can't be written.
    """
    keys = client.keys_of(timeline.board)
    held = await client.call(keys.meta, "HGET", keys.meta, "journal")
    link = (held or b"").decode().rpartition(" ")[0]
    try:
        data, lost, after_all = await database.run(_read, timeline, link)
    except SetupError as error:
        raise UnwrittenError(str(error)) from None
    await Mend(client, keys, board, timeline, data, lost, after_all).run(least)


def _read(connection: Connection, timeline: Timeline, link: str) -> tuple[Snapshot, Entries, Snapshot | None]:
    """Return what the board held after the entry with a link, and the entries after it.

    If one of these entries takes earlier events back, also return what the board holds after all of them.
    """
    stop, lost = after(link), list[tuple[Head, bytes]]()
    reading, segment = EntryReader.begin(connection, timeline, stop)
    for head, body in entries_of(connection, timeline, segment):
        if lost or stop(head, body):
            lost.append((head, body))
        else:
            reading.apply(connection, head, body)
    if reading.contents.link != link:
        raise UnwrittenError(
            f"the journal has no entry {link.partition(' ')[0]} like that of the store: stop the servers, and choose "
            f"one of them with `live recover --board {timeline.board} --from journal` or `--from store`"
        )
    for head, body in lost:
        if head.kind == "swap" and ruled_by(body):
            raise UnwrittenError(
                f"entry {head.id} changes the rules of the board: stop the servers, and run "
                f"`live recover --from journal --board {timeline.board}`"
            )
    takes_back = any(reading.is_other_past(head, body) for head, body in lost)
    return reading.contents, lost, contents_of(connection, timeline) if takes_back else None


class Mend:
    """The repair of one board: what the `lost` entries change in `data`, which the store holds.

    `end` is the timeline that ends with the last of these entries. `after` has the contents after them, unless they
    follow from `data`.
    """

    def __init__(
        self,
        client: Store,
        keys: Keys,
        board: Board,
        end: Timeline,
        data: Snapshot,
        lost: Entries,
        after: Snapshot | None = None,
    ) -> None:
        self._client, self._keys, self._board, self._end = client, keys, board, end
        self._data, self._lost, self._after = data, lost, after
        self._edition = data.edition
        self._undone: dict[int, set[bytes]] = {}  # by bucket, the identities of events that a lost swap has undone
        # By the clock of the last entry, so that each attempt writes the same. Rotation subtracts what has left the
        # window since then.
        self._now = lost[-1][0].time // 1000
        self._difference = ContentsDifference(board, keys)

    async def run(self, least: int = 0) -> None:
        """Write the difference, and make the last entry that of the store. The board gets an offset above `least`."""
        for head, _ in self._lost:
            if head.kind in _REFUSED:
                raise UnwrittenError(
                    f"entry {head.id}, of the kind {head.kind!r}, can't be written: "
                    f"stop the servers, and run `live recover --from journal --board {self._board.id}`"
                )
        mending = Mending(self._client, self._keys, self._end.epoch)
        await mending.begin(self._data.link)
        leaving = await self._leaving()
        for _, writes in groupby(await asyncio.to_thread(self._writes, leaving), self._step):
            await mending.write(writes)
        await mending.finish(self._request(least))
        if self._data.edition != self._edition:
            log.warning(
                "a failover has lost a repair of a board: run `live check --repair store` again",
                board=self._board.id,
            )

    async def _leaving(self) -> Collection[int]:
        """Let the contents hold what has left the window and is still in the store. Return what `advance` takes."""
        board, data, difference = self._board, self._data, self._difference
        difference.move(data, self._now)
        call, keys = self._client.call, self._keys
        if (left := difference.left) is not None:
            found = await call(keys.log, "ZRANGEBYSCORE", keys.log, "-inf", left, "WITHSCORES")
            due = [logged_of(event, int(float(time))) for event, time in zip(found[::2], found[1::2], strict=True)]
            data.log = [*(event for event in data.log if event.time > left), *due]
            return {event.time for event in due}
        if board.window.tables or difference.oldest is None:  # a period leaves as a whole
            return ()
        starts = [int(start) for start in await call(keys.slots, "ZRANGE", keys.slots, 0, -1)]
        leaving = [start for start in starts if start < difference.oldest]
        for start in leaving:
            held = await call(keys.slot(start), "HGETALL", keys.slot(start))
            pairs = zip(held[::2], held[1::2], strict=True)
            data.slots[start] = {member.decode(): int(value) for member, value in pairs}
        return leaving

    def _writes(self, leaving: Collection[int]) -> list[Write]:
        """Apply the lost entries. Return what to write, in the order of `_step`."""
        data, difference = self._data, self._difference
        difference.begin(data, self._now, leaving)
        oldest = difference.oldest
        kept = [start for start in data.slots if self._board.window.tables and start >= (oldest or 0)]
        if self._after is None:
            for head, body in self._lost:
                apply(data, head, body)
        else:
            seen, data = data.seen, self._with_leaving(self._after)
            self._data = data
            self._undone = {bucket: known - data.seen.get(bucket, set()) for bucket, known in seen.items()}
        return sorted([*difference.advance(data, self._now, kept), *self._numbers()], key=self._step)

    def _with_leaving(self, data: Snapshot) -> Snapshot:
        """Return contents with what has left the window and is still in the store."""
        left, oldest = self._difference.left, self._difference.oldest
        if left is not None:
            due = [event for event in self._data.log if event.time <= left]
            data.log = [*(event for event in data.log if event.time > left), *due]
        elif oldest is not None and not self._board.window.tables:
            data.slots = {start: slot for start, slot in data.slots.items() if start >= oldest}
            data.slots |= {start: slot for start, slot in self._data.slots.items() if start < oldest}
        return data

    def _step(self, write: Write) -> int:
        """Return when to write. Later than the rest comes what the next attempt after an interruption reads first."""
        if write.name == self._keys.slots:
            return 2
        is_gone = write.name in self._gone or (write.name == self._keys.log and write.command == "ZREM")
        return 1 if is_gone or write.command == "EXPIREAT" else 0

    @cached_property
    def _gone(self) -> set[str]:
        """The store keys of the slots that have left the window."""
        oldest = self._difference.oldest
        return {self._keys.slot(start) for start in self._data.slots if oldest is not None and start < oldest}

    def _numbers(self) -> Iterator[Write]:
        """Yield what lets the store know a batch, or an event, that a producer sends again, but no undone event."""
        writers, seen = dict[str, str](), dict[int, set[bytes]]()
        for head, body in self._lost:
            if head.kind != "add":
                continue
            *_, writer, number = head.link.split(" ")
            writers[writer] = f"{number} {head.offset} {head.time // 1_000_000}"
            if (identities := decode_batch(body).identities) is not None:
                if identities.bucket not in seen:
                    name = self._keys.seen(identities.bucket)
                    yield Write("EXPIREAT", name, [identities.bucket + identities.kept])
                seen.setdefault(identities.bucket, set()).update(contents(identities.all, IDENTITY))
        known = ((bucket, found & self._data.seen.get(bucket, set())) for bucket, found in seen.items())
        for command, changes in (("SREM", self._undone.items()), ("SADD", known)):
            for bucket, all_ in changes:
                left = iter(all_)
                while piece := list[bytes | str | int](islice(left, ELEMENTS)):
                    yield Write(command, self._keys.seen(bucket), piece)
        fields = [word for pair in writers.items() for word in pair]
        for first in range(0, len(fields), ELEMENTS):
            yield Write("HSET", self._keys.writers, [*fields[first : first + ELEMENTS]])

    def _request(self, least: int) -> MendRequest:
        data, end = self._data, self._end
        batches = [decode_batch(body) for head, body in self._lost if head.kind == "add"]
        edition = ["edition", str(data.edition)] if data.edition else []
        return MendRequest(
            clock=self._lost[-1][0].time,
            offset=max(end.offset, least),
            fields=[*self._difference.fields(), "journal", f"{end.link} {end.size}", *edition],
            gained=sum(sum(group.amounts) for batch in batches if batch.rules.summed for group in batch.groups),
            swapped=data.edition != self._edition,
        )
