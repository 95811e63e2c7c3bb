"""Pause the trimming of journals, so that a backup finds every entry that its copy of the database lacks.

The pause is a lease: a store key that expires. If the backup is killed, trimming resumes when the lease ends.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from live.errors import SetupError
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store

LEASE: Final = 30.0  # seconds


@asynccontextmanager
async def paused(client: Store, prefix: str, lease: float = LEASE) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Pause the trimming of all journals while the context lasts. `lease` is in seconds.

    Give a function that raises `SetupError` if the pause has ended before: then entries may be missing.

    Raises:
        SetupError: another backup pauses trimming.
    """
    key, token = SystemKeys(prefix).pause, secrets.token_hex(8)
    milliseconds = round(lease * 1000)
    taken = await client.call(key, "SET", key, token, "NX", "PX", milliseconds)
    if not taken:
        raise SetupError(f"another backup is running, or ended less than {lease:g} seconds ago: try again later")
    renewing = asyncio.create_task(_renew(client, key, token, milliseconds))

    async def require() -> None:
        held = await client.call(key, "GET", key)
        if held != token.encode() or renewing.done():
            raise SetupError("trimming went on before the backup was complete, because a process stalled: run it again")

    try:
        yield require
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        if await client.call(key, "GET", key) == token.encode():
            await client.call(key, "DEL", key)


async def is_paused(client: Store, prefix: str) -> bool:
    """Return whether a backup pauses trimming. Ask after SQL has committed the entries, and before you trim them.

    A backup pauses trimming before it copies the database. So the copy holds what was committed before the pause.
    """
    key = SystemKeys(prefix).pause
    return bool(await client.call(key, "EXISTS", key))


async def _renew(client: Store, key: str, token: str, milliseconds: int) -> None:
    """Extend the lease until it is lost."""
    while True:
        await asyncio.sleep(milliseconds / 3000)
        held = await client.call(key, "SET", key, token, "XX", "GET", "PX", milliseconds)
        if held != token.encode():
            return
