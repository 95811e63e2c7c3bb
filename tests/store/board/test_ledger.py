"""The ledger with the real scripts, on every supported store."""

import asyncio
import random
import time
from typing import Any

import pytest

from live.domain.board import Board
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.boards import open_ledger, rolling_board
from tests.harness.invariants import drifted
from tests.harness.ledgers import EVENT_BOARD, HOUR, T0, drain, like, scores
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess


async def test_events_of_one_member_in_a_batch_are_added_up(any_store: str) -> None:
    """Every event counts, positive and negative."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        added = await ledger.writer.add([like("a", 5), like("b"), like("a", -2), like("c", 0)])

        assert (added.offset, dict(added.refused)) == (1, {})
        assert await scores(ledger) == {"a": 3, "b": 1}


async def test_a_member_with_score_zero_has_no_record(any_store: str) -> None:
    """A negative score does have a record."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([like("a", 5), like("b", 2)])
        await ledger.writer.add([like("a", -5), like("b", -3)])

        assert await scores(ledger) == {"b": -1}
        assert await drifted(ledger.state.client, ledger.state.keys) == []


async def test_a_slot_counts_while_any_part_of_it_is_in_the_window(any_store: str) -> None:
    """At 9:00, today's 9 o'clock slot begins. Yesterday's 8 o'clock slot expires, and its 9 o'clock slot stays (I2)."""
    eight, nine = T0 - T0 % 86400 + 8 * HOUR, T0 - T0 % 86400 + 9 * HOUR
    async with open_ledger(any_store, EVENT_BOARD) as ledger:
        await ledger.writer.add([like("eight", 1, nine - 1), like("nine", 1, nine)])
        await ledger.writer.add([like("before", 1, eight + 24 * HOUR + HOUR - 1)])
        await drain(ledger)
        assert set(await scores(ledger)) == {"eight", "nine", "before"}

        await ledger.writer.add([like("next day", 1, nine + 24 * HOUR)])
        await drain(ledger)

        assert set(await scores(ledger)) == {"nine", "before", "next day"}


async def test_an_event_for_an_expiring_slot_is_late(any_store: str) -> None:
    """An event older than the window is refused, even while its slot is still being subtracted (I4)."""
    async with open_ledger(any_store, EVENT_BOARD, rotation_step=1) as ledger:
        await ledger.writer.add([like(f"k{i}", 1, T0) for i in range(5)])
        await ledger.writer.add([like("now", 1, T0 + 25 * HOUR)])
        assert await ledger.rotator.rotate() is None
        assert await ledger.rotator.rotate() is None

        added = await ledger.writer.add([like("k0", 1, T0 + 10), like("k1", 1, T0 + HOUR)])

        assert dict(added.refused) == {0: "late"}
        assert await drifted(ledger.state.client, ledger.state.keys) == []
        await drain(ledger)
        assert await scores(ledger) == {"now": 1, "k1": 1}


async def test_an_event_too_far_in_the_future_is_early(any_store: str) -> None:
    """An event more than a minute ahead of the store's clock is refused. A nearer event counts in its own slot."""
    now = int(time.time())
    board = rolling_board("10s", "1s")
    async with open_ledger(any_store, board) as ledger:
        added = await ledger.writer.add([like("soon", 1, now + 30), like("far", 1, now + 90), like("now")])

        assert dict(added.refused) == {1: "early"}
        assert await scores(ledger) == {"soon": 1, "now": 1}
        assert await ledger.state.client.hgetall(ledger.state.keys.slot(now + 30)) == {b"soon": b"1"}


async def test_an_early_event_does_not_move_an_event_clock(any_store: str) -> None:
    """A single event from the year 9999 must not make all other events late."""
    async with open_ledger(any_store, EVENT_BOARD) as ledger:
        added = await ledger.writer.add([like("a", 1, T0), like("far", 1, 253_402_300_000), like("b", 1, T0)])

        assert dict(added.refused) == {1: "early"}
        assert set(await scores(ledger)) == {"a", "b"}


async def test_an_event_clock_requires_times(any_store: str) -> None:
    """A board with an event clock refuses an event without a time."""
    async with open_ledger(any_store, EVENT_BOARD) as ledger:
        added = await ledger.writer.add([like("a"), like("b", 1, T0)])

        assert dict(added.refused) == {0: "time_required"}


async def test_events_of_a_batch_are_judged_in_order(any_store: str) -> None:
    """On an event clock, a batch gets the same results as if its events were sent one by one."""
    async with open_ledger(any_store, EVENT_BOARD) as ledger:
        added = await ledger.writer.add([like("a", 1, T0), like("b", 1, T0 + 30 * HOUR), like("c", 1, T0 + HOUR)])

        assert dict(added.refused) == {2: "late"}
        await drain(ledger)
        assert await scores(ledger) == {"b": 1}


async def test_two_writers_follow_each_others_clock(any_store: str) -> None:
    """A process with an old state of the board's clock plans again, and refuses late events by the current clock."""
    settings = fresh_settings(any_store)
    client: Any = connect(any_store, settings)
    one, two = (Ledger(client, EVENT_BOARD, settings) for _ in range(2))
    await two.state.open()
    await one.writer.add([like("a", 1, T0)])
    await two.writer.add([like("b", 1, T0 + 30 * HOUR)])

    added = await one.writer.add([like("c", 1, T0), like("d", 1, T0 + 29 * HOUR)])

    assert dict(added.refused) == {0: "late"}
    await drain(one)
    assert await scores(one) == {"b": 1, "d": 1}
    await client.aclose()


async def test_rotation_takes_bounded_steps(any_store: str) -> None:
    """A slot of any encoding is subtracted in steps, and the board is correct after each step."""
    for members in (30, 3000):  # the store keeps a small hash as a list, and a large hash as a table
        async with open_ledger(any_store, EVENT_BOARD, rotation_step=10) as ledger:
            await ledger.writer.add([like(f"k{i}", i + 1, T0) for i in range(members)])
            await ledger.writer.add([like("k1", 5, T0 + 40 * HOUR)])
            left = members + 1
            while await ledger.rotator.rotate() is None:
                count = (await ledger.reader.read(1)).rank_count
                assert left - count <= 3 * 10, "a step of the rotation removed too many records"
                left = count
                if members < 100:
                    assert await drifted(ledger.state.client, ledger.state.keys) == []
            assert await drifted(ledger.state.client, ledger.state.keys) == []
            assert await scores(ledger) == {"k1": 5}


async def test_rotators_without_a_common_cursor_are_correct(any_store: str) -> None:
    """Several rotators do not know of each other. They start over again and again, but finish the slot."""
    settings = fresh_settings(any_store, rotation_step=7)
    client: Any = connect(any_store, settings)
    writer = Ledger(client, EVENT_BOARD, settings)
    await writer.writer.add([like(f"k{i}", 2, T0) for i in range(2000)])
    await writer.writer.add([like("now", 5, T0 + 40 * HOUR)])

    rotators = [Ledger(client, EVENT_BOARD, settings) for _ in range(3)]
    while any([await rotator.rotator.rotate() is None for rotator in rotators]):
        if random.random() < 0.05:
            rotators[0] = Ledger(client, EVENT_BOARD, settings)

    assert await scores(writer) == {"now": 5}
    assert await drifted(client, writer.state.keys) == []
    await client.aclose()


async def test_an_idle_board_catches_up(any_store: str) -> None:
    """Every slot that expired in the meantime is subtracted, and the store holds only what a board needs."""
    async with open_ledger(any_store, EVENT_BOARD) as ledger:
        for hour in range(20):
            await ledger.writer.add([like(f"k{hour}", 1, T0 + hour * HOUR)])
        await ledger.writer.add([like("awake", 1, T0 + 7 * 24 * HOUR)])
        await drain(ledger)

        assert await scores(ledger) == {"awake": 1}
        slots = [key.encode() async for key in ledger.state.client.names(ledger.state.keys.slot_pattern)]
        assert slots == [ledger.state.keys.slot(T0 + 7 * 24 * HOUR).encode()]


@pytest.mark.slow
async def test_a_slot_expires_by_the_clock_of_the_store(any_store: str) -> None:
    """On the server clock, a slot expires without any event. Until then the ledger says how long to wait."""
    async with open_ledger(any_store, rolling_board("2s", "1s")) as ledger:
        await ledger.writer.add([like("a")])
        start, waited = time.monotonic(), 0.0
        while (await ledger.reader.read(1)).rank_count:
            wait = await ledger.rotator.rotate()
            if wait is not None:
                assert wait <= 1
                waited += wait
                await asyncio.sleep(wait)

        assert time.monotonic() - start >= 2
        assert waited < 3.5  # the sum of the requested waits, not the time that has passed: the machine may be busy


async def test_a_batch_sent_twice_counts_once(any_store: str) -> None:
    """A retry has the number of its batch. An older batch that arrives late is not counted."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([like("a")])
        ledger.writer._sequence = 0
        again = await ledger.writer.add([like("a")])
        assert again.offset == 1
        await ledger.writer.add([like("b")])

        ledger.writer._sequence = 0
        with pytest.raises(AssertionError, match="stale"):
            await ledger.writer.add([like("a")])

        assert await scores(ledger) == {"a": 1, "b": 1}


async def test_only_what_was_sent_may_have_counted(own_store: StoreProcess) -> None:
    """The outcome is unknown if no reply came, and known if there was no connection."""
    limits = {"write_deadline": 0.5, "store_timeout": 0.2}
    async with open_ledger(own_store.url, rolling_board(), **limits) as ledger:
        await ledger.writer.add([like("a")])
        with own_store.frozen(), pytest.raises(StoreUnavailableError) as frozen:
            await ledger.writer.add([like("a")])
        assert frozen.value.unknown
    limits["store_timeout"] = 10  # on a busy machine, connecting may take seconds
    async with open_ledger(own_store.url, rolling_board(), **limits) as ledger:
        await ledger.writer.add([like("a")])
        await ledger.state.client.servers.shared.close()
        with own_store.frozen(), pytest.raises(StoreUnavailableError) as connecting:
            await ledger.writer.add([like("a")])
        assert not connecting.value.unknown
        own_store.kill()
        await ledger.state.client.servers.shared.close()
        with pytest.raises(StoreUnavailableError) as gone:
            await ledger.writer.add([like("a")])
        assert not gone.value.unknown


async def test_a_lost_epoch_stops_everything(any_store: str) -> None:
    """A process acknowledges nothing on a board that the store has lost, and does not show it as an empty board."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([like("a")])
        await ledger.state.client.delete(ledger.state.keys.meta, ledger.state.keys.ranking)

        with pytest.raises(EpochLostError):
            await ledger.writer.add([like("a")])
        with pytest.raises(EpochLostError):
            await ledger.reader.read(1)
        with pytest.raises(EpochLostError):
            await ledger.rotator.rotate()
        assert await ledger.state.client.exists(ledger.state.keys.meta) == 0


@pytest.mark.parametrize(
    "other",
    [rolling_board("24h", "2h"), EVENT_BOARD, rolling_board(ties="first")],
    ids=["slot", "clock", "ties"],
)
async def test_data_of_another_kind_of_board_is_refused(any_store: str, other: Board) -> None:
    """The board's slots have another length, or its clock or ties differ. The message has both values."""
    settings = fresh_settings(any_store)
    client: Any = connect(any_store, settings)
    await Ledger(client, rolling_board(), settings).state.open()

    with pytest.raises(SetupError, match=r"with other choices") as caught:
        await Ledger(client, other, settings).state.open()
    assert rolling_board().shape.encode() in str(caught.value)
    assert other.shape.encode() in str(caught.value)
    assert "If its rules have just changed, run the command again." in str(caught.value)
    await client.aclose()


async def test_writers_that_are_gone_are_forgotten(any_store: str) -> None:
    """The number of a writer's last batch is deleted a day after its process ended."""
    settings = fresh_settings(any_store)
    client: Any = connect(any_store, settings)
    first = Ledger(client, rolling_board(), settings)
    await first.writer.add([like("a")])
    await client.hset(first.state.keys.writers, "old", f"5 5 {int(time.time()) - 90_000}")

    await Ledger(client, rolling_board(), settings).state.open()

    assert list(await client.hgetall(first.state.keys.writers)) == [first.writer._writer.encode()]
    await client.aclose()


async def test_flushed_scripts_are_loaded_again(any_store: str) -> None:
    """Callers notice nothing when the store has forgotten the scripts."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([like("a")])
        await ledger.state.client.script_flush()

        await ledger.writer.add([like("a")])

        await ledger.state.client.script_flush()
        assert await scores(ledger) == {"a": 2}
