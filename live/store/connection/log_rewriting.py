"""Make the store rewrite its append-only file without what was deleted."""

import asyncio
from typing import Final

from redis.exceptions import ResponseError

from live.errors import StoreUnavailableError
from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import reason_of

_POLL: Final = 0.1  # seconds
_BUSY: Final = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")


async def rewrite_log(client: Store) -> str:
    """Make the store rewrite its append-only file, and wait until it has.

    Returns:
        What is left to do for an operator; empty for nothing.

    Raises:
        StoreUnavailableError: the store can't write the file.
    """
    async with store_errors():
        try:
            state = await _settled(client)
            if not state.get("aof_enabled"):
                return "the store has no append-only file: delete its older snapshots, and make a new one with BGSAVE"
            await client.bgrewriteaof()
        except ResponseError as error:
            return f"the store does not rewrite its files for this user ({reason_of(error)}): run BGREWRITEAOF yourself"
        state = await _settled(client)
    if state.get("aof_last_bgrewrite_status") != "ok":
        raise StoreUnavailableError("it could not rewrite its append-only file; its log says why")
    return ""


async def _settled(client: Store) -> dict[str, object]:
    """Return the state of the store's files once none is being written: an unfinished one may hold deleted data."""
    while True:
        state: dict[str, object] = await client.info("persistence")
        if not any(state.get(name) for name in _BUSY):
            return state
        await asyncio.sleep(_POLL)
