"""The entries of a board since a time, over the timelines that it continues."""

from functools import partial
from pathlib import Path

from live.errors import StoreUnavailableError
from live.maintenance.contributions import find_trail
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

        async def found(since: int) -> list[tuple[str, int]]:
            prefix, database = board.settings.key_prefix, board.databases[0]
            trail = await find_trail(board.client, database, prefix, "posts", "accepted", since)
            entries = await database.run(lambda connection: list(trail.read(connection)))
            return [(epoch, head.time) for epoch, head, _ in entries if head.kind == "add"]

        kept, new = await found(0)
        assert [epoch == "accepted" for epoch, _ in (kept, new)] == [False, True]
        assert await found(kept[1] + 1) == [new]
