"""Brings SQL up to date for a command: a running server moves the entries, or the command does if no server runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from live.journal.database import Database, existing_journal
from live.journal.log.drainer import Drainer
from live.settings import Settings
from live.store.board.journal_stream import journals
from live.store.board.keys import Keys
from live.store.connection.client import Store

BEHIND: Final = "entries of the journal still wait in the store: look at `live journal status`, and run it again"

_PATIENCE: Final = 60.0  # seconds to wait until the entries are in SQL
_POLL: Final = 0.1


@asynccontextmanager
async def draining(client: Store, settings: Settings) -> AsyncIterator[Database]:
    """Move entries to SQL in the `with` block whenever no server does. Give the block the journal, to read.

    Raises:
        SetupError: there is no journal.
    """
    with existing_journal(settings) as own, existing_journal(settings, writes=False) as shared:
        task = asyncio.create_task(Drainer(client, settings, own).run())
        try:
            yield shared
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def acknowledging(client: Store, settings: Settings) -> AsyncIterator[None]:
    """Let writes of the `with` block be acknowledged also if they wait for SQL, and no server runs."""
    if not settings.journal_ack:
        yield
        return
    async with draining(client, settings):
        yield


async def is_settled(client: Store, prefix: str) -> bool:
    """Wait until SQL has every entry that is in the store now. Return False if that takes too long."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    for board, epoch in await journals(client, prefix):
        stream = Keys(prefix, board).journal(epoch)
        last = await client.call(stream, "XREVRANGE", stream, "+", "-", "COUNT", 1)
        while last and await client.call(stream, "XRANGE", stream, "-", last[0][0], "COUNT", 1):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_POLL)
    return True
