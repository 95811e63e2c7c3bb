"""The ledger with the real scripts, on every supported store."""

import asyncio
import random
import time
from typing import Any, get_args

import msgspec
import pytest

from live.domain.board import Board, SortOrder, Ties
from live.domain.event import Entry, make_entry
from live.domain.ranking import Ranks, Record, position, ranks_of
from live.errors import EpochLostError, SetupError
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.boards import open_ledger, rolling_board
from tests.harness.invariants import drifted
from tests.harness.settings import fresh_settings

HOUR = 3600
T0 = 1_431_856_800  # 17 May 2015 10:00 UTC
EVENT_BOARD = rolling_board(clock="event")


def like(key: str, amount: int = 1, at: int | None = None) -> Entry:
    """A like of a key; `at` in seconds."""
    return make_entry(key, amount, None if at is None else at * 1000)


async def drain(ledger: Ledger) -> int:
    """Rotate until nothing is due. Returns the number of steps."""
    steps = 0
    while await ledger.rotator.rotate() is None:
        steps += 1
    return steps


async def scores(ledger: Ledger) -> dict[str, int]:
    """The whole board."""
    page = await ledger.reader.read(1000)
    assert page.rank_count == len(page.records)
    assert page.total_score == sum(record.score for record in page.records)
    return {record.key: record.score for record in page.records}


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


async def test_ties_are_ordered_by_the_bytes_of_their_members(any_store: str) -> None:
    """A page may begin or end among ties."""
    keys = ["Z", "a", "b", "z", "é", "你", "😀", "a b", "/x?y=1", "ab"]
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([like(key, 7) for key in keys] + [like("top", 9), like("last", 1)])
        expected = ["top", *sorted(keys, key=str.encode), "last"]

        for size in (1, 2, 3, 5, 12, 20):
            walked: list[str] = []
            for start in range(0, 12, size):
                page = await ledger.reader.read(size, start=start)
                walked += [record.key for record in page.records]
                assert [record.rank for record in page.records] == list(range(start + 1, start + 1 + len(page.records)))
            assert walked == expected


async def test_a_walk_by_cursor_neither_skips_nor_repeats(any_store: str) -> None:
    """A walk meets every unchanged record exactly once, while others appear, disappear and move."""
    chance = random.Random(3)
    async with open_ledger(any_store, rolling_board()) as ledger:
        still = {f"still-{i}": chance.randint(1, 4) for i in range(120)}
        moving = [f"moving-{i}" for i in range(60)]
        await ledger.writer.add([like(key, score) for key, score in still.items()])
        await ledger.writer.add([like(key, chance.randint(1, 4)) for key in moving])

        met: list[Record] = []
        after: tuple[int, bytes] | None = None
        while True:
            page = await ledger.reader.read(7, after=after)
            if not page.records:
                break
            met += page.records
            after = page.last
            await ledger.writer.add([like(chance.choice(moving), chance.choice([-1, 1])) for _ in range(10)])

        walked = [(record.key, record.score) for record in met if record.key in still]
        assert walked == sorted(still.items(), key=lambda item: (-item[1], item[0].encode()))


def all_orders() -> list[Board]:
    """A board for each way in which a ranking is stored and read."""
    return [
        msgspec.structs.replace(rolling_board(), sort_order=order, ties=ties, ranks=ranks)
        for order in get_args(SortOrder)
        for ties in get_args(Ties)
        for ranks in get_args(Ranks)
    ]


def in_order(board: Board, held: dict[str, tuple[int, int]]) -> list[tuple[str, int]]:
    """Members and scores as a board ranks them, given the score of each member and when it reached that score."""
    way = -1 if board.sort_order == "desc" else 1
    late = -1 if board.ties == "last" else 1

    def place(item: tuple[str, tuple[int, int]]) -> tuple[int, int, bytes]:
        key, (score, reached) = item
        return (way * score, 0 if board.ties == "key" else late * reached, key.encode())

    return [(key, score) for key, (score, _) in sorted(held.items(), key=place)]


@pytest.mark.parametrize("board", all_orders(), ids=lambda board: f"{board.sort_order}-{board.ties}-{board.ranks}")
async def test_every_way_of_reading_gives_the_same_order(valkey_url: str, board: Board) -> None:
    """They read by rank, by position in both directions, around a member and around a score."""
    chance = random.Random(8)
    held: dict[str, tuple[int, int]] = {}
    async with open_ledger(valkey_url, board) as ledger:
        for batch in range(6):
            likes = [(f"k{chance.randrange(40)}", chance.choice([-1, 1, 1, 2])) for _ in range(15)]
            await ledger.writer.add([like(key, amount) for key, amount in likes])
            for number, (key, amount) in enumerate(likes):
                held[key] = (held.get(key, (0, 0))[0] + amount, batch * 100 + number)
        held = {key: value for key, value in held.items() if value[0]}
        whole = await ledger.reader.read(100)
        rows = [(record.key, record.score) for record in whole.records]
        assert rows == in_order(board, held)
        scores_ = [score for _, score in rows]
        assert [record.rank for record in whole.records] == ranks_of(scores_, 1, 0, board.ranks)
        assert [record.position for record in whole.records] == [
            position(record.rank, place) for place, record in enumerate(whole.records, 1)
        ]

        for size in (1, 3, 7):
            page = await ledger.reader.read(size)
            walked = list(page.records)
            while (page := await ledger.reader.read(size, after=page.last)).records:
                assert page.start == len(walked)
                walked += page.records
            assert tuple(walked) == whole.records
            back: list[Record] = []
            last = (await ledger.reader.read(1, start=len(rows) - 1)).last
            while (page := await ledger.reader.read(size, before=last)).records:
                back = [*page.records, *back]
                last = page.first
            assert tuple(back) == whole.records[:-1]
        for place in range(0, len(rows), 5):
            assert (await ledger.reader.read(4, start=place)).records == whole.records[place : place + 4]
            page_around = await ledger.reader.find(rows[place][0], 2)
            assert page_around is not None
            assert page_around.records == whole.records[max(0, place - 2) : place + 3]
        for score in range(min(scores_) - 1, max(scores_) + 2):
            ahead = sum(1 for other in scores_ if (other > score if board.sort_order == "desc" else other < score))
            page = await ledger.reader.read_score(score, 4)
            assert page.start == max(0, ahead - 2)
            assert page.records == whole.records[page.start : page.start + 4]


async def test_a_record_is_read_with_its_neighbours(any_store: str) -> None:
    """There are as many as exist on each side."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([like("a", 3), like("b", 2), like("c", 2), like("d", 1)])

        middle = await ledger.reader.find("c", 1)
        first = await ledger.reader.find("a", 2)
        assert middle is not None
        assert first is not None
        assert [(r.key, r.rank) for r in middle.records] == [("b", 2), ("c", 3), ("d", 4)]
        assert [(r.key, r.rank) for r in first.records] == [("a", 1), ("b", 2), ("c", 3)]
        assert await ledger.reader.find("x", 1) is None


async def test_a_slot_counts_while_any_part_of_it_is_in_the_window(any_store: str) -> None:
    """At 9:00 today's 9 o'clock slot begins, and yesterday's 8 o'clock slot expires, not its 9 o'clock slot (I2)."""
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
    """A time further ahead of the store's clock than max_future is refused. A nearer one counts in its own slot."""
    now = int(time.time())
    board = rolling_board("10s", "1s")
    async with open_ledger(any_store, board) as ledger:
        added = await ledger.writer.add([like("soon", 1, now + 30), like("far", 1, now + 90), like("now")])

        assert dict(added.refused) == {1: "early"}
        assert await scores(ledger) == {"soon": 1, "now": 1}
        assert await ledger.state.client.hgetall(ledger.state.keys.slot(now + 30)) == {b"soon": b"1"}


async def test_an_early_event_does_not_move_an_event_clock(any_store: str) -> None:
    """A single event from the year 9999 must not make all others late."""
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
    """On an event clock, a batch gets the same results as its events one by one."""
    async with open_ledger(any_store, EVENT_BOARD) as ledger:
        added = await ledger.writer.add([like("a", 1, T0), like("b", 1, T0 + 30 * HOUR), like("c", 1, T0 + HOUR)])

        assert dict(added.refused) == {2: "late"}
        await drain(ledger)
        assert await scores(ledger) == {"b": 1}


async def test_two_writers_follow_each_others_clock(any_store: str) -> None:
    """A process with an old state of the board's clock plans again, and refuses late events by the current one."""
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
    for members in (30, 3000):  # a small hash is a list in the store, a large one a table
        async with open_ledger(any_store, EVENT_BOARD, rotation_step=10) as ledger:
            await ledger.writer.add([like(f"k{i}", i + 1, T0) for i in range(members)])
            await ledger.writer.add([like("k1", 5, T0 + 40 * HOUR)])
            left = members + 1
            while await ledger.rotator.rotate() is None:
                count = (await ledger.reader.read(1)).rank_count
                assert left - count <= 3 * 10, "a step took more than it may"
                left = count
                if members < 100:
                    assert await drifted(ledger.state.client, ledger.state.keys) == []
            assert await drifted(ledger.state.client, ledger.state.keys) == []
            assert await scores(ledger) == {"k1": 5}


async def test_rotators_without_a_common_cursor_are_correct(any_store: str) -> None:
    """Several rotators that do not know of each other start over again and again, and finish the slot."""
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
        slots = [key async for key in ledger.state.client.scan_iter(match=ledger.state.keys.slot_pattern)]
        assert slots == [ledger.state.keys.slot(T0 + 7 * 24 * HOUR).encode()]


@pytest.mark.slow
async def test_a_slot_expires_by_the_clock_of_the_store(any_store: str) -> None:
    """On the server clock, a slot expires without any event. Until then the ledger says how long to wait."""
    async with open_ledger(any_store, rolling_board("2s", "1s")) as ledger:
        await ledger.writer.add([like("a")])
        start = time.monotonic()
        while (await ledger.reader.read(1)).rank_count:
            wait = await ledger.rotator.rotate()
            if wait is not None:
                assert wait <= 1
                await asyncio.sleep(wait)

        assert 2 <= time.monotonic() - start < 3.5


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
    """The slots have another length, or the board another clock or other ties. The message has both."""
    settings = fresh_settings(any_store)
    client: Any = connect(any_store, settings)
    await Ledger(client, rolling_board(), settings).state.open()

    with pytest.raises(SetupError, match=r"with other choices") as caught:
        await Ledger(client, other, settings).state.open()
    assert rolling_board().shape.encode() in str(caught.value)
    assert other.shape.encode() in str(caught.value)
    assert "Give it another id" in str(caught.value)
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
