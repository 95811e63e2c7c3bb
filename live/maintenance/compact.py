"""Forget the past of boards now: store the contents of a board in a checkpoint, and delete all earlier rows."""

from collections.abc import Callable, Collection
from functools import partial

import msgspec
from sqlalchemy import Connection, delete, func, insert, select

from live.domain.text import unknown
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.log.entries import compress
from live.journal.log.reader import contents_of, newest_segment
from live.journal.log.timelines import Timeline, all_timelines
from live.journal.schema import CHECKPOINT, SEGMENT
from live.journal.state.snapshot import pack
from live.journal.upkeep.checkpoints import prune


class Compacted(msgspec.Struct, kw_only=True):
    """The rows that were dropped from one timeline of a board.

    Attributes:
        board: the id of the board.
        epoch: the epoch of the timeline.
        entries: the number of entries that were dropped.
        bytes: the compressed size of the entries and checkpoints that were dropped.
        since: the first time that the journal still covers, in microseconds since 1970.
        fault: why nothing was dropped; empty on success.
    """

    board: str
    epoch: str
    entries: int = 0
    bytes: int = 0
    since: int = 0
    fault: str = ""


def compact(database: Database, boards: Collection[str], show: Callable[[int, int], None]) -> list[Compacted]:
    """Compact the timelines of some boards, or of all boards. This process must hold the lock of the journal.

    Reading a timeline begins with the timeline that it continues, which can belong to another board. So timelines that
    continue a wanted timeline are compacted too, before the wanted timeline.

    Raises:
        SetupError: there is no such board.
    """
    timelines = database.work(partial(all_timelines, prefix=database.prefix))
    known = {timeline.board for timeline, _ in timelines}
    if missing := sorted({*boards} - known):
        raise NotFoundError(unknown("board", missing[0], known))
    wanted: list[Timeline] = []
    epochs = set[str | None]()
    parents = {timeline.id: parent for timeline, parent in timelines}
    for timeline, parent in timelines:
        if not boards or timeline.board in boards or parent in epochs:
            wanted.append(timeline)
            epochs.add(timeline.epoch)
    needed, done = set[str | None](), []
    for number, timeline in enumerate(reversed(wanted), 1):
        one = Compacted(board=timeline.board, epoch=timeline.epoch)
        work = partial(_compact, prefix=database.prefix, timeline=timeline, one=one)
        if timeline.epoch in needed:
            one.fault = "a timeline that continues it can't be compacted"
        else:
            try:
                database.work(work)
            except SetupError as error:
                one.fault = str(error)
        if one.fault:
            needed.add(parents[timeline.id])
        if one.entries or one.fault:
            done.append(one)
        show(number, len(wanted))
    database.compact()
    return done


def _compact(connection: Connection, prefix: str, timeline: Timeline, one: Compacted) -> None:
    of_timeline = CHECKPOINT.c.life == timeline.id
    last = select(func.max(CHECKPOINT.c.segment), func.sum(func.length(CHECKPOINT.c.data))).where(of_timeline)
    checkpoint, size = connection.execute(last).one()
    segment = max(newest_segment(connection, timeline), checkpoint or 0)
    if not segment:
        return
    data = contents_of(connection, prefix, timeline)
    prune(data)
    dropped = select(func.sum(SEGMENT.c.entries), func.sum(func.length(SEGMENT.c.data)))
    entries, bytes_ = connection.execute(dropped.where(SEGMENT.c.life == timeline.id)).one()
    one.entries, one.bytes, one.since = int(entries or 0), int(bytes_ or 0) + int(size or 0), data.time
    connection.execute(delete(CHECKPOINT).where(of_timeline))
    connection.execute(delete(SEGMENT).where(SEGMENT.c.life == timeline.id, SEGMENT.c.id <= segment))
    made = compress(pack(data))
    row = {"life": timeline.id, "segment": segment, "time": data.time, "crc": made.crc, "data": made.data}
    connection.execute(insert(CHECKPOINT).values(row))
