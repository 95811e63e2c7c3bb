"""`live rebuild`: writes what a store has lost from the journal."""

from typing import Annotated

import typer

from live.boards.all_boards import all_boards
from live.cli.context import Context, command
from live.cli.terminal import milliseconds_of, out
from live.domain.text import counted, unknown
from live.errors import NotFoundError, SetupError
from live.maintenance.rebuild import Rebuilding, Wanted
from live.maintenance.restore_lost import restore_lost
from live.store.registry.audit_trail import command_acting


@command("store", "boards", "data_dir")
async def rebuild(
    context: Context,
    *,
    board: Annotated[str | None, typer.Option("--board", help="The only board. Default: all boards.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="The time to go back to, such as 2026-11-22T12:00:00Z. Default: the end.")
    ] = None,
    name: Annotated[str | None, typer.Option("--as", help="Another id for the board, with --board.")] = None,
    lost: Annotated[
        bool,
        typer.Option("--lost", help="Send again only what --board has lost. The store must have an older state of it."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be rebuilt.")] = False,
) -> None:
    """Write boards, run-time definitions and API keys from the journal into a store that has lost them.

    First stop the servers that use the journal. Every board gets a new epoch. If the command is interrupted, run it
    again. Without --store, the command uses the embedded store of the data directory, and starts it if needed.

    If the store has an older state of a board, --lost sends the missing entries again. The board keeps its epoch, and
    the cost depends on what was lost. After a failover, running servers do this by themselves.

    Example: live rebuild --data-dir live-data
    """
    if lost:
        if board is None or at or name or dry_run:
            raise SetupError("--lost needs --board, and goes with no other option")
        await _send_lost(context, board)
        return
    if name is not None and board is None:
        raise SetupError("--as needs --board: it gives one board another id")
    wanted = Wanted(board=board, at=None if at is None else milliseconds_of(at, "--at"), name=name, dry=dry_run)
    with context.progress("Rebuilding") as show, context.journal() as database:
        in_file = context.in_file()
        async with context.store() as client:
            client.high_water.active = True
            rebuilding = Rebuilding(
                client, context.settings, in_file, database, lambda _, done, total: show(done, total)
            )
            before = {"at": at, "as": name}
            acting = command_acting(client, context.prefix, "rebuilt", before, board=board or "")
            done, left_out = await rebuilding.rebuild(wanted, acting), rebuilding.left_out
    if context.report({"boards": done, "left_out": left_out, "dry_run": dry_run}):
        return
    for dropped in left_out:
        out.print(f"{dropped} is NOT rebuilt: its journal was turned off")
    for one in done:
        verb, members = "would be" if dry_run else "is", counted(one.members, "member")
        out.print(f"{one.board} {verb} at offset {one.offset:,} with {members} (epoch {one.epoch})")
    if not done:
        out.print("The journal has no board that the store lacks.")


async def _send_lost(context: Context, board: str) -> None:
    """Send the entries that a board in the store has lost again."""
    async with context.store() as client:
        client.high_water.active = True
        known = await all_boards(client, context.settings)
        if board not in known:
            raise NotFoundError(unknown("board", board, known))
        with context.journal() as database:
            async with command_acting(client, context.prefix, "loss_restored", board=board) as entry:
                done = entry["after"] = await restore_lost(client, context.settings, database, known[board][0])
    if not context.report(done):
        out.print(f"{done.board} (epoch {done.epoch}) went from offset {done.before:,} to {done.offset:,}")
