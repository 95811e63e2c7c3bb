"""Copy the database of a journal while servers use it.

The copy is an SQLite file, also for a journal on a PostgreSQL server. So all backups have one form, and can be checked
without a server. If somebody has changed a backup, restoring it still runs no statement from it.

Before the copy begins, SQL has every entry that the store had when the backup began. So a backup is one complete
journal, from which `live rebuild` and `live restore` restore everything. Before the backup is complete, the entries of
each board are folded, which proves that the board can be rebuilt.
"""

import asyncio
import hashlib
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

import msgspec
from sqlalchemy import Connection, func, insert, select, text

from live import __version__
from live.domain.board import Board
from live.errors import JournalError, SetupError
from live.journal.database import Database, file_name
from live.journal.log.definitions import DefinitionLog, latest
from live.journal.log.reader import contents_of
from live.journal.log.timelines import Timeline, end_timelines, find_lost, open_timelines
from live.journal.schema import ABOUT, CHECKPOINT, LIFE, METADATA, PERIOD, VERSION
from live.maintenance.draining import BEHIND, is_settled
from live.settings import Settings
from live.store.board.journal_stream import read_streams, sink_of
from live.store.connection.client import Store, required
from live.store.registry.definitions import Definition
from live.system.files import replacing, sync_folder

Progress = Callable[[int, int], None]

_DEFINITION: Final = msgspec.json.Decoder(Definition)
_LOST: Final = (
    "the store lost data: {}. Rebuild it first with `live rebuild`, or accept the loss with `live serve --accept-loss`"
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
    """What a backup holds.

    Attributes:
        format: the number of this format.
        version: the version of Live Board that made the backup.
        schema: the version of the journal's tables.
        prefix: the prefix of store keys.
        journal: the id of the journal's database.
        made: when the backup was complete, in microseconds since 1970.
        boards: the position of each board.
        files: the other files of the backup.
        left_out: the boards without a journal, which the backup does not hold.
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
    """Sync a file to disk, and return its size and checksum.

    After each piece, call `show` with the number of bytes read so far.
    """
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
    """Return the manifest of a backup.

    Raises:
        SetupError: the folder has no manifest, or this version can't read the manifest.
    """
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


def check_files(folder: Path, manifest: Manifest, show: Callable[[int, int], None]) -> None:
    """Compare every file of a backup with its checksum. Call `show` with the numbers of compared and of all bytes.

    Raises:
        SetupError: the manifest names no journal or a file that no backup has, or a file is missing or differs.
    """
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
    in_file: Mapping[str, Board],
    source: Database,
    folder: Path,
    show: Progress,
) -> Manifest:
    """Write a backup into an empty directory.

    Everything that was acknowledged before the call is in the backup. The manifest is written last.

    Args:
        client: the store.
        settings: the settings of the server.
        in_file: the boards of the boards file.
        source: the journal.
        folder: the directory.
        show: called with the number of pages copied so far, and the number of all pages. For a PostgreSQL server, these
            are numbers of rows.

    Raises:
        SetupError: the directory is not empty, nobody moves the entries to SQL, a definition is missing, or the store
            lost data.
    """
    copy = Database("sqlite", folder, source.prefix, writes=True)
    _make_folder(folder)
    try:
        with copy:
            await _require_up_to_date(client, source)
            await _copy(source, copy, show)
            await _add_definitions(client, copy)
            found = await copy.run(partial(_contents, prefix=source.prefix, in_file=in_file))
        return await asyncio.to_thread(_complete, folder, settings, copy, *found)
    except BaseException:
        _delete_files(folder)
        raise


def _complete(
    folder: Path, settings: Settings, copy: Database, timelines: list[Timeline], left_out: list[str]
) -> Manifest:
    """Add the boards file and the manifest."""
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
    """Delete the files written so far, so that the same command can run again."""
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
    """Copy an SQLite database as it is at one instant, while another process writes to it.

    Raises:
        JournalError: the database or the file system refuses.
    """
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
    """Copy a journal as it is at one instant from PostgreSQL into the SQLite database `copy`, and lock `copy`.

    Raises:
        JournalError: a database refuses.
    """

    def read(given: Connection) -> None:
        given.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        copy.lock_now()
        copy.work(partial(copy_rows, given, prefix=source.prefix, show=show))

    source.work(read)


def copy_rows(given: Connection, target: Connection, prefix: str, show: Progress = lambda *_: None) -> None:
    """Copy every row of a key prefix into an empty database. Call `show` with the numbers of copied and of all rows."""
    METADATA.create_all(target)
    of_prefix = select(LIFE.c.id).where(LIFE.c.prefix == prefix)
    queries = []
    for table in METADATA.sorted_tables:  # tables in the order of their references
        query = select(table).order_by(*table.primary_key)
        if "prefix" in table.c:
            query = query.where(table.c.prefix == prefix)
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
    """Wait until the journal has every entry that the store has now.

    Raises:
        SetupError: nobody moves the entries to SQL, the store uses another database, or the store lost data.
    """
    prefix = source.prefix
    sink, own = await sink_of(client, prefix), select(ABOUT.c.value).where(ABOUT.c.name == "id")
    if (found := await source.run(lambda connection: connection.scalar(own))) != sink != "":
        raise SetupError(
            f"the journals of this store go into the database {sink}, and the copied one is {found}: choose the data "
            "directory of the server with --data-dir"
        )
    client.high_water.refresh()
    if client.high_water.lost or client.high_water.lost_boards:
        raise SetupError(_LOST.format(client.high_water.lost or "; ".join(client.high_water.lost_boards.values())))
    if lost := await find_lost(client, prefix, source):
        raise SetupError(
            f"the store lacks data that the journal has: {'; '.join(map(str, lost))}. If boards were deleted just "
            "now, run the command again. If the store lost data, rebuild it first with `live rebuild`, or accept the "
            "loss with `live serve --accept-loss`"
        )
    if not await is_settled(client, prefix):
        raise SetupError(BEHIND)


async def _add_definitions(client: Store, copy: Database) -> None:
    """Add to a copy the definitions that only the store has, and end the timelines of boards that were deleted.

    Raises:
        SetupError: the store lost definitions or API keys.
    """
    prefix = copy.prefix
    await asyncio.to_thread(copy.take_now)
    if not await DefinitionLog(client, prefix, copy).follow():
        raise SetupError(_LOST.format(client.high_water.lost or "definitions or API keys went back"))
    timelines = await copy.run(lambda connection: open_timelines(connection, prefix))
    for first in range(0, len(timelines), _BOARDS):
        piece = timelines[first : first + _BOARDS]
        streams = required(await read_streams(client, prefix, [(each.board, each.epoch) for each in piece]))
        ended = [timeline for timeline, stream in zip(piece, streams, strict=True) if stream.ended]
        await copy.run(partial(end_timelines, timelines=ended))


def _contents(connection: Connection, prefix: str, in_file: Mapping[str, Board]) -> tuple[list[Timeline], list[str]]:
    """Fold the timelines of all boards. Return the timelines, and the boards that have no journal."""
    timelines = open_timelines(connection, prefix)
    for timeline in timelines:
        try:
            contents_of(connection, prefix, timeline)
        except SetupError as error:
            raise SetupError(f"board {timeline.board!r} can't be rebuilt from its journal: {error}") from None
    made = latest(connection, prefix, "boards")
    if unknown := sorted({timeline.board for timeline in timelines} - {*made, *in_file}):
        raise SetupError(
            f"the boards {', '.join(unknown)} are neither run-time boards nor in the boards file: name the boards file "
            "of the server with --boards"
        )
    left_out = {name for name, board in in_file.items() if board.journal.level == "off"}
    left_out |= {name for name, defined in made.items() if _DEFINITION.decode(defined).choices.get("journal") == "off"}
    return timelines, sorted(left_out)
