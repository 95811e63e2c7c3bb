"""Find out how far back the journal of a board reaches, and in which timeline to read the board at a time."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, select

from live.domain.board import Board
from live.errors import SetupError
from live.journal.log.entries import read_entries_of
from live.journal.log.reader import (
    Follow,
    TooOldError,
    contents_at,
    contents_of,
    contents_of_parent,
    entries_of,
    oldest_checkpoint,
)
from live.journal.log.timelines import Timeline, find_parent, life_of
from live.journal.past.queries import NoPastError
from live.journal.schema import CHECKPOINT, LIFE, SEGMENT
from live.journal.state.events import first_time
from live.journal.state.fold import apply
from live.journal.state.snapshot import Snapshot

_ALWAYS: Final = -(2**62)
_BEGINNINGS: Final = ("begin", "adopt", "renew")  # kinds of the first entry of a timeline


class Coverage(NamedTuple):
    """The times at which the journal can show a timeline, in milliseconds since 1970 by the board's clock.

    The timeline `began` before the journal has all its `entries`, if older ones were deleted. The `first` time is the
    first one at which it has something to show.
    """

    timeline: Timeline
    began: int
    entries: int
    first: int | None


def reaches_of(connection: Connection, board: Board, epoch: str | None) -> list[Coverage]:
    """Return the coverage of the timelines of a board's life, as `life_of` finds them, the last timeline first."""
    found = [_coverage(connection, board, timeline) for timeline in life_of(connection, board.id, epoch)]
    return [reach for reach in found if reach is not None]


def timeline_at(reaches: Sequence[Coverage], at: int) -> Timeline | None:
    """Return the timeline in which to read a board at a time (milliseconds since 1970), or None before the board began.

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


def contents_by_rules(
    connection: Connection, timeline: Timeline, board: Board, times: Sequence[int], follow: Follow = lambda *_: None
) -> Iterator[tuple[int, Snapshot]]:
    """Yield the contents of a board at ascending times by its present rules, as `contents_at` does.

    Raises:
        NoPastError: the journal does not say enough for these rules, or an earlier board with this id had others.
    """
    try:
        for at, data in contents_at(connection, timeline, times, board.clock, board=board, follow=follow):
            if data.shape and data.shape != board.shape.encode():
                raise NoPastError
            yield at, data
    except TooOldError:
        raise NoPastError from None


def _coverage(connection: Connection, board: Board, timeline: Timeline) -> Coverage | None:
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
            elif head.kind == "renew":
                with suppress(SetupError):  # reading the contents says what is missing
                    data = contents_of_parent(connection, timeline, body.decode(), head.before)
        elif held := oldest_checkpoint(connection, timeline):
            data, _ = held
        latest = data.latest
        entries = _ALWAYS if latest is None else latest + 1
        continues = segment and row.parent is not None and latest is not None
        began = entries if continues else _ALWAYS
        if continues and row.parent == timeline.epoch:
            began = _end_of_earlier(connection, timeline)
        shown = _first_event(connection, timeline) if latest is None else entries
        return Coverage(timeline, began, entries, shown)
    # Before its first entry, a new board was empty. Any other timeline has its contents only after its first entry.
    entries = segment.began // 1000 + (first != "begin") if segment else (checkpoint or 0) // 1000 + 1
    # If the journal has deleted the previous timeline, the board existed before this timeline began.
    has_lost = row.parent is not None and find_parent(connection, timeline, row.parent) is None
    # The timeline begins with the whole millisecond of its first entry: no event was counted before that entry.
    began = entries if segment and row.parent is None else min(row.began // 1000, entries)
    return Coverage(timeline, _ALWAYS if has_lost else began, entries, entries)


def _end_of_earlier(connection: Connection, timeline: Timeline) -> int:
    """Return the time after the last event of the timeline after which entries are missing, by the times of events."""
    earlier = find_parent(connection, timeline, timeline.epoch)
    try:
        latest = None if earlier is None else contents_of(connection, earlier).latest
    except SetupError:  # nobody can read the end of that timeline
        latest = None
    return _ALWAYS if latest is None else latest + 1


def _first_event(connection: Connection, timeline: Timeline) -> int | None:
    """Return the time of the first events in a timeline, by their own times; None if it has no events yet."""
    found = (first_time(body) for head, body in entries_of(connection, timeline) if head.kind == "add")
    return next((time for time in found if time is not None), None)
