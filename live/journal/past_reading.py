"""Reads the past of boards from SQL: in the process that `past` starts."""

import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import msgspec
from sqlalchemy import Connection, select

from live.domain.board import Board
from live.domain.ranking import ranks_of
from live.errors import SetupError
from live.journal.archive import find_archived
from live.journal.contents import Ranking
from live.journal.database import Database, open_journal
from live.journal.entries import Add, parse_head, position_of
from live.journal.lives import Life, find_life
from live.journal.moments import (
    Change,
    Moment,
    NoPastError,
    Parts,
    PastRanking,
    Step,
    Stretch,
    TooLongError,
    UnsupportedPastError,
)
from live.journal.reach import Source, reaches_of, scores_at_all, since_of, source_of
from live.journal.reading import Stop, before, contents_of
from live.journal.schema import ABOUT, SEGMENT
from live.journal.scores import live_slots, scores_at, scores_of
from live.journal.segments import unpack_entries
from live.journal.totals_reading import scores_by_hour
from live.settings import Settings

_R = TypeVar("_R")

_LONGEST: Final = 10.0  # seconds for one query, so that others get their turn
_KEPT: Final = 8  # rankings that stay in memory
_CHANGES: Final = 20  # newest events of a record that an explanation names
_SEGMENTS: Final = 200  # newest segments in which it looks for them

_ADD: Final = msgspec.msgpack.Decoder(Add)


def run_limited(work: Callable[..., _R], *given: object, longest: float = _LONGEST) -> _R:
    """Do work, which may take `longest` seconds.

    Raises:
        TooLongError: it takes longer.
    """
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, longest)
    try:
        return work(*given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(_signal: int, _frame: object) -> NoReturn:
    raise TooLongError


def read_ranking(settings: Settings, moment: Moment, start: int, limit: int) -> Stretch:
    """Some records of a board at a time.

    Raises:
        NoPastError: the journal does not reach back so far.
    """
    return _cut(_ranking(settings, moment), start, start + limit)


def find_record(settings: Settings, moment: Moment, member: str, around: int) -> Stretch | None:
    """A member's record at a time with its neighbours; None if it was not on the board. Raises as `read_ranking`."""
    return _around(_ranking(settings, moment), member, around)


def read_period(settings: Settings, moment: Moment, start: int, limit: int) -> Stretch | None:
    """Some records of a period that the board does not keep any more; None if the journal has no such period."""
    found = _database(settings).work(partial(period_at, prefix=settings.key_prefix, moment=moment))
    return None if found is None else _cut(found, start, start + limit)


def find_in_period(settings: Settings, moment: Moment, member: str, around: int) -> Stretch | None:
    """A member's record with its neighbours in such a period; None if it was not on the board."""
    found = _database(settings).work(partial(period_at, prefix=settings.key_prefix, moment=moment))
    return None if found is None else _around(found, member, around)


def read_history(
    settings: Settings, board: Board, hidden: frozenset[str], members: Sequence[str], times: Sequence[int]
) -> list[list[Step]]:
    """The records of members at some ascending times, in milliseconds since 1970.

    Raises:
        NoPastError: the journal does not reach back to them.
    """

    def work(connection: Connection) -> list[list[Step]]:
        steps: list[list[Step]] = [[] for _ in members]
        for at, hour, found in scores_at_all(connection, settings.key_prefix, board, times):
            ranks = found.ranks(board, hidden, members)
            answered = None if hour is None else hour * 1000
            for member, step in zip(members, steps, strict=True):
                score = found.scores[member] if member in ranks else None
                step.append(Step(at, score, ranks.get(member), answered))
        return steps

    return _database(settings).work(work)


def explain_record(settings: Settings, moment: Moment, member: str) -> Parts:
    """What a member's score consisted of at a time. Raises as `read_ranking`."""

    def work(connection: Connection) -> Parts:
        board, at = moment.board, moment.at
        life, hour = _source(connection, settings.key_prefix, moment)
        if hour is not None:
            (reach, *_) = reaches_of(connection, settings.key_prefix, board)
            raise UnsupportedPastError(reach.entries, "an explanation names events")
        data = contents_of(connection, settings.key_prefix, life, before(at, board.clock))
        held = live_slots(board, data, at, moment.period)
        slots = sorted((start, slot[member]) for start, slot in held.items() if member in slot)
        changes = _changes(connection, life, member, before(at, board.clock))
        return Parts(life.epoch, data.offset, scores_of(held).get(member), slots, changes)

    return _database(settings).work(work)


def drained(settings: Settings, board: str, epoch: str) -> tuple[tuple[int, int], int]:
    """The position of the last entry of a board in SQL, and its time in microseconds since 1970."""

    def work(connection: Connection) -> tuple[tuple[int, int], int]:
        life = find_life(connection, settings.key_prefix, board, epoch)
        if life is None:
            return (0, 0), 0
        last = select(SEGMENT.c.ended).where(SEGMENT.c.life == life.id).order_by(SEGMENT.c.id.desc()).limit(1)
        return position_of(life.drained), connection.scalar(last) or 0

    return _database(settings).work(work)


def identity(settings: Settings) -> str:
    """The id of the database."""
    return _database(settings).work(
        lambda connection: connection.scalar(select(ABOUT.c.value).where(ABOUT.c.name == "id")) or ""
    )


def _ranking(settings: Settings, moment: Moment) -> PastRanking:
    key = (settings.key_prefix, moment.board.shape.encode(), moment.board.id, moment.at, moment.period, moment.hidden)
    found = _RANKINGS.get(key)
    if found is None:
        found = _database(settings).work(partial(ranking_at, prefix=settings.key_prefix, moment=moment))
        if len(_RANKINGS) >= _KEPT:
            _RANKINGS.pop(next(iter(_RANKINGS)))
        _RANKINGS[key] = found
    return found


def ranking_at(connection: Connection, prefix: str, moment: Moment) -> PastRanking:
    """The whole ranking of a board at a time. Raises as `read_ranking`."""
    board = moment.board
    source = _source(connection, prefix, moment)
    metadata: dict[str, bytes] = {}
    if source.hour is None:
        data = contents_of(connection, prefix, source.life, before(moment.at, board.clock))
        scores, offset = scores_at(board, data, moment.at, moment.period), data.offset
        suffix = f":{scores.period}" if board.window.tables else ""
        metadata = data.rankings.get(suffix, Ranking()).metadata if board.votes is None else data.entrants
    else:
        ((_, offset, scores),) = scores_by_hour(connection, source.life, board, [source.hour], moment.period)
    found = scores.ranked(board, moment.hidden)
    values = [found.scores[member] for member in found.members]
    return PastRanking(
        epoch=source.life.epoch,
        offset=offset,
        period=found.period,
        members=found.members,
        scores=values,
        ranks=ranks_of(values, 1, 0, board.ranks),
        total=sum(values),
        metadata=metadata,
        hour=None if source.hour is None else source.hour * 1000,
    )


def period_at(connection: Connection, prefix: str, moment: Moment) -> PastRanking | None:
    """The whole ranking of a period that the board does not keep any more; None if the journal has none."""
    board, period = moment.board, moment.period
    assert period is not None, "the query names a period"  # noqa: S101
    archived = find_archived(connection, prefix, board, period)
    if archived is None:
        return None
    kept = archived.period
    rows = [row for row in zip(kept.members, kept.scores, strict=True) if row[0] not in moment.hidden]
    scores = [score for _, score in rows]
    return PastRanking(
        epoch=archived.life.epoch,
        offset=archived.offset,
        period=period,
        members=[member for member, _ in rows],
        scores=scores,
        ranks=ranks_of(scores, 1, 0, board.ranks),
        total=sum(scores),
        metadata=kept.metadata,
        revision=archived.revision,
    )


def _around(found: PastRanking, member: str, around: int) -> Stretch | None:
    try:
        place = list(found.members).index(member)
    except ValueError:
        return None
    return _cut(found, max(0, place - around), place + around + 1)


def _cut(found: PastRanking, start: int, end: int) -> Stretch:
    members = found.members[start:end]
    piece = msgspec.structs.replace(
        found,
        members=members,
        scores=found.scores[start:end],
        ranks=found.ranks[start:end],
        metadata={member: found.metadata[member] for member in members if member in found.metadata},
    )
    return Stretch(piece, len(found.members), start)


def _source(connection: Connection, prefix: str, moment: Moment) -> Source:
    """Where to read a board at a time."""
    reaches = reaches_of(connection, prefix, moment.board)
    source = source_of(reaches, moment.board, moment.at)
    if source is None:
        raise NoPastError(since_of(reaches))
    return source


def _changes(connection: Connection, life: Life, member: str, stop: Stop) -> list[Change]:
    """The newest changes of a member before the stop, the last one first."""
    rows = connection.execute(
        select(SEGMENT.c.crc, SEGMENT.c.data)
        .where(SEGMENT.c.life == life.id)
        .order_by(SEGMENT.c.id.desc())
        .limit(_SEGMENTS)
    )
    found: list[Change] = []
    for row in rows:
        for text, body in reversed(list(unpack_entries(row.crc, row.data))):
            head = parse_head(text)
            if head.kind != "add" or stop(head, body):
                continue
            found += [
                Change(head.time, head.offset, group.amounts[group.members.index(member)])
                for group in _ADD.decode(body).groups
                if member in group.members
            ]
        if len(found) >= _CHANGES:
            break
    return found[:_CHANGES]


_RANKINGS: Final[dict[tuple[object, ...], PastRanking]] = {}
_DATABASES: Final[dict[tuple[str, Path, str], Database]] = {}


def _database(settings: Settings) -> Database:
    """The database, which this process only reads."""
    name = (settings.journal, settings.data_dir, settings.key_prefix)
    found = _DATABASES.get(name)
    if found is None:
        found = open_journal(settings, writes=False)
        if found is None:
            raise SetupError("the server keeps no journal")
        _DATABASES[name] = found
    return found
