"""Makes checkpoints and hourly totals, and deletes what is older than the settings say.

A separate process does the work.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final

import structlog
from sqlalchemy import Connection

from live.domain.board import Board, Boards
from live.domain.journaling import Journaling
from live.errors import SetupError, StoreUnavailableError
from live.journal.archive import Closed, closed_periods, forget_periods, keep_closed, reopen
from live.journal.cells import HOUR, has_totals
from live.journal.checkpoints import Due, due, forget, keep, make
from live.journal.database import Database, open_journal
from live.journal.lives import ConflictError, Life, drained_of, end_lives, open_lives
from live.journal.rounds import KnownLife, Rounds
from live.journal.segments import Packed
from live.journal.totals import NewTotals, add_totals, add_up, unfolded
from live.journal.totals_retention import Change, apply_change, condense, due_totals, old_totals
from live.metrics import JOURNAL_ARCHIVE_LAG
from live.settings import Settings
from live.system.processes import end_with_parent

log = structlog.get_logger()

_INTERVAL: Final = 60.0  # seconds

_Known = tuple[Life, Board | None]
"""A life, and its board as it is defined now, if this process knows it."""


class Keeper:
    """Looks after the journal of the process that writes it. `boards` gives the boards as they are defined now."""

    def __init__(
        self, settings: Settings, database: Database, boards: Callable[[], Boards] = lambda: Boards(())
    ) -> None:
        self._settings = settings
        self._prefix = settings.key_prefix
        self._database = database
        self._boards = boards
        self._rounds = Rounds()
        # For the lives of calendar boards: the period in which they were archived.
        self._archived_in: dict[int, int] = {}

    async def run(self) -> None:
        """Look after the journal until cancelled."""
        done = time.monotonic()
        while True:
            await asyncio.sleep(_INTERVAL)
            started = time.monotonic()
            try:
                await self.step()
                done = time.monotonic()
                JOURNAL_ARCHIVE_LAG.set(done - started)
            except (StoreUnavailableError, SetupError, ConflictError) as error:
                JOURNAL_ARCHIVE_LAG.set(time.monotonic() - done)
                log.error("the journal can't be kept in order", reason=str(error))  # noqa: TRY400 - the reason says all

    async def step(self, now: int | None = None) -> None:
        """Make what is due: checkpoints, totals, and the archive. Forget what is too old. `now` is in microseconds.

        Raises:
            StoreUnavailableError: the database is unavailable.
            SetupError: the journal is damaged.
            ConflictError: another process looks after the journal too.
        """
        now = time.time_ns() // 1000 if now is None else now
        boards = self._boards().by_id
        drained = await self._database.run(lambda connection: drained_of(connection, self._prefix))
        chosen = self._rounds.choose([KnownLife(life, to, boards.get(board)) for life, board, to in drained], now)
        lives = await self._database.run(lambda connection: open_lives(connection, self._prefix, chosen))
        known = [(life, boards.get(life.board)) for life in lives]
        off = [life for life, board in known if board is not None and board.journal.level == "off"]
        if off:
            await self._database.run(lambda connection: end_lives(connection, off))
        kept = [(life, board) for life, board in known if life not in off]
        await self._condense(kept, now)
        await self._archive([(life, board) for life, board in kept if board is not None and board.window.tables], now)
        for life, board in kept:
            await self._forget(life, board, now)

    async def _condense(self, kept: Sequence[_Known], now: int) -> None:
        """Make the checkpoints and the totals that are due."""
        hour = now // 1_000_000 // HOUR * HOUR * 1_000_000
        wanted = await self._database.run(lambda connection: _wanted(connection, kept, now))
        behind = await self._database.run(lambda connection: _behind(connection, kept, hour))
        if wanted or behind:
            with _other_process() as pool:
                for one, board in wanted:
                    is_calendar = board is not None and board.window.tables
                    await self._make(pool, one, (board, self._totals(board)) if board and is_calendar else None)
                for life, board in behind:
                    await self._add_up(pool, life, board, hour)

    async def _archive(self, calendars: Sequence[tuple[Life, Board]], now: int) -> None:
        """Archive the final periods of a board, once per period."""
        turned: list[tuple[Life, Board, int]] = []
        for life, board in calendars:
            await self._database.run(partial(reopen, life=life, board=board))
            unit = board.window.slot_at(now // 1_000_000).start if board.clock == "server" else now // 1_000_000 // HOUR
            if self._archived_in.get(life.id) != unit:
                turned.append((life, board, unit))
        if turned:
            with _other_process() as pool:
                for life, board, unit in turned:
                    loop = asyncio.get_running_loop()
                    closed = await loop.run_in_executor(pool, _closed, self._settings, life, board)
                    await self._database.run(partial(keep_closed, life=life, closed=closed))
                    self._archived_in[life.id] = unit

    def _totals(self, board: Board) -> int:
        """For how many seconds the journal keeps totals and periods of a board."""
        return board.journal.totals or self._settings.journal_totals

    async def _forget(self, life: Life, board: Board | None, now: int) -> None:
        """Delete what is too old. A board that keeps only totals loses its events as soon as a checkpoint has them."""
        journal = Journaling() if board is None else board.journal
        events = 0 if journal.level == "totals" else journal.events or self._settings.journal_events
        is_summed = board is not None and has_totals(board)
        await self._database.run(partial(forget, life=life, before=now - events * 1_000_000, folded=is_summed))
        if board is not None:
            await self._forget_sums(life, board, now // 1_000_000, is_summed=is_summed)

    async def _forget_sums(self, life: Life, board: Board, now: int, *, is_summed: bool) -> None:
        """Forget the totals and the periods of a board that are too old. `now` is in seconds."""
        kept = self._totals(board)
        if is_summed:
            old = await self._database.run(lambda connection: due_totals(connection, life, board, now, kept))
            if old:
                with _other_process() as pool:
                    await self._change(pool, old_totals, life, board, now, kept)
        if board.window.tables:
            await self._database.run(lambda connection: forget_periods(connection, life, board, now, kept))

    async def _change(self, pool: ProcessPoolExecutor, work: Callable[..., Change | None], *given: object) -> None:
        """Change totals. Another process finds out how."""
        change = await asyncio.get_running_loop().run_in_executor(pool, _found, self._settings, work, *given)
        if change is not None:
            await self._database.run(partial(apply_change, change=change))

    async def _make(self, pool: ProcessPoolExecutor, wanted: Due, kept: tuple[Board, int] | None) -> None:
        """Make a checkpoint in another process, because this one serves clients."""
        made, at = await asyncio.get_running_loop().run_in_executor(pool, _made, self._settings, wanted, kept)
        await self._database.run(lambda connection: keep(connection, wanted, made, at))

    async def _add_up(self, pool: ProcessPoolExecutor, life: Life, board: Board, until: int) -> None:
        """Bring the totals of a board up to date, some segments at a time."""
        loop = asyncio.get_running_loop()
        while (new := await loop.run_in_executor(pool, _added_up, self._settings, life, board, until)) is not None:
            await self._database.run(partial(add_totals, new=new))
        await self._change(pool, condense, life, board)


def _other_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), end_with_parent, (os.getpid(),))


def _wanted(connection: Connection, kept: Sequence[_Known], now: int) -> list[tuple[Due, Board | None]]:
    return [(one, board) for life, board in kept if (one := due(connection, life, now)) is not None]


def _behind(connection: Connection, kept: Sequence[_Known], until: int) -> list[tuple[Life, Board]]:
    summed = [(life, board) for life, board in kept if board is not None and has_totals(board)]
    return [(life, board) for life, board in summed if unfolded(connection, life, until)]


def _reading(settings: Settings) -> Database:
    database = open_journal(settings, writes=False)
    assert database is not None, "there is something to read"  # noqa: S101
    return database


def _made(settings: Settings, wanted: Due, kept: tuple[Board, int] | None) -> tuple[Packed, int]:
    """Make a checkpoint, in a process that only reads."""
    with _reading(settings) as database:
        return database.work(
            lambda connection: make(connection, settings.key_prefix, wanted, settings.dedupe_window, kept)
        )


def _found(settings: Settings, work: Callable[..., Change | None], *given: object) -> Change | None:
    """Find out what to change, in a process that only reads."""
    with _reading(settings) as database:
        return database.work(lambda connection: work(connection, *given))


def _closed(settings: Settings, life: Life, board: Board) -> list[Closed]:
    """Read the periods that are final, in a process that only reads."""
    with _reading(settings) as database:
        return database.work(lambda connection: closed_periods(connection, settings.key_prefix, life, board))


def _added_up(settings: Settings, life: Life, board: Board, until: int) -> NewTotals | None:
    """Add up segments, in a process that only reads."""
    with _reading(settings) as database:
        return database.work(lambda connection: add_up(connection, settings.key_prefix, life, board, until))
