"""What is called when."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from live.fanout.ticks import Ticks
from tests.support import eventually


class Called:
    """Notes what was due together, and when."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.times: list[int] = []
        self.ticks: Ticks[str] = Ticks(self._call)
        self.again = 0  # how often "eager" asks for more

    def _call(self, due: list[str], now: int) -> None:
        self.calls.append(sorted(due))
        self.times.append(now)
        if "eager" in due and self.again:
            self.again -= 1
            self.ticks.add(self.ticks.now(), "eager")

    async def until(self, name: str, count: int) -> None:
        """Wait until something was due so often."""

        async def was_due() -> bool:
            return sum(name in due for due in self.calls) >= count

        await eventually(was_due)


@given(st.integers(0, 10**12), st.integers(1, 60_000))
def test_the_next_tick_is_a_multiple(now: int, interval: int) -> None:
    """Later than now, and by no more than an interval: so all who have it are called together."""
    after = Called().ticks.after(now, interval)
    assert after % interval == 0
    assert now < after <= now + interval


async def test_nothing_is_called_before_the_start() -> None:
    """What was asked for until then is made good."""
    called = Called()
    called.ticks.add(called.ticks.now() - 5, "early")
    await asyncio.sleep(0.02)
    assert called.calls == []
    called.ticks.start()
    await called.until("early", 1)
    called.ticks.stop()


async def test_each_is_called_at_its_time() -> None:
    """One that is added later may be due earlier; once for each time, however often it was added."""
    called = Called()
    ticks = called.ticks
    ticks.start()
    now = ticks.now()
    for _ in range(3):
        ticks.add(now + 60, "late")
    ticks.add(now + 20, "soon")
    await called.until("late", 1)
    assert called.calls == [["soon"], ["late"]]
    assert called.times[0] >= now + 20
    assert called.times[1] >= now + 60
    ticks.stop()


async def test_what_is_due_together_is_called_together() -> None:
    """Once each, also what was due at several times that have passed."""
    called = Called()
    now = called.ticks.now()
    for time, name in ((now - 3, "a"), (now - 2, "b"), (now - 1, "a")):
        called.ticks.add(time, name)
    called.ticks.start()
    await called.until("a", 1)
    assert called.calls == [["a", "b"]]
    called.ticks.stop()


async def test_what_is_called_may_ask_for_more() -> None:
    """At once, and beside others that are due."""
    called = Called()
    called.again = 5
    called.ticks.start()
    now = called.ticks.now()
    called.ticks.add(now, "eager")
    called.ticks.add(now, "other")
    await called.until("eager", 6)
    assert sum("other" in due for due in called.calls) == 1
    called.ticks.stop()


async def test_after_the_stop_nothing_is_called() -> None:
    """Neither what was waiting, nor what comes later."""
    called = Called()
    called.ticks.start()
    called.ticks.add(called.ticks.now() + 10, "waiting")
    called.ticks.stop()
    called.ticks.add(called.ticks.now(), "later")
    await asyncio.sleep(0.05)
    assert called.calls == []
