"""Reads the past of boards from SQL: in the process that `past` starts."""

import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, select

from live.domain.board import Board
from live.domain.ranking import ranks_of
from live.errors import SetupError
from live.journal.database import Database, open_journal
from live.journal.log.entries import Add, parse_head, position_of
from live.journal.log.reader import Stop, before, contents_of
from live.journal.log.segments import unpack_entries
from live.journal.log.timelines import Timeline, find_life
from live.journal.past.coverage import life_at, reaches_of, scores_at_all, since_of
from live.journal.past.queries import (
    AsOf,
    Change,
    NoPastError,
    PastRanking,
    RankingSlice,
    ScoreBreakdown,
    Step,
    TooLongError,
)
from live.journal.schema import ABOUT, SEGMENT
from live.journal.state.ranking import live_slots, scores_at, scores_of
from live.journal.state.snapshot import Ranking
from live.journal.upkeep.archive import find_archived
from live.settings import Settings
from live.system.processes import end_with_parent

_R = TypeVar("_R")

_LONGEST: Final = 10.0  # seconds for one query
_CHECK: Final = 0.05  # seconds between two looks at the clock and the client of a query
_MOST_SCORES: Final = 10_000_000  # that a history reads: its steps, times the members on the board
_KEPT: Final = 8  # rankings that stay in memory
_CHANGES: Final = 20  # newest events of a record that an explanation names
_SEGMENTS: Final = 200  # newest segments in which it looks for them

_ADD: Final = msgspec.msgpack.Decoder(Add)


class Ticket(NamedTuple):
    """A query: its number, and its place in the array of the numbers that are wanted."""

    place: int
    number: int


class _Worker:
    """What this process has from the one that started it: for each place, the number of the query that is wanted."""

    wanted: Sequence[int] = ()


class DepartedError(Exception):
    """The client of a query has left."""


def begin_worker(parent: int, wanted: Sequence[int]) -> None:
    """Prepare a process that reads the past. It ends with its parent."""
    end_with_parent(parent)
    _Worker.wanted = wanted


def run_limited(ticket: Ticket, work: Callable[..., _R], *given: object, longest: float = _LONGEST) -> _R:
    """Do work, which may take `longest` seconds, and while its client waits for it.

    Raises:
        TooLongError: it takes longer.
        DepartedError: its client has left.
    """
    end = time.monotonic() + longest
    is_over = False

    def check(_signal: int, _frame: object) -> None:
        nonlocal is_over
        has_left = _Worker.wanted[ticket.place] != ticket.number
        if is_over or not (has_left or time.monotonic() > end):
            return
        is_over = True
        if has_left:
            raise DepartedError
        raise TooLongError(
            f"reading takes longer than {longest:g} s: ask for fewer steps, a shorter time, or a smaller board"
        )

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, _CHECK, _CHECK)
    try:
        return work(*given)
    except (DepartedError, TooLongError):
        while _DATABASES:  # it was interrupted anywhere, so its connection may be in any state
            _DATABASES.popitem()[1].close()
        raise
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)


def read_ranking(settings: Settings, moment: AsOf, start: int, limit: int) -> RankingSlice:
    """Some records of a board at a time.

    Raises:
        NoPastError: the journal does not reach back so far.
    """
    return _cut(_ranking(settings, moment), start, start + limit)


def find_record(settings: Settings, moment: AsOf, member: str, around: int) -> RankingSlice | None:
    """A member's record at a time with its neighbours; None if it was not on the board. Raises as `read_ranking`."""
    return _around(_ranking(settings, moment), member, around)


def read_period(settings: Settings, moment: AsOf, start: int, limit: int) -> RankingSlice | None:
    """Some records of a period that the board does not keep any more; None if the journal has no such period."""
    found = _database(settings).work(partial(period_at, prefix=settings.key_prefix, moment=moment))
    return None if found is None else _cut(found, start, start + limit)


def find_in_period(settings: Settings, moment: AsOf, member: str, around: int) -> RankingSlice | None:
    """A member's record with its neighbours in such a period; None if it was not on the board."""
    found = _database(settings).work(partial(period_at, prefix=settings.key_prefix, moment=moment))
    return None if found is None else _around(found, member, around)


def read_history(
    settings: Settings, board: Board, hidden: frozenset[str], members: Sequence[str], times: Sequence[int]
) -> list[list[Step]]:
    """The records of members at some ascending times, in milliseconds since 1970.

    Raises:
        NoPastError: the journal does not reach back to them.
        TooLongError: the board has too many members for so many steps.
    """

    def work(connection: Connection) -> list[list[Step]]:
        steps: list[list[Step]] = [[] for _ in members]
        for at, found in scores_at_all(connection, settings.key_prefix, board, times):
            if len(times) * len(found.scores) > _MOST_SCORES:
                most = max(1, _MOST_SCORES // len(found.scores))
                size = f"{len(found.scores):,} members"
                raise TooLongError(f"the board has {size}: a history of it may have at most {most} steps")
            ranks = found.ranks(board, hidden, members)
            for member, step in zip(members, steps, strict=True):
                score = found.scores[member] if member in ranks else None
                step.append(Step(at, score, ranks.get(member)))
        return steps

    return _database(settings).work(work)


def explain_record(settings: Settings, moment: AsOf, member: str) -> ScoreBreakdown:
    """What a member's score consisted of at a time. Raises as `read_ranking`."""

    def work(connection: Connection) -> ScoreBreakdown:
        board, at = moment.board, moment.at
        life = _life(connection, settings.key_prefix, moment)
        data = contents_of(connection, settings.key_prefix, life, before(at, board.clock))
        held = live_slots(board, data, at, moment.period)
        slots = sorted((start, slot[member]) for start, slot in held.items() if member in slot)
        changes = _changes(connection, life, member, before(at, board.clock))
        return ScoreBreakdown(life.epoch, data.offset, scores_of(held).get(member), slots, changes)

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


def _ranking(settings: Settings, moment: AsOf) -> PastRanking:
    key = (settings.key_prefix, moment.board.shape.encode(), moment.board.id, moment.at, moment.period, moment.hidden)
    found = _RANKINGS.get(key)
    if found is None:
        found = _database(settings).work(partial(ranking_at, prefix=settings.key_prefix, moment=moment))
        if len(_RANKINGS) >= _KEPT:
            _RANKINGS.pop(next(iter(_RANKINGS)))
        _RANKINGS[key] = found
    return found


def ranking_at(connection: Connection, prefix: str, moment: AsOf) -> PastRanking:
    """The whole ranking of a board at a time. Raises as `read_ranking`."""
    board = moment.board
    life = _life(connection, prefix, moment)
    data = contents_of(connection, prefix, life, before(moment.at, board.clock))
    scores = scores_at(board, data, moment.at, moment.period)
    suffix = f":{scores.period}" if board.window.tables else ""
    metadata = data.rankings.get(suffix, Ranking()).metadata if board.votes is None else data.entrants
    found = scores.ranked(board, moment.hidden)
    values = [found.scores[member] for member in found.members]
    return PastRanking(
        epoch=life.epoch,
        offset=data.offset,
        period=found.period,
        members=found.members,
        scores=values,
        ranks=ranks_of(values, 1, 0, board.ranks),
        total=sum(values),
        metadata=metadata,
    )


def period_at(connection: Connection, prefix: str, moment: AsOf) -> PastRanking | None:
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


def _around(found: PastRanking, member: str, around: int) -> RankingSlice | None:
    try:
        place = list(found.members).index(member)
    except ValueError:
        return None
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


def _life(connection: Connection, prefix: str, moment: AsOf) -> Timeline:
    """The life in which to read a board at a time."""
    reaches = reaches_of(connection, prefix, moment.board)
    life = life_at(reaches, moment.at)
    if life is None:
        raise NoPastError(since_of(reaches))
    return life


def _changes(connection: Connection, life: Timeline, member: str, stop: Stop) -> list[Change]:
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
