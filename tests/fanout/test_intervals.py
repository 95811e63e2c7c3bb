"""A `TickSchedule` calls its entries when they are due."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.fanout.intervals import TickSchedule, interval_of, viewer_interval
from tests.harness.boards import rolling_board
from tests.harness.waiting import eventually


class Called:
    """Records what was due together, and when."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.times: list[int] = []
        self.schedule: TickSchedule[str] = TickSchedule(self._call)
        self.again = 0  # how often "eager" adds itself again

    def _call(self, due: list[str], now: int) -> None:
        self.calls.append(sorted(due))
        self.times.append(now)
        if "eager" in due and self.again:
            self.again -= 1
            self.schedule.add(self.schedule.now(), "eager")

    async def until(self, name: str, count: int) -> None:
        """Wait until a name was due `count` times."""

        async def was_due() -> bool:
            return sum(name in due for due in self.calls) >= count

        await eventually(was_due)


@given(st.integers(0, 10**12), st.integers(1, 60_000))
def test_the_next_tick_is_a_multiple(now: int, interval: int) -> None:
    """The tick is after now, by at most one interval. So all entries with the same interval are called together."""
    after = Called().schedule.after(now, interval)
    assert after % interval == 0
    assert now < after <= now + interval


async def test_nothing_is_called_before_the_start() -> None:
    """Entries that were added before the start are called at the start."""
    called = Called()
    called.schedule.add(called.schedule.now() - 5, "early")
    await asyncio.sleep(0.02)
    assert called.calls == []
    called.schedule.start()
    await called.until("early", 1)
    called.schedule.stop()


async def test_each_entry_is_called_at_its_time() -> None:
    """A later entry may be due before an earlier one. An entry that is added again for the same time is called once."""
    called = Called()
    schedule = called.schedule
    schedule.start()
    now = schedule.now()
    for _ in range(3):
        schedule.add(now + 1000, "late")
    schedule.add(now + 20, "soon")
    await called.until("late", 1)
    assert called.calls == [["soon"], ["late"]]
    assert called.times[0] >= now + 20
    assert called.times[1] >= now + 1000
    schedule.stop()


async def test_entries_that_are_due_together_are_called_together() -> None:
    """Each entry is called once, even if it was due at several times in the past."""
    called = Called()
    now = called.schedule.now()
    for time, name in ((now - 3, "a"), (now - 2, "b"), (now - 1, "a")):
        called.schedule.add(time, name)
    called.schedule.start()
    await called.until("a", 1)
    assert called.calls == [["a", "b"]]
    called.schedule.stop()


async def test_entries_that_are_due_now_are_called() -> None:
    """The event loop `uvloop` returns another kind of timer for a time that has come."""
    called = Called()
    called.schedule.start()
    now = called.schedule.now()
    for time, name in ((now, "a"), (now, "b"), (now - 1, "c"), (now + 1000, "later")):
        called.schedule.add(time, name)
    await called.until("later", 1)
    assert called.calls == [["a", "b", "c"], ["later"]]
    called.schedule.stop()


async def test_a_call_may_add_entries() -> None:
    """New entries that are due are called at once, and no other due entry is lost."""
    called = Called()
    called.again = 5
    called.schedule.start()
    now = called.schedule.now()
    called.schedule.add(now, "eager")
    called.schedule.add(now, "other")
    await called.until("eager", 6)
    assert sum("other" in due for due in called.calls) == 1
    called.schedule.stop()


def test_a_timer_may_fire_a_millisecond_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due in the next millisecond is called too, and nothing later."""
    called = Called()
    monkeypatch.setattr(called.schedule, "now", lambda: 1000)
    for time in (1001, 1002):
        called.schedule.add(time, str(time))
    called.schedule._run()
    assert (called.calls, called.times, len(called.schedule)) == ([["1001"]], [1001], 1)


async def test_nothing_is_called_after_the_stop() -> None:
    """Neither waiting nor new entries are called."""
    called = Called()
    called.schedule.start()
    called.schedule.add(called.schedule.now() + 10, "waiting")
    called.schedule.stop()
    called.schedule.add(called.schedule.now(), "later")
    await asyncio.sleep(0.05)
    assert called.calls == []


def test_the_interval_of_a_board_is_in_milliseconds() -> None:
    """The setting is in seconds. A viewer gets the interval of the board, or 2, 4, 8 and so on times this interval."""
    assert [interval_of(rolling_board(), seconds) for seconds in (0.0001, 0.25, 60)] == [1, 250, 60_000]
    assert [viewer_interval(100, wanted) for wanted in (0, 100, 101, 400, 401)] == [100, 100, 200, 400, 800]
