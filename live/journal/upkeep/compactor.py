"""Make checkpoints, archive periods, and delete data that is older than the settings say.

Another process computes the checkpoints and the archived periods, because this process serves clients. Deleted are
entries, checkpoints, archived periods, definitions and timelines.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import structlog
from sqlalchemy import BigInteger, Row, delete, func, literal_column, or_, select, update
from sqlalchemy.engine import Connection

from live.domain.board import Board, Boards
from live.domain.window import parse_duration
from live.errors import JournalError, SetupError, StoreUnavailableError
from live.journal.database import Database, existing_journal, prefix_of
from live.journal.forgetting import erasures_in
from live.journal.log.audit_trail import KIND as TRAIL
from live.journal.log.reader import swaps_of
from live.journal.log.timelines import Timeline, end_timelines, open_timelines
from live.journal.schema import CHECKPOINT, DEFINITION, LIFE, PERIOD, SEGMENT
from live.journal.state.fold import taken_by
from live.journal.upkeep.archive import closed_periods, keep_closed, reopen
from live.journal.upkeep.checkpoints import due, keep, make
from live.metrics import JOURNAL_ARCHIVE_LAG
from live.settings import Settings
from live.system.processes import CHILDREN, follow_parent

log = structlog.get_logger()

_INTERVAL: Final = 60.0  # seconds between two steps
_DAY: Final = 86_400_000_000  # microseconds
_EVERY_VERSION: Final = 30 * _DAY  # for this time, the journal keeps every version of a definition or a title
_R = TypeVar("_R")

KnownTimeline = tuple[Timeline, Board | None]
"""A timeline, and its board as it is defined now, if this process knows it."""


class Compactor:
    """Keep the journal in order in the process that writes it. `boards` returns the boards as they are defined now."""

    def __init__(
        self, settings: Settings, database: Database, boards: Callable[[], Boards] = lambda: Boards(())
    ) -> None:
        self._settings = settings
        self._database = database
        self.boards = boards
        self._rounds = Rounds()
        # For each timeline of a calendar board: the period in which its final periods were last archived. With an event
        # clock, it is the hour.
        self._archived_in: dict[int, int] = {}
        self._forgot_on = 0  # the day on which old versions of definitions were last deleted

    async def run(self) -> None:
        """Keep the journal in order until cancelled."""
        done = time.monotonic()
        while True:
            await asyncio.sleep(_INTERVAL)
            started = time.monotonic()
            try:
                await self.step()
                done = time.monotonic()
                JOURNAL_ARCHIVE_LAG.set(done - started)
            except (StoreUnavailableError, SetupError) as error:
                JOURNAL_ARCHIVE_LAG.set(time.monotonic() - done)
                log.error("the journal can't be kept in order", reason=str(error))  # noqa: TRY400 - the reason says all

    async def step(self, now: int | None = None) -> None:
        """Make the checkpoints that are due, archive periods, and delete what is too old. `now` is in microseconds."""
        now = time.time_ns() // 1000 if now is None else now
        boards = self.boards().by_id
        timelines = await self._database.run(open_timelines)
        known = self._rounds.choose([(timeline, boards.get(timeline.board)) for timeline in timelines], now)
        off = [timeline for timeline, board in known if board is not None and board.journal == "off"]
        if off:
            await self._database.run(end_timelines, off)
        kept = [(timeline, board) for timeline, board in known if timeline not in off]
        calendars = [(timeline, board) for timeline, board in kept if board is not None and board.window.tables]
        await self._checkpoint(kept, now)
        await self._archive(calendars, now)
        for timeline, board in kept:
            await self._database.run(forget_entries, timeline, now - self._limits(board)[0] * 1_000_000)
        for timeline, board in calendars:
            await self._database.run(forget_periods, timeline, board, now // 1_000_000, self._limits(board)[1])
        await self._database.run(forget_timelines, lambda name: self._limits(boards.get(name)), now)
        if self._forgot_on != (day := now // _DAY):
            await self._database.run(forget_definitions, now - _EVERY_VERSION)
            self._forgot_on = day

    async def _checkpoint(self, kept: Sequence[KnownTimeline], now: int) -> None:
        wanted = await self._database.run(
            lambda connection: [
                (one, board) for timeline, board in kept if (one := due(connection, timeline, now)) is not None
            ]
        )
        if not wanted:
            return
        with _other_process() as pool:
            for one, board in wanted:
                calendar = (board, self._limits(board)[1]) if board is not None and board.window.tables else None
                with _of_one_board(one.timeline):
                    await self._database.run(keep, one, *await self._read(pool, make, one, calendar))

    async def _archive(self, calendars: Sequence[tuple[Timeline, Board]], now: int) -> None:
        """Archive the final periods of calendar boards: once per period, or once per hour with an event clock."""
        turned: list[tuple[Timeline, Board, int]] = []
        for timeline, board in calendars:
            await self._database.run(reopen, timeline, board)
            unit = board.window.slot_at(now // 1_000_000).start if board.clock == "server" else now // 1_000_000 // HOUR
            if self._archived_in.get(timeline.id) != unit:
                turned.append((timeline, board, unit))
        if turned:
            with _other_process() as pool:
                for timeline, board, unit in turned:
                    with _of_one_board(timeline):
                        erasures = await self._database.run(erasures_in)
                        closed = await self._read(pool, closed_periods, timeline, board)
                        if not await self._database.run(keep_closed, timeline, closed, erasures):
                            continue
                    self._archived_in[timeline.id] = unit

    async def _read(self, pool: ProcessPoolExecutor, work: Callable[..., _R], *given: object) -> _R:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, _read_in, self._settings, work, *given)
        except BrokenProcessPool as error:  # it may have run out of memory; the next step starts another process
            raise JournalError("the process that keeps the journal in order has ended") from error

    def _limits(self, board: Board | None) -> tuple[int, int]:
        """Return for how many seconds the journal keeps events, and periods that the board has dropped."""
        events, periods = (board.journal_events, board.journal_periods) if board is not None else (None, None)
        return (
            int(parse_duration(events)) if events else self._settings.journal_events,
            int(parse_duration(periods)) if periods else self._settings.journal_periods,
        )


@contextmanager
def _of_one_board(timeline: Timeline) -> Iterator[None]:
    try:
        yield
    except SetupError as error:
        log.error("the journal of a board can't be kept in order", board=timeline.board, reason=str(error))  # noqa: TRY400


@contextmanager
def _other_process() -> Iterator[ProcessPoolExecutor]:
    """Use another process, which only reads. At the end, kill it: waiting for its work would stop this process."""
    pool = ProcessPoolExecutor(1, CHILDREN, follow_parent)
    try:
        yield pool
    finally:
        for process in [*pool._processes.values()]:  # noqa: SLF001 - before 3.14, a pool can only wait
            process.kill()
        pool.shutdown()


def _read_in(settings: Settings, work: Callable[..., _R], *given: object) -> _R:
    with existing_journal(settings, writes=False) as database:
        return database.work(work, *given)


HOUR: Final = 3600  # seconds
_QUIET: Final = 6 * HOUR  # seconds between two checks of a timeline that does not change
_MOST_QUIET: Final = 50  # maximum timelines in one round that are new or have not changed


class _Check(NamedTuple):
    """What the compactor saw of a timeline, and when (in microseconds) it checks the timeline again if unchanged."""

    seen: KnownTimeline
    again: int


class Rounds:
    """Remember what the compactor has checked. Checking thousands of quiet boards every minute would take seconds."""

    def __init__(self) -> None:
        self._checks: dict[int, _Check] = {}

    def choose(self, timelines: Iterable[KnownTimeline], now: int) -> list[KnownTimeline]:
        """Return the timelines to check at `now` (microseconds), and remember them as checked."""
        checks, chosen, quiet = self._checks, [], []
        self._checks = {}
        for known in timelines:
            check = checks.get(known[0].id)
            if check is not None and check.seen != known:
                chosen.append(known)
            elif check is None or now >= check.again:
                quiet.append(known)
            else:
                self._checks[known[0].id] = check
        quiet.sort(key=lambda known: known[0].id not in checks)  # those that an earlier round has checked come first
        for timeline, _ in quiet[_MOST_QUIET:]:
            if timeline.id in checks:
                self._checks[timeline.id] = checks[timeline.id]
        chosen += quiet[:_MOST_QUIET]
        for timeline, board in chosen:
            has_periods = board is not None and board.window.tables
            # Most periods end at a full hour, so check a board that has periods at the next full hour.
            again = (now // 1_000_000 // HOUR + 1) * HOUR * 1_000_000 if has_periods else now + _QUIET * 1_000_000
            self._checks[timeline.id] = _Check((timeline, board), again)
        return chosen


def forget_entries(connection: Connection, timeline: Timeline, before: int) -> int:
    """Delete the segments and checkpoints that are not needed to read the board at `before` (microseconds) or later.

    The last checkpoint before that time stays, and every segment after that checkpoint. So do the events that a later
    swap has taken back, because reading past the swap needs what comes between. Return how many segments were deleted.
    """
    while True:
        where = (CHECKPOINT.c.life == timeline.id, CHECKPOINT.c.time < before)
        base = connection.scalar(select(func.max(CHECKPOINT.c.segment)).where(*where))
        if base is None:
            return 0
        times = (taken_by(swap).since for swap in swaps_of(connection, timeline, after=base))
        oldest = min((time for time in times if time is not None), default=before)
        if oldest >= before:
            break
        before = oldest
    connection.execute(delete(CHECKPOINT).where(CHECKPOINT.c.life == timeline.id, CHECKPOINT.c.segment < base))
    return connection.execute(delete(SEGMENT).where(SEGMENT.c.life == timeline.id, SEGMENT.c.id <= base)).rowcount


def forget_periods(connection: Connection, timeline: Timeline, board: Board, now: int, kept: int) -> None:
    """Delete archived periods that ended more than `kept` seconds before `now` (seconds), or before an event clock."""
    of_timeline = PERIOD.c.life == timeline.id
    if board.clock == "event":
        now = connection.scalar(select(func.max(PERIOD.c.newest)).where(of_timeline)) or now
    connection.execute(delete(PERIOD).where(of_timeline, PERIOD.c.start < board.window.slot_at(now - kept).start))


def forget_definitions(connection: Connection, before: int) -> None:
    """Delete versions of definitions and titles from before a time (microseconds), except the last one of each day.

    The newest version stays, and so does the whole audit log.
    """
    names = (DEFINITION.c.kind, DEFINITION.c.name)
    later = (
        func.lead(DEFINITION.c.time, type_=BigInteger).over(partition_by=names, order_by=DEFINITION.c.id).label("later")
    )
    where = (DEFINITION.c.prefix == prefix_of(connection), DEFINITION.c.kind != TRAIL)
    versions = select(DEFINITION.c.id, DEFINITION.c.time, later).where(*where).subquery()
    day = literal_column(str(86_400_000_000), BigInteger)
    same_day = versions.c.later // day == versions.c.time // day
    replaced = select(versions.c.id).where(versions.c.time < before, same_day)
    connection.execute(delete(DEFINITION).where(DEFINITION.c.id.in_(replaced)))


def forget_timelines(connection: Connection, kept: Callable[[str], tuple[int, int]], now: int) -> None:
    """Delete the timelines that ended too long before `now` (microseconds), with everything that belongs to them.

    `kept` returns for how many seconds the events and the archived periods of a board are kept. Keep a timeline while
    another timeline that continues it still has its first entry. Keep the newest timeline, because the database must
    not use its row number again.
    """
    newest = select(func.max(LIFE.c.id)).scalar_subquery()
    where = (LIFE.c.prefix == prefix_of(connection), LIFE.c.ended.is_not(None), LIFE.c.id < newest)
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
            select(LIFE.c.id).where(LIFE.c.prefix == prefix_of(connection), LIFE.c.parent == row.epoch, is_later)
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
