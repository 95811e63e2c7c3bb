"""The rotation task: every board's due slots expire, whatever happens to the store."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.window import Periods, Sliding
from live.metrics import REGISTRY
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.requests import SCRIPTS
from live.store.board.rotation import ELEMENTS_A_STEP, BoardRotator, Rotation, catch_up, step
from live.store.connection.client import connect
from tests.harness.boards import built, rolling_board
from tests.harness.checked import checked
from tests.harness.clock import set_clock, with_clock
from tests.harness.invariants import drifted
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.waiting import eventually, until_early

pytestmark = pytest.mark.slow

HOUR = 3600
SCANNED = 64  # a scan of a hash returns whole buckets, so a step may remove a few more elements


def nothing(*_: int) -> None:
    """Show no progress."""


EVENT = rolling_board(clock="event")


@asynccontextmanager
async def ledgers(store: str, *boards: Board, **changes: object) -> AsyncIterator[list[Ledger]]:
    """Ledgers of the same process."""
    settings: Settings = fresh_settings(store, **changes)
    client = connect(store, settings)
    try:
        yield [Ledger(client, board, settings) for board in boards]
    finally:
        await client.aclose()


@asynccontextmanager
async def rotating(
    *boards: Ledger, interval: float = 0.05, owns: Callable[[str], bool] = lambda _: True
) -> AsyncIterator[None]:
    """Rotate while in the context."""
    rotation = Rotation(interval, owns)
    for board in boards:
        rotation.add(board.rotator)
    task = asyncio.create_task(rotation.run())
    try:
        yield
    finally:
        await stop(task)


async def test_a_dropped_period_is_deleted_in_steps(valkey_url: str) -> None:
    """A step never removes many elements. If a process dies between two steps, the next one deletes the rest."""
    board = built(id="days", title="days", window=Periods(unit="day", keep=1), clock="event")
    async with ledgers(valkey_url, board) as (ledger,):
        names = [f"m{number}" for number in range(2500)]
        for day in range(4):  # the board keeps two of four days
            time = day * 24 * HOUR * 1000
            await ledger.writer.add([make_entry(name, 1, time, None) for name in names])
        keys, client = ledger.state.keys, ledger.state.client

        async def sizes() -> list[int]:
            found = [key async for key in client.names(f"{keys.dropped}:*")]
            kinds = [await client.call(key, "TYPE", key) for key in found]
            return [
                await client.call(key, "ZCARD" if kind == b"zset" else "HLEN", key)
                for key, kind in zip(found, kinds, strict=True)
            ]

        left, most = [0], 0
        for number in range(200):
            one = BoardRotator(ledger.state)  # as in another process after each step
            while (wait := await one.rotate()) is None and (now := await sizes()) == left:
                pass
            if wait is not None:
                break
            if number and sum(now) < sum(left):
                most = max(most, sum(left) - sum(now))
            left = now
            assert (await checked(client, ledger.state.settings, ledger.state.board)).clean
        assert 0 < most <= ELEMENTS_A_STEP + SCANNED
        assert await sizes() == []
        assert await client.call(keys.dropped, "EXISTS", keys.dropped) == 0
        assert len(await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)) == 2


async def test_a_period_that_is_dropped_twice_is_deleted_in_steps(valkey_url: str) -> None:
    """If the board keeps more periods by now, a period may be full again before its first contents are deleted."""
    board = built(id="days", title="days", window=Periods(unit="day", keep=1), clock="event")
    async with ledgers(valkey_url, board) as (ledger,):
        names = [f"m{number}" for number in range(1500)]
        for time in (0, 2 * 24 * HOUR * 1000):
            await ledger.writer.add([make_entry(name, 1, time, None) for name in names])
        keys, client = ledger.state.keys, ledger.state.client
        old, dropped = keys.of_slot(0), keys.of_dropped(0)

        async def left() -> int:
            kinds = [(name, await client.call(name, "TYPE", name)) for name in (*old, *dropped)]
            counts = {b"zset": "ZCARD", b"hash": "HLEN"}
            return sum([await client.call(name, counts[kind], name) for name, kind in kinds if kind != b"none"])

        while not await client.call(dropped[0], "EXISTS", *dropped):
            assert await ledger.rotator.rotate() is None
        await client.call(keys.slots, "ZADD", keys.slots, 0, "0")
        await client.call(old[0], "HSET", old[0], *[word for name in names for word in (name, "1")])
        before, most = await left(), 0
        while await ledger.rotator.rotate() is None:
            now = await left()
            before, most = now, max(most, before - now)
        assert (await left(), await client.call(keys.dropped, "EXISTS", keys.dropped)) == (0, 0)
        assert 0 < most <= ELEMENTS_A_STEP + SCANNED


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("board", "wait"),
    [
        (rolling_board("40s", "10s"), 20), (built(id="b", title="b", window=Sliding(40)), 55),
        (built(id="b", title="b", window=Periods(unit="hour", keep=1)), HOUR),
    ],
    ids=["rolling", "sliding", "hours"],
)  # fmt: skip
async def test_rotation_waits_for_the_clock_of_the_store(valkey_url: str, board: Board, wait: float) -> None:
    """The clock of the board stands still, so nothing is due before the store's clock has caught up."""
    settings = fresh_settings(valkey_url)
    client, begin = connect(valkey_url, settings), 4_000_017_600
    try:
        ledger = Ledger(client, board, settings, with_clock(SCRIPTS, settings))
        await set_clock(client, settings, (begin + 15) * 1000)
        await ledger.writer.add([make_entry("a")])
        while await ledger.rotator.rotate() is None:
            pass
        await set_clock(client, settings, begin * 1000)
        assert await ledger.rotator.rotate() == wait
        assert (await ledger.reader.read(1)).rank_count == 1
    finally:
        await client.aclose()


def sample(name: str, **labels: str) -> float:
    """The value of a metric."""
    return REGISTRY.get_sample_value(name, labels) or 0


async def is_empty(ledger: Ledger) -> bool:
    """Whether the board is empty."""
    return (await ledger.reader.read(1)).rank_count == 0


async def test_a_slot_expires_without_requests(valkey_url: str) -> None:
    """Two boards in one process have their own windows."""
    short, long = rolling_board("1s", "1s"), rolling_board(board="other")
    async with ledgers(valkey_url, short, long) as (quick, slow), rotating(quick, slow):
        await quick.writer.add([make_entry("a", 1, None)])
        await slow.writer.add([make_entry("a", 1, None)])
        await eventually(lambda: is_empty(quick))
        assert not await is_empty(slow)


async def test_rotation_continues_after_an_outage_of_the_store(own_store: StoreProcess) -> None:
    """Failed steps are counted and repeated. The lag is measured, and everything that was due expires."""
    board = rolling_board("1s", "1s", board="late")
    before = sample("live_rotation_failures_total")
    async with ledgers(own_store.url, board) as (ledger,), rotating(ledger):
        await ledger.writer.add([make_entry("a", 1, None)])
        own_store.kill()

        async def failed() -> bool:
            return sample("live_rotation_failures_total") > before

        await eventually(failed)

        async def late() -> bool:
            return sample("live_rotation_lag_seconds", board="late") > 0

        await eventually(late)
        own_store.start()
        await eventually(lambda: is_empty(ledger))

        async def in_time() -> bool:
            return sample("live_rotation_lag_seconds", board="late") == 0

        await eventually(in_time)
        assert await drifted(ledger.state.client, ledger.state.keys) == []


async def test_a_board_says_when_something_can_be_due(valkey_url: str) -> None:
    """The time is the start of the next slot."""
    async with ledgers(valkey_url, rolling_board("3h", "1h")) as (ledger,):
        state = ledger.state
        state.scripts = with_clock(SCRIPTS, state.settings)
        await set_clock(state.client, state.settings, 100 * HOUR * 1000)
        await ledger.writer.add([make_entry("a", 1, None)])
        await set_clock(state.client, state.settings, (100 * HOUR + 900) * 1000)
        assert await ledger.rotator.rotate() == HOUR - 900


async def test_a_lost_board_does_not_stop_the_others(valkey_url: str) -> None:
    """A board without its data needs an operator. The next board still rotates."""
    one, two = rolling_board("1s", "1s", board="one"), rolling_board("1s", "1s", board="two")
    async with ledgers(valkey_url, one, two) as (lost, good), rotating(lost, good):
        await lost.writer.add([make_entry("a", 1, None)])
        await lost.state.client.delete(lost.state.keys.meta)
        await good.writer.add([make_entry("a", 1, None)])
        await eventually(lambda: is_empty(good))


async def test_catching_up_subtracts_all_due_slots(valkey_url: str) -> None:
    """The steps are bounded and measured."""
    async with ledgers(valkey_url, EVENT, rotation_step=5) as (ledger,):
        for hour in range(10):
            await ledger.writer.add([make_entry(f"{hour}-{i}", 1, hour * HOUR * 1000) for i in range(10)])
        await ledger.writer.add([make_entry("now", 1, 100 * HOUR * 1000)])
        before = sample("live_rotation_step_seconds_count")

        await catch_up(ledger.rotator)

        assert [record.member for record in (await ledger.reader.read(5)).records] == ["now"]
        assert sample("live_rotation_step_seconds_count") - before >= 10 * 10 / 5
        assert await step(ledger.rotator) == float("inf")


async def test_catching_up_takes_a_bounded_time(valkey_url: str) -> None:
    """The caller that moved the clock waits at most a second.

    The rotation task does the rest, and the board is always correct.
    """
    async with ledgers(valkey_url, EVENT, rotation_step=1) as (ledger,):
        for first in range(0, 60_000, 3000):
            await ledger.writer.add([make_entry(f"k{first + i}", 1, 0) for i in range(3000)])
        await ledger.writer.add([make_entry("now", 1, 100 * HOUR * 1000)])

        await catch_up(ledger.rotator)

        assert (await ledger.reader.read(1)).rank_count > 1
        assert await step(ledger.rotator) is None


async def test_concurrent_rotators_subtract_each_slot_once(valkey_url: str) -> None:
    """Several processes rotate each board at the same time."""
    settings = fresh_settings(valkey_url, rotation_step=3)
    client = connect(valkey_url, settings)
    board = [Ledger(client, EVENT, settings) for _ in range(4)]
    await board[0].writer.add([make_entry(f"k{i}", i + 1, 0) for i in range(300)])
    await board[0].writer.add([make_entry("k7", 5, 100 * HOUR * 1000)])
    async with rotating(*board):

        async def rotated() -> bool:
            return (await board[0].reader.read(1)).rank_count == 1

        await eventually(rotated)
    assert [(record.member, record.score) for record in (await board[1].reader.read(5)).records] == [("k7", 5)]
    assert await drifted(client, board[0].state.keys) == []
    await client.aclose()


async def test_rotation_can_be_cancelled(valkey_url: str) -> None:
    """The step may be in the middle of a slot."""
    async with ledgers(valkey_url, EVENT, rotation_step=1) as (ledger,):
        await ledger.writer.add([make_entry(f"k{i}", 1, 0) for i in range(3000)])
        await ledger.writer.add([make_entry("now", 1, 100 * HOUR * 1000)])
        for _ in range(10):
            count = (await ledger.reader.read(1)).rank_count

            async def moved(count: int = count) -> bool:
                return (await ledger.reader.read(1)).rank_count < count

            async with asyncio.timeout(60), rotating(ledger):
                await eventually(moved)


async def test_an_idle_board_is_not_checked(own_store: StoreProcess) -> None:
    """Boards whose next slot is due in an hour cost the store one check each, and then nothing."""
    boards = [rolling_board(board=f"b{number}") for number in range(200)]
    boards += [built(id=f"s{number}", title="s", window=Sliding(3 * HOUR)) for number in range(50)]
    async with ledgers(own_store.url, *boards) as opened, rotating(*opened, interval=30):
        client: Any = opened[0].state.client

        async def runs() -> int:
            return int((await client.info("commandstats")).get("cmdstat_evalsha", {"calls": 0})["calls"])

        async def all_looked_at() -> bool:
            return all(ledger.state.epoch is not None for ledger in opened)

        await eventually(all_looked_at)
        await asyncio.sleep(1.5)
        before = await runs()
        await asyncio.sleep(3)
        assert await runs() == before


async def test_an_old_event_expires_on_time(any_store: str) -> None:
    """An empty sliding window is checked again when an event arrives that is due soon."""
    board = built(id="hot", title="hot", window=Sliding(HOUR))
    async with ledgers(any_store, board) as (ledger,), rotating(ledger, interval=600):
        client: Any = ledger.state.client

        async def checked() -> bool:
            return ledger.state.epoch is not None

        await eventually(checked)
        await asyncio.sleep(1.2)  # the pause after a check is over, so only the event can wake the rotation
        seconds, micros = await client.time()
        now = seconds * 1000 + micros // 1000
        await ledger.writer.add([make_entry("old", 1, now - HOUR * 1000 + 1500), make_entry("new")])

        async def left() -> bool:
            return [record.member for record in (await ledger.reader.read(5)).records] == ["new"]

        assert not await left()
        await eventually(left)


async def test_an_event_clock_that_moves_wakes_rotation(any_store: str) -> None:
    """Members expire as soon as an event moves the clock, although the previous check found nothing due."""
    async with ledgers(any_store, EVENT, rotation_step=5) as (ledger,), rotating(ledger, interval=600):
        await ledger.writer.add([make_entry(f"k{number}", 1, 0) for number in range(50)])

        async def one() -> bool:
            return [record.member for record in (await ledger.reader.read(60)).records] == ["new"]

        await asyncio.sleep(1.2)
        await ledger.writer.add([make_entry("new", 1, 100 * HOUR * 1000)])
        await eventually(one)


async def test_a_busy_board_is_checked_once_a_second(any_store: str) -> None:
    """Each batch may make something due sooner. Still, hundreds of batches cause only a few checks."""
    board = built(id="hot", title="hot", window=Sliding(HOUR))
    async with ledgers(any_store, board) as (ledger,), rotating(ledger, interval=600):
        before = sample("live_rotation_step_seconds_count")
        started = asyncio.get_running_loop().time()
        for _ in range(300):
            await ledger.writer.add([make_entry("a")])
        took = asyncio.get_running_loop().time() - started
        assert sample("live_rotation_step_seconds_count") - before <= took + 2


async def test_the_next_event_notices_a_clock_that_was_set_ahead(any_store: str) -> None:
    """Everything that left the window in the meantime expires with this event, long before the next regular check."""
    settings = fresh_settings(any_store)
    scripts = with_clock(SCRIPTS, settings)
    client = connect(any_store, settings)
    board = rolling_board("3h", "1h")
    await set_clock(client, settings, 100 * HOUR * 1000)
    ledger = Ledger(client, board, settings, scripts)
    async with rotating(ledger, interval=600):
        await ledger.writer.add([make_entry("old")])
        await asyncio.sleep(1.2)  # the pause after a check is over, so only the event can wake the rotation
        await set_clock(client, settings, 110 * HOUR * 1000)
        await ledger.writer.add([make_entry("new")])

        async def left() -> bool:
            return [record.member for record in (await ledger.reader.read(5)).records] == ["new"]

        await eventually(left)
    await client.aclose()


async def test_another_process_takes_over_from_a_killed_owner(any_store: str) -> None:
    """The other process expires the slot a few seconds after it is due."""
    async with ledgers(any_store, rolling_board("1s", "1s")) as (survivor,):
        killed = Ledger(survivor.state.client, survivor.state.board, survivor.state.settings)
        async with rotating(survivor, interval=600, owns=lambda _: False):
            await killed.writer.add([make_entry("a", 1, None)])
            assert not await is_empty(killed)
            await eventually(lambda: is_empty(killed))
        assert await drifted(survivor.state.client, survivor.state.keys) == []


async def test_an_event_that_only_a_killed_process_knew_expires(any_store: str) -> None:
    """The process adds an event that is due soon, and is killed. The other processes check all boards."""
    board = built(id="hot", title="hot", window=Sliding(HOUR))
    async with ledgers(any_store, board) as (survivor,):
        killed = Ledger(survivor.state.client, board, survivor.state.settings)
        rotation = Rotation(600)
        rotation.add(survivor.rotator)
        before = sample("live_rotation_step_seconds_count")
        task = asyncio.create_task(rotation.run())

        async def checked() -> bool:
            return sample("live_rotation_step_seconds_count") > before

        await eventually(checked)
        client: Any = killed.state.client
        seconds, micros = await client.time()
        due = seconds * 1000 + micros // 1000 + 500
        await killed.writer.add([make_entry("old", 1, due - HOUR * 1000)])

        async def is_due() -> bool:
            seconds, micros = await client.time()
            return bool(seconds * 1000 + micros // 1000 > due + 200)

        await eventually(is_due)
        assert not await is_empty(killed)
        rotation.recheck()
        await eventually(lambda: is_empty(killed))
        await stop(task)


async def test_boards_are_rechecked_where_another_process_can_make_something_due(valkey_url: str) -> None:
    """A rolling window on the store's clock needs a recheck only if that clock was set.

    Removed boards are not rechecked.
    """
    await until_early("hour")  # the end of a slot takes one more step
    boards = (
        rolling_board(),
        built(id="hot", title="hot", window=Sliding(HOUR)),
        rolling_board("24h", "1h", "event", "e"),
    )
    async with ledgers(valkey_url, *boards) as opened:
        before = sample("live_rotation_step_seconds_count")
        rotation = Rotation(600)
        for ledger in opened:
            rotation.add(ledger.rotator)
        task = asyncio.create_task(rotation.run())

        async def stepped(expected: int) -> None:
            async def is_done() -> bool:
                return sample("live_rotation_step_seconds_count") - before >= expected

            await eventually(is_done)
            await asyncio.sleep(0.1)
            assert sample("live_rotation_step_seconds_count") - before == expected

        await stepped(3)
        rotation.recheck()
        await stepped(5)
        rotation.recheck(every=True)
        await stepped(8)
        for _ in range(2):
            rotation.remove(opened[1].rotator)
        rotation.recheck(every=True)
        await stepped(10)
        await stop(task)


@pytest.mark.alone
async def test_processes_share_the_work(valkey_url: str) -> None:
    """Four processes first check only their own boards.

    Then each process checks the boards of the other processes once.
    """
    boards = [rolling_board(board=f"b{number}") for number in range(100)]

    def steps() -> float:
        return sample("live_rotation_step_seconds_count") - before

    async def looked(times: int) -> None:
        async def is_done() -> bool:
            return steps() >= times * len(boards)

        await eventually(is_done)

    async with ledgers(valkey_url, *boards) as opened:
        before = sample("live_rotation_step_seconds_count")
        rotations = [Rotation(600, partial(_is_owner, number)) for number in range(4)]
        for rotation in rotations:
            for ledger in opened:
                rotation.add(BoardRotator(ledger.state))
        tasks = [asyncio.create_task(rotation.run()) for rotation in rotations]
        await looked(1)
        assert steps() == len(boards)
        await looked(4)
        await asyncio.sleep(1.5)
        assert steps() == 4 * len(boards)
        await stop(*tasks)


def _is_owner(number: int, board: str) -> bool:
    return int(board[1:]) % 4 == number
