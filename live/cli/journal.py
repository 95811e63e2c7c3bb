"""`live rebuild` and `live journal`: restore boards from the journal, inspect it and maintain it."""

import asyncio
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from live.cli.terminal import (
    BoardsOption,
    DataDirOption,
    JsonOption,
    StoreOption,
    clear_errors,
    confirm,
    make_table,
    milliseconds_of,
    out,
    progress_bar,
    reported,
    several,
    words_of,
)
from live.domain.board_file import load_boards
from live.domain.event import rfc3339
from live.domain.text import counted
from live.errors import SetupError, StoreUnavailableError
from live.journal.database import existing_journal, unsafe_in_sql
from live.journal.log.timelines import find_lost
from live.maintenance.compact import Compacted, compact
from live.maintenance.rebuild import Rebuilding, Rebuilt, Wanted
from live.maintenance.status import TimelineStatus, lost_at_most, status, verify
from live.settings import load_settings
from live.store.board.journal_stream import claim_sink, release_sink
from live.store.connection.durability import unsafe_settings
from live.store.connection.embedded import opened_store
from live.store.registry.audit_trail import command_acting, note_command

journal = typer.Typer(name="journal", no_args_is_help=True, help="Inspect and maintain the journal in SQL.")

BoardOption = Annotated[str | None, typer.Option("--board", help="The only board. Default: all boards.")]


def rebuild(  # noqa: PLR0913 - one parameter per flag
    *,
    board: BoardOption = None,
    at: Annotated[
        str | None, typer.Option("--at", help="The time to go back to, such as 2026-11-22T12:00:00Z. Default: the end.")
    ] = None,
    name: Annotated[str | None, typer.Option("--as", help="Another id for the board, with --board.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be rebuilt.")] = False,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write boards, run-time definitions and API keys from the journal into a store that has lost them.

    First stop the servers that use the journal. Every board gets a new epoch. If the command is interrupted, run it
    again. Without --store, the command uses the embedded store of the data directory, and starts it if needed.

    Example: live rebuild --data-dir live-data
    """
    with clear_errors():
        if name is not None and board is None:
            raise SetupError("--as needs --board: it gives one board another id")
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        wanted = Wanted(board=board, at=None if at is None else milliseconds_of(at, "--at"), name=name, dry=dry_run)
        with progress_bar("Rebuilding", quiet=as_json) as show, existing_journal(settings) as database:
            in_file = load_boards(settings.boards)

            async def work() -> tuple[list[Rebuilt], list[str]]:
                async with opened_store(settings) as client:
                    client.high_water.active = True
                    rebuilding = Rebuilding(
                        client, settings, in_file, database, lambda _, done, total: show(done, total)
                    )
                    before = {"at": at, "as": name}
                    acting = command_acting(client, settings.key_prefix, "rebuilt", before, board=board or "")
                    return await rebuilding.rebuild(wanted, acting), rebuilding.left_out

            done, left_out = asyncio.run(work())
    if reported({"boards": done, "left_out": left_out, "dry_run": dry_run}, as_json=as_json):
        return
    for dropped in left_out:
        out.print(f"{dropped} is NOT rebuilt: its journal was turned off")
    for one in done:
        verb, members = "would be" if dry_run else "is", counted(one.members, "member")
        out.print(f"{one.board} {verb} at offset {one.offset:,} with {members} (epoch {one.epoch})")
    if not done:
        out.print("The journal has no board that the store lacks.")


@journal.command(name="status")
def show_status(
    *,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what the journal holds of each board: its position and its size.

    The command also says what the store has lost, and the most that can be lost when something fails. It warns if
    acknowledged events can be lost because of a setting of the store or of the database, or because no write waits for
    the replicas. With --boards, it names the boards of the file that the journal lacks. Without --store, it uses the
    embedded store of a running `live serve`.

    Example: live journal status
    """
    with clear_errors():
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        in_file = load_boards(settings.boards).by_id.values() if settings.boards else ()
        with existing_journal(settings, writes=False) as database:
            found = database.work(lambda connection: status(connection, settings.key_prefix))

            async def work() -> tuple[list[str], list[str], dict[str, str]]:
                lost: list[str] = []
                at_most = await lost_at_most(None, settings, found)
                async with opened_store(settings, start=False) as client:
                    try:
                        warnings = await unsafe_settings(client)
                        found_lost = await find_lost(client, settings.key_prefix, database)
                        known = client.high_water.lost_boards
                        for loss in found_lost:
                            known.pop(loss.timeline.board, None)
                        lost = [client.high_water.lost] if client.high_water.lost else []
                        lost += [*map(str, found_lost), *known.values()]
                        at_most = await lost_at_most(client, settings, found)
                    except SetupError as error:
                        warnings = [str(error)]
                    except StoreUnavailableError as error:
                        warnings = [f"can't read the settings of the store: {error}"]
                return warnings + await unsafe_in_sql(database), lost, at_most

            warnings, lost, at_most = asyncio.run(work())
    known = {timeline.board for timeline in found}
    warnings += [
        f"the journal has nothing of the board `{board.id}`, which is in {settings.boards}"
        for board in in_file
        if board.journal.level != "off" and board.id not in known
    ]
    if reported({"warnings": warnings, "boards": found, "lost": lost, "lost_at_most": at_most}, as_json=as_json):
        return
    out.print(_table(found))
    for loss in lost:
        out.print(f"LOST: {loss}")
    out.print("At most these acknowledged events can be lost, besides the losses in the warnings:")
    for fault, what in at_most.items():
        out.print(f"  if {fault}: {what}", soft_wrap=True)
    for line in warnings:
        out.print(f"Warning: {line}", soft_wrap=True)


@journal.command(name="verify")
def check(*, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Read every row of the journal; exit with 1 if something is damaged, or if a board can't be rebuilt from it.

    Example: live journal verify
    """
    with clear_errors():
        settings = load_settings(data_dir=data_dir)
        with progress_bar("Reading", quiet=as_json) as show, existing_journal(settings, writes=False) as database:
            found = verify(database, settings.key_prefix, show)
    if not reported(found, as_json=as_json):
        for verdict in found.boards:
            state, entries = "DAMAGED" if verdict.faults else "sound", counted(verdict.entries, "entry", "entries")
            out.print(f"{verdict.board} (epoch {verdict.epoch}): {state}; {entries}")
            for line in verdict.faults:
                out.print(f"  {line}")
        for fault in found.faults:
            out.print(f"DAMAGED: {fault}")
    if not found.sound:
        raise typer.Exit(1)


@journal.command(name="compact")
def compact_now(
    *,
    board: Annotated[list[str] | None, several("--board", "A board. Default: all boards.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget the past of boards now: keep what they hold, and drop every entry of the journal.

    After `live erase`, this removes what is left of the person. The past before now can't be read or rebuilt any more.
    Final periods stay. First stop the servers that use the journal. If the command is interrupted, run it again. It
    exits with 1 if a board can't be compacted.

    Example: live journal compact --board songs
    """
    with clear_errors():
        settings = load_settings(store=store, data_dir=data_dir)
        names = words_of(board)
        confirm("Drop the past? It can't be read or rebuilt any more.", yes=yes)
        with progress_bar("Compacting", quiet=as_json) as show, existing_journal(settings) as database:
            database.take_for_command()

            async def work() -> list[Compacted]:
                async with opened_store(settings) as client:
                    async with command_acting(
                        client, settings.key_prefix, "compacted", {"boards": names or None}
                    ) as entry:
                        found = await asyncio.to_thread(compact, database, names, show)
                        entry["after"] = {"boards": found}
                    return found

            found = asyncio.run(work())
    if not reported({"boards": found}, as_json=as_json):
        for one in found:
            entries, since = counted(one.entries, "entry", "entries"), rfc3339(one.since, 1e6, "seconds", " ")
            dropped = f"dropped {entries} and checkpoints, {decimal(one.bytes)}; the journal begins at {since}"
            out.print(f"{one.board} (epoch {one.epoch}): {f'NOT compacted: {one.fault}' if one.fault else dropped}")
        if not found:
            out.print("There is nothing to drop.")
    if any(one.fault for one in found):
        raise typer.Exit(1)


@journal.command()
def adopt(*, store: StoreOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Move the journals of a store to the database of this data directory, or of LIVE_JOURNAL.

    A store's journals go into one database. Use this when that database was lost, or when you change LIVE_JOURNAL. The
    journal of each board begins again with everything that the board holds.

    Example: live journal adopt
    """
    with clear_errors():
        settings = load_settings(store=store, data_dir=data_dir)
        with existing_journal(settings) as database:
            database.take_for_command()

            async def work() -> None:
                async with opened_store(settings) as client:
                    await release_sink(client, settings.key_prefix)
                    await claim_sink(client, settings.key_prefix, database.id)
                    await note_command(client, settings.key_prefix, "adopted", after={"journal": database.id})

            asyncio.run(work())
    if not reported({"journal": database.id}, as_json=as_json):
        out.print("The journals of the store go into this database from now on.")


def _table(found: list[TimelineStatus]) -> Table:
    table = make_table(
        "board", "epoch", "offset", "last entry", "entries", "size",
        wraps=["board"], numbers=["offset", "entries", "size"],
    )  # fmt: skip
    for timeline in found:
        last = rfc3339(timeline.last, 1e6, "seconds", " ") if timeline.last else "none"
        numbers = (f"{timeline.entries:,}", decimal(timeline.bytes))
        table.add_row(timeline.board, timeline.epoch, f"{timeline.offset:,}", last, *numbers)
    return table
