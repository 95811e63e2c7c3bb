"""Asks another process about the past of boards, because folding a journal here would delay viewers."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from typing import Any, Final, TypeVar

from live.domain.board import Board
from live.errors import JournalBehindError, ProblemError
from live.journal.database import JournalError
from live.journal.entries import position_of
from live.journal.moments import TooLongError
from live.journal.past_reading import drained, identity, run_limited
from live.settings import Settings
from live.system.processes import end_with_parent

_R = TypeVar("_R")

_MOST_WAITING: Final = 32  # concurrent queries, because anybody may ask
_PATIENCE: Final = 2.0  # seconds to wait until SQL has everything that the store has
_POLL: Final = 0.05


class Past:
    """Reads the past of boards in another process, which starts with the first query."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: ProcessPoolExecutor | None = None
        self._id = ""
        self._waiting = 0

    async def wait(self, board: Board, epoch: str, link: str, at: int) -> None:
        """Wait until SQL has everything up to `link`, the last entry in the store.

        On a board with the server's clock, everything before a time (milliseconds since 1970) is enough.

        Raises:
            JournalBehindError: it does not catch up.
            SetupError: the database can't be opened.
        """
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        last = position_of(link)
        while True:
            offset, time = await self.run(drained, board.id, epoch)
            if offset >= last or (board.clock == "server" and time >= at * 1000):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise JournalBehindError(f"board {board.id}: the journal in SQL is behind the store")
            await asyncio.sleep(_POLL)

    async def is_of(self, sink: str) -> bool:
        """Whether this is the database into which the journals of the store go."""
        if not self._id:
            self._id = await self.run(identity)
        return self._id == sink

    async def run(self, work: Callable[..., _R], *given: object) -> _R:
        """Do work in the other process. `work` receives the settings, and what is given.

        Raises:
            ProblemError: `overloaded`, when too many queries wait or this one takes too long.
            JournalError: the database or the other process does not answer.
        """
        if self._waiting >= _MOST_WAITING:
            raise ProblemError("overloaded", "too many requests ask about the past: try again later", retry_after=1)
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), end_with_parent, (os.getpid(),))
        pool, query = self._pool, partial(run_limited, work, self._settings, *given)
        running = asyncio.get_running_loop().run_in_executor(pool, query)
        self._waiting += 1
        running.add_done_callback(self._count_down)  # even if the client has disconnected
        try:
            return await asyncio.shield(running)
        except BrokenProcessPool as error:  # for example without memory; the next query starts another process
            if self._pool is pool:
                self._pool = None
            raise JournalError("the process that reads the journal has ended") from error
        except TooLongError:
            raise ProblemError("overloaded", "this board is too large for that question: ask for less") from None

    def _count_down(self, running: "asyncio.Future[Any]") -> None:
        self._waiting -= 1
        if not running.cancelled():
            running.exception()  # its client may have disconnected

    def close(self) -> None:
        """End the other process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
