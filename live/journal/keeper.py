"""Makes checkpoints, and forgets what is older than the settings say. A process of its own does the work."""

import asyncio
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final

import structlog

from live.errors import SetupError, StoreUnavailableError
from live.journal.checkpoints import Due, due, forget, keep, make
from live.journal.database import Database, open_journal
from live.journal.lives import open_lives
from live.journal.segments import Packed
from live.settings import Settings
from live.system.processes import end_with_parent

log = structlog.get_logger()

_INTERVAL: Final = 60.0  # seconds


class Keeper:
    """Looks after the journal of the process that writes it."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._prefix = settings.key_prefix
        self._database = database

    async def run(self) -> None:
        """Look after the journal until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                await self.step()
            except (StoreUnavailableError, SetupError) as error:
                log.error("the journal has no new checkpoint", reason=str(error))  # noqa: TRY400 - the reason says all

    async def step(self) -> None:
        """Make the checkpoints that are due, and forget what is too old.

        Raises:
            StoreUnavailableError: the database is unavailable.
            SetupError: the journal is damaged.
        """
        now = time.time_ns() // 1000
        lives = await self._database.run(lambda connection: open_lives(connection, self._prefix))
        wanted = await self._database.run(lambda connection: [due(connection, life, now) for life in lives])
        for one in wanted:
            if one is not None:
                await self._make(one)
        least = now - self._settings.journal_events * 1_000_000
        for life in lives:
            await self._database.run(partial(forget, life=life, before=least))

    async def _make(self, wanted: Due) -> None:
        """Make a checkpoint in another process: this one has clients to serve."""
        with ProcessPoolExecutor(1, get_context("spawn"), end_with_parent, (os.getpid(),)) as pool:
            made, at = await asyncio.get_running_loop().run_in_executor(pool, _made, self._settings, wanted)
        await self._database.run(lambda connection: keep(connection, wanted, made, at))


def _made(settings: Settings, wanted: Due) -> tuple[Packed, int]:
    """Make a checkpoint, in a process that only reads."""
    database = open_journal(settings, writes=False)
    assert database is not None, "there is something to read"  # noqa: S101
    with database:
        return database.work(lambda connection: make(connection, settings.key_prefix, wanted, settings.dedupe_window))
