"""Asks a process of its own about the past of boards, because folding a journal takes time that viewers need here."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final, TypeVar

from live.errors import JournalBehindError
from live.journal.past_reading import drained, identity, position_of
from live.settings import Settings
from live.system.processes import end_with_parent

_R = TypeVar("_R")

_PATIENCE: Final = 2.0  # seconds to wait until SQL has everything that the store has
_POLL: Final = 0.05


class Past:
    """Reads the past of boards in a process of its own, which starts with the first question."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: ProcessPoolExecutor | None = None
        self._id = ""

    async def wait(self, board: str, epoch: str, link: str, at: int) -> None:
        """Wait until SQL has everything before a time (milliseconds since 1970), or up to the last entry, `link`.

        Raises:
            JournalBehindError: it does not catch up.
            SetupError: the database can't be opened.
        """
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        last = position_of(link)
        while (found := await self.ask(drained, board, epoch))[0] < last and found[1] < at * 1000:
            if asyncio.get_running_loop().time() > deadline:
                raise JournalBehindError(f"board {board}: the journal in SQL is behind the store")
            await asyncio.sleep(_POLL)

    async def is_of(self, sink: str) -> bool:
        """Whether this is the database into which the journals of the store go."""
        if not self._id:
            self._id = await self.ask(identity)
        return self._id == sink

    async def ask(self, work: Callable[..., _R], *given: object) -> _R:
        """Do work in the other process. `work` receives the settings, and what is given."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), end_with_parent, (os.getpid(),))
        question = partial(work, self._settings, *given)
        return await asyncio.get_running_loop().run_in_executor(self._pool, question)

    def close(self) -> None:
        """End the other process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
