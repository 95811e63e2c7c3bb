"""`live rebuild` when the store is lost again, or right after boards were deleted or made again."""

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from live.domain.board import Boards
from live.errors import SetupError
from live.journal.log.drainer import Drainer
from live.journal.log.timelines import open_timelines
from live.journal.schema import DEFINITION
from live.maintenance.rebuild import Rebuilding, Wanted
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import create
from live.store.registry.definitions import DefinitionStore
from tests.harness.journaled import Journaled, Rows, journaled
from tests.journal.test_empty_boards import MADE, State, defined


async def lose(board: Journaled) -> None:
    """Delete everything in the store."""
    async for name in board.client.names(f"{board.settings.key_prefix}:*"):
        await board.client.delete(name)


def rebuilding(board: Journaled, *, in_file: bool = True) -> Rebuilding:
    """Return a rebuild, with or without the board in the boards file."""
    boards = Boards([board.board] if in_file else [])
    return Rebuilding(board.client, board.settings, boards, board.databases[0], lambda *_: None)


async def rows(board: Journaled) -> Rows:
    """The ranking in the store, as a process that has just started reads it."""
    board.ledger = Ledger(board.client, board.board, board.settings)
    return await board.rows()


async def lose_twice(board: Journaled) -> None:
    """Lose the store, rebuild it, and lose it again before a server has run."""
    drainer = await board.drainer()
    await board.like("a", "b")
    await drainer.sweep()
    before = await board.rows()
    for _ in range(2):
        await lose(board)
        await rebuilding(board).rebuild(Wanted())
        assert await rows(board) == before


async def test_a_store_that_is_lost_again_is_rebuilt_again(valkey_url: str, tmp_path: Path) -> None:
    """SQL has the new timeline before the old timeline ends."""
    async with journaled(valkey_url, tmp_path) as board:
        await lose_twice(board)
        assert await rebuilding(board).rebuild(Wanted()) == [], "a second rebuild finds something to do"


async def test_a_rebuilt_board_keeps_the_time_when_it_was_made(valkey_url: str, tmp_path: Path) -> None:
    """Without this time, nobody could tell whether a union was made later, and lacks what the board counted before."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer, keys = await board.drainer(), board.ledger.state.keys
        await board.like("a")
        await drainer.sweep()

        async def began() -> int:
            return int(await board.client.call(keys.meta, "HGET", keys.meta, "began") or 0)

        before, drained = await began(), time.time_ns() // 1_000_000
        await lose(board)
        await rebuilding(board).rebuild(Wanted())
        assert before <= await began() <= drained


async def test_a_loss_that_the_journal_cannot_mend_stays(valkey_url: str, tmp_path: Path) -> None:
    """The command does not accept the loss."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        assert await rebuilding(board).rebuild(Wanted()) == []
        await lose(board)
        facts = board.client.high_water.facts
        with pytest.raises(SetupError, match="nothing to rebuild, and the store lost data"):
            await rebuilding(board).rebuild(Wanted())
        assert board.client.high_water.facts == facts


def row(board: Journaled, epoch: str, *, deleted: bool = False, state: State = "live") -> dict[str, Any]:
    """A row of SQL that defines the board `made`, or says that the definition was deleted."""
    found = defined(board.settings.key_prefix, "made", epoch, state)
    return {**found, "value": None} if deleted else found


async def make(board: Journaled, drainer: Drainer, epoch: str) -> None:
    """Create the board in an epoch. SQL gets its timeline, and no sweep ends an earlier timeline."""
    keys = Keys(board.settings.key_prefix, "made")
    await create(board.client, keys, MADE, epoch, journal=True)
    drainer._timelines.clear()  # a notice of a new board also does this
    await drainer.drain(["made", board.board.id])
    await board.client.delete(keys.meta)


async def define(board: Journaled, *rows: dict[str, Any]) -> None:
    """Add definitions to SQL."""
    await board.databases[0].run(lambda connection: connection.execute(insert(DEFINITION), list(rows)))


async def epochs(board: Journaled) -> list[str]:
    """The epochs of the board `made` that have not ended in SQL."""
    prefix = board.settings.key_prefix
    timelines = await board.databases[0].run(lambda connection: open_timelines(connection, prefix))
    return [timeline.epoch for timeline in timelines if timeline.board == "made"]


async def delete_and_lose(board: Journaled) -> None:
    """Delete a run-time board, lose the store before the next sweep, and rebuild the other boards."""
    drainer = await board.drainer()
    await board.like("a")
    await make(board, drainer, "first")
    await define(board, row(board, "first"))
    await define(board, row(board, "first", deleted=True))
    await lose(board)
    try:
        done = await rebuilding(board).rebuild(Wanted())
    except SetupError as error:
        raise AssertionError(str(error)) from None
    assert [one.board for one in done] == [board.board.id]
    assert await epochs(board) == []


async def test_a_deleted_board_does_not_stop_a_rebuild(valkey_url: str, tmp_path: Path) -> None:
    """The deleted board's timeline is open until the next sweep."""
    async with journaled(valkey_url, tmp_path) as board:
        await delete_and_lose(board)


async def test_both_timelines_of_a_board_made_again_end(valkey_url: str, tmp_path: Path) -> None:
    """Only the newer timeline is rebuilt. If the older timeline stayed open, the next start would report it as lost."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for epoch in ("first", "second"):
            await make(board, drainer, epoch)
            await define(board, row(board, epoch))
        assert await epochs(board) == ["first", "second"]
        await lose(board)
        (done,) = await rebuilding(board, in_file=False).rebuild(Wanted())
        assert await epochs(board) == [done.epoch]


@pytest.mark.parametrize("has_timeline", [True, False])
async def test_a_creation_that_sql_has_half_is_finished(valkey_url: str, tmp_path: Path, *, has_timeline: bool) -> None:
    """The store is lost within a second of the creation: SQL has the definition, but not that the board is live."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        if has_timeline:
            await make(board, drainer, "first")
        await define(board, row(board, "first", state="making"))
        await lose(board)
        (done,) = await rebuilding(board, in_file=False).rebuild(Wanted(board="made"))
        found = (await DefinitionStore(board.client, board.settings.key_prefix).load()).boards["made"]
        assert (found.state, found.epoch) == ("live", done.epoch)


async def test_a_deletion_that_sql_has_half_is_not_undone(valkey_url: str, tmp_path: Path) -> None:
    """The store is lost while the board is being deleted."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        await board.like("a")
        await define(board, row(board, "first", state="leaving"))
        await lose(board)
        done = await rebuilding(board).rebuild(Wanted())
        assert "made" not in [one.board for one in done]
