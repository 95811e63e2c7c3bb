"""Restore a backup: put its journal in place, and rebuild every board from it."""

import asyncio
import secrets
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import Connection, func, select, update

from live.domain.board import Boards
from live.errors import JournalError, SetupError
from live.journal.database import Database, file_name
from live.journal.erasures import import_list, list_in
from live.journal.forgetting import forget_listed
from live.journal.schema import ABOUT, METADATA
from live.maintenance.backup import Manifest, copy_rows
from live.maintenance.rebuild import Progress, Rebuilding, Rebuilt, Wanted
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store
from live.store.registry.audit_trail import command_acting
from live.system.files import replacing, sync_folder

log = structlog.get_logger()
_PIECE: Final = 4 * 1024**2  # bytes in memory at once
_STORE: Final = ("appendonlydir", "*.rdb")  # the files of the embedded store
_ASIDE: Final = "before-restore-"  # the beginning of the names of directories with data that was set aside


def clear(database: Database, settings: Settings, *, force: bool) -> Path | None:
    """Lock the journal of a data directory, and move existing data to a new directory. Return that directory, if any.

    The data are the files of a journal in SQLite and of the embedded store. A journal in PostgreSQL stays.

    Raises:
        SetupError: a server uses the journal, or there is data to set aside and `force` is false.
    """
    folder = settings.data_dir
    if not database.lock_now():
        place = folder if database.is_sqlite else f"the {database.place}"
        raise SetupError(f"a server uses the journal in {place}: stop it first")
    patterns = [] if settings.store else [*_STORE]
    if database.is_sqlite:
        patterns += [database.path.name, f"{database.path.name}-*"]
    else:
        database.work(partial(require_new, database=database))
    found = sorted(path for pattern in patterns for path in folder.glob(pattern))
    if not found:
        return None
    if not force:
        raise SetupError(
            f"the data directory {folder} has data: {', '.join(path.name for path in found)}. To set it "
            "aside and restore, add --force. If `live restore` was interrupted, continue with `live rebuild`"
        )
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{now}-", dir=folder))  # two restores can begin in the same second
    for path in found:
        path.rename(aside / path.name)
    sync_folder(folder)
    return aside


def put_back(folder: Path, database: Database) -> None:
    """Copy the journal of a backup into the database. This process must hold the lock of the database.

    The copy gets a new id. So the boards that are rebuilt from it get new epochs, even if the same backup is restored
    twice. A PostgreSQL database receives everything in one transaction.

    Raises:
        SetupError: the file system refuses, or the PostgreSQL database holds a journal already.
        JournalError: a database refuses.
    """
    source, new_id = folder / file_name(database.prefix), secrets.token_hex(16)
    if not database.is_sqlite:

        def copy_to_server(target: Connection) -> None:
            require_new(target, database)
            target.execute(ABOUT.delete())
            with Database("sqlite", folder, database.prefix, writes=False) as backup:
                backup.work(partial(copy_rows, target=target, prefix=database.prefix))
            target.execute(update(ABOUT).where(ABOUT.c.name == "id").values(value=new_id))
            for table in METADATA.sorted_tables:  # new rows get higher numbers than the copied rows
                if "id" in table.c:
                    newest = select(func.max(table.c.id)).scalar_subquery()
                    target.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), newest)))

        database.work(copy_to_server)
        return
    try:
        with source.open("rb") as given, replacing(database.path) as file:
            shutil.copyfileobj(given, file, _PIECE)
            file.flush()
            with closing(sqlite3.connect(file.name)) as copy:
                copy.execute("UPDATE about SET value = ? WHERE name = 'id'", (new_id,))
                copy.commit()
        sync_folder(database.path.parent)
    except (OSError, sqlite3.Error) as error:
        raise SetupError(f"can't put the journal back at {database.path}: {error}") from None


def require_new(connection: Connection, database: Database) -> None:
    """Create the tables of a PostgreSQL database, and check that it holds no journal of any key prefix.

    Raises:
        SetupError: the database holds a journal.
    """
    METADATA.create_all(connection)
    if any(
        connection.execute(select(table).limit(1)).first() for table in METADATA.sorted_tables if table is not ABOUT
    ):
        raise SetupError(
            f"the {database.place} holds a journal: create an empty database, and name it in LIVE_JOURNAL. If `live "
            "restore` was interrupted, continue with `live rebuild`"
        )


def require_prefix(manifest: Manifest, settings: Settings) -> None:
    """Check that a backup has the key prefix of the settings.

    Raises:
        SetupError: the backup has another key prefix.
    """
    if manifest.prefix != settings.key_prefix:
        raise SetupError(
            f"the backup has the key prefix {manifest.prefix!r}, and the settings have {settings.key_prefix!r}: "
            f"set LIVE_KEY_PREFIX={manifest.prefix}"
        )


async def require_empty(client: Store, prefix: str) -> None:
    """Check that the store holds no data of a server that has served boards.

    Raises:
        SetupError: the store holds such data.
    """
    names = SystemKeys(prefix)
    any_store_has = {names.store, names.format, names.processes, names.visitors}
    async for name in client.names(f"{prefix}:*"):
        if name not in any_store_has and not name.startswith(names.ready()[:-1]):
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
    """Restore a checked backup into an empty store. This process must hold the journal's lock.

    An actor who was erased in a journal that was set aside is not restored. Journals that earlier calls set aside count
    too, because an earlier call may have been interrupted. After an interruption, `live rebuild` continues.

    Raises:
        SetupError: the store is not empty, the file system refuses, or a board can't be rebuilt.
    """
    await require_empty(client, settings.key_prefix)
    await asyncio.to_thread(put_back, folder, database)
    for each in sorted(settings.data_dir.glob(f"{_ASIDE}*"), reverse=True):  # the newest first
        await asyncio.to_thread(_carry_over, each, database, is_own=each == aside)
    acting = command_acting(client, settings.key_prefix, "restored")
    return await Rebuilding(client, settings, in_file, database, show).rebuild(Wanted(), acting)


def _carry_over(aside: Path, database: Database, *, is_own: bool = True) -> None:
    """Copy the list of erased digests from a journal that was set aside into the restored journal.

    The list may replace a list with another key only if this call set the journal aside (`is_own`). A journal that an
    earlier call set aside may belong to other boards.
    """
    try:
        found = list_in(aside, database.prefix)
    except JournalError as error:
        log.warning("the list of erasures since the backup is lost: erase these persons again", reason=str(error))
        return
    if found is not None:
        database.take_now()
        database.work(partial(import_list, found=found, replace=is_own))
        database.work(partial(forget_listed, prefix=database.prefix))
