"""The life of a board: it is created once, changed in order, and usable until it expires."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from live.domain.board import Board
from live.domain.event import make_entry
from live.errors import EpochLostError
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import create, delete_keys, expire, update
from live.store.board.rotation import ELEMENTS_A_STEP
from live.store.board.state import quiet
from live.store.connection.client import Store, connect
from tests.harness.boards import changed, rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

EPOCH = "00c0ffee"


class Opened:
    """An existing board, and ledgers on it."""

    def __init__(self, store: str) -> None:
        self.settings = fresh_settings(store)
        self.client: Store = connect(store, self.settings)
        self.board: Board = changed(rolling_board(), idle_ttl="1s")
        self.keys = Keys(self.settings.key_prefix, self.board.id)

    def ledger(self) -> Ledger:
        return Ledger(self.client, self.board, self.settings, born=EPOCH)

    async def owned(self) -> int:
        """The number of the board's store keys."""
        return len([key.encode() async for key in self.client.names(f"{self.keys.channel}*")])


@asynccontextmanager
async def opened(store: str) -> AsyncIterator[Opened]:
    """An existing board."""
    made = Opened(store)
    assert await create(made.client, made.keys, made.board, EPOCH) is None
    try:
        yield made
    finally:
        await made.client.aclose()


async def test_a_board_is_created_once(any_store: str) -> None:
    """A caller that wants to give the board another epoch receives the existing epoch."""
    async with opened(any_store) as made:
        assert await create(made.client, made.keys, made.board, EPOCH) is None
        assert await create(made.client, made.keys, made.board, "0badbad0") == EPOCH
        await made.ledger().state.open()
        with pytest.raises(EpochLostError):
            await Ledger(made.client, made.board, made.settings, born="0badbad0").state.open()


async def test_a_ledger_does_not_revive_a_deleted_board(any_store: str) -> None:
    """Processes find the board gone, whether they had opened it or not, and leave no store key."""
    async with opened(any_store) as made:
        met = made.ledger()
        await met.writer.add([make_entry("a")])
        met.state.require_epoch(EPOCH.encode())
        for other in (None, b"0badbad0"):
            with pytest.raises(EpochLostError):
                met.state.require_epoch(other)
        for gone, is_deleted in ((None, False), ("0badbad0", False), (EPOCH, True)):
            if gone is not None:
                await made.client.hset(made.keys.gone, "epoch", gone)
            assert [await ledger.state.is_deleted() for ledger in (met, made.ledger())] == [is_deleted] * 2
        await delete_keys(made.client, made.keys, EPOCH)
        for ledger in (met, made.ledger()):
            for work in (
                ledger.writer.add([make_entry("a")]),
                ledger.rotator.rotate(),
                ledger.reader.read(1),
                ledger.state.use(),
            ):
                with pytest.raises(EpochLostError):
                    await work
        assert await made.owned() == 0


async def test_a_late_deletion_does_not_delete_a_recreated_board(any_store: str) -> None:
    """A deletion names the epoch. A new board with the same id stays."""
    async with opened(any_store) as made:
        await made.ledger().writer.add([make_entry("a")])
        await delete_keys(made.client, made.keys, "0badbad0")
        assert (await made.ledger().reader.read(1)).rank_count == 1


async def test_a_large_board_is_deleted_in_one_scan(own_store: StoreProcess) -> None:
    """Each step goes on where the step before ended, so deleting takes no longer for each of many members."""
    async with opened(own_store.url) as made:
        ledger, most = made.ledger(), 8 * ELEMENTS_A_STEP
        for first in range(0, most, 1000):
            await ledger.writer.add([make_entry(f"{number}", 1, None, None) for number in range(first, first + 1000)])
        await made.client.config_resetstat()
        await delete_keys(made.client, made.keys, EPOCH)
        assert await made.owned() == 0
        commands = await made.client.info("commandstats")
        calls = [commands[f"cmdstat_{name}"]["calls"] for name in ("hscan", "zremrangebyrank")]
        assert all(6 <= each <= 10 for each in calls), calls


async def test_changes_are_applied_by_revision(any_store: str) -> None:
    """Each revision increases the offset once. An old revision that arrives late changes nothing."""
    async with opened(any_store) as made:
        ledger = made.ledger()
        await update(made.client, made.keys, EPOCH, 2, frozen=True)
        await update(made.client, made.keys, EPOCH, 1, frozen=False)
        await update(made.client, made.keys, EPOCH, 2, frozen=False)
        await update(made.client, made.keys, "0badbad0", 9, frozen=False)
        assert (await ledger.reader.read(1)).offset == 1
        added = await ledger.writer.add([make_entry("a"), make_entry("b", 1, None, bytes(16))])
        assert (added.offset, added.refused) == (None, {0: "frozen", 1: "frozen"})
        assert (await ledger.reader.read(1)).offset == 1
        await update(made.client, made.keys, EPOCH, 3, frozen=False)
        assert (await ledger.writer.add([make_entry("b", 1, None, bytes(16))])).offset == 3


@pytest.mark.slow
async def test_an_unused_board_expires(any_store: str) -> None:
    """The reply says how long to wait until the board expires. An expired board does not come back."""
    async with opened(any_store) as made:
        wait = await expire(made.client, made.keys, EPOCH, 0.5)
        assert wait is not None
        assert 0 < wait <= 0.5
        assert await expire(made.client, made.keys, "0badbad0", 0.5) == float("inf")

        async def left() -> bool:
            return await expire(made.client, made.keys, EPOCH, 0.5) is None

        await eventually(left)
        assert await left()
        with pytest.raises(EpochLostError):
            await made.ledger().writer.add([make_entry("a")])


async def test_an_unused_board_expires_while_its_clock_stands_still(any_store: str) -> None:
    """A use, and the time without one, go by the clock of the store, even if the board has seen a later time."""
    async with opened(any_store) as made:
        await made.client.hset(made.keys.meta, "clock", 4_000_000_000_000_000)
        assert (await made.ledger().writer.add([make_entry("a")])).offset == 1
        wait = await expire(made.client, made.keys, EPOCH, 3600)
        assert wait is not None
        assert 3500 < wait <= 3600
        await asyncio.sleep(0.01)
        assert await expire(made.client, made.keys, EPOCH, 0.005) is None


@pytest.mark.slow
async def test_a_use_at_the_last_moment_keeps_a_board(any_store: str) -> None:
    """Use and expiry never overlap: no event and no use is recorded on an expired board."""
    for number in range(20):
        async with opened(any_store) as made:
            ledger = made.ledger()
            await ledger.state.open()
            await asyncio.sleep(0.03)
            use = ledger.writer.add([make_entry("a")]) if number % 2 else ledger.state.use()
            works = [use, expire(made.client, made.keys, EPOCH, 0.02)]
            if number % 4 < 2:
                works.reverse()
            outcomes = await asyncio.gather(*works, return_exceptions=True)
            ended = any(outcome is None for outcome in outcomes) and any(
                isinstance(outcome, EpochLostError) for outcome in outcomes
            )
            assert ended == (await made.client.exists(made.keys.meta) == 0)


async def test_use_is_recorded_rarely(any_store: str) -> None:
    """Use is recorded once in a quarter of the time until expiry, and at least once a minute."""
    assert (quiet(1), quiet(86_400)) == (0.25, 60)
    async with opened(any_store) as made:
        ledger = made.ledger()
        await ledger.state.use()
        await made.client.hset(made.keys.meta, "used", 1)
        for _ in range(10):
            await ledger.state.use()
        assert await made.client.hget(made.keys.meta, "used") == b"1"

        async def noted() -> bool:
            await ledger.state.use()
            return bool(await made.client.hget(made.keys.meta, "used") != b"1")

        await eventually(noted)


async def test_a_refused_event_is_not_a_use(any_store: str) -> None:
    """Only events that count keep a board from expiring."""
    async with opened(any_store) as made:
        ledger = made.ledger()
        await ledger.writer.add([make_entry("a", 1, None, bytes(16))])
        await made.client.hset(made.keys.meta, "used", 1)
        await ledger.writer.add([make_entry("a", 1, None, bytes(16))])
        assert await made.client.hget(made.keys.meta, "used") == b"1"
        await ledger.writer.add([make_entry("a", 1, None, bytes([1] * 16))])
        assert await made.client.hget(made.keys.meta, "used") != b"1"
