"""Brings SQL up to date for a command: a running server moves the entries, or the command does if no server runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from live.errors import SetupError, StoreUnavailableError
from live.journal.database import Database, existing_journal
from live.journal.log.drainer import Drainer
from live.journal.log.timelines import ConflictError
from live.settings import Settings
from live.store.board.journal_stream import journals
from live.store.connection.client import Store

log = structlog.get_logger()

BEHIND: Final = "entries of the journal still wait in the store: look at `live journal`, and run it again"

_PATIENCE: Final = 60.0  # seconds to wait until the entries are in SQL
_POLL: Final = 0.1
_PAUSE: Final = 1.0  # seconds before the next attempt after a failure, or while a server drains


@asynccontextmanager
async def draining(client: Store, settings: Settings) -> AsyncIterator[tuple[Database, Drainer]]:
    """Move entries to SQL in the `with` block whenever no server does. Give the block the journal, to read.

    The drainer only moves entries: a command does not know all boards, so it does not decide how long to keep the past.
    Nor does it report the health of the journals, which belongs to the servers.
    """
    own = existing_journal(settings)
    try:
        with existing_journal(settings, writes=False) as shared:
            drainer = Drainer(client, settings, own)
            await drainer.take()
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(_drain(drainer))
                try:
                    yield shared, drainer
                finally:
                    task.cancel()
    except BaseExceptionGroup as found:
        raise found.exceptions[0] from None
    finally:
        await own.aclose()  # after its last transaction, and after the reader: the last writer empties SQLite's log


async def _drain(drainer: Drainer) -> None:
    while True:
        try:
            if await drainer.take():
                await drainer.work()
        except SetupError:  # such as `JournalBrokenError`
            raise
        except (StoreUnavailableError, ConflictError) as error:
            log.warning("the journal waits", reason=str(error))
        await asyncio.sleep(_PAUSE)


@asynccontextmanager
async def acknowledging(client: Store, settings: Settings) -> AsyncIterator[None]:
    """Let writes of the `with` block be acknowledged also if they wait for SQL, and no server runs."""
    if not settings.journal_ack:
        yield
        return
    async with draining(client, settings):
        yield


async def is_settled(client: Store) -> bool:
    """Wait until SQL has every entry that is in the store now. Return False if that takes too long."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    for board, epoch in await journals(client):
        stream = client.keys_of(board).journal(epoch)
        last = await client.call(stream, "XREVRANGE", stream, "+", "-", "COUNT", 1)
        while last and await client.call(stream, "XRANGE", stream, "-", last[0][0], "COUNT", 1):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_POLL)
    return True
