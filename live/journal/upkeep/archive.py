"""The archive: the rankings of periods that a calendar board no longer keeps.

A period is final once it is older than the oldest period that the board keeps. Then the store has deleted it, and no
event can count in it. A period that has only ended is not final yet, because a clock that is set back opens it again.
When a board is changed to keep more periods, a final period may take events again. The period gets a new revision when
it is final again.
"""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, insert, select, update

from live.domain.board import Board
from live.errors import SetupError
from live.journal.log.entries import Packed, compress, decompress
from live.journal.log.reader import contents_of
from live.journal.log.timelines import Timeline, life_of
from live.journal.schema import PERIOD
from live.journal.state.ranking import ranked_at
from live.journal.state.snapshot import Ranking, Snapshot


class PeriodRanking(msgspec.Struct, frozen=True, kw_only=True):
    """The ranking of a period, including hidden members, and the metadata (JSON) of the members that have any."""

    members: Sequence[str]
    scores: Sequence[int]
    metadata: dict[str, bytes]


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """A final period: its start, the newest period of the board, the board's offset, and the compressed ranking."""

    start: int
    newest: int
    offset: int
    packed: Packed


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """A decompressed period and its timeline. `revision` says how often the period became final."""

    timeline: Timeline
    offset: int
    revision: int
    period: PeriodRanking


def closed_periods(connection: Connection, prefix: str, timeline: Timeline, board: Board) -> list[Closed]:
    """Return the final periods of a board that are not in the archive yet.

    Raises:
        SetupError: the journal is damaged.
    """
    data = contents_of(connection, prefix, timeline)
    if data.newest is None:
        return []
    known = set(connection.scalars(select(PERIOD.c.start).where(PERIOD.c.life == timeline.id, PERIOD.c.final)))
    oldest = board.window.oldest(data.newest)
    starts = [start for start in data.slots if start < oldest and start not in known]
    return [
        Closed(
            start=start,
            newest=data.newest,
            offset=data.offset,
            packed=compress(msgspec.msgpack.encode(_period(board, data, start))),
        )
        for start in sorted(starts)
    ]


def keep_closed(connection: Connection, timeline: Timeline, closed: Sequence[Closed]) -> None:
    """Put periods into the archive, each with a new revision."""
    for period in closed:
        where = (PERIOD.c.life == timeline.id, PERIOD.c.start == period.start)
        row = {
            "newest": period.newest, "final": True, "offset": period.offset,
            "crc": period.packed.crc, "data": period.packed.data,
        }  # fmt: skip
        again = connection.execute(update(PERIOD).where(*where).values(row | {"revision": PERIOD.c.revision + 1}))
        if not again.rowcount:
            connection.execute(insert(PERIOD).values(row | {"life": timeline.id, "start": period.start, "revision": 1}))


def reopen(connection: Connection, timeline: Timeline, board: Board) -> None:
    """Mark the periods that are not final any more, because the board keeps more periods now."""
    rows = connection.execute(
        select(PERIOD.c.start, PERIOD.c.newest).where(PERIOD.c.life == timeline.id, PERIOD.c.final)
    )
    for start, newest in rows.all():
        if start >= board.window.oldest(newest):
            where = (PERIOD.c.life == timeline.id, PERIOD.c.start == start)
            connection.execute(update(PERIOD).where(*where).values(final=False))


def find_archived(connection: Connection, prefix: str, board: Board, epoch: str | None, start: int) -> Archived | None:
    """Return a period that the board has dropped, from the archive or the journal. Return None if neither has it.

    `epoch` is as in `AsOf`.

    Raises:
        SetupError: the journal is damaged.
    """
    timelines = [timeline for timeline in life_of(connection, prefix, board.id, epoch) if timeline.size]
    revision = 1
    for timeline in timelines:
        row = connection.execute(select(PERIOD).where(PERIOD.c.life == timeline.id, PERIOD.c.start == start)).first()
        if row is not None and row.final:
            try:
                period = msgspec.msgpack.decode(decompress(row.crc, row.data), type=PeriodRanking)
            except msgspec.DecodeError as error:
                raise SetupError(f"a period in the journal is damaged: {error}") from None
            return Archived(timeline=timeline, offset=row.offset, revision=row.revision, period=period)
        if row is not None:
            revision = row.revision + 1
            break
    if not timelines:
        return None
    data = contents_of(connection, prefix, timelines[0])
    if start not in data.slots:
        return None
    return Archived(timeline=timelines[0], offset=data.offset, revision=revision, period=_period(board, data, start))


def _period(board: Board, data: Snapshot, start: int) -> PeriodRanking:
    found = ranked_at(board, data, data.time // 1000, start, frozenset())
    held = data.rankings.get(f":{start}", Ranking()).metadata if board.votes is None else data.entrants
    return PeriodRanking(
        members=found.members,
        scores=[found.scores[member] for member in found.members],
        metadata={member: held[member] for member in found.members if member in held},
    )
