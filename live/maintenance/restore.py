"""Restores a backup: puts its journal in place, and rebuilds every board from it."""

import asyncio
from functools import partial
from pathlib import Path

import structlog

from live.domain.board import Boards
from live.errors import JournalError, SetupError
from live.journal.database import Database
from live.maintenance.board_images import Rebuilt
from live.maintenance.erased import import_list, list_in
from live.maintenance.manifest import Manifest
from live.maintenance.putting_back import put_back
from live.maintenance.rebuild import Progress, Rebuilding, Wanted
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, store_errors

log = structlog.get_logger()


def require_prefix(manifest: Manifest, settings: Settings) -> None:
    """Check that a backup is of the key prefix of the settings.

    Raises:
        SetupError: it is of another one.
    """
    if manifest.prefix != settings.key_prefix:
        raise SetupError(
            f"the backup is of the key prefix {manifest.prefix!r}, and this one is {settings.key_prefix!r}: "
            f"set LIVE_KEY_PREFIX={manifest.prefix}"
        )


async def require_empty(client: Store, prefix: str) -> None:
    """Check that the store holds nothing of a server that has served boards.

    Raises:
        SetupError: it does.
        StoreUnavailableError: the store is unavailable.
    """
    names = SystemKeys(prefix)
    any_store_has = {names.store, names.format, names.processes, names.ready, names.pause, names.visitors}
    async with store_errors():
        async for name in client.names(f"{prefix}:*"):
            if name not in any_store_has:
                raise SetupError(
                    f"the store holds data under the prefix {prefix!r}, such as {name}: restore into an empty store"
                )


async def restore(
    client: Store,
    settings: Settings,
    in_file: Boards,
    database: Database,
    folder: Path,
    show: Progress,
    *,
    aside: Path | None = None,
) -> list[Rebuilt]:
    """Restore a backup whose files have been checked into an empty store. This process holds the journal's lock.

    Whoever was erased from the journal that was set aside is erased from the backup too. After an interruption,
    `live rebuild` continues.

    Raises:
        SetupError: the store is not empty, the file system refuses, or a board cannot be rebuilt.
        StoreUnavailableError: the store or the database is unavailable.
    """
    await require_empty(client, settings.key_prefix)
    await asyncio.to_thread(put_back, folder, database)
    if aside is not None:
        await asyncio.to_thread(_carry_over, aside, database)
    return await Rebuilding(client, settings, in_file, database, show).rebuild(Wanted())


def _carry_over(aside: Path, database: Database) -> None:
    """Add the list of who was erased to the journal of the backup: the rebuild erases them."""
    try:
        found = list_in(aside, database.prefix)
    except JournalError as error:
        log.warning("it is unknown who was erased since the backup: erase them again", reason=str(error))
        return
    if found is not None:
        database.take_now()
        database.work(partial(import_list, found=found))
