"""Make checkpoints: contents of boards after a segment. Readers skip earlier entries, and retention deletes them."""

from typing import Final

import msgspec
from sqlalchemy import Connection, case, func, insert, select

from live.domain.board import Board, Shape
from live.journal.forgetting import erasures_in
from live.journal.log.entries import Packed, compress
from live.journal.log.reader import contents_of
from live.journal.log.timelines import Timeline
from live.journal.schema import CHECKPOINT, SEGMENT
from live.journal.state.snapshot import Snapshot, pack

LEAST: Final = 16 * 1024**2  # bytes of segments after which a board gets a checkpoint
AGE: Final = 86_400  # seconds after which a board that has changed gets a checkpoint


class Due(msgspec.Struct, frozen=True):
    """A timeline that needs a checkpoint after a segment. `erasures` is how many there were in SQL at that time."""

    timeline: Timeline
    segment: int
    erasures: int = 0


def due(connection: Connection, timeline: Timeline, now: int) -> Due | None:
    """Return the checkpoint that a timeline needs at a time (microseconds). Return None if it needs none.

    A checkpoint is due when the segments after the last checkpoint are larger than that checkpoint and than `LEAST`. It
    is also due when the first of these segments began more than a day ago, and after a swap.
    """
    last = connection.execute(
        select(CHECKPOINT.c.segment, CHECKPOINT.c.time, func.length(CHECKPOINT.c.data).label("size"))
        .where(CHECKPOINT.c.life == timeline.id)
        .order_by(CHECKPOINT.c.segment.desc())
        .limit(1)
    ).first()
    after = connection.execute(
        select(
            func.max(SEGMENT.c.id).label("segment"),
            func.min(SEGMENT.c.began).label("began"),
            func.sum(func.length(SEGMENT.c.data)).label("size"),
            func.sum(case((SEGMENT.c.swapped, 1), else_=0)).label("swaps"),
        ).where(SEGMENT.c.life == timeline.id, SEGMENT.c.id > (last.segment if last else 0))
    ).one()
    if after.segment is None:
        return None
    is_large = after.size > max(LEAST, last.size if last else 0)
    is_old = after.began < now - AGE * 1_000_000
    return Due(timeline, after.segment, erasures_in(connection)) if is_large or is_old or after.swaps else None


def make(connection: Connection, wanted: Due, kept: tuple[Board, int] | None = None) -> tuple[Packed, int]:
    """Return the compressed contents of a board after a segment, and the time of their last entry in microseconds.

    If the board is a calendar board, `kept` is the board, and the number of seconds for which its periods are kept.
    """
    data = contents_of(connection, wanted.timeline, until=wanted.segment)
    prune(data)
    if kept is not None:  # drop the periods that ended too long ago
        board, seconds = kept
        now = data.newest or 0 if board.clock == "event" else data.time // 1_000_000
        data.drop_before(board.window.slot_at(now - seconds).start)
    return compress(pack(data)), data.time


def prune(data: Snapshot) -> None:
    """Drop slots and events that have left the window, and the identities that the store has forgotten."""
    shape = msgspec.json.decode(data.shape, type=Shape)
    window = shape.window
    if window["kind"] == "rolling" and data.newest is not None:
        oldest = data.newest - int(window["length"] or 0)
        data.slots = {start: slot for start, slot in data.slots.items() if start >= oldest}
    if window["kind"] == "sliding":
        moment = data.latest or 0 if shape.clock == "event" else data.time // 1000
        least = moment - int(window["length"] or 0) * 1000
        data.log = [event for event in data.log if event.time > least]
    if data.seen and data.kept is not None:
        least = max(data.seen) - data.kept
        data.seen = {start: seen for start, seen in data.seen.items() if start >= least}


def keep(connection: Connection, wanted: Due, made: Packed, at: int) -> None:
    """Store a checkpoint, unless there is already one after the same segment or a later segment.

    Drop it if somebody was erased meanwhile, whom it may have.
    """
    later = connection.scalar(
        select(func.count()).where(CHECKPOINT.c.life == wanted.timeline.id, CHECKPOINT.c.segment >= wanted.segment)
    )
    if not later and erasures_in(connection) == wanted.erasures:
        row = {"life": wanted.timeline.id, "segment": wanted.segment, "time": at, "crc": made.crc, "data": made.data}
        connection.execute(insert(CHECKPOINT).values(row))
