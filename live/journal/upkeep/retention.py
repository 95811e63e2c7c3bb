"""What is deleted from the journal, and when: entries, checkpoints, archived periods, definitions, and timelines."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Row, delete, func, literal_column, or_, select, update
from sqlalchemy.engine import Connection

from live.domain.board import Board
from live.journal.log.audit_trail import KIND as TRAIL
from live.journal.log.timelines import Timeline
from live.journal.schema import CHECKPOINT, DEFINITION, LIFE, PERIOD, SEGMENT


def forget_entries(connection: Connection, timeline: Timeline, before: int) -> int:
    """Delete the segments and checkpoints that are not needed to read the board at `before` (microseconds) or later.

    The last checkpoint before that time stays, and every segment after that checkpoint. Return how many segments were
    deleted.
    """
    where = (CHECKPOINT.c.life == timeline.id, CHECKPOINT.c.time < before)
    base = connection.scalar(select(func.max(CHECKPOINT.c.segment)).where(*where))
    if base is None:
        return 0
    connection.execute(delete(CHECKPOINT).where(CHECKPOINT.c.life == timeline.id, CHECKPOINT.c.segment < base))
    return connection.execute(delete(SEGMENT).where(SEGMENT.c.life == timeline.id, SEGMENT.c.id <= base)).rowcount


def forget_periods(connection: Connection, timeline: Timeline, board: Board, now: int, kept: int) -> None:
    """Delete the archived periods that ended more than `kept` seconds ago.

    `now` is in seconds since 1970. If the board has an event clock, its newest period replaces `now`.
    """
    of_timeline = PERIOD.c.life == timeline.id
    if board.clock == "event":
        now = connection.scalar(select(func.max(PERIOD.c.newest)).where(of_timeline)) or now
    connection.execute(delete(PERIOD).where(of_timeline, PERIOD.c.start < board.window.slot_at(now - kept).start))


def forget_definitions(connection: Connection, prefix: str, before: int) -> None:
    """Delete versions of definitions and titles from before a time (microseconds), except the last one of each day.

    The newest version stays, and so does the whole audit log.
    """
    names = (DEFINITION.c.kind, DEFINITION.c.name)
    later = (
        func.lead(DEFINITION.c.time, type_=BigInteger).over(partition_by=names, order_by=DEFINITION.c.id).label("later")
    )
    where = (DEFINITION.c.prefix == prefix, DEFINITION.c.kind != TRAIL)
    versions = select(DEFINITION.c.id, DEFINITION.c.time, later).where(*where).subquery()
    day = literal_column(str(86_400_000_000), BigInteger)
    same_day = versions.c.later // day == versions.c.time // day
    replaced = select(versions.c.id).where(versions.c.time < before, same_day)
    connection.execute(delete(DEFINITION).where(DEFINITION.c.id.in_(replaced)))


def forget_timelines(connection: Connection, prefix: str, kept: Callable[[str], tuple[int, int]], now: int) -> None:
    """Delete the timelines that ended too long before `now` (microseconds), with everything that belongs to them.

    `kept` returns for how many seconds the events and the archived periods of a board are kept. Keep a timeline while
    another timeline that continues it still has its first entry. Keep the newest timeline, because the database must
    not use its row number again.
    """
    newest = select(func.max(LIFE.c.id)).scalar_subquery()
    where = (LIFE.c.prefix == prefix, LIFE.c.ended.is_not(None), LIFE.c.id < newest)
    for row in connection.execute(select(LIFE).where(*where).order_by(LIFE.c.id.desc())).all():
        events, periods = kept(row.board)
        if row.ended >= now - events * 1_000_000:
            continue
        if row.ended >= now - periods * 1_000_000 and connection.scalar(
            select(func.count()).where(PERIOD.c.life == row.id)
        ):
            continue
        is_later = or_(LIFE.c.epoch != row.epoch, LIFE.c.id > row.id)
        later = connection.scalars(
            select(LIFE.c.id).where(LIFE.c.prefix == prefix, LIFE.c.parent == row.epoch, is_later)
        )
        if any(_has_first_entry(connection, timeline) for timeline in later.all()):
            continue
        _pass_on(connection, row)
        for table in (SEGMENT, CHECKPOINT, PERIOD):
            connection.execute(delete(table).where(table.c.life == row.id))
        connection.execute(delete(LIFE).where(LIFE.c.id == row.id))


def _pass_on(connection: Connection, row: Row[Any]) -> None:
    """Let timelines that were lost before a timeline name the epoch in which the board goes on after it, if any."""
    of_board = (LIFE.c.prefix == row.prefix, LIFE.c.board == row.board)
    after = row.lost
    if after is None:
        later = (LIFE.c.parent == row.epoch, LIFE.c.id > row.id)
        after = connection.scalar(select(LIFE.c.epoch).where(*of_board, *later).order_by(LIFE.c.id.desc()).limit(1))
    if after is not None:
        connection.execute(update(LIFE).where(*of_board, LIFE.c.lost == row.epoch).values(lost=after))


def _has_first_entry(connection: Connection, timeline: int) -> bool:
    first = select(func.min(SEGMENT.c.id)).where(SEGMENT.c.life == timeline).scalar_subquery()
    before = CHECKPOINT.c.segment < func.coalesce(first, CHECKPOINT.c.segment + 1)
    return not connection.scalar(select(func.count()).where(CHECKPOINT.c.life == timeline, before))
