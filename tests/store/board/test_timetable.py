"""The timetable: items are returned when they are due, in order, however often they are set."""

import asyncio
import math
import time

from hypothesis import given
from hypothesis import strategies as st

from live.store.board.rotation import Timetable


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["set", "forward", "remove"]), st.integers(-50, 50))))
def test_due_items_are_taken_in_order(moves: list[tuple[int, str, int]]) -> None:
    """The timetable agrees with a plain mapping. Items that are not due stay."""
    timetable: Timetable[int] = Timetable()
    now = time.monotonic()
    expected: dict[int, float] = {}
    for item, move, seconds in moves:
        at = now + 1000 * seconds
        match move:
            case "set":
                timetable.set(item, at)
                expected[item] = at
            case "forward":
                timetable.bring_forward(item, at)
                if item in expected:
                    expected[item] = min(expected[item], at)
            case _:
                timetable.remove(item)
                expected.pop(item, None)
    taken = []
    while (next_item := timetable.take()) is not None:
        taken.append(next_item)
    due = {item: at for item, at in expected.items() if at <= now}
    assert sorted(taken) == sorted(due)
    assert [due[item] for item in taken] == sorted(due.values())
    assert {item for item in range(10) if item in timetable} == expected.keys() - due.keys()


def test_setting_an_item_repeatedly_takes_no_space() -> None:
    """The timetable drops its outdated entries from time to time."""
    timetable: Timetable[int] = Timetable()
    sizes = set()
    for number in range(1000):
        timetable.set(1, time.monotonic() + number)
        sizes.add(len(timetable._heap))
    assert max(sizes) == 66, "the timetable has more entries than two for each item, and 64"


async def test_a_wait_ends_for_an_earlier_item() -> None:
    """The timetable may be empty when the wait begins."""
    timetable: Timetable[str] = Timetable()
    waiting = asyncio.create_task(timetable.wait())
    await asyncio.sleep(0)
    timetable.set("late", math.inf)
    timetable.set("soon", time.monotonic() + 1000)
    await asyncio.wait_for(waiting, 60)
    assert timetable.take() is None
    waiting = asyncio.create_task(timetable.wait())
    await asyncio.sleep(0)
    timetable.bring_forward("soon", time.monotonic())
    await asyncio.wait_for(waiting, 60)
    assert timetable.take() == "soon"
    assert "soon" not in timetable


async def test_a_wait_ends_when_an_item_is_due() -> None:
    """A wait may end a little earlier, because the timers of the event loop are rounded."""
    timetable: Timetable[str] = Timetable()
    timetable.set("soon", time.monotonic() + 0.02)
    while (item := timetable.take()) is None:
        await asyncio.wait_for(timetable.wait(), 60)
    assert item == "soon"
