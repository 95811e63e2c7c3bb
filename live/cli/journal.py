"""`live rebuild` and `live journal`: restore boards from the journal, inspect it and maintain it."""

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.table import Table

from live.boards.rebuilding import Rebuilding, Wanted
from live.cli.terminal import (
    BoardsOption,
    DataDirOption,
    JsonOption,
    StoreOption,
    clear_errors,
    make_table,
    milliseconds_of,
    out,
    print_json,
    progress_bar,
)
from live.domain.board_file import load_boards
from live.domain.counts import counted
from live.errors import SetupError
from live.journal.database import Database, existing_journal
from live.journal.promise import MEANINGS, Promise, read_promise
from live.journal.rebuild import Rebuilt
from live.journal.status import LifeStatus, Verdict, status, verify
from live.settings import Settings, load_settings
from live.store.board.handover import claim_sink, release_sink
from live.store.connection.client import connect
from live.store.connection.embedded import running_or_started

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

    Stop the servers that use the journal before. Every board gets a new epoch. If the command is interrupted, run it
    again. Without --store, the command uses the embedded store of the data directory, and starts it if needed.

    Example: live rebuild --data-dir live-data
    """
    with clear_errors():
        if name is not None and board is None:
            raise SetupError("--as needs --board: it gives one board another id")
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        wanted = Wanted(board=board, at=None if at is None else milliseconds_of(at, "--at"), name=name, dry=dry_run)
        with progress_bar("Rebuilding", quiet=as_json) as show, existing_journal(settings) as database:
            done = asyncio.run(_rebuild(settings, database, wanted, show))
    if as_json:
        print_json({"boards": done, "dry_run": dry_run})
        return
    for one in done:
        verb, members = "would be" if dry_run else "is", counted(one.members, "member")
        out.print(f"{one.board} {verb} at offset {one.offset:,} with {members} (epoch {one.epoch})")
    if not done:
        out.print("The journal has no board that the store lacks.")


async def _rebuild(settings: Settings, database: Database, wanted: Wanted, show: Any) -> list[Rebuilt]:  # noqa: ANN401
    with nullcontext(settings.store) if settings.store else running_or_started(settings.data_dir) as url:
        client = connect(url, settings)
        client.witness.active = True
        try:
            boards = load_boards(settings.boards)
            work = Rebuilding(client, settings, boards, database, lambda _, done, total: show(done, total))
            return await work.rebuild(wanted)
        finally:
            await client.aclose()


@journal.command(name="status")
def show_status(*, store: StoreOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """List what the journal holds of each board: its position, its size and its gaps.

    It also says how much of the acknowledged events can be lost, given the settings of the store and of the database.
    Without --store, the command uses the embedded store of a running `live serve`.

    Example: live journal status
    """
    with clear_errors():
        settings = load_settings(store=store, data_dir=data_dir)
        with existing_journal(settings, writes=False) as database:
            found = database.work(lambda connection: status(connection, settings.key_prefix))
            promised = asyncio.run(_promise(settings, database))
    if as_json:
        print_json({"promise": promised, "boards": found})
        return
    out.print(_table(found), markup=False)
    out.print("What is lost at most of acknowledged events:")
    out.print(f"  after a crash: {MEANINGS[promised.crash]}")
    out.print(f"  after a power cut: {MEANINGS[promised.power_cut]}")
    out.print(f"  without the store's data: {MEANINGS[promised.store_lost]}")
    for doubt in promised.doubts:
        out.print(f"  {doubt}", markup=False)


async def _promise(settings: Settings, database: Database) -> Promise:
    client = connect(settings.store or f"unix://{settings.data_dir.resolve() / 'valkey.sock'}", settings)
    try:
        return await read_promise(client, settings, database)
    finally:
        await client.aclose()


@journal.command(name="verify")
def check(*, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Read every entry of the journal; exit with 1 if a checksum is wrong or an entry is missing.

    Example: live journal verify
    """
    with clear_errors():
        settings = load_settings(data_dir=data_dir)
        with progress_bar("Reading", quiet=as_json) as show, existing_journal(settings, writes=False) as database:
            found = database.work(lambda connection: verify(connection, settings.key_prefix, show))
    if as_json:
        print_json({"sound": not any(verdict.faults for verdict in found), "boards": found})
    else:
        for verdict in found:
            _print_verdict(verdict)
    if any(verdict.faults for verdict in found):
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
            asyncio.run(_adopt(settings, database))
    if as_json:
        print_json({"journal": database.id})
    else:
        out.print("The journals of the store go into this database from now on.")


async def _adopt(settings: Settings, database: Database) -> None:
    if not await database.take():
        raise SetupError("another process writes to this journal: stop the servers that use it, and try again")
    with nullcontext(settings.store) if settings.store else running_or_started(settings.data_dir) as url:
        client = connect(url, settings)
        try:
            await release_sink(client, settings.key_prefix)
            await claim_sink(client, settings.key_prefix, database.id)
        finally:
            await client.aclose()


def _table(found: list[LifeStatus]) -> Table:
    table = make_table(
        "board", "epoch", "offset", "last entry", "entries", "size", "gaps",
        wraps=["board"], numbers=["offset", "entries", "size", "gaps"],
    )  # fmt: skip
    for life in found:
        last = datetime.fromtimestamp(life.last / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if life.last else "none"
        numbers = (f"{life.entries:,}", decimal(life.bytes), f"{life.gaps:,}")
        table.add_row(life.board, life.epoch, f"{life.offset:,}", last, *numbers)
    return table


def _print_verdict(verdict: Verdict) -> None:
    state = "sound" if not verdict.faults else "DAMAGED"
    entries = counted(verdict.entries, "entry", "entries")
    out.print(f"{verdict.board} (epoch {verdict.epoch}): {state}; {entries}", markup=False)
    for fault in verdict.faults:
        out.print(f"  {fault}", markup=False)
