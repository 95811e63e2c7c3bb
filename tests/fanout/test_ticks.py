"""Who is called when."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from live.fanout.ticks import Ticks
from tests.support import eventually


class Called:
    """Notes when it is called, and then asks for more."""

    def __init__(self, ticks: Ticks | None = None, again: int = 0) -> None:
        self.times: list[int] = []
        self._ticks = ticks
        self._again = again

    def tick(self, now: int) -> None:
        self.times.append(now)
        if self._ticks is not None and self._again:
            self._again -= 1
            self._ticks.add(self._ticks.now(), self)


async def until(called: Called, count: int) -> None:
    """Wait until somebody was called so often."""

    async def was_called() -> bool:
        return len(called.times) >= count

    await eventually(was_called)


@given(st.integers(0, 10**12), st.integers(1, 60_000))
def test_the_next_tick_is_a_multiple(now: int, interval: int) -> None:
    """Later than now, and by no more than an interval: so all who have it are called together."""
    after = Ticks().after(now, interval)
    assert after % interval == 0
    assert now < after <= now + interval


async def test_nobody_is_called_before_the_start() -> None:
    """What was asked for until then is made good."""
    ticks, early = Ticks(), Called()
    ticks.add(ticks.now() - 5, early)
    await asyncio.sleep(0.02)
    assert early.times == []
    ticks.start()
    await until(early, 1)
    ticks.stop()


async def test_each_is_called_at_its_time() -> None:
    """One that is added later may be due earlier; once for each time, however often it was added."""
    ticks, late, soon = Ticks(), Called(), Called()
    ticks.start()
    now = ticks.now()
    for _ in range(3):
        ticks.add(now + 60, late)
    ticks.add(now + 20, soon)
    await until(soon, 1)
    assert late.times == []
    assert soon.times[0] >= now + 20
    await until(late, 1)
    assert late.times[0] >= now + 60
    ticks.add(ticks.now(), soon)
    await until(soon, 2)
    assert len(late.times) == 1
    ticks.stop()


async def test_who_is_called_may_ask_for_more() -> None:
    """At once, and beside others that are due."""
    ticks = Ticks()
    eager, other = Called(ticks, again=5), Called()
    ticks.start()
    now = ticks.now()
    ticks.add(now, eager)
    ticks.add(now, other)
    await until(eager, 6)
    assert len(other.times) == 1
    ticks.stop()


async def test_after_the_stop_nobody_is_called() -> None:
    """Neither who was waiting, nor who comes later."""
    ticks, called = Ticks(), Called()
    ticks.start()
    ticks.add(ticks.now() + 10, called)
    ticks.stop()
    ticks.add(ticks.now(), called)
    await asyncio.sleep(0.05)
    assert called.times == []
