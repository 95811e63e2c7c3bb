"""`live backup` and `live restore`: copy what a server holds, and put a copy in place."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from live.cli.context import Context, command, err, out
from live.domain.text import counted
from live.errors import SetupError
from live.journal.database import open_journal
from live.maintenance.backup import BOARDS, back_up, check_files, clear, read_manifest, require_empty, require_prefix
from live.maintenance.backup import restore as restore_boards
from live.maintenance.draining import draining
from live.maintenance.recover import Recovered
from live.store.connection.embedded import EmbeddedStore, answers
from live.store.registry.audit_trail import note_command
from live.system.data_directory import make_private

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the backup.")]


@command("store", "boards", "data_dir")
async def backup(context: Context, directory: DirectoryArgument) -> None:
    """Write a backup into a new directory. Servers may run.

    The backup has the boards, API keys and titles, and what the journal holds of the events that were acknowledged
    before the command began. Boards with `journal = off` are left out; the command names them. If the command is
    interrupted, delete the directory and run it again.

    Example: live backup /backups/2026-11-22
    """
    settings = context.settings
    with context.progress("Copying") as show:
        async with context.store() as client, draining(client, settings) as (source, _):
            manifest = await back_up(client, settings, source, directory, show)
            after = {"boards": len(manifest.boards), "bytes": sum(file.size for file in manifest.files)}
            await note_command(client, "backed_up", after=after)
    size = sum(file.size for file in manifest.files)
    copied = {"directory": str(directory.resolve()), "bytes": size, **msgspec.to_builtins(manifest)}
    if context.report(copied):
        return
    for board in manifest.left_out:
        err.print(f"Board {board} is not in the backup: its journal is off.", soft_wrap=True)
    content = f"{counted(len(manifest.boards), 'board')} in {counted(size, 'byte')}"
    out.print(f"{directory} has {content}.", soft_wrap=True)


@command("store", "data_dir")
async def restore(
    context: Context,
    directory: DirectoryArgument,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="First set aside the journal and the store in the data directory.")
    ] = False,
) -> None:
    """Check a backup, and restore every board, API key and title from it into an empty data directory and store.

    Stop the servers first. Every board gets a new epoch. If the command is interrupted while it recovers boards,
    continue with `live recover --from journal`.

    Example: live restore /backups/2026-11-22 --data-dir live-data
    """
    manifest = read_manifest(directory)
    require_prefix(manifest, context.settings)
    with context.progress("Checking") as show:
        check_files(directory, manifest, show)
    with context.progress("Restoring") as show:
        done, aside = await _restore(context, directory, show, force=force)
    boards_file = directory / BOARDS if (directory / BOARDS).exists() else None
    paths = {"set_aside": aside, "boards_file": boards_file}
    moved = {name: None if path is None else str(path) for name, path in paths.items()}
    if context.report({"boards": done, **moved}):
        return
    for one in done:
        out.print(f"{one.board} is at offset {one.offset:,} with {counted(one.members, 'member')} (epoch {one.epoch})")
    if aside is not None:
        out.print(f"The data from before the restore are in {aside}.", soft_wrap=True)
    made = datetime.fromtimestamp(manifest.made / 1e6, UTC).isoformat(timespec="seconds")
    out.print(f"The backup is of {made}. Persons who were erased later are back: erase them again.", soft_wrap=True)
    if boards_file is not None:
        out.print(f"The boards file of that time is {boards_file}.", soft_wrap=True)


async def _restore(
    context: Context,
    directory: Path,
    show: Any,  # noqa: ANN401
    *,
    force: bool,
) -> tuple[list[Recovered], Path | None]:
    settings = context.settings
    database = open_journal(settings, writes=True)
    if database is None:
        raise SetupError("a backup is restored into a journal: set LIVE_JOURNAL=sqlite, or the URL of a new database")
    if settings.store:
        async with context.store() as client:
            await require_empty(client)  # check this before any file is moved
    elif answers(EmbeddedStore(settings.data_dir).socket):
        raise SetupError(f"a server runs in the data directory {settings.data_dir}: stop it first")
    make_private(settings.data_dir)
    with database:
        aside = clear(database, settings, force=force)
        async with context.store() as client:
            client.high_water.active = True
            return await restore_boards(client, settings, database, directory, show), aside
