"""Replays of boards in another process. Reading a journal in this process would delay viewers."""

import asyncio
import os
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from live.domain.board import Board
from live.domain.ranking import Page
from live.errors import JournalError
from live.fanout.engine.delivery import ViewerPosition
from live.fanout.engine.replays import Played, PlayedFrame, TooLittleMemoryError
from live.fanout.engine.variant import PageHistory, Variant
from live.fanout.frames import Frame
from live.journal.database import Database, open_journal
from live.journal.past.player import Player
from live.journal.past.queries import NoPastError
from live.journal.state.top import RunningTop
from live.settings import Settings
from live.system.fair_queue import FairQueue
from live.system.processes import CHILDREN, follow_parent, return_memory

_R = TypeVar("_R")

MOST_MEMORY: Final = 1024**3  # bytes; if the other process takes more, no replay begins, and the newest replay ends
_KEPT: Final = 60.0  # seconds without a replay after which the other process ends; starting it takes long


class PlayerProcess:
    """Implements `Players` of `fanout/`: runs the replays in another process, which the first replay starts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: ProcessPoolExecutor | None = None
        self._rest: asyncio.TimerHandle | None = None  # ends the other process if no replay begins
        self._ended: asyncio.Future[None] | None = None  # done when the process of earlier replays has ended
        self._numbers = count(1)
        self._running: dict[int, str] = {}  # the address that started each replay
        self._turns = FairQueue(1, settings.max_replays)  # one call runs at a time; a replay has at most one call

    async def begin(
        self, address: str, board: Board, hidden: Collection[str], size: int, at: int
    ) -> tuple[int, int] | None:
        """Begin a replay of a board for an address. It begins at the time `at`, in milliseconds since 1970.

        Return the number of the replay and the time at which it begins. Return None if the journal does not reach back
        to `at`.
        """
        number = next(self._numbers)
        self._running[number] = address
        began = None
        try:
            if self._ended is not None:  # two processes for replays must never run at once
                await asyncio.shield(self._ended)
            began = await self._run(address, _begin, number, board, frozenset(hidden), size, at)
        finally:
            if began is None:
                self.end(number)
        return None if began is None else (number, began)

    async def play(
        self, number: int, until: int, speed: float, interval: int, hidden: Collection[str] | None = None
    ) -> Played | None:
        """Play a replay up to a time. Return None if the replay has ended.

        The replay runs `speed` times as fast as the past. `interval` is the minimum time between two messages, in
        milliseconds. If the hidden members have changed, `hidden` has them all.
        """
        known = None if hidden is None else frozenset(hidden)
        return await self._run(self._running[number], _play, number, until, speed, interval, known)

    def end(self, number: int) -> None:
        """End a replay. End the other process some time after the last replay has ended, to free its memory."""
        self._running.pop(number, None)
        if self._pool is None:
            return
        with suppress(RuntimeError):  # the other process has ended already
            self._pool.submit(_end, number)
        if not self._running:
            if self._rest is not None:
                self._rest.cancel()
            self._rest = asyncio.get_running_loop().call_later(_KEPT, self._end_unused)

    async def aclose(self) -> None:
        """End the other process, and wait until it has ended."""
        if self._rest is not None:
            self._rest.cancel()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    def _end_unused(self) -> None:
        """End the other process, unless a replay has begun meanwhile."""
        if self._running or self._pool is None:
            return
        self._ended = asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        self._pool = None

    async def _run(self, address: str, work: Callable[..., _R], *given: object) -> _R:
        """Run `work` in the other process when it is the turn of an address.

        The turn lasts until the work has ended, even if the caller is cancelled.
        """
        await self._turns.enter(address)
        return await asyncio.shield(asyncio.ensure_future(self._in_turn(address, work, *given)))

    async def _in_turn(self, address: str, work: Callable[..., _R], *given: object) -> _R:
        try:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, CHILDREN, follow_parent)
            pool = self._pool
            try:
                return await asyncio.get_running_loop().run_in_executor(pool, partial(work, self._settings, *given))
            # The process may have run out of memory. The next call starts another process.
            except BrokenProcessPool as error:
                if self._pool is pool:
                    self._pool = None
                raise JournalError("the process that plays boards has ended") from error
        finally:
            self._turns.leave(address)


class _Replay:
    """A replay in the other process. It reads a journal entry by entry, and makes messages as a channel does."""

    def __init__(self, player: Player, top: RunningTop, board: Board, size: int, totals_interval: int) -> None:
        self.player = player
        self.top = top
        self._board = board
        self._variant = Variant(board, size, 1, PageHistory(0), totals_interval)
        self._position = ViewerPosition()
        self._shown: Page | None = None  # the page that the last message has shown
        self._held: Page | None = None  # a page that was held back because only totals changed

    def whole(self) -> PlayedFrame | None:
        """Return a message with the whole top."""
        frame = self._variant.next_frame(ViewerPosition())
        return None if frame is None else _played(self.player.now, frame)

    def take(self, pages: list[tuple[int, Page]], speed: float) -> list[PlayedFrame]:
        """Make the messages for the next pages.

        If only the totals of a page have changed, and totals were sent a moment ago, hold the page back.
        """
        found = []
        for at, page in pages or ([] if self._held is None else [(self.player.now, self._held)]):
            now, shown, variant = round(at / speed), self._shown, self._variant
            if shown is None or (shown.epoch, shown.offset) != (page.epoch, page.offset):
                is_held = variant.hold(page, now)
            else:
                # Records have left the window without an entry since the last message, so the position is the same. An
                # update must lead to another position. So the next message is the whole top.
                is_held = shown.records == page.records and now < variant.totals_sent_at + variant.totals_interval
                if not is_held:
                    variant.forget(self._board)
                    self._position = ViewerPosition()
                    variant.totals_sent_at = now
            if is_held:
                self._held = page
                continue
            self._held, self._shown = None, page
            self._variant.advance(page)
            frame = self._variant.next_frame(self._position)
            if frame is not None:
                found.append(_played(at, frame))
        return found


def _played(at: int, frame: Frame) -> PlayedFrame:
    return PlayedFrame(at, frame.type, frame.payload, frame.id)


_REPLAYS: Final[dict[int, _Replay]] = {}
_DATABASES: Final[dict[str, Database]] = {}


def _database(settings: Settings) -> Database:
    """Open the journal's database for reading, or return the open database."""
    found = _DATABASES.get(settings.key_prefix)
    if found is None:
        found = open_journal(settings, writes=False)
        assert found is not None, "a board without a journal has no replay"  # noqa: S101
        _DATABASES[settings.key_prefix] = found
    return found


def _begin(settings: Settings, number: int, board: Board, hidden: frozenset[str], size: int, at: int) -> int | None:
    """Begin a replay, in the other process.

    Return the time at which it begins, or None if the journal does not reach back so far.
    """
    if _REPLAYS and _memory() >= MOST_MEMORY:
        raise TooLittleMemoryError("the replays that run take too much memory")
    top = RunningTop(board, hidden, size)
    try:
        player = _database(settings).work(lambda sql: Player(sql, settings.key_prefix, board, at, top))
    except NoPastError:
        return None
    _REPLAYS[number] = _Replay(player, top, board, size, round(settings.totals_interval * 1000))
    return player.now


def _play(
    settings: Settings, number: int, until: int, speed: float, interval: int, hidden: frozenset[str] | None
) -> Played | None:
    """Play a replay, in the other process."""
    replay = _REPLAYS.get(number)
    if replay is None:
        return None
    if len(_REPLAYS) > 1 and number == max(_REPLAYS) and _memory() >= MOST_MEMORY:
        _end(number)
        raise TooLittleMemoryError("the replays that run take too much memory")
    before = None
    if hidden is not None:
        before = replay.whole()
        replay.top.hide(hidden)
    stride = max(1, round(interval * speed))
    pages = _database(settings).work(lambda sql: replay.player.play(sql, until, stride))
    return Played(before, replay.take(pages, speed), replay.player.now)


def _end(number: int) -> None:
    """End a replay, in the other process."""
    _REPLAYS.pop(number, None)
    return_memory()


def _memory() -> int:
    """Return the bytes of memory that this process takes, or 0 if the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
