"""`live backup` and `live restore`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from live.cli.terminal import (
    BoardsOption,
    DataDirOption,
    JsonOption,
    StoreOption,
    clear_errors,
    err,
    out,
    progress_bar,
    reported,
)
from live.domain.board import Boards
from live.domain.board_file import load_boards
from live.domain.text import counted
from live.errors import SetupError
from live.journal.database import open_journal
from live.maintenance.backup import BOARDS, Manifest, back_up, check_files, read_manifest
from live.maintenance.draining import draining
from live.maintenance.rebuild import Rebuilt
from live.maintenance.restore import clear, require_empty, require_prefix
from live.maintenance.restore import restore as restore_boards
from live.settings import Settings, load_settings
from live.store.connection.embedded import EmbeddedStore, answers, opened_store
from live.store.registry.audit_trail import note_command
from live.system.data_directory import make_private

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the backup.")]


def backup(
    directory: DirectoryArgument,
    *,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a backup into a new directory. Servers may run.

    The backup has the boards, API keys and titles, and what the journal holds of the events that were acknowledged
    before the command began. Boards with `journal = off` are left out; the command names them. If the command is
    interrupted, delete the directory and run it again.

    Example: live backup /backups/2026-11-22
    """
    with clear_errors():
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        in_file = load_boards(settings.boards).by_id
        with progress_bar("Copying", quiet=as_json) as show:

            async def work() -> Manifest:
                async with opened_store(settings) as client, draining(client, settings) as (source, _):
                    made = await back_up(client, settings, in_file, source, directory, show)
                    after = {"boards": len(made.boards), "bytes": sum(file.size for file in made.files)}
                    await note_command(client, settings.key_prefix, "backed_up", after=after)
                    return made

            manifest = asyncio.run(work())
    size = sum(file.size for file in manifest.files)
    copied = {"directory": str(directory.resolve()), "bytes": size, **msgspec.to_builtins(manifest)}
    if reported(copied, as_json=as_json):
        return
    for board in manifest.left_out:
        err.print(f"Board {board} is not in the backup: its journal is off.", soft_wrap=True)
    content = f"{counted(len(manifest.boards), 'board')} in {counted(size, 'byte')}"
    out.print(f"{directory} has {content}.", soft_wrap=True)


def restore(
    directory: DirectoryArgument,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="First set aside the journal and the store in the data directory.")
    ] = False,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a backup, and restore every board, API key and title from it into an empty data directory and store.

    Stop the servers first. Every board gets a new epoch. If the command is interrupted while it rebuilds boards,
    continue with `live rebuild`.

    Example: live restore /backups/2026-11-22 --data-dir live-data
    """
    with clear_errors():
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        manifest = read_manifest(directory)
        require_prefix(manifest, settings)
        with progress_bar("Checking", quiet=as_json) as show:
            check_files(directory, manifest, show)
        own = directory / BOARDS
        if settings.boards is None and own.exists():
            settings = msgspec.structs.replace(settings, boards=own)
        try:
            # A mistake in the boards file must be found before any file is moved.
            in_file = load_boards(settings.boards)
        except SetupError as error:
            raise SetupError(f"{error}\nNothing was restored. To use another boards file, add --boards") from None
        with progress_bar("Restoring", quiet=as_json) as show:
            done, aside = asyncio.run(_restore(settings, in_file, directory, show, force=force))
    paths = {"set_aside": aside, "boards_file": settings.boards}
    moved = {name: None if path is None else str(path) for name, path in paths.items()}
    if reported({"boards": done, **moved}, as_json=as_json):
        return
    for one in done:
        out.print(f"{one.board} is at offset {one.offset:,} with {counted(one.members, 'member')} (epoch {one.epoch})")
    if aside is not None:
        out.print(f"The data from before the restore are in {aside}.", soft_wrap=True)
    if settings.boards is not None:
        out.print(f"Start the server with --boards {settings.boards}.", soft_wrap=True)


async def _restore(
    settings: Settings,
    in_file: Boards,
    directory: Path,
    show: Any,  # noqa: ANN401
    *,
    force: bool,
) -> tuple[list[Rebuilt], Path | None]:
    """Restore a backup. Return the boards. If earlier files were moved, return their new place too."""
    database = open_journal(settings, writes=True)
    if database is None:
        raise SetupError("a backup is restored into a journal: set LIVE_JOURNAL=sqlite, or the URL of a new database")
    if settings.store:
        async with opened_store(settings) as client:
            await require_empty(client, settings.key_prefix)  # check this before any file is moved
    elif answers(EmbeddedStore(settings.data_dir).socket):
        raise SetupError(f"a server runs in the data directory {settings.data_dir}: stop it first")
    make_private(settings.data_dir)
    with database:
        aside = clear(database, settings, force=force)
        async with opened_store(settings) as client:
            client.high_water.active = True
            boards = await restore_boards(
                client, settings, in_file, database, directory, lambda _, done, total: show(done, total), aside=aside
            )
            return boards, aside
