"""The amounts of members in the slots of a window, compared with a sum over the events."""

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from live.domain.event import make_entry
from live.domain.window import EVER, MOST_FOLDED, Forever, Periods, Rolling, Sliding, Window
from live.errors import StoreUnavailableError
from live.store.board.read import slots
from live.store.board.read.slots import TOP_POINTS, TopSlots, read_slots
from live.store.board.rotation import catch_up
from tests.harness.boards import built, open_ledger, rolling_board
from tests.harness.store import valkey

HOUR: Final = 3600
T0: Final = 1000 * HOUR
WINDOWS: Final[dict[str, Window]] = {
    "forever": Forever(),
    "rolling": Rolling(6 * HOUR, HOUR),
    "sliding": Sliding(6 * HOUR),
    "hours": Periods(unit="hour", keep=3, grace=HOUR),
    "last": Periods(unit="hour", last=5),
}
MEMBERS: Final = ["a", "b", "é", "none"]
Events = list[tuple[str, int, int]]

events = st.lists(
    st.tuples(st.sampled_from(MEMBERS[:3]), st.integers(-5, 9), st.integers(0, 9 * HOUR)), min_size=1, max_size=30
)


@pytest.mark.parametrize("name", WINDOWS)
@given(events=events, most=st.integers(2, 9))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_points_hold_the_sums_of_their_events(valkey_url: str, name: str, events: Events, most: int) -> None:
    """The window and the number of points vary. If the board has one ranking, a member's points add up to its score."""
    board = built(id="b", title="b", window=WINDOWS[name], clock="event", ties="key")

    async def run() -> None:
        async with open_ledger(valkey_url, board) as ledger:
            sums: Counter[tuple[int, str]] = Counter()
            for member, amount, time in sorted(events, key=lambda event: event[2]):
                added = await ledger.writer.add([make_entry(member, amount, (T0 + time) * 1000)])
                if not added.refused:
                    sums[board.window.slot_at(T0 + time).start, member] += amount
            await catch_up(ledger.rotator)
            # With such a small limit, even one slot is read in pieces.
            with patch.object(slots, "_MOST_VALUES", 3 * len(MEMBERS)):
                found = await read_slots(ledger.state, MEMBERS, most)
            page = await ledger.reader.read(10)
            assert 0 < len(found.slots) <= most
            assert all(one.end == other.start for one, other in pairwise(found.slots))
            scores = {record.member: record.score for record in page.records}
            for member, values in zip(found.members, found.values, strict=True):
                assert values is not None
                if name != "sliding":
                    expected = [
                        sum(
                            amount
                            for (start, who), amount in sums.items()
                            if who == member and point[0] <= start < point[1]
                        )
                        for point in found.slots
                    ]
                    assert [value or 0 for value in values] == expected
                if not board.window.tables:
                    assert sum(value or 0 for value in values) == scores.get(member, 0)
            assert (found.epoch, found.offset) == (page.epoch, page.offset)

    asyncio.run(run())


async def test_the_open_slot_is_the_last_point(valkey_url: str) -> None:
    """A board without events on an event clock has no slots yet.

    A window without slots is read as one slot for all time.
    """
    async with open_ledger(valkey_url, rolling_board("6h", "1h", clock="event")) as ledger:
        assert (await read_slots(ledger.state, ["a"], 3)).slots == []
        await ledger.writer.add([make_entry("a", 2, T0 * 1000), make_entry("a", 5, (T0 + 2 * HOUR) * 1000)])
        found = await read_slots(ledger.state, ["a"], 3)
        assert [slot.start for slot in found.slots] == [T0 - 4 * HOUR, T0 - HOUR, T0 + 2 * HOUR]
        assert found.values == [[None, 2, 5]]
        assert len((await read_slots(ledger.state, ["a"], 100)).slots) == 7
    async with open_ledger(valkey_url, built(id="b", title="b", window=Forever())) as ledger:
        await ledger.writer.add([make_entry("a", 2)])
        found = await read_slots(ledger.state, ["a"], 100)
        assert (found.slots, found.values) == ([EVER], [[2]])


async def test_a_process_that_did_not_see_the_newest_slot_reads_it(valkey_url: str) -> None:
    """Another process may have moved the board's clock."""
    board = rolling_board("6h", "1h", clock="event")
    async with open_ledger(valkey_url, board) as one:
        await one.writer.add([make_entry("a", 1, T0 * 1000)])
        async with open_ledger(valkey_url, board, key_prefix=one.state.settings.key_prefix) as other:
            await other.writer.add([make_entry("a", 7, (T0 + HOUR) * 1000)])
        found = await read_slots(one.state, ["a"], 2)
        assert ([slot.start for slot in found.slots], found.values) == ([T0 - 5 * HOUR, T0 + HOUR], [[1, 7]])


async def test_a_hidden_member_has_no_values(valkey_url: str) -> None:
    """Nobody may read the values of a member that an administrator has hidden."""
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        await ledger.writer.add([make_entry("a", 1), make_entry("b", 2)])
        await ledger.moderation.hide("a", hidden=True)
        hidden, shown = (await read_slots(ledger.state, ["a", "b"], 1)).values
        assert (hidden, shown) == (None, [2])


async def test_the_slots_of_the_top_are_read_once_for_each_point(valkey_url: str) -> None:
    """All requests share one read, until a new point begins."""
    now = [float(T0)]
    async with open_ledger(valkey_url, rolling_board()) as ledger:
        top = TopSlots(now=lambda: now[0])
        now[0] = float((await ledger.reader.state.call("TIME"))[0])
        assert (await top.of(ledger.reader)).members == ()
        await ledger.writer.add([make_entry("a", 3)])
        now[0] += HOUR
        first, *others = await asyncio.gather(*(top.of(ledger.reader) for _ in range(5)))
        assert (first.members, len(first.slots)) == (["a"], 25)
        assert all(other is first for other in others)
        await ledger.writer.add([make_entry("b", 3)])
        assert await top.of(ledger.reader) is first
        now[0] += HOUR
        assert (await top.of(ledger.reader)).members == ["a", "b"]


async def test_many_slots_are_added_up_and_read_seldom(valkey_url: str) -> None:
    """The window has two hours, in slots of a minute. Each point covers three slots.

    The slots are read again once for each new point.
    """
    async with open_ledger(valkey_url, rolling_board("2h", "1m", clock="event")) as ledger:
        for minute in range(121):
            await ledger.writer.add([make_entry("a", minute, (T0 + minute * 60) * 1000)])
        top = TopSlots()
        found = await top.of(ledger.reader)
        assert len(found.slots) == 41 <= TOP_POINTS
        assert found.slots[0] == (T0, T0 + 180)
        assert found.slots[-1] == (T0 + 7200, T0 + 7260)
        assert found.values == [[*(3 * minute + 3 for minute in range(0, 120, 3)), 120]]
        for minute in (121, 122):
            await ledger.writer.add([make_entry("a", 1, (T0 + minute * 60) * 1000)])
            assert await top.of(ledger.reader) is found
        await ledger.writer.add([make_entry("a", 1, (T0 + 123 * 60) * 1000)])
        newer = await top.of(ledger.reader)
        assert newer.slots[0] == (T0 + 180, T0 + 360)


async def test_a_window_of_many_slots_is_read_in_part(valkey_url: str) -> None:
    """A request reads at most `MOST_FOLDED` slots."""
    async with open_ledger(valkey_url, rolling_board("24h", "1s", clock="event")) as ledger:
        await ledger.writer.add([make_entry("a", 7, T0 * 1000)])
        await ledger.writer.add([make_entry("a", 2, (T0 + 2 * MOST_FOLDED) * 1000)])
        found = await read_slots(ledger.state, ["a"], TOP_POINTS)
        assert found.slots[0].start == pytest.approx(T0 + MOST_FOLDED, abs=TOP_POINTS)
        assert len(found.slots) == TOP_POINTS
        assert sum(value or 0 for value in found.values[0] or ()) == 2


@pytest.mark.fault
async def test_a_failed_read_of_the_top_is_not_kept(tmp_path: Path) -> None:
    """The next request reads again."""
    store = valkey(tmp_path)
    store.start()
    try:
        async with open_ledger(store.url, rolling_board(), store_timeout=1) as ledger:
            await ledger.writer.add([make_entry("a", 3)])
            top = TopSlots()
            with store.frozen(), pytest.raises(StoreUnavailableError):
                await top.of(ledger.reader)
            assert (await top.of(ledger.reader)).members == ["a"]
    finally:
        store.kill()
