"""The archive: the rankings of periods that a calendar board no longer keeps.

A period is final once it is older than the oldest period that the board keeps. Then the store has deleted it, and no
event can count in it. A period that has only ended is not final yet, because an administrator can still correct it.
When a board is changed to keep more periods, a final period may take events again. The period gets a new revision when
it is final again.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, insert, select, update

from live.domain.board import Board, Shape
from live.errors import SetupError
from live.journal.forgetting import erasures_in
from live.journal.log.entries import compress, decompress
from live.journal.log.reader import contents_of
from live.journal.log.timelines import Timeline, life_of
from live.journal.schema import PERIOD
from live.journal.state.ranking import ranked_at
from live.journal.state.snapshot import Ranking, Snapshot

_P = TypeVar("_P", bound=msgspec.Struct)


class PeriodRanking(msgspec.Struct, frozen=True, kw_only=True):
    """The ranking of a period, including hidden members, and the metadata (JSON) of the members that have any.

    `epoch` is the epoch of the board as clients saw it. `shape` and `ties` are those of the board.
    """

    epoch: str
    shape: str
    ties: str
    members: Sequence[str]
    scores: Sequence[int]
    metadata: dict[str, bytes]


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """A decompressed period. `revision` says how often the period became final."""

    offset: int
    revision: int
    period: PeriodRanking


def closed_periods(connection: Connection, timeline: Timeline, board: Board) -> list[dict[str, Any]]:
    """Return the final periods of a board that are not in the archive yet, as rows of the archive."""
    data = contents_of(connection, timeline)
    if data.newest is None or data.shape != board.shape.encode():
        return []
    # A period from before a change of rules may have been another one with the same start.
    rows = select(PERIOD.c.start).where(PERIOD.c.life == timeline.id, PERIOD.c.final, PERIOD.c.offset >= data.ruled_at)
    known = set(connection.scalars(rows))
    oldest = board.window.oldest(data.newest)
    starts = [start for start in data.slots if start < oldest and start not in known]
    closed = []
    for start in sorted(starts):
        made = compress(msgspec.msgpack.encode(_period(board, data, timeline, start)))
        row = {"start": start, "newest": data.newest, "final": True, "offset": data.offset}
        closed.append(row | {"crc": made.crc, "data": made.data})
    return closed


def keep_closed(connection: Connection, timeline: Timeline, closed: Sequence[Mapping[str, Any]], erasures: int) -> bool:
    """Put periods into the archive, each with a new revision.

    Return False if somebody was erased, whom they may have, since there were `erasures` in SQL.
    """
    if erasures_in(connection) != erasures:
        return False
    for row in closed:
        where = (PERIOD.c.life == timeline.id, PERIOD.c.start == row["start"])
        again = connection.execute(update(PERIOD).where(*where).values({**row, "revision": PERIOD.c.revision + 1}))
        if not again.rowcount:
            connection.execute(insert(PERIOD).values({**row, "life": timeline.id, "revision": 1}))
    return True


def reopen(connection: Connection, timeline: Timeline, board: Board) -> None:
    """Mark the periods that are not final any more, because the board keeps more periods now."""
    rows = connection.execute(
        select(PERIOD.c.start, PERIOD.c.newest).where(PERIOD.c.life == timeline.id, PERIOD.c.final)
    )
    for start, newest in rows.all():
        if start >= board.window.oldest(newest):
            where = (PERIOD.c.life == timeline.id, PERIOD.c.start == start)
            connection.execute(update(PERIOD).where(*where).values(final=False))


def find_archived(connection: Connection, board: Board, epoch: str | None, start: int) -> Archived | None:
    """Return a period that the board has dropped, from the archive or the journal, if any. `epoch` is as in `AsOf`."""
    timelines = [timeline for timeline in life_of(connection, board.id, epoch) if timeline.size]
    archived, revision = None, 1
    for timeline in timelines:
        row = connection.execute(select(PERIOD).where(PERIOD.c.life == timeline.id, PERIOD.c.start == start)).first()
        if row is not None:
            period = _decode(decompress(row.crc, row.data), PeriodRanking)
            if _says_enough(period.shape, board):
                archived = Archived(offset=row.offset, revision=row.revision, period=_by_rules(period, board))
            if archived is not None and row.final:
                return archived
            revision = row.revision + 1
            break
    if not timelines:
        return None
    data = contents_of(connection, timelines[0])
    if start not in data.slots or data.shape != board.shape.encode():
        return archived
    period = _period(board, data, timelines[0], start)
    return Archived(offset=data.offset, revision=revision, period=period)


def lost_periods(connection: Connection, old: Board, new: Board, epoch: str, held: Collection[int]) -> int:
    """Return how many archived periods a board can't show by new rules. It still `held` the events of some periods."""
    lost, known = 0, set[int]()
    for timeline in life_of(connection, old.id, epoch):
        rows = connection.execute(
            select(PERIOD.c.start, PERIOD.c.crc, PERIOD.c.data).where(PERIOD.c.life == timeline.id)
        )
        for row in rows:
            if row.start not in known and new.window.slot_at(row.start).start not in held:
                shape = _decode(decompress(row.crc, row.data), _Shaped).shape
                lost += _says_enough(shape, old) and not _says_enough(shape, new)
            known.add(row.start)
    return lost


class _Shaped(msgspec.Struct):
    shape: str


def _decode(data: bytes, kind: type[_P]) -> _P:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise SetupError(f"a period in the journal is damaged: {error}") from None


def _says_enough(shape: str, board: Board) -> bool:
    """Return whether the archived ranking of a board with a shape says what it is by other rules."""
    old, new = (msgspec.json.decode(one, type=Shape) for one in (shape, board.shape.encode()))
    has_same = (old.window, old.operation, old.fields) == (new.window, new.operation, new.fields)
    return has_same and (old.zeros or not new.zeros) and (old.tags != "key" or new.tags == "key")


def _by_rules(period: PeriodRanking, board: Board) -> PeriodRanking:
    """Return an archived ranking in the order of a board."""
    rows = list(zip(period.members, period.scores, strict=True))
    if board.ties == "key":
        rows.sort()
    elif board.ties != period.ties:
        rows.reverse()
    rows.sort(key=itemgetter(1), reverse=board.reading != "forward")  # equal scores keep their order
    if board.operation == "incr" and not board.zeros:
        rows = [row for row in rows if row[1]]
    return msgspec.structs.replace(period, members=[member for member, _ in rows], scores=[score for _, score in rows])


def _period(board: Board, data: Snapshot, timeline: Timeline, start: int) -> PeriodRanking:
    found = ranked_at(board, data, data.time // 1000, start, frozenset())
    held = data.rankings.get(f":{start}", Ranking()).metadata if board.votes is None else data.entrants
    return PeriodRanking(
        epoch=data.shown(timeline.epoch),
        shape=data.shape,
        ties=board.ties,
        members=found.members,
        scores=[found.scores[member] for member in found.members],
        metadata={member: held[member] for member in found.members if member in held},
    )
