"""Read the past of boards from SQL. This runs in a process that `pool.py` starts."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection, func, select

from live.domain.board import Board
from live.domain.ranking import ranks_of
from live.journal.erasures import Erasures, erasures_of
from live.journal.log.entries import Add, EntryDelta, Head, read_entries_of
from live.journal.log.reader import before, contents_at
from live.journal.log.timelines import Timeline
from live.journal.past.contributors import parts_of
from live.journal.past.coverage import Coverage, reaches_of, since_of, timeline_at
from live.journal.past.queries import (
    AsOf,
    Change,
    NoPastError,
    PastRanking,
    RankingSlice,
    Reach,
    ScoreBreakdown,
)
from live.journal.past.worker import database_of
from live.journal.schema import ERASED, SEGMENT
from live.journal.state.division import divide
from live.journal.state.ranking import live_slots, scores_at, scores_of
from live.journal.state.snapshot import Ranking
from live.journal.upkeep.archive import find_archived
from live.settings import Settings

_KEPT: Final = 8  # rankings that stay in memory
_CHANGES: Final = 20  # maximum changes of a member in `ScoreBreakdown`
_SEGMENTS: Final = 200  # maximum segments that are searched for these changes, the newest first

_ADD: Final = msgspec.msgpack.Decoder(Add)


def read_ranking(settings: Settings, moment: AsOf, start: int, limit: int) -> RankingSlice:
    """Return some records of a board at a time.

    Raises:
        NoPastError: the journal does not cover the time.
    """
    return _cut(_ranking(settings, moment), start, start + limit)


def find_record(settings: Settings, moment: AsOf, member: str, around: int) -> RankingSlice:
    """Return a member's record with its neighbours, or no record if the member was not on the board.

    Raises:
        NoPastError: the journal does not cover the time.
    """
    return _around(_ranking(settings, moment), member, around)


def read_reach(settings: Settings, board: Board, epoch: str, times: Sequence[int]) -> Reach:
    """Return the first time that the journal covers, and which of `times` it covers (in milliseconds since 1970)."""

    def work(connection: Connection) -> Reach:
        reaches = reaches_of(connection, settings.key_prefix, board, epoch)
        return Reach(since_of(reaches), [_covers(reaches, at) for at in times])

    return database_of(settings).work(work)


def read_period(settings: Settings, moment: AsOf, start: int, limit: int) -> RankingSlice | None:
    """Return some records of a period that the board does not keep any more; None if the journal has no such period."""
    found = database_of(settings).work(partial(period_at, prefix=settings.key_prefix, moment=moment))
    return None if found is None else _cut(found, start, start + limit)


def find_in_period(settings: Settings, moment: AsOf, member: str, around: int) -> RankingSlice | None:
    """Return a member's record with its neighbours in a dropped period; None if the journal has no such period."""
    found = database_of(settings).work(partial(period_at, prefix=settings.key_prefix, moment=moment))
    return None if found is None else _around(found, member, around)


def explain_record(settings: Settings, moment: AsOf, member: str) -> ScoreBreakdown:
    """Return the parts of a member's score as they were at a time.

    Raises:
        NoPastError: the journal does not cover the time.
    """

    def work(connection: Connection) -> ScoreBreakdown:
        board, at = moment.board, moment.at
        timeline = _timeline(connection, settings.key_prefix, moment)
        _, data = next(contents_at(connection, settings.key_prefix, timeline, [at], board.clock))
        held = live_slots(board, data, at, moment.period)
        slots = sorted((start, slot[member]) for start, slot in held.items() if member in slot)
        erased = erasures_of(connection, settings.key_prefix, board.id)
        changes = _changes(connection, timeline, member, data.offset, moment, erased)
        return ScoreBreakdown(timeline.epoch, data.offset, scores_of(board, held).get(member), slots, changes)

    return database_of(settings).work(work)


def _ranking(settings: Settings, moment: AsOf) -> PastRanking:
    database = database_of(settings)
    erased = database.work(lambda connection: connection.scalar(select(func.max(ERASED.c.id))))
    board, at = moment.board, moment.at
    key = (settings.key_prefix, board.shape.encode(), board.id, moment.epoch, at, moment.period, moment.hidden, erased)
    found = _RANKINGS.get(key)
    if found is None:
        found = database.work(partial(ranking_at, prefix=settings.key_prefix, moment=moment))
        if len(_RANKINGS) >= _KEPT:
            _RANKINGS.pop(next(iter(_RANKINGS)))
        _RANKINGS[key] = found
    return found


def ranking_at(connection: Connection, prefix: str, moment: AsOf) -> PastRanking:
    """Return the whole ranking of a board at a time.

    Raises:
        NoPastError: the journal does not cover the time.
    """
    board = moment.board
    timeline = _timeline(connection, prefix, moment)
    _, data = next(contents_at(connection, prefix, timeline, [moment.at], board.clock))
    scores = scores_at(board, data, moment.at, moment.period)
    suffix = f":{scores.period}" if board.window.tables else ""
    metadata = data.rankings.get(suffix, Ranking()).metadata if board.votes is None else data.entrants
    found = scores.ranked(board, moment.hidden)
    values = [found.scores[member] for member in found.members]
    return PastRanking(
        epoch=timeline.epoch,
        offset=data.offset,
        period=found.period,
        members=found.members,
        scores=values,
        ranks=ranks_of(values, 1, 0, board.ranks),
        total=sum(values),
        metadata=metadata,
    )


def period_at(connection: Connection, prefix: str, moment: AsOf) -> PastRanking | None:
    """Return the whole ranking of a period that the board does not keep any more; None if the journal has none."""
    board, period = moment.board, moment.period
    assert period is not None, "the query names a period"  # noqa: S101
    archived = find_archived(connection, prefix, board, moment.epoch, period)
    if archived is None:
        return None
    kept = archived.period
    rows = [row for row in zip(kept.members, kept.scores, strict=True) if row[0] not in moment.hidden]
    scores = [score for _, score in rows]
    return PastRanking(
        epoch=archived.timeline.epoch,
        offset=archived.offset,
        period=period,
        members=[member for member, _ in rows],
        scores=scores,
        ranks=ranks_of(scores, 1, 0, board.ranks),
        total=sum(scores),
        metadata=kept.metadata,
        revision=archived.revision,
    )


def _around(found: PastRanking, member: str, around: int) -> RankingSlice:
    try:
        place = list(found.members).index(member)
    except ValueError:
        return _cut(found, 0, 0)
    return _cut(found, max(0, place - around), place + around + 1)


def _cut(found: PastRanking, start: int, end: int) -> RankingSlice:
    members = found.members[start:end]
    piece = msgspec.structs.replace(
        found,
        members=members,
        scores=found.scores[start:end],
        ranks=found.ranks[start:end],
        metadata={member: found.metadata[member] for member in members if member in found.metadata},
    )
    return RankingSlice(piece, len(found.members), start)


def _covers(reaches: Sequence[Coverage], at: int) -> bool:
    try:
        return timeline_at(reaches, at) is not None
    except NoPastError:
        return False


def _timeline(connection: Connection, prefix: str, moment: AsOf) -> Timeline:
    """Return the timeline in which to read a board at a time."""
    reaches = reaches_of(connection, prefix, moment.board, moment.epoch)
    timeline = timeline_at(reaches, moment.at)
    if timeline is None:
        raise NoPastError(since_of(reaches))
    return timeline


def _changes(
    connection: Connection, timeline: Timeline, member: str, offset: int, moment: AsOf, erased: Erasures
) -> list[Change]:
    """Return the newest changes of a member up to an offset and before a time, the last change first."""
    stop = before(moment.at, moment.board.clock)
    rows = connection.execute(
        select(SEGMENT.c.crc, SEGMENT.c.data)
        .where(SEGMENT.c.life == timeline.id)
        .order_by(SEGMENT.c.id.desc())
        .limit(_SEGMENTS)
    )
    found: list[Change] = []
    for row in rows:
        for head, body in reversed(list(read_entries_of(row))):
            if head.kind != "add" or head.offset > offset:
                continue
            part = body
            if stop(head, body):
                part = divide(body, moment.at)[0] if moment.board.clock == "event" else b""
            if not part:
                continue
            batch = _ADD.decode(part)
            found += [_change(head, batch, group, member, erased) for group in batch.groups if member in group.members]
        if len(found) >= _CHANGES:
            break
    return found[:_CHANGES]


def _change(head: Head, batch: Add, group: EntryDelta, member: str, erased: Erasures) -> Change:
    place = group.members.index(member)
    parts = parts_of(head, batch, group, place, erased)
    producers, actors = ({getattr(part, name): None for part in parts} for name in ("producer", "actor"))
    return Change(
        head.time, head.offset, group.amounts[place], batch.reason,
        list(filter(None, producers)), list(filter(None, actors)),
    )  # fmt: skip


_RANKINGS: Final[dict[tuple[object, ...], PastRanking]] = {}
