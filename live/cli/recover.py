"""`live recover`: go on after the store lost data."""

from collections.abc import Collection
from contextlib import nullcontext
from functools import partial
from typing import Annotated

import typer

from live.boards.definitions import all_boards
from live.cli.context import Context, command, milliseconds_of, out
from live.domain.board_file import load_boards
from live.domain.text import counted, unknown
from live.errors import NotFoundError, SetupError
from live.journal.database import open_journal
from live.journal.log.reader import Progress
from live.journal.log.timelines import end_lost
from live.maintenance.check import Side, replace_store
from live.maintenance.recover import KeptBoard, Recovered, Recovery, Wanted, recover_from_store, recovered
from live.maintenance.set_back import set_back
from live.process.checks import find_losses
from live.store.board.reign import BEHIND
from live.store.registry.audit_trail import command_acting, note_command
from live.store.registry.definitions import DefinitionStore


@command("store", "boards", "data_dir")
async def recover(
    context: Context,
    *,
    source: Annotated[Side, typer.Option("--from", help="The side that is right.")],
    board: Annotated[str | None, typer.Option("--board", help="The only board. Default: all boards.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="The time to go back to, such as 2026-11-22T12:00:00Z. Default: the end.")
    ] = None,
    name: Annotated[str | None, typer.Option("--as", help="Another id for the board, with --board.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be recovered.")] = False,
) -> None:
    """Go on after the store lost data. First stop the servers. If the command is interrupted, run it again.

    With --from journal, write what SQL has: boards, API keys and titles that the store lacks, under new epochs, and
    what an older state of a board lacks, under its epoch. If nothing of --board is lost, it gets what its
    journal says, or said at the time --at, in one step while servers run.

    With --from store, each lost board goes on with what the store has, under a new epoch, and its journal begins again.

    Without --store, the command uses the embedded store of the data directory, and starts it if needed.

    Example: live recover --from journal
    """
    if name is not None and board is None:
        raise SetupError("--as needs --board: it gives one board another id")
    if source is Side.STORE:
        if at or name or dry_run:
            raise SetupError("--at, --as and --dry-run go with --from journal")
        await _from_store(context, board)
        return
    wanted = Wanted(board=board, at=None if at is None else milliseconds_of(at, "--at"), name=name, dry=dry_run)
    left_out: dict[str, str] = {}
    with context.progress("Recovering") as show:
        one = await _put_back(context, board, wanted.at, show, dry=dry_run) if board and name is None else None
        done = [] if one is None else [one]
        if one is None:
            async with context.store() as client:
                with context.journal() as database:
                    recovery = Recovery(client, context.settings, database, show)
                    before = {"from": source, "at": at, "as": name}
                    acting = command_acting(client, "recovered", before, board=board or "")
                    done, left_out = await recovery.recover(wanted, acting), recovery.left_out
    if not context.report({"boards": done, "left_out": left_out, "dry_run": dry_run}):
        for one in done:
            verb, members = "would be" if dry_run else "is", counted(one.members, "member")
            out.print(f"{one.board} {verb} at offset {one.offset:,} with {members} (epoch {one.epoch})")
        for dropped, why in left_out.items():
            out.print(f"{dropped} is NOT recovered: {why}")
        if not done:
            out.print("The journal has no board that the store lacks.")
    if left_out and not dry_run:
        raise typer.Exit(1)


async def _put_back(context: Context, name: str, at: int | None, show: Progress, *, dry: bool) -> Recovered | None:
    """Replace the contents of a board while servers run. Return None if the store lacks something of it."""
    settings = context.settings
    async with context.store() as client:
        keys = client.keys_of(name)
        board, _ = (await all_boards(client)).get(name, (None, None))
        epoch, journal, reign = await client.call(keys.meta, "HMGET", keys.meta, "epoch", "journal", "reign")
        if board is None or epoch is None or journal is None or reign == BEHIND:
            return None
        with context.journal(writes=False) as database:
            opening = partial(nullcontext, database)
            losses, _ = await find_losses(client, settings, opening, accept=True, changes=False)
            if losses.store or name in losses.boards:
                return None
            before = {"from": Side.JOURNAL, "at": at}
            async with command_acting(client, "recovered", before, dry=dry, board=name) as entry:
                if at is not None:
                    done = await set_back(client, settings, database, board, epoch.decode(), at, show, dry=dry)
                else:
                    if not dry:
                        await replace_store(client, settings, board, epoch.decode(), show)
                    done = await recovered(client, keys, board, epoch.decode())
                entry["after"] = done
            return done


async def _from_store(context: Context, board: str | None) -> None:
    settings = context.settings
    journal = open_journal(settings, writes=True)
    done: list[KeptBoard] = []
    with journal or nullcontext():
        if journal is not None:
            await journal.in_thread(journal.take_for_command)
        async with context.store() as client:
            losses, lost = await find_losses(client, settings, partial(nullcontext, journal), accept=True)
            if board is not None:
                if losses.store:
                    raise SetupError(f"the whole store lost data, so --board can't be used: {losses}")
                known = (await DefinitionStore(client).load()).boards.keys() | losses.boards.keys()
                if board not in known:
                    raise NotFoundError(unknown("board", board, known))
                losses.boards = {name: why for name, why in losses.boards.items() if name == board}
                lost = [loss for loss in lost if loss.timeline.board == board]
            if losses:

                async def record(live: Collection[str]) -> None:
                    if journal is not None:
                        left = {*load_boards(settings.boards).by_id, *live}  # the next start defines the file
                        await journal.run(end_lost, lost, left)
                    before = {"from": Side.STORE, "lost": str(losses)}
                    await note_command(client, "recovered", before=before, board=board or "")

                done = await recover_from_store(client, losses, record)
    if context.report({"boards": done}):
        return
    for one in done:
        out.print(f"{one.board} goes on with what the store has (epoch {one.epoch})")
    if not losses:
        out.print("The store has lost nothing.")
