"""`live journal` and `live trail`: inspect and maintain the journal in SQL, and print the audit log."""

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.filesize import decimal
from rich.table import Table

from live.cli.context import Context, command, confirm, make_table, milliseconds_of, out, several, words_of
from live.domain.event import rfc3339
from live.domain.text import counted
from live.errors import SetupError, StoreUnavailableError
from live.journal.database import open_journal, unsafe_in_sql
from live.journal.log.audit_trail import read_trail
from live.journal.log.timelines import find_lost
from live.maintenance.journal import TimelineStatus, compact, lost_at_most, status, verify
from live.store.board.journal_stream import claim_sink, release_sink
from live.store.connection.durability import unsafe_settings
from live.store.registry.audit_trail import AuditEntry, AuditTrail, command_acting, note_command


@command("store", "data_dir")
async def journal(
    context: Context,
    *,
    verify_rows: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Read every row instead. Exit with 1 if something is damaged, or if it can't give a board back.",
        ),
    ] = False,
    drop: Annotated[
        bool,
        typer.Option(
            "--compact", help="Forget the past instead: keep what boards hold now, and drop every entry. Stop servers."
        ),
    ] = False,
    board: Annotated[list[str] | None, several("--board", "With --compact: a board. Default: all boards.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --compact: do not ask for confirmation.")] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt", help="Move the journals of the store to the database of LIVE_JOURNAL instead. Stop servers."
        ),
    ] = False,
) -> None:
    """List what the journal holds of each board: its position and its size. Or maintain the journal.

    The command also says what the store has lost, and the most that can be lost when something fails. It warns if
    acknowledged events can be lost because of a setting of the store or of the database, or because no write waits for
    the replicas. Without --store, it uses the embedded store of a running `live serve`.

    After --compact, the past before now can't be read or recovered any more, and final periods stay. If it is
    interrupted, run it again. It exits with 1 if a board can't be compacted.

    A store's journals go into one database. Use --adopt when that database was lost, or when you change LIVE_JOURNAL.
    The journal of each board begins again with everything that the board holds.

    Example: live journal --verify
    """
    if verify_rows + drop + adopt > 1:
        raise SetupError("--verify, --compact and --adopt are different commands: give one of them")
    if (board or yes) and not drop:
        raise SetupError("--board and --yes go with --compact")
    if verify_rows:
        _verify(context)
    elif drop:
        await _compact(context, words_of(board), yes=yes)
    elif adopt:
        await _adopt(context)
    else:
        await _show_status(context)


async def _show_status(context: Context) -> None:
    settings, lost = context.settings, list[str]()
    with context.journal(writes=False) as database:
        found = database.work(status)
        at_most = await lost_at_most(None, settings, found)
        async with context.store(start=False) as client:
            try:
                warnings = await unsafe_settings(client)
                found_lost = await find_lost(client, database)
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
        warnings += database.work(unsafe_in_sql)
    if context.report({"warnings": warnings, "boards": found, "lost": lost, "lost_at_most": at_most}):
        return
    out.print(_table(found))
    for line in lost:
        out.print(f"LOST: {line}")
    out.print("At most these acknowledged events can be lost, besides the losses in the warnings:")
    for fault, what in at_most.items():
        out.print(f"  if {fault}: {what}", soft_wrap=True)
    for line in warnings:
        out.print(f"Warning: {line}", soft_wrap=True)


def _verify(context: Context) -> None:
    with context.progress("Reading") as show, context.journal(writes=False) as database:
        found = verify(database, show)
    if not context.report(found):
        for verdict in found.boards:
            state, entries = "DAMAGED" if verdict.faults else "sound", counted(verdict.entries, "entry", "entries")
            out.print(f"{verdict.board} (epoch {verdict.epoch}): {state}; {entries}")
            for line in verdict.faults:
                out.print(f"  {line}")
        for fault in found.faults:
            out.print(f"DAMAGED: {fault}")
    if not found.sound:
        raise typer.Exit(1)


async def _compact(context: Context, names: tuple[str, ...], *, yes: bool) -> None:
    confirm("Drop the past? It can't be read or recovered any more.", yes=yes)
    with context.progress("Compacting") as show, context.journal() as database:
        database.take_for_command()
        async with (
            context.store() as client,
            command_acting(client, "compacted", {"boards": names or None}) as entry,
        ):
            found = await asyncio.to_thread(compact, database, names, show)
            entry["after"] = {"boards": found}
    if not context.report({"boards": found}):
        for one in found:
            entries, since = counted(one.entries, "entry", "entries"), rfc3339(one.since, 1e6, "seconds", " ")
            dropped = f"dropped {entries} and checkpoints, {decimal(one.bytes)}; the journal begins at {since}"
            out.print(f"{one.board} (epoch {one.epoch}): {f'NOT compacted: {one.fault}' if one.fault else dropped}")
        if not found:
            out.print("There is nothing to drop.")
    if any(one.fault for one in found):
        raise typer.Exit(1)


async def _adopt(context: Context) -> None:
    settings = context.settings
    # The file may have been lost, and then this makes a new one. The directory of another server has no such data.
    database = open_journal(settings, writes=True) if settings.data_dir.is_dir() else context.journal()
    if database is None:
        raise SetupError("LIVE_JOURNAL is off: name the database that the journals go into")
    with database:
        database.take_for_command()
        async with context.store() as client:
            await release_sink(client)
            await claim_sink(client, database.id)
            await note_command(client, "adopted", after={"journal": database.id})
    if not context.report({"journal": database.id}):
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


@command("store", "data_dir")
async def trail(
    context: Context,
    *,
    since: Annotated[str | None, typer.Option("--since", help="The start, such as 2026-11-22T12:00:00Z.")] = None,
    board: Annotated[str | None, typer.Option("--board", help="The only board. Default: everything.")] = None,
) -> None:
    """Print the audit log: who did what as an administrator, oldest first.

    The journal has all entries. Without a journal, the store has about the last 10,000.

    Example: live trail --since 2026-11-22T12:00:00Z --board posts
    """
    first = 0 if since is None else milliseconds_of(since, "--since")
    kept: dict[str, AuditEntry] = {}
    if context.settings.journal != "off":
        with context.journal(writes=False) as database:
            kept = database.work(read_trail)
    async with context.store() as client:
        entries = [*kept.values(), *await AuditTrail(client).after(next(reversed(kept), "0"))]
    shown = [entry for entry in entries if entry.at >= first and board in (None, entry.board)]
    if context.report({"trail": shown}):
        return
    for entry in shown:
        what = " ".join(filter(None, (entry.what, entry.board, entry.key)))
        where = f" from {entry.address}" if entry.address else ""
        out.print(f"{rfc3339(entry.at, timespec='seconds')} {entry.who}{where}: {what}", soft_wrap=True)
        if entry.reason:
            out.print(f"  reason: {entry.reason}", soft_wrap=True)
        for name, value in (("before", entry.before), ("after", entry.after)):
            if value is not None:
                out.print(f"  {name}: {msgspec.json.encode(value).decode()}", soft_wrap=True)
