"""`live restore-lost`: restores entries that a board in the store has lost, from the journal of the board."""

import asyncio
from typing import Annotated

import typer

from live.boards.all_boards import all_boards
from live.cli.terminal import BoardsOption, DataDirOption, JsonOption, StoreOption, clear_errors, out, reported
from live.domain.text import unknown
from live.errors import NotFoundError
from live.journal.database import existing_journal
from live.maintenance.restore_lost import RestoredBoard
from live.maintenance.restore_lost import restore_lost as restore
from live.settings import load_settings
from live.store.connection.embedded import opened_store
from live.store.registry.audit_trail import command_acting


def restore_lost(
    *,
    board: Annotated[str, typer.Option("--board", help="The board of which the store holds an older state.")],
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore the entries that a board in the store has lost, from the journal of the board.

    Stop the servers first. Afterwards, the board works again.

    The cost depends on what was lost, not on the size of the board. After a failover, running servers do this by
    themselves.

    Example: live restore-lost --board posts
    """
    with clear_errors():
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)

        async def work() -> RestoredBoard:
            async with opened_store(settings) as client:
                client.high_water.active = True
                known = await all_boards(client, settings)
                if board not in known:
                    raise NotFoundError(unknown("board", board, known))
                with existing_journal(settings) as database:
                    async with command_acting(client, settings.key_prefix, "loss_restored", board=board) as entry:
                        done = entry["after"] = await restore(client, settings, database, known[board][0])
                    return done

        done = asyncio.run(work())
    if not reported(done, as_json=as_json):
        out.print(f"{done.board} (epoch {done.epoch}) went from offset {done.before:,} to {done.offset:,}")
