"""Which side is ahead, store or SQL: a lost board stops, and an accepted loss begins a timeline that can be read."""

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, insert

import live.journal.log.drainer
import live.maintenance.backup
import live.store.board.journal_stream
import live.store.board.manage.lifecycle
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.journal.log.drainer import Drainer
from live.journal.log.timelines import (
    end_lost,
    end_timelines,
    find_lost,
    find_timeline,
    life_of,
    open_timelines,
    origins,
)
from live.journal.past.coverage import reaches_of, timeline_at
from live.journal.schema import PERIOD
from live.journal.upkeep.compactor import forget_timelines
from live.maintenance.journal import status, verify
from live.store.board.journal_stream import ADOPT, TRIM, begin_journal, trim
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import RENEW, delete_keys, renew
from live.store.registry.definitions import DefinitionStore
from tests.harness.journaled import Journaled, backed_up, journaled
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced
from tests.harness.store import Copy, StoreProcess
from tests.harness.waiting import eventually

pytestmark = pytest.mark.fault

FIELDS = ("epoch", "offset", "journal", "safe", "drained")


async def held(board: Journaled) -> list[Any]:
    """Return the fields of the store that tell the board's position."""
    return await board.client.hmget(board.ledger.state.keys.meta, FIELDS)


async def answers(board: Journaled) -> bool:
    """Whether the store answers."""
    try:
        await board.rows()
    except StoreUnavailableError:
        return False
    return True


async def go_back(board: Journaled, store: StoreProcess, folder: Path) -> Drainer:
    """Count two likes, copy the store, count and drain two more likes, and put the copy back. Returns the drainer."""
    drainer = await board.drainer()
    await board.like("a")
    await board.like("b")
    await drainer.sweep()
    copy = Copy(store, folder)
    await board.like("a")
    await board.like("b")
    await drainer.sweep()
    copy.restore()
    await eventually(partial(answers, board))
    # The new `Ledger` is like a new process: it does not know the earlier state.
    board.ledger = Ledger(board.client, board.board, board.settings)
    board.counted = 2
    return drainer


async def accept(board: Journaled, epoch: str = "accepted") -> None:
    """Accept the loss."""
    definitions = DefinitionStore(board.client)
    found = await definitions.load()
    changed = msgspec.structs.replace(found.boards["posts"], epoch=epoch)
    assert await definitions.keep(found.version, {"posts": changed})
    await renew(board.client, board.ledger.state.keys, epoch)
    board.ledger = Ledger(board.client, board.board, board.settings)
    await board.ledger.state.open()


async def lose_and_accept(board: Journaled, store: StoreProcess, folder: Path) -> None:
    """Let a store go back to an older copy.

    Its board stays as it is until the loss is accepted. Then the past can be read.
    """
    drainer = await go_back(board, store, folder)
    before = await held(board)
    for _ in range(2):
        await drainer.sweep()
        await drainer.drain(["posts"])
    assert await held(board) == before, "a board that lost data was changed"
    assert list(drainer._health.lost) == [("posts", board.ledger.state.epoch or before[0].decode())]
    await accept(board)
    await board.like("c")
    await drainer.sweep()
    await board.must_agree()
    assert not drainer._health.lost
    database = board.databases[0]
    (timeline,) = await database.run(status)
    assert (timeline.epoch, timeline.timelines) == ("accepted", 2)

    def continued(connection: Connection) -> list[str]:
        (last,) = open_timelines(connection)
        return [timeline.epoch for timeline in origins(connection, last)]

    assert await database.run(continued) == [before[0].decode()]
    new, old = await database.run(partial(reaches_of, board=board.board, epoch="accepted"))
    assert new.began <= new.entries <= new.began + 1, "the past before the loss can't be read"
    assert timeline_at([new, old], new.began - 1) == old.timeline
    (verdict,) = (await asyncio.to_thread(verify, database, lambda *_: None)).boards
    assert not verdict.faults


async def test_a_lost_board_stops_until_the_loss_is_accepted(own_store: StoreProcess, tmp_path: Path) -> None:
    """When an operator accepts the loss, it is recorded, and a new timeline begins."""
    async with journaled(own_store.url, tmp_path) as board:
        await lose_and_accept(board, own_store, tmp_path)


async def go_on_after_a_loss(board: Journaled, store: StoreProcess, folder: Path) -> None:
    """A drainer that runs stops at the lost board, and moves its journal again after the loss was accepted."""
    drainer = await go_back(board, store, folder)
    running = asyncio.create_task(drainer.run())

    async def is_lost() -> bool:
        return bool(drainer._health.lost)

    async def is_over() -> bool:
        return not drainer._health.lost and not await board.waiting()

    try:
        await eventually(is_lost)
        await accept(board)
        await board.like("c")
        await eventually(is_over)
        await board.must_agree()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_journal_goes_on_when_its_loss_is_over(own_store: StoreProcess, tmp_path: Path) -> None:
    """Nobody has to restart the drainer."""
    async with journaled(own_store.url, tmp_path) as board:
        await go_on_after_a_loss(board, own_store, tmp_path)


@pytest.mark.mutant
async def test_a_loss_that_never_ends_is_detected(own_store: StoreProcess, tmp_path: Path) -> None:
    """The mutant does not look at lost boards again before the next sweep."""

    async def never(*_: object) -> bool:
        return False

    async with journaled(own_store.url, tmp_path) as board:
        with must_be_caught("the drainer never ends a loss"), replaced(Drainer, "_is_over", never):
            await go_on_after_a_loss(board, own_store, tmp_path)


async def compare_high_water(board: Journaled, store: StoreProcess, folder: Path) -> None:
    """Let the store go back, and check that the drainer notices it by the offsets in SQL and stops only this board."""
    drainer = await go_back(board, store, folder)
    board.client.high_water.active = True
    await drainer.sweep()
    assert "it lost data" in board.client.high_water.loss_of("posts")
    assert not board.client.high_water.lost, "the loss of one board stops the others"
    with pytest.raises(EpochLostError, match="it lost data"):
        await board.like("c")


async def test_after_a_loss_that_only_sql_knows_nothing_is_acknowledged(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    """Only SQL knows of a loss, for example, if the data directory was replaced."""
    async with journaled(own_store.url, tmp_path) as board:
        await compare_high_water(board, own_store, tmp_path)


@pytest.mark.mutant
async def test_a_drainer_that_keeps_a_loss_to_itself_is_detected(own_store: StoreProcess, tmp_path: Path) -> None:
    """In the mutant, a board that lost data still acknowledges events."""
    async with journaled(own_store.url, tmp_path) as board:
        with must_be_caught("a silent drainer"), replaced(Drainer, "_stop", lambda *_: None):
            await compare_high_water(board, own_store, tmp_path)


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", ["direction", "parent"])
async def test_a_journal_that_goes_on_after_a_loss_is_detected(
    own_store: StoreProcess, tmp_path: Path, mistake: str
) -> None:
    """The mutants treat SQL as the side that is behind, or do not say what the new epoch continues."""
    async with journaled(own_store.url, tmp_path) as board:
        if mistake == "direction":
            wrong = replaced(live.journal.log.drainer, "went_back", lambda *_: False)
        else:
            source = mutated(ADOPT.source, {"held.parent = parent or ''": "held.parent = ''"})
            script = compiled(own_store.url, ADOPT.changed(source))
            begin = partial(begin_journal, adopt=script)
            wrong = replaced(live.store.board.manage.lifecycle, "begin_journal", begin)
        with must_be_caught(mistake), wrong:
            await lose_and_accept(board, own_store, tmp_path)


async def acknowledge_nothing(board: Journaled, store: StoreProcess, folder: Path) -> None:
    """SQL is ahead of the store. The board gets a new epoch, and no event is acknowledged before SQL has it."""
    drainer = await go_back(board, store, folder)
    (timeline,) = drainer._timelines.values()
    await trim(board.client, board.ledger.state.keys, timeline.epoch, timeline.drained, timeline.size)
    _, offset, _, safe, drained = await held(board)
    assert int(safe or 0) <= int(offset or 0), "an event beyond the offset counts as safe"
    assert int(drained or 0) < timeline.size
    board.settings = msgspec.structs.replace(board.settings, journal_ack=True, write_deadline=1)
    await accept(board)
    assert (await held(board))[3:] == [None, None], "the new epoch began with a position of SQL"
    with pytest.raises(StoreUnavailableError) as refused:
        await board.like("c")
    assert refused.value.unknown


async def test_after_a_loss_nothing_is_acknowledged_before_sql_has_it(own_store: StoreProcess, tmp_path: Path) -> None:
    """With `LIVE_JOURNAL_ACK`, the first batch of the new epoch waits for SQL, like every other batch."""
    async with journaled(own_store.url, tmp_path) as board:
        await acknowledge_nothing(board, own_store, tmp_path)


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", ["trim", "renew"])
async def test_a_watermark_that_outlives_a_loss_is_detected(
    own_store: StoreProcess, tmp_path: Path, mistake: str
) -> None:
    """The mutants write the position of SQL into a store that is behind, or let the new epoch keep it."""
    async with journaled(own_store.url, tmp_path) as board:
        if mistake == "trim":
            change = {"if here and tonumber(offset) < request.offset then": "if false then"}
            script = compiled(own_store.url, TRIM.changed(mutated(TRIM.source, change)))
            wrong = replaced(live.store.board.journal_stream, "TRIM", script)
        else:
            change = {"call('HDEL', meta, 'journal', 'drained', 'safe')": "call('HDEL', meta, 'journal')"}
            other = compiled(own_store.url, RENEW.changed(mutated(RENEW.source, change)))
            wrong = replaced(live.store.board.manage.lifecycle, "RENEW", other)
        with must_be_caught(mistake), wrong:
            await acknowledge_nothing(board, own_store, tmp_path)


# Damaged journals


async def heal(board: Journaled, folder: Path) -> None:
    """Repair a damaged journal: its epoch continues an entry that SQL never had."""
    drainer = await board.drainer()
    await board.like("a", "b")
    await drainer.sweep()
    state, epoch = board.ledger.state, board.ledger.state.epoch or ""
    link = "1-1700000000000000 1700000000000000 - 0"
    last = "2-0 1700000000000001 - 0"
    head = f"renew 8 {last} {link}"
    await board.client.xadd(state.keys.journal("old"), {"h": head, "d": epoch}, id="2-0")
    await board.client.hset(state.keys.meta, mapping={"epoch": "old", "journal": f"{last} 8", "offset": 2})
    await board.client.sadd(SystemKeys(board.settings.key_prefix).journals, "posts old")
    board.ledger = Ledger(board.client, board.board, board.settings)
    await board.like("a")
    await drainer.sweep()
    refused = ""
    try:
        await backed_up(board, folder / "backup")
    except SetupError as error:
        refused = str(error)
    assert "can't be recovered from its journal" in refused
    database = board.databases[0]
    (verdict,) = (await asyncio.to_thread(verify, database, lambda *_: None)).boards
    assert "--repair journal" in verdict.faults[0]
    await begin_journal(board.client, board.ledger.state.keys, "old", again=True)
    await board.like("a")
    await drainer.sweep()
    await board.must_agree()
    await backed_up(board, folder / "backup")


async def test_a_damaged_journal_is_noticed_and_can_begin_again(valkey_url: str, tmp_path: Path) -> None:
    """Until the journal begins again, a backup is refused. Entries after its new beginning can be read."""
    async with journaled(valkey_url, tmp_path) as board:
        await heal(board, tmp_path)


@pytest.mark.mutant
async def test_a_backup_that_proves_nothing_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant's backup says that it is complete, but nobody can restore it."""
    async with journaled(valkey_url, tmp_path) as board:
        wrong = replaced(live.maintenance.backup, "require_recoverable", lambda *_: None)
        with must_be_caught("a backup is not checked by folding it"), wrong:
            await heal(board, tmp_path)


class Lives:
    """A board that is made again and again."""

    def __init__(self, board: Journaled, drainer: Drainer) -> None:
        self._board, self._drainer = board, drainer
        self.prefix, self._database = board.settings.key_prefix, board.databases[0]

    async def begin(self) -> str:
        """Make the board, count a like, and move it to SQL. Return the epoch."""
        self._board.ledger = Ledger(self._board.client, self._board.board, self._board.settings)
        await self._board.like("a")
        await self._drainer.claim()
        self._drainer._timelines.clear()  # a notice of a new board also does this
        await self._drainer.drain(["posts"])
        return self._board.ledger.state.epoch or ""

    async def delete(self) -> None:
        """Delete the board."""
        await delete_keys(self._board.client, self._board.ledger.state.keys, self._board.ledger.state.epoch or "")

    async def lose(self) -> None:
        """Empty the store, and accept the loss."""
        async for name in self._board.client.names(f"{self.prefix}:*"):
            await self._board.client.delete(name)
        lost = await find_lost(self._board.client, self._database)
        await self._database.run(partial(end_lost, lost=lost, left={"posts"}))

    async def archive(self, epoch: str) -> None:
        """Archive a period of an epoch."""

        def add(connection: Connection) -> None:
            timeline = find_timeline(connection, "posts", epoch)
            assert timeline is not None
            row = dict.fromkeys(("start", "newest", "revision", "offset", "crc"), 0)
            connection.execute(insert(PERIOD).values(life=timeline.id, final=True, data=b"", **row))

        await self._database.run(add)

    async def forget(self) -> None:
        """Forget all timelines without a period, except the newest."""

        def forget_entries(connection: Connection) -> None:
            end_timelines(connection, open_timelines(connection)[:-1])
            tomorrow = time.time_ns() // 1000 + 86_400_000_000
            forget_timelines(connection, lambda _: (0, 10 * 86_400), tomorrow)

        await self._database.run(forget_entries)

    async def life(self, epoch: str) -> list[str]:
        """The epochs of the present life, the newest first."""
        found = await self._database.run(partial(life_of, board="posts", epoch=epoch))
        return [timeline.epoch for timeline in found]


async def test_an_accepted_loss_brings_back_no_deleted_board(valkey_url: str, tmp_path: Path) -> None:
    """A deleted board may have had other readers, and no sweep may have ended its timeline before the loss."""
    async with journaled(valkey_url, tmp_path) as board:
        lives = Lives(board, await board.drainer())
        deleted = await lives.begin()
        await lives.delete()
        lost = await lives.begin()
        await lives.lose()
        present = await lives.begin()
        assert await lives.life(present) == [present, lost]
        assert deleted not in await lives.life(present)


async def test_a_lost_timeline_belongs_to_the_life_that_went_on(valkey_url: str, tmp_path: Path) -> None:
    """A later timeline of the same life may be forgotten earlier, also after the board was deleted."""
    async with journaled(valkey_url, tmp_path) as board:
        lives = Lives(board, await board.drainer())
        kept = await lives.begin()
        await lives.lose()
        await lives.begin()
        await lives.lose()
        present = await lives.begin()
        await lives.archive(kept)
        await lives.forget()
        assert await lives.life(present) == [present, kept]
        await lives.delete()
        later = await lives.begin()
        await lives.forget()
        assert await lives.life(present) == []
        assert await lives.life(later) == [later]
