"""The contents of a board at a time, read from SQL: the checkpoint before it, and the entries since."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final, Self

import msgspec
from sqlalchemy import Connection, func, select

from live.domain.board import Board
from live.domain.choices import ClockKind
from live.errors import SetupError
from live.journal.database import Database
from live.journal.forgetting import erasures_in
from live.journal.log.entries import FIRST, Head, Latest, decompress, parse_head, position_of, read_entries_of
from live.journal.log.timelines import START, Timeline, find_parent, find_timeline, life_of, timelines_of
from live.journal.schema import CHECKPOINT, SEGMENT
from live.journal.state.conversion import base_of
from live.journal.state.events import divide
from live.journal.state.fold import apply, needs_rereading, rest_of, ruled_by, taken_by
from live.journal.state.ruled import NO_CHANGE, Ruled
from live.journal.state.snapshot import Snapshot, unpack
from live.journal.state.taken import NOTHING, Taken
from live.store.board.batch import Batch
from live.store.board.journal_stream import read_entries
from live.store.connection.client import Store, required

_LATEST: Final = msgspec.msgpack.Decoder(Latest)
_ROWS: Final = 64  # segments in memory at once

Stop = Callable[[Head, bytes], bool]
"""Whether to stop before an entry, by its head and its content."""
Progress = Callable[[int, int], None]
Follow = Callable[[Head, Batch | None], None]
"""Called after an entry was applied, with the batch that it counted, if any."""


def contents_of(
    connection: Connection,
    timeline: Timeline,
    stop: Stop = lambda *_: False,
    *,
    until: int | None = None,
    taken: Taken = NOTHING,
    ruled: Ruled = NO_CHANGE,
    progress: Progress = lambda *_: None,
) -> Snapshot:
    """Return what a board held before the first entry for which `stop` is true, or at the end of the timeline.

    Leave out the events in `taken`, besides those that were taken back before the end. If `ruled` is a change of rules
    after the end, count by these rules.

    `until` is the last segment to read. Call `progress` with the number of entries read so far, and the number of all
    entries.
    """
    while True:
        erasures = erasures_in(connection)
        reading, segment = EntryReader.begin(connection, timeline, stop, until=until, taken=taken, ruled=ruled)
        for head, body in entries_of(connection, timeline, segment, progress, until):
            if stop(head, body):
                break
            reading.apply(connection, head, body)
        if erasures_in(connection) == erasures:  # otherwise, the rows may have had several replacements of a digest
            return reading.contents


def contents_at(
    connection: Connection,
    timeline: Timeline,
    times: Sequence[int],
    clock: ClockKind,
    *,
    board: Board | None = None,
    follow: Follow = lambda *_: None,
) -> Iterator[tuple[int, Snapshot]]:
    """Yield the contents of a board at ascending times (milliseconds since 1970, by its clock).

    Each result is the same object, until a swap changes what earlier entries mean. On a board with an event clock, a
    batch can be divided: a time has all events of the batch before it. With `board`, count by its rules, even if it had
    other rules at these times.
    """
    left = list(times)
    while left:
        ruled = NO_CHANGE if board is None else _later_rules(connection, timeline, board, left[0])
        stop = before(left[0], clock)
        reading, segment = EntryReader.begin(connection, timeline, stop, ruled=ruled)
        for head, body in entries_of(connection, timeline, segment):
            rest = rest_of(reading.ahead, head, body)
            while left and before(left[0], clock)(head, rest):
                if clock == "event" and head.kind == "add":
                    first, rest = divide(rest, left[0])
                    if first:
                        follow(head, reading.apply(connection, head, first))
                yield left.pop(0), reading.contents
            if not left:
                return
            if reading.is_other_past(head, body):
                follow(head, None)
                break  # begin again for the times after it
            follow(head, reading.apply(connection, head, rest))
        else:
            for at in left:
                yield at, reading.contents
            return


class EntryReader:
    """The contents of a board while entries of `timeline` are applied. The other values are those of `contents_of`."""

    def __init__(self, timeline: Timeline, data: Snapshot) -> None:
        self.timeline = timeline
        self._data = data
        self._unknown: SetupError | None = None  # the reason why SQL lacks the contents of the board

    @classmethod
    def begin(
        cls,
        connection: Connection,
        timeline: Timeline,
        stop: Stop,
        *,
        until: int | None = None,
        taken: Taken = NOTHING,
        ruled: Ruled = NO_CHANGE,
    ) -> tuple[Self, int]:
        """Begin with a checkpoint that has what the swaps before `stop`, `taken` and `ruled` say.

        Also return the last segment that it has.
        """
        swaps = list(swaps_of(connection, timeline, stop, until))
        taken = Taken.all_of([*map(taken_by, swaps), taken])
        for swap in reversed(swaps):
            ruled = ruled or ruled_by(swap)
        data, segment = checkpoint_before(connection, timeline, stop, taken, ruled)
        data.ahead = taken.without(data.taken)
        reading = cls(timeline, data)
        if not segment and oldest_checkpoint(connection, timeline) is not None:
            reading._unknown = SetupError(
                f"the journal of board {timeline.board!r} has deleted entries that are needed"
            )
        return reading, segment

    @property
    def contents(self) -> Snapshot:
        """What the board holds."""
        if self._unknown is not None:
            raise self._unknown
        return self._data

    @property
    def ahead(self) -> Taken:
        """The events that are left out before a swap takes them back."""
        return self._data.ahead

    def is_other_past(self, head: Head, body: bytes) -> bool:
        """Return whether an entry is a swap after which earlier entries mean something else than in the contents."""
        return head.kind == "swap" and self._unknown is None and needs_rereading(self._data, body)

    def apply(self, connection: Connection, head: Head, body: bytes) -> Batch | None:
        """Apply the next entry, and return the batch that it counted, if any.

        If SQL lacks the entries before it, skip entries until an entry has all contents.
        """
        if head.kind == "renew":
            try:
                self._data = contents_of_parent(
                    connection,
                    self.timeline,
                    body.decode(),
                    head.before,
                    taken=self._data.ahead,
                    ruled=_pending(self._data),
                )
            except SetupError as error:
                self._unknown = error
        elif head.kind == "begin":
            self._data, self._unknown = Snapshot(ahead=self._data.ahead, ruled=_pending(self._data)), None
        elif head.kind == "adopt":
            self._unknown = None
        return apply(self._data, head, body) if self._unknown is None else None


def oldest_checkpoint(connection: Connection, timeline: Timeline) -> tuple[Snapshot, int] | None:
    """Return the oldest checkpoint and its last segment if entries before it were deleted, or else None."""
    first = select(func.min(SEGMENT.c.id)).where(SEGMENT.c.life == timeline.id).scalar_subquery()
    row = connection.execute(
        select(CHECKPOINT.c.segment, CHECKPOINT.c.crc, CHECKPOINT.c.data)
        .where(CHECKPOINT.c.life == timeline.id, CHECKPOINT.c.segment < func.coalesce(first, CHECKPOINT.c.segment + 1))
        .order_by(CHECKPOINT.c.segment)
        .limit(1)
    ).first()
    return None if row is None else (unpack(decompress(row.crc, row.data)), row.segment)


def swaps_of(
    connection: Connection,
    timeline: Timeline,
    stop: Stop = lambda *_: False,
    until: int | None = None,
    after: int = 0,
) -> Iterator[bytes]:
    """Yield the content of each swap of a timeline before `stop`, in the segments after `after` and up to `until`."""
    where = [SEGMENT.c.life == timeline.id, SEGMENT.c.swapped, SEGMENT.c.id > after]
    if until is not None:
        where.append(SEGMENT.c.id <= until)
    rows = connection.execute(select(SEGMENT.c.crc, SEGMENT.c.data).where(*where).order_by(SEGMENT.c.id)).all()
    for row in rows:
        yield from (body for head, body in read_entries_of(row) if head.kind == "swap" and not stop(head, body))


def newest_segment(connection: Connection, timeline: Timeline) -> int:
    """Return the number of the last segment of a timeline; 0 for none."""
    return connection.scalar(select(func.max(SEGMENT.c.id)).where(SEGMENT.c.life == timeline.id)) or 0


def entries_after(connection: Connection, timeline: Timeline, segment: int) -> tuple[int, list[tuple[Head, bytes]]]:
    """Return the entries of a timeline after a segment, and the last segment that holds them."""
    newest = max(segment, newest_segment(connection, timeline))
    return newest, list(entries_of(connection, timeline, segment, until=newest)) if newest > segment else []


def before(time: int, clock: ClockKind = "server") -> Stop:
    """Return a `Stop` at the first entry whose time (milliseconds, by the board's clock) is `time` or later.

    By an event clock, this is the first batch with such an event. A later swap has such a time too, because swaps are
    read without the batches before them.
    """
    if clock == "server":
        return lambda head, _: head.time >= time * 1000
    return lambda head, body: head.kind in {"add", "swap"} and (_LATEST.decode(body).latest or time - 1) >= time


def after(link: str) -> Stop:
    """Return a `Stop` after the entry with a link.

    Times never go back, so the time alone excludes most later checkpoints before they are unpacked. Several entries can
    have the same time.
    """
    time, last = int(link.split(" ")[1]), position_of(link)
    return lambda head, _: head.time > time or (bool(head.id) and position_of(head.id) > last)


def _later_rules(connection: Connection, timeline: Timeline, board: Board, at: int) -> Ruled:
    """Return the last change of a board's rules, as it is for a time in milliseconds. It may be in a later timeline."""
    life = life_of(connection, board.id, timelines_of(connection, board.id)[-1].epoch)
    for one in life if timeline.id in {one.id for one in life} else [timeline]:
        changes = list(filter(None, map(ruled_by, swaps_of(connection, one))))
        if changes:
            last = changes[-1]
            made = Ruled.by(last.name, board, at, ())
            return msgspec.structs.replace(made, earlier=(*last.earlier, last.choices))
    return NO_CHANGE


def _pending(data: Snapshot) -> Ruled:
    """Return the change of rules that some contents have not reached yet."""
    return data.ruled if data.origin or not data.shape else NO_CHANGE


class TooOldError(SetupError):
    """The journal has deleted entries that other rules need: those before a time (ms, by the clock of the board)."""

    def __init__(self, time: int) -> None:
        super().__init__("by these rules, the board needs events that its journal has deleted")
        self.time = time


def checkpoint_before(
    connection: Connection, timeline: Timeline, stop: Stop, taken: Taken = NOTHING, ruled: Ruled = NO_CHANGE
) -> tuple[Snapshot, int]:
    """Return the last checkpoint before an entry for which `stop` is true, and its last segment; else empty and 0.

    It has none of the events in `taken`, unless they were taken back before it, and counts by the rules `ruled`.

    Raises:
        TooOldError: earlier entries were deleted, and no checkpoint says enough for the rules.
    """
    known = select(CHECKPOINT.c.id, CHECKPOINT.c.segment, CHECKPOINT.c.time).where(CHECKPOINT.c.life == timeline.id)
    for row in connection.execute(known.order_by(CHECKPOINT.c.segment.desc())).all():
        if not stop(Head("checkpoint", 0, "", row.time, "", ""), b""):
            packed = select(CHECKPOINT.c.crc, CHECKPOINT.c.data).where(CHECKPOINT.c.id == row.id)
            data = unpack(decompress(*connection.execute(packed).one()))
            last = Head("add", 0, data.link.partition(" ")[0], row.time, "", "")
            if taken.reaches(data.taken, data.time):
                continue
            if not stop(last, msgspec.msgpack.encode({"latest": data.latest})):
                found = base_of(data, ruled) if ruled and data.ruled.name != ruled.name else data
                if found is not None:
                    return found, row.segment
    if ruled and (oldest := oldest_checkpoint(connection, timeline)) is not None:
        first = oldest[0]
        raise TooOldError(first.time // 1000 if ruled.board.clock == "server" else first.latest or 0)
    return Snapshot(ruled=ruled), 0


def entries_of(
    connection: Connection,
    timeline: Timeline,
    after: int = 0,
    progress: Progress = lambda *_: None,
    until: int | None = None,
    since: int = 0,
    offset: int = 0,
) -> Iterator[tuple[Head, bytes]]:
    """Yield the entries, with their contents, in the segments of a timeline after `after`, up to the segment `until`.

    Leave out the segments that end before `since`, in microseconds since 1970, or before `offset`. Call `progress` with
    the number of entries read so far, and the number of all entries.
    """
    where = [SEGMENT.c.life == timeline.id, SEGMENT.c.id > after, SEGMENT.c.ended >= since, SEGMENT.c.last >= offset]
    if until is not None:
        where.append(SEGMENT.c.id <= until)
    sizes = connection.execute(select(SEGMENT.c.id, SEGMENT.c.entries).where(*where).order_by(SEGMENT.c.id)).all()
    done, total = 0, sum(row.entries for row in sizes)
    for first in range(0, len(sizes), _ROWS):
        names = [row.id for row in sizes[first : first + _ROWS]]
        rows = connection.execute(
            select(SEGMENT.c.entries, SEGMENT.c.crc, SEGMENT.c.data)
            .where(SEGMENT.c.id.in_(names))
            .order_by(SEGMENT.c.id)
        )
        for row in rows.all():
            yield from read_entries_of(row)
            done += row.entries
            progress(done, total)


def contents_of_parent(
    connection: Connection,
    timeline: Timeline,
    epoch: str,
    link: str,
    *,
    taken: Taken = NOTHING,
    ruled: Ruled = NO_CHANGE,
) -> Snapshot:
    """Return what the board held at the end of the timeline of `epoch`, whose last entry has this link.

    Leave out the events in `taken`, and count by the rules `ruled`, as in `contents_of`.
    """
    parent, data = find_parent(connection, timeline, epoch), Snapshot()
    while parent is not None and data.link != link:  # where entries are missing, an epoch has several timelines
        data = contents_of(connection, parent, after(link), taken=taken, ruled=ruled)
        parent = find_parent(connection, parent, epoch)
    if data.link != link:
        raise SetupError(
            f"the journal does not hold what board {timeline.board!r} had when epoch {timeline.epoch} began. "
            f"If the store holds the board, run `live check --board {timeline.board} --repair journal`"
        )
    return data


def holds(connection: Connection, timeline: Timeline, link: str) -> bool:
    """Return whether a timeline has the entry with a link."""
    last = position_of(link)
    after = (head for head, _ in entries_of(connection, timeline, offset=last[0]) if position_of(head.id) >= last)
    return next((head.link == link for head in after), False)


class StoreBehindError(SetupError):
    """SQL has more of a board than the store: the store lost data."""


class Follower:
    """The contents of a board, updated entry by entry from SQL, or from the store while SQL lacks an entry.

    The drainer may run meanwhile. The contents lack the events in `taken`, besides those that were taken back before.
    They count by the rules `ruled`, if this is a change that comes later.
    """

    def __init__(
        self,
        client: Store,
        database: Database,
        board: str,
        epoch: str,
        taken: Taken = NOTHING,
        ruled: Ruled = NO_CHANGE,
    ) -> None:
        self.contents = Snapshot(link=FIRST, ahead=taken, ruled=ruled)
        self._client = client
        self._database = database
        self._name = (board, epoch)
        self._timeline: Timeline | None = None
        self._segment = 0
        self._ahead: deque[tuple[Head, bytes]] = deque()  # entries that were read and are not yet applied
        self._last = (0, 0)  # the position of the last entry that was read

    async def begin(self, progress: Progress) -> None:
        """Read all entries in SQL. Call `progress` as `contents_of` does."""
        await self._find()
        timeline = self._timeline
        if timeline is None:
            return

        def read(connection: Connection) -> tuple[int, Snapshot]:
            segment = newest_segment(connection, timeline)
            taken, ruled = self.contents.ahead, self.contents.ruled
            return segment, contents_of(
                connection, timeline, until=segment, taken=taken, ruled=ruled, progress=progress
            )

        self._segment, self.contents = await self._database.run(read)
        self._last = position_of(self.contents.link)

    async def advance(self, link: str) -> Snapshot:
        """Return what the board held after the entry with a link. Links must be in the order of the journal.

        Raises:
            StoreBehindError: SQL has more entries than the store, or other entries.
        """
        while self.contents.link != link:
            if position_of(self.contents.link) >= position_of(link):
                raise self._behind(link)
            if not self._ahead:
                await self._read()
            if not self._ahead:
                raise self._missing(link)
            head, body = self._ahead.popleft()
            if head.kind == "renew" and self.contents.link == FIRST:
                self.contents = await self._database.run(
                    contents_of_parent,
                    Timeline(0, *self._name),
                    body.decode(),
                    head.before,
                    taken=self.contents.ahead,
                    ruled=_pending(self.contents),
                )
            elif head.kind != "adopt" and head.before != self.contents.link:
                if position_of(head.before) <= position_of(self.contents.link):
                    raise self._behind(head.before)
                raise self._missing(head.before)
            elif head.kind == "swap" and needs_rereading(self.contents, body):
                ruled = _pending(self.contents) or ruled_by(body) or self.contents.ruled
                taken = Taken.all_of([self.contents.taken, self.contents.ahead, taken_by(body)])
                self.contents = await self._at(head.before, taken, ruled)
            elif head.kind in {"erase", "forget"}:  # when SQL receives it, earlier entries change
                taken = Taken.all_of([self.contents.taken, self.contents.ahead])
                self.contents = await self._at(head.link, taken, _pending(self.contents) or self.contents.ruled)
                continue
            apply(self.contents, head, body)
        return self.contents

    async def _at(self, link: str, taken: Taken, ruled: Ruled) -> Snapshot:
        """Read again what the board held after an entry, without the events in `taken` and by the rules `ruled`."""
        last, waiting = position_of(link), list[tuple[Head, bytes]]()
        while more := await self._waiting(waiting[-1][0].id if waiting else START):
            waiting += more
        if self._timeline is None:
            await self._find()

        def read(connection: Connection) -> Snapshot:
            timeline = self._timeline or Timeline(0, *self._name)
            data = contents_of(connection, timeline, after(link), taken=taken, ruled=ruled)
            reading = EntryReader(timeline, data)
            for found, body in waiting:
                if position_of(data.link or START) < position_of(found.id) <= last:
                    reading.apply(connection, found, body)
            return reading.contents

        data = await self._database.run(read)
        if data.link != link:
            raise self._missing(link)
        return data

    def _behind(self, link: str) -> StoreBehindError:
        return StoreBehindError(
            f"the journal has board {self._name[0]} up to entry {self.contents.link.partition(' ')[0]}, and the store "
            f"continues after {link.partition(' ')[0]}: it lost data"
        )

    def _missing(self, link: str) -> SetupError:
        return SetupError(
            f"the journal of board {self._name[0]} lacks the entry {link.partition(' ')[0]}, which the store names: "
            "see the log of the server, and `live journal`"
        )

    async def _find(self) -> None:
        timeline = await self._database.run(find_timeline, *self._name)
        self._timeline = timeline if timeline is not None and timeline.size else None

    async def _read(self) -> None:
        """Read the next entries, from the store first. An entry that the drainer trims meanwhile is then in SQL."""
        waiting = await self._waiting("-".join(map(str, self._last)) if self._last > (0, 0) else START)
        if self._timeline is None:
            await self._find()
        stored: list[tuple[Head, bytes]] = []
        if self._timeline is not None:
            timeline, segment = self._timeline, self._segment
            self._segment, stored = await self._database.run(entries_after, timeline, segment)
        for head, body in chain(stored, waiting):
            if position_of(head.id) > self._last:
                self._ahead.append((head, body))
                self._last = position_of(head.id)

    async def _waiting(self, after: str) -> list[tuple[Head, bytes]]:
        """Return the next entries that the store holds after an id."""
        board, epoch = self._name
        (entries,) = required(await read_entries(self._client, [(self._client.keys_of(board), epoch, after)]))
        return [(parse_head(entry.head), entry.content) for entry in entries]
