"""Find out how far back the journal of a board reaches, and in which timeline to read the board at a time."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, select

from live.domain.board import Board
from live.errors import SetupError
from live.journal.log.entries import read_entries_of
from live.journal.log.reader import contents_of, entries_of, oldest_checkpoint
from live.journal.log.timelines import Timeline, find_parent, life_of
from live.journal.past.queries import NoPastError
from live.journal.schema import CHECKPOINT, LIFE, SEGMENT
from live.journal.state.division import first_time
from live.journal.state.fold import apply
from live.journal.state.snapshot import Snapshot

_ALWAYS: Final = -(2**62)
_BEGINNINGS: Final = ("begin", "adopt", "renew")  # kinds of the first entry of a timeline


class Coverage(NamedTuple):
    """The times at which the journal can show a timeline, in milliseconds since 1970 by the board's clock.

    Attributes:
        timeline: the timeline that these times are about.
        began: when the timeline began.
        entries: the time since which the journal has all entries of the timeline.
        first: the first time at which the timeline has something to show; None if there is none yet.
    """

    timeline: Timeline
    began: int
    entries: int
    first: int | None


def reaches_of(connection: Connection, prefix: str, board: Board, epoch: str | None) -> list[Coverage]:
    """Return the coverage of the timelines of a board's life, as `life_of` finds them, the last timeline first."""
    found = [
        _coverage(connection, prefix, board, timeline) for timeline in life_of(connection, prefix, board.id, epoch)
    ]
    return [reach for reach in found if reach is not None]


def timeline_at(reaches: Sequence[Coverage], at: int) -> Timeline | None:
    """Return the timeline in which to read a board at a time (milliseconds since 1970).

    Return None for a time before the board began.

    Raises:
        NoPastError: the journal does not cover the time.
    """
    for reach in reaches:
        if at >= reach.entries:
            return reach.timeline
        if at >= reach.began:
            raise NoPastError(reach.entries)
    return None


def since_of(reaches: Sequence[Coverage]) -> int | None:
    """Return the first time that the journal can show, in milliseconds since 1970. Return None if it can show none."""
    return min((reach.first for reach in reaches if reach.first is not None), default=None)


def _coverage(connection: Connection, prefix: str, board: Board, timeline: Timeline) -> Coverage | None:
    """Return the coverage of a timeline. Return None if the journal has no segment or checkpoint of it."""
    checkpoint = connection.scalar(select(func.min(CHECKPOINT.c.time)).where(CHECKPOINT.c.life == timeline.id))
    segment = connection.execute(
        select(SEGMENT.c.id, SEGMENT.c.began, SEGMENT.c.crc, SEGMENT.c.data)
        .where(SEGMENT.c.life == timeline.id)
        .order_by(SEGMENT.c.id)
        .limit(1)
    ).first()
    if checkpoint is None and segment is None:
        return None
    row = connection.execute(select(LIFE.c.began, LIFE.c.parent).where(LIFE.c.id == timeline.id)).one()
    first = next(read_entries_of(segment))[0].kind if segment else ""
    # If the first entry does not begin a timeline, the segments can be read only from a checkpoint on.
    if segment and checkpoint is not None and first not in _BEGINNINGS:
        segment = None
    if board.clock == "event":
        data = Snapshot()
        if segment:
            head, body = next(read_entries_of(segment))
            if head.kind == "adopt":
                apply(data, head, body)
        elif held := oldest_checkpoint(connection, timeline):
            data, _ = held
        latest = data.latest
        entries = _ALWAYS if latest is None else latest + 1
        continues = segment and row.parent is not None and latest is not None
        began = entries if continues else _ALWAYS
        if continues and row.parent == timeline.epoch:
            began = _end_of_earlier(connection, prefix, timeline)
        shown = _first_event(connection, timeline) if latest is None else entries
        return Coverage(timeline, began, entries, shown)
    # Before its first entry, a new board was empty. Any other timeline has its contents only after its first entry.
    entries = segment.began // 1000 + (first != "begin") if segment else (checkpoint or 0) // 1000 + 1
    # If the journal has deleted the previous timeline, the board existed before this timeline began.
    has_lost = row.parent is not None and find_parent(connection, timeline, prefix, row.parent) is None
    # The timeline begins with the whole millisecond of its first entry: no event was counted before that entry.
    began = entries if segment and row.parent is None else min(row.began // 1000, entries)
    return Coverage(timeline, _ALWAYS if has_lost else began, entries, entries)


def _end_of_earlier(connection: Connection, prefix: str, timeline: Timeline) -> int:
    """Return the time after the last event of the timeline after which entries are missing, by the times of events."""
    earlier = find_parent(connection, timeline, prefix, timeline.epoch)
    try:
        latest = None if earlier is None else contents_of(connection, prefix, earlier, people=False).latest
    except SetupError:  # nobody can read the end of that timeline
        latest = None
    return _ALWAYS if latest is None else latest + 1


def _first_event(connection: Connection, timeline: Timeline) -> int | None:
    """Return the time of the first events in a timeline, by their own times; None if it has no events yet."""
    found = (first_time(body) for head, body in entries_of(connection, timeline) if head.kind == "add")
    return next((time for time in found if time is not None), None)
