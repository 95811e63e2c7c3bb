"""Make checkpoints, archive periods, and delete data that is older than the settings say.

Another process computes the checkpoints and the archived periods, because this process serves clients.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, TypeVar

import structlog

from live.domain.board import Board, Boards, Journaling
from live.errors import JournalError, SetupError, StoreUnavailableError
from live.journal.database import Database, open_journal
from live.journal.log.entries import Packed
from live.journal.log.timelines import Timeline, drained_of, end_timelines, open_timelines
from live.journal.upkeep.archive import Closed, closed_periods, keep_closed, reopen
from live.journal.upkeep.checkpoints import Due, due, keep, make
from live.journal.upkeep.retention import forget_definitions, forget_entries, forget_periods, forget_timelines
from live.metrics import JOURNAL_ARCHIVE_LAG
from live.settings import Settings
from live.system.processes import CHILDREN, follow_parent

log = structlog.get_logger()

_INTERVAL: Final = 60.0  # seconds between two steps
_DAY: Final = 86_400_000_000  # microseconds
_EVERY_VERSION: Final = 30 * _DAY  # for this time, the journal keeps every version of a definition or a title
_R = TypeVar("_R")

_Known = tuple[Timeline, Board | None]
"""A timeline, and its board as it is defined now, if this process knows it."""


class Compactor:
    """Keep the journal in order in the process that writes it. `boards` returns the boards as they are defined now."""

    def __init__(
        self, settings: Settings, database: Database, boards: Callable[[], Boards] = lambda: Boards(())
    ) -> None:
        self._settings = settings
        self._prefix = settings.key_prefix
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
        """Make the checkpoints that are due, archive periods, and delete what is too old. `now` is in microseconds.

        Raises:
            SetupError: the journal is damaged.
        """
        now = time.time_ns() // 1000 if now is None else now
        boards = self.boards().by_id
        drained = await self._database.run(lambda connection: drained_of(connection, self._prefix))
        chosen = self._rounds.choose(
            [KnownTimeline(timeline, to, boards.get(board)) for timeline, board, to in drained], now
        )
        timelines = await self._database.run(lambda connection: open_timelines(connection, self._prefix, chosen))
        known = [(timeline, boards.get(timeline.board)) for timeline in timelines]
        off = [timeline for timeline, board in known if board is not None and board.journal.level == "off"]
        if off:
            await self._database.run(lambda connection: end_timelines(connection, off))
        kept = [(timeline, board) for timeline, board in known if timeline not in off]
        await self._checkpoint(kept, now)
        await self._archive(
            [(timeline, board) for timeline, board in kept if board is not None and board.window.tables], now
        )
        for timeline, board in kept:  # delete the events and the periods that are too old
            await self._database.run(
                partial(forget_entries, timeline=timeline, before=now - self._events(board) * 1_000_000)
            )
            if board is not None and board.window.tables:
                forgetting = partial(forget_periods, timeline=timeline, board=board, now=now // 1_000_000)
                await self._database.run(partial(forgetting, kept=self._periods(board)))

        def kept_of(name: str) -> tuple[int, int]:
            return self._events(boards.get(name)), self._periods(boards.get(name))

        await self._database.run(lambda connection: forget_timelines(connection, self._prefix, kept_of, now))
        if self._forgot_on != (day := now // _DAY):
            forgetting = partial(forget_definitions, prefix=self._prefix, before=now - _EVERY_VERSION)
            await self._database.run(forgetting)
            self._forgot_on = day

    async def _checkpoint(self, kept: Sequence[_Known], now: int) -> None:
        """Make the checkpoints that are due, in another process, because this process serves clients."""
        wanted = await self._database.run(
            lambda connection: [
                (one, board) for timeline, board in kept if (one := due(connection, timeline, now)) is not None
            ]
        )
        if not wanted:
            return
        with _other_process() as pool:
            for one, board in wanted:
                calendar = (board, self._periods(board)) if board is not None and board.window.tables else None
                with _of_one_board(one.timeline):
                    made, at = await _run(pool, _made, self._settings, one, calendar)
                    await self._database.run(partial(keep, wanted=one, made=made, at=at))

    async def _archive(self, calendars: Sequence[tuple[Timeline, Board]], now: int) -> None:
        """Archive the final periods of calendar boards: once per period, or once per hour with an event clock."""
        turned: list[tuple[Timeline, Board, int]] = []
        for timeline, board in calendars:
            await self._database.run(partial(reopen, timeline=timeline, board=board))
            unit = board.window.slot_at(now // 1_000_000).start if board.clock == "server" else now // 1_000_000 // HOUR
            if self._archived_in.get(timeline.id) != unit:
                turned.append((timeline, board, unit))
        if turned:
            with _other_process() as pool:
                for timeline, board, unit in turned:
                    with _of_one_board(timeline):
                        closed = await _run(pool, _closed, self._settings, timeline, board)
                        await self._database.run(partial(keep_closed, timeline=timeline, closed=closed))
                    self._archived_in[timeline.id] = unit

    def _events(self, board: Board | None) -> int:
        """Return for how many seconds the journal keeps events."""
        return (board and board.journal.events) or self._settings.journal_events

    def _periods(self, board: Board | None) -> int:
        """Return for how many seconds the journal keeps periods that the board has dropped."""
        return (board and board.journal.periods) or self._settings.journal_periods


@contextmanager
def _of_one_board(timeline: Timeline) -> Iterator[None]:
    """Go on with other boards if the journal of one board is damaged."""
    try:
        yield
    except SetupError as error:
        log.error("the journal of a board can't be kept in order", board=timeline.board, reason=str(error))  # noqa: TRY400


def _other_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, CHILDREN, follow_parent)


async def _run(pool: ProcessPoolExecutor, work: Callable[..., _R], *given: object) -> _R:
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *given)
    except BrokenProcessPool as error:  # the process may have run out of memory; the next step starts another process
        raise JournalError("the process that keeps the journal in order has ended") from error


def _reading(settings: Settings) -> Database:
    database = open_journal(settings, writes=False)
    assert database is not None, "there is something to read"  # noqa: S101
    return database


def _made(settings: Settings, wanted: Due, kept: tuple[Board, int] | None) -> tuple[Packed, int]:
    """Make a checkpoint, in a process that only reads."""
    with _reading(settings) as database:
        return database.work(lambda connection: make(connection, settings.key_prefix, wanted, kept))


def _closed(settings: Settings, timeline: Timeline, board: Board) -> list[Closed]:
    """Read the final periods that are not in the archive yet, in a process that only reads."""
    with _reading(settings) as database:
        return database.work(lambda connection: closed_periods(connection, settings.key_prefix, timeline, board))


HOUR: Final = 3600  # seconds
_QUIET: Final = 6 * HOUR  # seconds between two checks of a timeline that does not change
_MOST_QUIET: Final = 50  # maximum timelines in one round that are new or have not changed


class KnownTimeline(NamedTuple):
    """A timeline, how far SQL has it, and its board as it is defined now, if this process knows it."""

    id: int
    drained: str
    board: Board | None


class _Check(NamedTuple):
    """What the compactor saw of a timeline, and when (in microseconds) it checks the timeline again if unchanged."""

    drained: str
    journal: Journaling | None
    again: int


class Rounds:
    """Remember what the compactor has checked. Checking thousands of quiet boards every minute would take seconds."""

    def __init__(self) -> None:
        self._checks: dict[int, _Check] = {}

    def choose(self, timelines: Iterable[KnownTimeline], now: int) -> Collection[int]:
        """Return the ids of the timelines to check at `now` (microseconds), and remember them as checked."""
        checks, chosen, quiet = self._checks, [], []
        self._checks = {}
        for timeline in timelines:
            check, journal = checks.get(timeline.id), None if timeline.board is None else timeline.board.journal
            if check is not None and (check.drained, check.journal) != (timeline.drained, journal):
                chosen.append((timeline, journal, check))
            elif check is None or now >= check.again:
                quiet.append((timeline, journal, check))
            else:
                self._checks[timeline.id] = check
        quiet.sort(key=lambda found: found[2] is None)  # timelines that an earlier round has checked come first
        for timeline, _, check in quiet[_MOST_QUIET:]:
            if check is not None:
                self._checks[timeline.id] = check
        for timeline, journal, _ in chosen + quiet[:_MOST_QUIET]:
            has_periods = timeline.board is not None and timeline.board.window.tables
            # Most periods end at a full hour, so check a board that has periods at the next full hour.
            again = (now // 1_000_000 // HOUR + 1) * HOUR * 1_000_000 if has_periods else now + _QUIET * 1_000_000
            self._checks[timeline.id] = _Check(timeline.drained, journal, again)
        return {timeline.id for timeline, _, _ in chosen + quiet[:_MOST_QUIET]}
