"""The entries of a board since a time, over the timelines that it continues."""

import asyncio
from functools import partial
from pathlib import Path

from live.errors import StoreUnavailableError
from live.maintenance.journal import compact
from live.maintenance.trail import find_trail
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import renew
from tests.harness.journaled import Journaled, journaled
from tests.harness.store import Copy, StoreProcess
from tests.harness.waiting import eventually


async def answers(board: Journaled) -> bool:
    """Whether the store answers."""
    try:
        await board.rows()
    except StoreUnavailableError:
        return False
    return True


async def test_entries_of_an_abandoned_branch_are_left_out(own_store: StoreProcess, tmp_path: Path) -> None:
    """The board does not hold them, however late the wanted time is."""
    async with journaled(own_store.url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("kept")
        await drainer.sweep()
        copy = Copy(own_store, tmp_path)
        await board.like("lost")
        await drainer.sweep()
        copy.restore()
        await eventually(partial(answers, board))
        await renew(board.client, board.ledger.state.keys, "accepted")
        board.ledger = Ledger(board.client, board.board, board.settings)
        await board.like("new")
        await drainer.sweep()

        async def found(since: int) -> list[int]:
            database = board.databases[0]
            trail = await find_trail(board.client, database, "posts", "accepted", since)
            entries = await database.run(lambda connection: list(trail.read(connection)))
            return [head.time for head, _ in entries if head.kind == "add"]

        kept, new = await found(0)
        assert kept < new
        assert await found(kept + 1) == [new]


async def test_a_trail_does_not_reach_back_to_a_deleted_entry(valkey_url: str, tmp_path: Path) -> None:
    """A checkpoint has all of the board. A journal without entries reaches back to the beginning."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer, database = await board.drainer(), board.databases[0]

        async def reach() -> int:
            return (await find_trail(board.client, database, "posts", board.ledger.state.epoch or "", 0)).reach

        await board.rows()
        await drainer.sweep()
        assert await reach() == 0
        await board.like("a")
        await drainer.sweep()
        await asyncio.to_thread(compact, database, [], lambda *_: None)
        last = (await board.contents()).time
        assert await reach() > last, "nobody can tell what the deleted entry has done"
