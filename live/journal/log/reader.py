"""The contents of a board at a time, read from SQL: the checkpoint before it, and the entries since."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

import msgspec
from sqlalchemy import Connection, Row, func, select

from live.domain.board import ClockKind
from live.errors import SetupError
from live.journal.database import Database
from live.journal.erasures import Erasures, erasures_of, forget_people
from live.journal.log.entries import FIRST, Head, Latest, decompress, parse_head, position_of, read_entries_of
from live.journal.log.timelines import START, Timeline, find_parent, find_timeline
from live.journal.schema import CHECKPOINT, SEGMENT
from live.journal.state.division import divide
from live.journal.state.fold import apply
from live.journal.state.snapshot import Snapshot, unpack
from live.store.board.journal_stream import read_entries
from live.store.board.keys import Keys
from live.store.connection.client import Store, required

_LATEST: Final = msgspec.msgpack.Decoder(Latest)
_ROWS: Final = 64  # segments in memory at once

Stop = Callable[[Head, bytes], bool]
"""Whether to stop before an entry, by its head and its content."""
Progress = Callable[[int, int], None]
Follow = Callable[[Head, bytes], None]


def contents_of(  # noqa: PLR0913 - from where, and up to where
    connection: Connection,
    prefix: str,
    timeline: Timeline,
    stop: Stop = lambda *_: False,
    *,
    until: int | None = None,
    link: str | None = None,
    board: str | None = None,
    people: bool = True,
    progress: Progress = lambda *_: None,
) -> Snapshot:
    """Return what a board held before the first entry for which `stop` is true, or at the end of the timeline.

    Leave out actors who were erased later from `board`, which is by default the board of the timeline.

    Without `people`, do not search for erased digests, which saves time. Then votes and identities may be missing, or
    belong to an erased actor. Scores and ranks are still right.

    With a `link`, stop after the entry with this link instead. `until` is the last segment to read. Call `progress`
    with the number of entries read so far, and the number of all entries.

    Raises:
        SetupError: the journal is damaged, or SQL lacks the timeline that `timeline` continues.
    """
    if link is not None:
        data, segment = _checkpoint_until(connection, timeline, link)
    else:
        data, segment = checkpoint_before(connection, timeline, stop)
    reading = EntryReader(prefix, timeline, data, board, people=people)
    erasures = erasures_of(connection, prefix, board or timeline.board) if people else Erasures(b"", {})
    for head, body in entries_of(connection, timeline, segment, progress, until):
        if reading.link == link or stop(head, body):
            break
        erasures.follow(head, body)
        reading.apply(connection, head, body)
    erasures.clean(reading.contents)
    return reading.contents


def contents_at(
    connection: Connection,
    prefix: str,
    timeline: Timeline,
    times: Sequence[int],
    clock: ClockKind,
    *,
    follow: Follow = lambda *_: None,
) -> Iterator[tuple[int, Snapshot]]:
    """Yield the contents of a board at ascending times (milliseconds since 1970, by its clock), in one pass.

    Each result is the same object, with the contents of the next time. `follow` is called after each entry that was
    applied. On a board with an event clock, a batch can be divided: a time has all events of the batch before it.

    Raises:
        SetupError: the journal is damaged.
    """
    left = list(times)
    data, segment = checkpoint_before(connection, timeline, before(left[0], clock))
    reading = EntryReader(prefix, timeline, data, people=False)
    for head, body in entries_of(connection, timeline, segment):
        rest = body
        while left and before(left[0], clock)(head, rest):
            if clock == "event":
                first, rest = divide(rest, left[0])
                if first:
                    reading.apply(connection, head, first)
                    follow(head, first)
            yield left.pop(0), reading.contents
        if not left:
            return
        reading.apply(connection, head, rest)
        follow(head, rest)
    for at in left:
        yield at, reading.contents


class EntryReader:
    """The contents of a board while entries are applied. `timeline` is the timeline that is being read.

    `board` and `people` are passed to `contents_of`, which reads the previous timeline.
    """

    def __init__(
        self, prefix: str, timeline: Timeline, data: Snapshot, board: str | None = None, *, people: bool
    ) -> None:
        self.timeline = timeline
        self._board = board
        self._people = people
        self._prefix = prefix
        self._data = data
        self._unknown: SetupError | None = None  # the reason why SQL lacks the contents of the board

    @property
    def contents(self) -> Snapshot:
        """What the board holds.

        Raises:
            SetupError: SQL does not have it.
        """
        if self._unknown is not None:
            raise self._unknown
        return self._data

    @property
    def link(self) -> str:
        """The link of the last entry that was applied."""
        return self._data.link

    def apply(self, connection: Connection, head: Head, body: bytes) -> None:
        """Apply the next entry. If SQL lacks the entries before it, skip entries until an entry has all contents."""
        if head.kind == "renew":
            try:
                epoch, link = body.decode(), head.before
                self._data = contents_of_parent(
                    connection, self._prefix, self.timeline, epoch, link, self._board, people=self._people
                )
            except SetupError as error:
                self._unknown = error
        elif head.kind == "begin":
            self._data, self._unknown = Snapshot(), None
        elif head.kind == "adopt":
            self._unknown = None
        if self._unknown is None:
            if head.kind == "erase" and not self._people:  # looking for a million digests would take a second
                forget_people(self._data)
            apply(self._data, head, body)


def oldest_checkpoint(connection: Connection, timeline: Timeline) -> tuple[Snapshot, int] | None:
    """Return the oldest checkpoint that replaces deleted entries, and the last segment that it covers.

    Return None if the timeline still has all its entries.
    """
    first = select(func.min(SEGMENT.c.id)).where(SEGMENT.c.life == timeline.id).scalar_subquery()
    row = connection.execute(
        select(CHECKPOINT.c.segment, CHECKPOINT.c.crc, CHECKPOINT.c.data)
        .where(CHECKPOINT.c.life == timeline.id, CHECKPOINT.c.segment < func.coalesce(first, CHECKPOINT.c.segment + 1))
        .order_by(CHECKPOINT.c.segment)
        .limit(1)
    ).first()
    return None if row is None else (unpack(decompress(row.crc, row.data)), row.segment)


def newest_segment(connection: Connection, timeline: Timeline) -> int:
    """Return the number of the last segment of a timeline; 0 for none."""
    return connection.scalar(select(func.max(SEGMENT.c.id)).where(SEGMENT.c.life == timeline.id)) or 0


def entries_after(connection: Connection, timeline: Timeline, segment: int) -> tuple[int, list[tuple[Head, bytes]]]:
    """Return the entries of a timeline after a segment, and the last segment that holds them.

    Raises:
        SetupError: the journal is damaged.
    """
    newest = max(segment, newest_segment(connection, timeline))
    return newest, list(entries_of(connection, timeline, segment, until=newest)) if newest > segment else []


def before(time: int, clock: ClockKind = "server") -> Stop:
    """Return a `Stop` that ends reading before the first entry whose time, by the board's clock, is `time` or later.

    `time` is in milliseconds since 1970.
    """
    if clock == "server":
        return lambda head, _: head.time >= time * 1000
    return lambda head, body: head.kind == "add" and (_LATEST.decode(body).latest or time - 1) >= time


def checkpoint_before(connection: Connection, timeline: Timeline, stop: Stop) -> tuple[Snapshot, int]:
    """Return the last checkpoint before an entry for which `stop` is true, and the last segment in the checkpoint.

    Return empty contents and 0 if there is no such checkpoint.
    """
    for row in _checkpoints(connection, timeline):
        if not stop(Head("checkpoint", 0, "", row.time, "", ""), b""):
            data = _unpacked(connection, row.id)
            if not stop(Head("add", 0, "", row.time, "", ""), msgspec.msgpack.encode({"latest": data.latest})):
                return data, row.segment
    return Snapshot(), 0


def _checkpoint_until(connection: Connection, timeline: Timeline, link: str) -> tuple[Snapshot, int]:
    """Return the last checkpoint at the entry with a link or before it, as `checkpoint_before` does.

    Compare positions, because a clock that was set back can give a later entry an earlier time.
    """
    for row in _checkpoints(connection, timeline):
        last = connection.scalar(select(SEGMENT.c.last).where(SEGMENT.c.id == row.segment))
        if last is None or last <= position_of(link)[0]:  # unpack only a checkpoint that may be early enough
            data = _unpacked(connection, row.id)
            if position_of(data.link) <= position_of(link):
                return data, row.segment
    return Snapshot(), 0


def _checkpoints(connection: Connection, timeline: Timeline) -> Sequence[Row[int, int, int]]:
    """Return the id, the last segment and the time of each checkpoint of a timeline, the newest first."""
    known = select(CHECKPOINT.c.id, CHECKPOINT.c.segment, CHECKPOINT.c.time).where(CHECKPOINT.c.life == timeline.id)
    return connection.execute(known.order_by(CHECKPOINT.c.segment.desc())).all()


def _unpacked(connection: Connection, checkpoint: int) -> Snapshot:
    held = connection.execute(select(CHECKPOINT.c.crc, CHECKPOINT.c.data).where(CHECKPOINT.c.id == checkpoint)).one()
    return unpack(decompress(held.crc, held.data))


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

    Raises:
        SetupError: the journal is damaged.
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
    prefix: str,
    timeline: Timeline,
    epoch: str,
    link: str,
    board: str | None = None,
    *,
    people: bool = True,
) -> Snapshot:
    """Return what the board held at the end of the timeline of `epoch`, whose last entry has this link.

    Leave out the actors who were erased from `board`, by default the board of `timeline`.
    """
    parent, data = find_parent(connection, timeline, prefix, epoch), Snapshot()
    while parent is not None and data.link != link:  # where entries are missing, an epoch has several timelines
        read = partial(contents_of, connection, prefix, parent, link=link, board=board or timeline.board, people=people)
        data, parent = read(), find_parent(connection, parent, prefix, epoch)
    if data.link != link:
        raise SetupError(
            f"the journal does not hold what board {timeline.board!r} had when epoch {timeline.epoch} began. "
            f"If the store holds the board, run `live reconcile --board {timeline.board} --repair journal`"
        )
    return data


def holds(connection: Connection, timeline: Timeline, link: str) -> bool:
    """Return whether a timeline has the entry with a link."""
    offset = position_of(link)[0]
    rows = connection.execute(
        select(SEGMENT.c.crc, SEGMENT.c.data).where(
            SEGMENT.c.life == timeline.id, SEGMENT.c.first <= offset, SEGMENT.c.last >= offset
        )
    )
    return any(head.link == link for row in rows.all() for head, _ in read_entries_of(row))


class StoreBehindError(SetupError):
    """SQL has more of a board than the store: the store lost data."""


class Follower:
    """The contents of a board, updated entry by entry.

    Entries come from SQL, and from the store while SQL lacks them. The drainer may run meanwhile.
    """

    def __init__(self, client: Store, database: Database, prefix: str, board: str, epoch: str) -> None:
        self.contents = Snapshot(link=FIRST)
        self._client = client
        self._database = database
        self._prefix = prefix
        self._name = (board, epoch)
        self._timeline: Timeline | None = None
        self._segment = 0
        self._ahead: deque[tuple[Head, bytes]] = deque()  # entries that were read and are not yet applied
        self._last = (0, 0)  # the position of the last entry that was read

    async def begin(self, progress: Progress) -> None:
        """Read all entries in SQL.

        Call `progress` with the number of entries read so far, and the number of all entries.

        Raises:
            SetupError: the journal is damaged.
        """
        await self._find()
        timeline = self._timeline
        if timeline is None:
            return

        def read(connection: Connection) -> tuple[int, Snapshot]:
            # The segment and the contents are read in one transaction, so an erasure that SQL receives meanwhile counts
            # as later.
            segment = newest_segment(connection, timeline)
            return segment, contents_of(connection, self._prefix, timeline, until=segment, progress=progress)

        self._segment, self.contents = await self._database.run(read)
        self._last = position_of(self.contents.link)

    async def advance(self, link: str) -> Snapshot:
        """Return what the board held after the entry with a link. Links must be in the order of the journal.

        Raises:
            StoreBehindError: SQL has more entries than the store, or other entries.
            SetupError: the journal lacks the entry.
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
                parent = partial(
                    contents_of_parent,
                    prefix=self._prefix,
                    timeline=Timeline(0, *self._name),
                    epoch=body.decode(),
                    link=head.before,
                )
                self.contents = await self._database.run(parent)
            elif head.kind != "adopt" and head.before != self.contents.link:
                if position_of(head.before) <= position_of(self.contents.link):
                    raise self._behind(head.before)
                raise self._missing(head.before)
            apply(self.contents, head, body)
        return self.contents

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
        """Find the timeline in SQL, if its first entry is there."""
        timeline = await self._database.run(lambda connection: find_timeline(connection, self._prefix, *self._name))
        self._timeline = timeline if timeline is not None and timeline.size else None

    async def _read(self) -> None:
        """Read the next entries, from the store first. An entry that the drainer trims meanwhile is then in SQL."""
        board, epoch = self._name
        after = "-".join(map(str, self._last)) if self._last > (0, 0) else START
        (entries,) = required(await read_entries(self._client, [(Keys(self._prefix, board), epoch, after)]))
        waiting = [(parse_head(entry.head), entry.content) for entry in entries]
        if self._timeline is None:
            await self._find()
        stored: list[tuple[Head, bytes]] = []
        if self._timeline is not None:
            timeline, segment = self._timeline, self._segment
            self._segment, stored = await self._database.run(
                lambda connection: entries_after(connection, timeline, segment)
            )
        for head, body in chain(stored, waiting):
            if position_of(head.id) > self._last:
                self._ahead.append((head, body))
                self._last = position_of(head.id)
