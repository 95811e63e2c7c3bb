"""Boards that have no event yet are in the journal at once, and are restored as empty boards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from sqlalchemy import insert

import live.store.board.manage.lifecycle
from live.journal.log.timelines import Timeline, find_timeline
from live.journal.schema import DEFINITION, LIFE
from live.maintenance import recover
from live.maintenance.recover import Recovery, Wanted
from live.store.board.keys import Keys, SystemKeys
from live.store.board.manage.lifecycle import create, delete_keys
from live.store.registry.definitions import Definition, DefinitionStore
from tests.harness.boards import rolling_board
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

State = Literal["making", "live", "leaving"]
MADE = msgspec.structs.replace(rolling_board(), id="made", title="made")


async def known(board: Journaled, epoch: str) -> Timeline | None:
    """The timeline of the board `made` in SQL, if it has an entry."""
    timeline = await board.databases[0].run(lambda connection: find_timeline(connection, "made", epoch))
    return timeline if timeline is not None and timeline.size else None


async def make_and_make_again(board: Journaled) -> None:
    """Create a board twice under one id while a drainer listens. SQL has both timelines without a sweep."""
    drainer = await board.drainer()
    running = asyncio.create_task(drainer.run())
    try:
        await board.like("a")

        async def is_idle() -> bool:
            return drainer.writes and await board.waiting() == 0

        await eventually(is_idle)
        keys = Keys(board.settings.key_prefix, "made")
        for epoch in ("first", "second"):
            await create(board.client, keys, MADE, epoch, journal=True)
            await eventually(lambda epoch=epoch: known(board, epoch))  # type: ignore[misc]
            await delete_keys(board.client, keys, epoch)
    finally:
        await stop(running)


async def test_a_board_without_events_is_drained_at_once(valkey_url: str, tmp_path: Path) -> None:
    """Without the announcement, only the next sweep would find the board, up to five minutes later."""
    async with journaled(valkey_url, tmp_path) as board:
        await make_and_make_again(board)


@asynccontextmanager
async def unannounced(*_: Any) -> AsyncIterator[None]:
    """Replace `announced`: this mutant tells no drainer that a journal begins."""
    yield


@pytest.mark.mutant
async def test_a_journal_that_is_not_announced_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, no drainer looks at the journal until the next sweep."""
    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("no announcement"), replaced(live.store.board.manage.lifecycle, "announced", unannounced):
            await make_and_make_again(board)


def defined(prefix: str, name: str, epoch: str, state: State = "live", **choices: Any) -> dict[str, Any]:
    """A row of SQL that defines a board."""
    definition = Definition(choices={"types": ["like"], "window": "forever", **choices}, epoch=epoch, state=state)
    value = msgspec.json.encode(definition).decode()
    return {"prefix": prefix, "kind": "boards", "name": name, "version": 3, "time": 1, "value": value}


async def recover_without_a_timeline(board: Journaled) -> None:
    """SQL has the definition of a board, and no entry. It is recovered as an empty board, which counts events."""
    await board.drainer()
    prefix, database = board.settings.key_prefix, board.databases[0]
    rows = [defined(prefix, "made", epoch="lost")]
    await database.run(lambda connection: connection.execute(insert(DEFINITION), rows))
    recovery = Recovery(board.client, board.settings, database, lambda *_: None)
    planned = await recovery.recover(Wanted(dry=True))
    done = await recovery.recover(Wanted())
    assert [(one.board, one.offset, one.members) for one in done] == [("made", 0, 0)]
    assert planned == done
    held = (await DefinitionStore(board.client).load()).boards
    assert held["made"].epoch == done[0].epoch
    keys = Keys(prefix, "made")
    assert await board.client.hget(keys.meta, "epoch") == done[0].epoch.encode()
    assert await board.client.sismember(SystemKeys(prefix).journals, f"made {done[0].epoch}")
    assert await recovery.recover(Wanted()) == [], "a second recovery finds something to do"


async def test_a_board_whose_journal_was_turned_off_is_named(valkey_url: str, tmp_path: Path) -> None:
    """The journal lacks the board's later entries, so the board is not recovered.

    The board is not named while the store has it.
    """
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        prefix, database = board.settings.key_prefix, board.databases[0]
        ended = {"began": 1, "ended": 2, "drained": "1-0", "link": "1-0 1 - 0", "size": 9}
        life = {"prefix": prefix, "board": "made", "epoch": "lost", **ended}
        await database.run(lambda connection: connection.execute(insert(LIFE).values(life)))
        row = defined(prefix, "made", epoch="lost", journal="off")
        await database.run(lambda connection: connection.execute(insert(DEFINITION).values(row)))
        recovery = Recovery(board.client, board.settings, database, lambda *_: None)
        assert (await recovery.recover(Wanted(dry=True)), recovery.left_out) == (
            [],
            {"made": "its journal was turned off"},
        )
        await board.client.hset(Keys(prefix, "made").meta, "epoch", "lost")
        assert (await recovery.recover(Wanted(dry=True)), recovery.left_out) == ([], {})


async def recover_a_part(board: Journaled) -> None:
    """Recover one part of a union alone. The union must go on counting the events of this part."""
    await board.drainer()
    prefix, database = board.settings.key_prefix, board.databases[0]
    rows = [defined(prefix, "made", epoch="lost")]
    await database.run(lambda connection: connection.execute(insert(DEFINITION), rows))
    union = Definition(choices={"union": {"made": 1}}, epoch="kept", parts={"made": "lost"})
    names = SystemKeys(prefix)
    await board.client.hset(names.definitions, mapping={"sum": msgspec.json.encode(union), ":version": 1})
    recovery = Recovery(board.client, board.settings, database, lambda *_: None)
    (done,) = await recovery.recover(Wanted(board="made"))
    held = (await DefinitionStore(board.client).load()).boards
    assert (held["sum"].parts, held["sum"].epoch) == ({"made": done.epoch}, "kept")


async def test_a_union_keeps_a_part_that_is_recovered(valkey_url: str, tmp_path: Path) -> None:
    """The recovered part has a new epoch. The union must still count its events."""
    async with journaled(valkey_url, tmp_path) as board:
        await recover_a_part(board)


@pytest.mark.mutant
async def test_a_forgotten_union_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, the union's definition keeps the part's old epoch."""

    def same(definition: Definition, _: Any) -> Definition:
        return definition

    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("a union lacks its recovered part"), replaced(recover, "_with_parts", same):
            await recover_a_part(board)


async def test_a_board_that_is_only_defined_is_recovered(valkey_url: str, tmp_path: Path) -> None:
    """The board's definition gets the new epoch."""
    async with journaled(valkey_url, tmp_path) as board:
        await recover_without_a_timeline(board)


@pytest.mark.mutant
async def test_a_dropped_definition_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant recovers only boards with entries."""

    async def with_entries(_: Any, begun: Timeline, _lines: Any) -> None:
        assert begun.size == 0

    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("a definition without a timeline is dropped"), replaced(Recovery, "_line_of", with_entries):
            await recover_without_a_timeline(board)
