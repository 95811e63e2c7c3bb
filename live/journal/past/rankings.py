"""Read the past of boards from SQL. This runs in a process that `pool.py` starts."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from live.domain.board import Board
from live.domain.ranking import ranks_of
from live.journal.database import prefix_of
from live.journal.forgetting import erasures_in
from live.journal.log.entries import read_entries_of
from live.journal.log.reader import before
from live.journal.log.timelines import Timeline
from live.journal.past.contributors import senders_of
from live.journal.past.coverage import Coverage, contents_by_rules, reaches_of, since_of, timeline_at
from live.journal.past.queries import (
    AsOf,
    Change,
    NoPastError,
    PastRanking,
    RankingSlice,
    Reach,
    ScoreBreakdown,
)
from live.journal.schema import SEGMENT
from live.journal.state.events import UntoldError, amount_under, batch_under, divide
from live.journal.state.fold import rest_of, ruled_by
from live.journal.state.ranking import live_slots, scores_at, scores_of
from live.journal.state.snapshot import Ranking, Snapshot
from live.journal.upkeep.archive import find_archived
from live.store.board.batch import decode_batch

_KEPT: Final = 8  # rankings that stay in memory
_CHANGES: Final = 20  # maximum changes of a member in `ScoreBreakdown`
_SEGMENTS: Final = 200  # maximum segments that are searched for these changes, the newest first


def read_ranking(connection: Connection, moment: AsOf, start: int, limit: int) -> RankingSlice:
    """Return some records of a board at a time."""
    return _cut(_ranking(connection, moment), start, start + limit)


def find_record(connection: Connection, moment: AsOf, member: str, around: int) -> RankingSlice:
    """Return a member's record with its neighbours, or no record if the member was not on the board."""
    return _around(_ranking(connection, moment), member, around)


def read_reach(connection: Connection, board: Board, epoch: str, times: Sequence[int]) -> Reach:
    """Return the first time that the journal covers, and which of `times` it covers (in milliseconds since 1970)."""
    reaches = reaches_of(connection, board, epoch)
    return Reach(since_of(reaches), [_covers(reaches, at) for at in times])


def read_period(connection: Connection, moment: AsOf, start: int, limit: int) -> RankingSlice | None:
    """Return some records of a period that the board does not keep any more; None if the journal has no such period."""
    found = period_at(connection, moment)
    return None if found is None else _cut(found, start, start + limit)


def find_in_period(connection: Connection, moment: AsOf, member: str, around: int) -> RankingSlice | None:
    """Return a member's record with its neighbours in a dropped period; None if the journal has no such period."""
    found = period_at(connection, moment)
    return None if found is None else _around(found, member, around)


def explain_record(connection: Connection, moment: AsOf, member: str) -> ScoreBreakdown:
    """Return the parts of a member's score as they were at a time."""
    board, timeline = moment.board, _timeline(connection, moment)
    _, data = next(contents_by_rules(connection, timeline, board, [moment.at]))
    held = live_slots(board, data, moment.at, moment.period)
    slots = sorted((start, slot[member]) for start, slot in held.items() if member in slot)
    changes = _changes(connection, timeline, member, data, moment)
    return ScoreBreakdown(data.shown(timeline.epoch), data.offset, scores_of(board, held).get(member), slots, changes)


def _ranking(connection: Connection, moment: AsOf) -> PastRanking:
    board = moment.board
    of_board = prefix_of(connection), board.definition_tag, board.id, moment.epoch
    key = *of_board, moment.at, moment.period, moment.hidden, erasures_in(connection)
    found = _RANKINGS.get(key)
    if found is None:
        found = ranking_at(connection, moment)
        if len(_RANKINGS) >= _KEPT:
            _RANKINGS.pop(next(iter(_RANKINGS)))
        _RANKINGS[key] = found
    return found


def ranking_at(connection: Connection, moment: AsOf) -> PastRanking:
    """Return the whole ranking of a board at a time."""
    board = moment.board
    timeline = _timeline(connection, moment)
    _, data = next(contents_by_rules(connection, timeline, board, [moment.at]))
    scores = scores_at(board, data, moment.at, moment.period)
    suffix = f":{scores.period}" if board.window.tables else ""
    metadata = data.rankings.get(suffix, Ranking()).metadata if board.votes is None else data.entrants
    found = scores.ranked(board, moment.hidden)
    values = [found.scores[member] for member in found.members]
    return PastRanking(
        epoch=data.shown(timeline.epoch),
        offset=data.offset,
        period=found.period,
        members=found.members,
        scores=values,
        ranks=ranks_of(values, 1, 0, board.ranks),
        total=sum(values),
        metadata=metadata,
    )


def period_at(connection: Connection, moment: AsOf) -> PastRanking | None:
    """Return the whole ranking of a period that the board does not keep any more; None if the journal has none."""
    board, period = moment.board, moment.period
    assert period is not None, "the query names a period"  # noqa: S101
    archived = find_archived(connection, board, moment.epoch, period)
    if archived is None:
        return None
    kept = archived.period
    rows = [row for row in zip(kept.members, kept.scores, strict=True) if row[0] not in moment.hidden]
    scores = [score for _, score in rows]
    return PastRanking(
        epoch=kept.epoch,
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


def _timeline(connection: Connection, moment: AsOf) -> Timeline:
    reaches = reaches_of(connection, moment.board, moment.epoch)
    timeline = timeline_at(reaches, moment.at)
    if timeline is None:
        raise NoPastError(since_of(reaches))
    return timeline


def _changes(connection: Connection, timeline: Timeline, member: str, data: Snapshot, moment: AsOf) -> list[Change]:
    """Return the newest changes of a member that the contents before a time have, the last change first.

    Their amounts are by the present rules. Leave out what does not say enough for these rules.
    """
    board, stop = moment.board, before(moment.at, moment.board.clock)
    rules = data.ruled.board_of(data.origin or data.shape) if data.ruled else board  # those of an entry
    rows = connection.execute(
        select(SEGMENT.c.crc, SEGMENT.c.data)
        .where(SEGMENT.c.life == timeline.id)
        .order_by(SEGMENT.c.id.desc())
        .limit(_SEGMENTS)
    )
    found: list[Change] = []
    for row in rows:
        for head, body in reversed(list(read_entries_of(row))):
            if head.offset > data.offset:
                continue
            if head.kind == "swap" and (ruled := ruled_by(body)):
                rules = ruled.before
            if head.kind != "add":
                continue
            part = rest_of(data.taken, head, body)
            if stop(head, body):
                part = divide(part, moment.at)[0] if board.clock == "event" else b""
            if not part:
                continue
            with suppress(UntoldError):
                batch = decode_batch(part)
                if rules.shape != board.shape:
                    batch = batch_under(batch, head.time, rules, board)
                for group in batch.groups:
                    if member in group.members:
                        place = group.places[member]
                        amount = group.amounts[place]
                        if batch.since is not None:  # the amounts of a merge stay as they are
                            amount = amount_under(amount, rules, board)
                        senders = senders_of(batch, group, place)
                        found.append(Change(head.time, head.offset, amount, batch.reason, *senders))
        if len(found) >= _CHANGES:
            break
    return found[:_CHANGES]


_RANKINGS: Final[dict[tuple[object, ...], PastRanking]] = {}
