"""What is called when."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from live.fanout.schedule import Schedule
from tests.harness.waiting import eventually


class Called:
    """Notes what was due together, and when."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.times: list[int] = []
        self.schedule: Schedule[str] = Schedule(self._call)
        self.again = 0  # how often "eager" asks for more

    def _call(self, due: list[str], now: int) -> None:
        self.calls.append(sorted(due))
        self.times.append(now)
        if "eager" in due and self.again:
            self.again -= 1
            self.schedule.add(self.schedule.now(), "eager")

    async def until(self, name: str, count: int) -> None:
        """Wait until something was due so often."""

        async def was_due() -> bool:
            return sum(name in due for due in self.calls) >= count

        await eventually(was_due)


@given(st.integers(0, 10**12), st.integers(1, 60_000))
def test_the_next_tick_is_a_multiple(now: int, interval: int) -> None:
    """Later than now, and by no more than an interval: so all who have it are called together."""
    after = Called().schedule.after(now, interval)
    assert after % interval == 0
    assert now < after <= now + interval


async def test_nothing_is_called_before_the_start() -> None:
    """What was asked for until then is made good."""
    called = Called()
    called.schedule.add(called.schedule.now() - 5, "early")
    await asyncio.sleep(0.02)
    assert called.calls == []
    called.schedule.start()
    await called.until("early", 1)
    called.schedule.stop()


async def test_each_is_called_at_its_time() -> None:
    """One that is added later may be due earlier; once for each time, however often it was added."""
    called = Called()
    schedule = called.schedule
    schedule.start()
    now = schedule.now()
    for _ in range(3):
        schedule.add(now + 60, "late")
    schedule.add(now + 20, "soon")
    await called.until("late", 1)
    assert called.calls == [["soon"], ["late"]]
    assert called.times[0] >= now + 20
    assert called.times[1] >= now + 60
    schedule.stop()


async def test_what_is_due_together_is_called_together() -> None:
    """Once each, also what was due at several times that have passed."""
    called = Called()
    now = called.schedule.now()
    for time, name in ((now - 3, "a"), (now - 2, "b"), (now - 1, "a")):
        called.schedule.add(time, name)
    called.schedule.start()
    await called.until("a", 1)
    assert called.calls == [["a", "b"]]
    called.schedule.stop()


async def test_what_is_called_may_ask_for_more() -> None:
    """At once, and beside others that are due."""
    called = Called()
    called.again = 5
    called.schedule.start()
    now = called.schedule.now()
    called.schedule.add(now, "eager")
    called.schedule.add(now, "other")
    await called.until("eager", 6)
    assert sum("other" in due for due in called.calls) == 1
    called.schedule.stop()


async def test_after_the_stop_nothing_is_called() -> None:
    """Neither what was waiting, nor what comes later."""
    called = Called()
    called.schedule.start()
    called.schedule.add(called.schedule.now() + 10, "waiting")
    called.schedule.stop()
    called.schedule.add(called.schedule.now(), "later")
    await asyncio.sleep(0.05)
    assert called.calls == []
