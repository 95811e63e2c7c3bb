"""Copy the database of a journal while servers use it, and restore everything from such a backup.

The copy is an SQLite file, also for a journal on a PostgreSQL server. So all backups have one form, and can be checked
without a server. If somebody has changed a backup, restoring it still runs no statement from it.

Before the copy begins, SQL has every entry that the store had when the backup began. So a backup is one complete
journal, from which `live recover` and `live restore` restore everything. Before the backup is complete, the entries of
each board are folded, which proves that the board can be recovered.
"""

import asyncio
import hashlib
import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

import msgspec
from sqlalchemy import Connection, func, insert, select, text, update

from live import __version__
from live.errors import JournalError, SetupError
from live.journal.database import Database, file_name, identity, prefix_of
from live.journal.log.definitions import DefinitionLog, latest_boards
from live.journal.log.reader import Progress
from live.journal.log.timelines import Timeline, end_timelines, find_lost, open_timelines
from live.journal.schema import ABOUT, CHECKPOINT, LIFE, METADATA, PERIOD, VERSION
from live.maintenance.draining import BEHIND, is_settled
from live.maintenance.recover import Recovered, Recovery, Wanted, require_recoverable
from live.settings import Settings
from live.store.board.journal_stream import read_streams, sink_of
from live.store.connection.client import Store, required
from live.store.connection.embedded import STORE_FILES
from live.store.registry.audit_trail import command_acting
from live.system.files import replacing, sync_folder

_LOST: Final = (
    "the store lost data: {}. First run `live recover --from journal`, or `live recover --from store` to go on without "
    "what is lost"
)
_PAGES: Final = 1024  # pages of an SQLite database in one step
_ROWS: Final = 500  # rows of a PostgreSQL database in one step
_LARGE_ROWS: Final = 4  # rows in one step of a table in which each row holds a whole board or a period
_BOARDS: Final = 256  # boards in one call
FORMAT: Final = 1
NAME: Final = "manifest.json"
BOARDS: Final = "boards.toml"
"""The name of the copy of the boards file."""

_PIECE: Final = 1024**2  # bytes in memory at once


class File(msgspec.Struct, frozen=True):
    """A file of a backup: its name, its size in bytes, and the SHA-256 of its content."""

    name: str
    size: int
    sha256: str


class Position(msgspec.Struct, frozen=True):
    """The position of a board in a backup."""

    board: str
    epoch: str
    offset: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds, and the versions of Live Board and of the tables that made it.

    `journal` is the id of the database. `made` is when the backup was complete, in microseconds since 1970. The boards
    that are `left_out` have no journal.
    """

    format: int
    version: str
    schema: int
    prefix: str
    journal: str
    made: int
    boards: list[Position]
    files: list[File]
    left_out: list[str] = []


def fingerprint(path: Path, show: Callable[[int], None] = lambda _: None) -> File:
    """Sync a file to disk, and return its size and checksum. `show` gets the number of bytes read so far."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            show(size)
    return File(path.name, size, digest.hexdigest())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which completes a backup."""
    with replacing(folder / NAME) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup."""
    path = folder / NAME
    try:
        content = path.read_bytes()
        number = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"0"))
        if (found := msgspec.json.decode(number, type=int)) != FORMAT:
            raise SetupError(f"{path} has format {found}, and this version of Live Board reads format {FORMAT}")
        return msgspec.json.decode(content, type=Manifest)
    except FileNotFoundError:
        raise SetupError(f"{folder} has no {NAME}: it is not a backup, or the backup was interrupted") from None
    except (OSError, msgspec.DecodeError) as error:
        raise SetupError(f"can't read {path}: {error}") from None


def check_files(folder: Path, manifest: Manifest, show: Progress) -> None:
    """Compare every file of a backup with its checksum. `show` gets the numbers of compared and of all bytes."""
    names, journal = [file.name for file in manifest.files], file_name(manifest.prefix)
    if names.count(journal) != 1:
        raise SetupError(f"{folder / NAME} does not name the journal, {journal}: this is not a complete backup")
    if foreign := [name for name in names if name not in (journal, BOARDS)]:
        raise SetupError(f"{folder / NAME} names a file that no backup contains: {foreign[0]!r}")
    done, total = 0, sum(file.size for file in manifest.files)
    for file in manifest.files:
        path, before = folder / file.name, done
        try:
            found = fingerprint(path, lambda size, before=before: show(before + size, total))  # type: ignore[misc]
        except OSError as error:
            raise SetupError(f"the backup is damaged: can't read {path}: {error.strerror}") from None
        if found != file:
            raise SetupError(f"the backup is damaged: {path} is not the file that was written. Use another backup")
        done += file.size


async def back_up(
    client: Store,
    settings: Settings,
    source: Database,
    folder: Path,
    show: Progress,
) -> Manifest:
    """Write a backup into an empty directory. The manifest, which is written last, completes it.

    The backup has everything that was acknowledged before the call. `show` gets the numbers of copied and of all pages,
    or of rows of a PostgreSQL server.
    """
    copy = Database("sqlite", folder, source.prefix, writes=True)
    _make_folder(folder)
    try:
        with copy:
            await _require_up_to_date(client, source)
            await _copy(source, copy, show)
            await _add_definitions(client, copy)
            found = await copy.run(_contents)
        return await asyncio.to_thread(_complete, folder, settings, copy, *found)
    except BaseException:
        _delete_files(folder)
        raise


def _complete(
    folder: Path, settings: Settings, copy: Database, timelines: list[Timeline], left_out: list[str]
) -> Manifest:
    copy.path.with_suffix(".lock").unlink()
    with closing(sqlite3.connect(copy.path)) as connection:
        # In this mode, the database is one file, and can be read from a read-only disk.
        connection.execute("PRAGMA journal_mode=DELETE")
    if settings.boards is not None:
        shutil.copyfile(settings.boards, folder / BOARDS)
        (folder / BOARDS).chmod(0o600)
    manifest = Manifest(
        format=FORMAT,
        version=__version__,
        schema=VERSION,
        prefix=copy.prefix,
        journal=copy.id,
        made=time.time_ns() // 1000,
        boards=[Position(timeline.board, timeline.epoch, timeline.offset) for timeline in timelines],
        left_out=left_out,
        files=[fingerprint(path) for path in sorted(folder.iterdir())],
    )
    write_manifest(folder, manifest)
    return manifest


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SetupError(f"the directory {folder} is not empty: name a new one for each backup")
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise SetupError(f"can't write a backup to {folder}: {error.strerror}") from None


def _delete_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


async def _copy(source: Database, copy: Database, show: Progress) -> None:
    """Copy the database in a thread, which ends early when this task is cancelled."""
    stopped = Event()

    def go_on(done: int, total: int) -> None:
        if stopped.is_set():
            raise InterruptedError
        show(done, total)

    try:
        if source.is_sqlite:
            await asyncio.to_thread(copy_database, source.path, copy.path, go_on)
        else:
            await asyncio.to_thread(copy_from_server, source, copy, go_on)
    finally:
        stopped.set()


def copy_database(path: Path, target: Path, show: Progress) -> None:
    """Copy an SQLite database as it is at one instant, while another process writes to it."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as source,
            closing(sqlite3.connect(target, isolation_level=None)) as copy,
        ):
            # The copy sees one state. Without a transaction, each write to the source would make the copy begin again.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            copy.execute("PRAGMA synchronous=OFF")  # the copy is synced at the end
            source.backup(copy, pages=_PAGES, progress=lambda _, left, total: show(total - left, total))
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"the journal can't be copied: {error}") from error


def copy_from_server(source: Database, copy: Database, show: Progress) -> None:
    """Copy a journal as it is at one instant from PostgreSQL into the SQLite database `copy`, and lock `copy`."""

    def read(given: Connection) -> None:
        given.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        copy.lock_now()
        copy.work(partial(copy_rows, given, show=show))

    source.work(read)


def copy_rows(given: Connection, target: Connection, show: Progress = lambda *_: None) -> None:
    """Copy every row of a key prefix into an empty database. Call `show` with the numbers of copied and of all rows."""
    METADATA.create_all(target)
    of_prefix = select(LIFE.c.id).where(LIFE.c.prefix == prefix_of(given))
    queries = []
    for table in METADATA.sorted_tables:  # tables in the order of their references
        query = select(table).order_by(*table.primary_key)
        if "prefix" in table.c:
            query = query.where(table.c.prefix == prefix_of(given))
        elif "life" in table.c:
            query = query.where(table.c.life.in_(of_prefix))
        queries.append((table, query))
    total = sum(given.scalar(select(func.count()).select_from(query.subquery())) or 0 for _, query in queries)
    done = 0
    for table, query in queries:
        step = {"yield_per": _LARGE_ROWS if table in (CHECKPOINT, PERIOD) else _ROWS}
        for rows in given.execute(query, execution_options=step).mappings().partitions():
            target.execute(insert(table), [dict(row) for row in rows])
            done += len(rows)
            show(done, total)


async def _require_up_to_date(client: Store, source: Database) -> None:
    """Wait until the journal has every entry that the store has now."""
    sink = await sink_of(client)
    if (found := await source.run(identity)) != sink != "":
        raise SetupError(
            f"the journals of this store go into the database {sink}, and the copied one is {found}: choose the data "
            "directory of the server with --data-dir"
        )
    client.high_water.refresh()
    if client.high_water.lost or client.high_water.lost_boards:
        raise SetupError(_LOST.format(client.high_water.lost or "; ".join(client.high_water.lost_boards.values())))
    if lost := await find_lost(client, source):
        raise SetupError(
            f"the store lacks data that the journal has: {'; '.join(map(str, lost))}. If boards were deleted just "
            "now, run the command again. If the store lost data, first run `live recover --from journal`, or "
            "`live recover --from store` to go on without it"
        )
    if not await is_settled(client):
        raise SetupError(BEHIND)


async def _add_definitions(client: Store, copy: Database) -> None:
    """Add to a copy the definitions that only the store has, and end the timelines of boards that were deleted."""
    await asyncio.to_thread(copy.take_now)
    if not await DefinitionLog(client, copy).follow():
        raise SetupError(_LOST.format(client.high_water.lost or "definitions or API keys went back"))
    timelines = await copy.run(open_timelines)
    for first in range(0, len(timelines), _BOARDS):
        piece = timelines[first : first + _BOARDS]
        streams = required(await read_streams(client, [(each.board, each.epoch) for each in piece]))
        ended = [timeline for timeline, stream in zip(piece, streams, strict=True) if stream.ended]
        await copy.run(end_timelines, ended)


def _contents(connection: Connection) -> tuple[list[Timeline], list[str]]:
    """Fold the timelines of all boards. Return the timelines, and the boards that have no journal."""
    timelines = open_timelines(connection)
    for timeline in timelines:
        try:
            require_recoverable(connection, timeline)
        except SetupError as error:
            raise SetupError(f"board {timeline.board!r} can't be recovered from its journal: {error}") from None
    made = latest_boards(connection)
    if unknown := sorted({timeline.board for timeline in timelines} - {*made}):
        raise SetupError(f"the journal has no definition of the boards {', '.join(unknown)}")
    left_out = {name for name, definition in made.items() if definition.choices.get("journal") == "off"}
    return timelines, sorted(left_out)


_ASIDE: Final = "before-restore-"  # the beginning of the names of directories with data that was set aside


def clear(database: Database, settings: Settings, *, force: bool) -> Path | None:
    """Lock the journal of a data directory, and move existing data to a new directory. Return that directory, if any.

    The data are the files of a journal in SQLite and of the embedded store. A journal in PostgreSQL stays.
    """
    folder = settings.data_dir
    if not database.lock_now():
        place = folder if database.is_sqlite else f"the {database.place}"
        raise SetupError(f"a server uses the journal in {place}: stop it first")
    patterns = [] if settings.store else [*STORE_FILES]
    if database.is_sqlite:
        patterns += [database.path.name, f"{database.path.name}-*"]
    else:
        database.work(require_new, database)
    found = sorted(path for pattern in patterns for path in folder.glob(pattern))
    if not found:
        return None
    if not force:
        raise SetupError(
            f"the data directory {folder} has data: {', '.join(path.name for path in found)}. To set it "
            "aside and restore, add --force. If `live restore` was interrupted, continue with `live recover --from "
            "journal`"
        )
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{now}-", dir=folder))  # two restores can begin in the same second
    for path in found:
        path.rename(aside / path.name)
    sync_folder(folder)
    return aside


def put_back(folder: Path, database: Database) -> None:
    """Copy the journal of a backup into the database. This process must hold the lock of the database.

    The copy gets a new id. So the boards that are recovered from it get new epochs, even if the same backup is restored
    twice. A PostgreSQL database receives everything in one transaction.
    """
    source, new_id = folder / file_name(database.prefix), secrets.token_hex(16)
    if not database.is_sqlite:

        def copy_to_server(target: Connection) -> None:
            require_new(target, database)
            target.execute(ABOUT.delete())
            with Database("sqlite", folder, database.prefix, writes=False) as backup:
                backup.work(copy_rows, target)
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
    """Create the tables of a PostgreSQL database, and check that it holds no journal of any key prefix."""
    METADATA.create_all(connection)
    if any(
        connection.execute(select(table).limit(1)).first() for table in METADATA.sorted_tables if table is not ABOUT
    ):
        raise SetupError(
            f"the {database.place} holds a journal: create an empty database, and name it in LIVE_JOURNAL. If `live "
            "restore` was interrupted, continue with `live recover --from journal`"
        )


def require_prefix(manifest: Manifest, settings: Settings) -> None:
    """Check that a backup has the key prefix of the settings."""
    if manifest.prefix != settings.key_prefix:
        raise SetupError(
            f"the backup has the key prefix {manifest.prefix!r}, and the settings have {settings.key_prefix!r}: "
            f"set LIVE_KEY_PREFIX={manifest.prefix}"
        )


async def require_empty(client: Store) -> None:
    """Check that the store holds no data of a server that has served boards."""
    names = client.system
    any_store_has = {names.store, names.format, names.processes, names.visitors}
    async for name in client.names(f"{client.prefix}:*"):
        if name not in any_store_has and not name.startswith(names.ready()[:-1]):
            raise SetupError(
                f"the store holds data under the prefix {client.prefix!r}, such as {name}: restore into an empty store"
            )


async def restore(
    client: Store,
    settings: Settings,
    database: Database,
    folder: Path,
    show: Progress,
) -> list[Recovered]:
    """Restore a checked backup into an empty store. This process must hold the journal's lock.

    After an interruption, `live recover --from journal` continues.
    """
    await require_empty(client)
    await asyncio.to_thread(put_back, folder, database)
    acting = command_acting(client, "restored")
    return await Recovery(client, settings, database, show).recover(Wanted(), acting)
