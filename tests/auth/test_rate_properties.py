"""Rates compared with a brute-force GCRA: any sequence of requests and bodies, on one process and on two."""

import asyncio
import math
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.harness.rate_model import NOON, Model, Simulation, sender


class Step(NamedTuple):
    """A request to a process after a pause. A `pause` of 1 is the time in which the rate permits one event."""

    pause: float
    process: int
    events: int


class Jump(NamedTuple):
    """A change of the store's clock, ahead or back.

    A `bursts` of 1 is the time in which the rate refills a whole burst.
    """

    bursts: float


pauses = st.one_of(st.just(0.0), st.just(0.0), st.integers(1, 40).map(lambda n: n / 8))
steps = st.lists(st.builds(Step, pauses, st.integers(0, 1), st.just(1)), min_size=12, max_size=60)
jumps = st.builds(Jump, st.sampled_from([-1000.0, -3.0, -0.5, -0.1, 0.1, 0.5, 3.0, 1000.0]))
jumping = st.lists(st.one_of(st.builds(Step, pauses, st.integers(0, 1), st.just(1)), jumps), min_size=12, max_size=60)
bodies = st.lists(st.builds(Step, pauses, st.integers(0, 1), st.integers(1, 30)), min_size=8, max_size=40)
limits = st.tuples(st.sampled_from([0.5, 1.0, 3.0, 8.0, 100.0]), st.sampled_from([1, 2, 3, 5, 9, 25]))
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
    derandomize=True,
)  # fmt: skip


async def admits_at_most_the_rate(store: str, limit: tuple[float, int], run: list[Step]) -> None:
    """Check that in any interval, two processes together admit at most the burst and what the rate adds."""
    model = Model(*limit)
    async with Simulation(store, 2) as simulation:
        for step in run:
            await simulation.go_on(step.pause / limit[0])
            if await simulation.send(step.process, sender(*limit)):
                model.count(simulation.now, 1)
    assert model.most_in_a_window() <= limit[1] + 1e-6


async def matches_the_model(store: str, limit: tuple[float, int], run: list[Step]) -> None:
    """Check that one process admits a request only if the model has room for an event.

    It refuses a request only without room for two events. After a refusal, it may wait for room for `patience + 1`.

    The number of events in a body is known only after admission. Events beyond the burst delay later requests.
    """
    model = Model(*limit)
    async with Simulation(store, 1) as simulation:
        # A refused sender is asked to wait until the process can lease at least this many events.
        patience = max(1, min(round(limit[0] / 10), limit[1] // 4))
        refused = False
        for step in run:
            await simulation.go_on(step.pause / limit[0])
            room = model.room(simulation.now)
            admitted = await simulation.send(0, sender(*limit), step.events)
            if admitted:
                assert room >= 1 - 1e-6
                model.count(simulation.now, step.events)
            else:
                assert room < (patience + 1 if refused else min(2, limit[1])) + 1e-6
            refused = not admitted


async def waits_at_most_a_burst(store: str, limit: tuple[float, int], run: list[Step | Jump]) -> None:
    """Wherever the store's clock is set, a wait is never longer than the time in which a whole burst refills.

    Setting the clock ahead lets the producer send at most one more burst. Setting it back gives the producer nothing,
    and takes away at most the credit of the time since the last call to the store.
    """
    rate, burst = limit
    producer = sender(*limit)
    model = Model(*limit)
    ahead = 0
    async with Simulation(store, 2) as simulation:
        for step in run:
            if isinstance(step, Jump):
                ahead += step.bursts > 0
                await simulation.set_clock(step.bursts * burst / rate)
                continue
            await simulation.go_on(step.pause / rate)
            if await simulation.send(step.process, producer):
                model.count(simulation.now, 1)
            assert simulation.wait_of(step.process, producer) <= burst / rate + 1e-3
        assert model.most_in_a_window() <= burst * (1 + ahead) + 1e-6
        admitted = []
        for _ in range(2):
            await simulation.go_on(burst / rate + 1e-3)
            admitted.append(await simulation.send(0, producer))
        assert any(admitted)


@pytest.mark.slow
@quick
@given(limits, jumping)
def test_setting_the_clock_does_not_block_producers(
    valkey_url: str, limit: tuple[float, int], run: list[Step | Jump]
) -> None:
    """The clock jumps ahead or back, by any amount and any number of times."""
    asyncio.run(waits_at_most_a_burst(valkey_url, limit, run))


async def test_setting_the_clock_back_costs_at_most_one_burst(any_store: str) -> None:
    """A producer that has used up its burst waits at most until a whole burst has refilled, in either process."""
    producer = sender(100, 200)
    async with Simulation(any_store, 2) as simulation:
        for seconds in (0, -3600, -3600):
            await simulation.set_clock(seconds)
            while any([await simulation.send(process, producer) for process in (0, 1)]):
                pass
            assert max(simulation.wait_of(process, producer) for process in (0, 1)) <= 2
            await simulation.go_on(2)
            assert await simulation.send(1, producer)


async def test_a_value_of_an_earlier_version_is_not_a_debt(any_store: str) -> None:
    """The old value has only the time of the next event, so the producer starts with its whole burst."""
    producer = sender(100, 200)
    async with Simulation(any_store, 1) as simulation:
        await simulation.go_on(0)
        await simulation.client.set(f"{simulation.settings.key_prefix}:{{rate:shop}}", f"{NOON + 3600}000000.00")
        assert await simulation.send(0, producer)


@pytest.mark.slow
@quick
@given(limits, steps)
def test_two_processes_never_admit_too_many(valkey_url: str, limit: tuple[float, int], run: list[Step]) -> None:
    """The requests come to either process at any time."""
    asyncio.run(admits_at_most_the_rate(valkey_url, limit, run))


@pytest.mark.slow
@quick
@given(limits, bodies)
def test_one_process_matches_the_model(valkey_url: str, limit: tuple[float, int], run: list[Step]) -> None:
    """The bodies have any number of events."""
    asyncio.run(matches_the_model(valkey_url, limit, run))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("rate", "burst"), [(1000.0, 500), (50.0, 20), (7.0, 14)])
async def test_a_producer_below_its_rate_is_never_refused(
    valkey_url: str, rate: float, burst: int, share: float
) -> None:
    """The producer sends a thousand events at 95 % of its rate, spread over two processes in several ways."""
    async with Simulation(valkey_url, 2) as simulation:
        for number in range(1000):
            await simulation.go_on(1 / rate / 0.95)
            assert await simulation.send(int((number * share) % 1 + share >= 1), sender(rate, burst)), number


def test_the_model_is_gcra() -> None:
    """The model is correct for the textbook example."""
    model = Model(2.0, 3)
    assert [math.floor(model.room(0))] == [3]
    model.count(0, 3)
    assert model.room(0) == 0
    assert model.room(0.5) == 1
    assert model.room(100) == 3
    assert model.most_in_a_window() == 3
