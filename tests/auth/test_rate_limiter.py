"""Rates: requests share leases, a flood stays outside, refusals say when to come back, and no memory grows."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from live.auth import rate_limiter as rooms
from live.auth.rate_limiter import Rates
from live.domain.producer import anonymous
from live.errors import ProblemError, StoreUnavailableError
from live.store.connection.client import connect
from live.web.problems import problem_response
from tests.gcra import Simulation, sender, settled
from tests.support import StoreProcess, eventually, fresh_settings


@asynccontextmanager
async def process(store: str, **changes: Any) -> AsyncIterator[Rates]:
    """A process on the real clock."""
    own = fresh_settings(store, **changes)
    client = connect(store, own)
    rates = Rates(client, own)
    try:
        yield rates
    finally:
        await rates.close()
        await client.aclose()


async def test_a_refusal_ends_when_it_says(valkey_url: str) -> None:
    """Then, and not before, there is room again."""
    async with Simulation(valkey_url, 1) as simulation:
        producer = sender(0.5, 2)
        await simulation.go_on(1)
        assert [await simulation.send(0, producer) for _ in range(3)] == [True, True, False]
        with pytest.raises(ProblemError) as caught:
            simulation.processes[0].admit_now(producer)
        assert caught.value.retry_after == 2
        await simulation.go_on(1.9)
        assert not await simulation.send(0, producer)
        await simulation.go_on(0.1)
        assert await simulation.send(0, producer)


async def test_a_debt_is_known_to_all(valkey_url: str) -> None:
    """A body of many events at one process keeps the producer waiting at the other."""
    async with Simulation(valkey_url, 2) as simulation:
        producer = sender(10, 20)
        await simulation.go_on(1)
        assert await simulation.send(0, producer, 1000)
        assert not await simulation.send(1, producer)
        assert not await simulation.send(0, producer)
        await simulation.go_on(98)
        assert not await simulation.send(1, producer)
        await simulation.go_on(1)
        assert await simulation.send(1, producer)


async def test_what_a_producer_is_told(valkey_url: str) -> None:
    """429 with Retry-After and the RateLimit fields, as structured fields."""
    async with process(valkey_url) as rates:
        producer = sender(0.25, 2)
        await rates.admit(producer)
        await rates.admit(producer)
        with pytest.raises(ProblemError) as caught:
            await rates.admit(producer)
    response = problem_response(caught.value)
    assert response.status_code == 429
    assert response.headers["retry-after"] == "4"
    assert response.headers["ratelimit-policy"] == '"events";q=2;qu="events";w=8'
    assert response.headers["ratelimit"] == '"events";r=0;t=4'
    assert b"producer shop may send 0.25 events a second, and 2 at once; try again in 4 s" in response.body


async def test_requests_that_wait_share_a_call(valkey_url: str) -> None:
    """A hundred at once ask the store once; those that follow do not ask at all."""
    async with process(valkey_url) as rates:
        producer = sender(100_000, 200_000)
        assert not rates.admit_now(producer)
        before = await calls(rates)
        await asyncio.gather(*(rates.admit(producer) for _ in range(100)))
        assert sum(rates.admit_now(producer) for _ in range(100)) == 100
        rates.charge(producer, 1000)
        assert rates.admit_now(producer)
        assert await calls(rates) == before + 1


async def calls(rates: Rates) -> int:
    """How many scripts the store has run."""
    stats = await rates._leases._client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


async def test_a_flood_does_not_reach_the_store(valkey_url: str) -> None:
    """Once refused, a producer is refused without a word of the store until its time has come."""
    async with process(valkey_url) as rates:
        producer = sender(0.1, 1)
        await rates.admit(producer)
        with pytest.raises(ProblemError):
            await rates.admit(producer)
        before = await calls(rates)
        for _ in range(1000):
            with pytest.raises(ProblemError):
                rates.admit_now(producer)
        assert await calls(rates) == before


async def test_producers_do_not_share_a_rate(valkey_url: str) -> None:
    """One is refused, the other goes on; without a rate nothing is counted."""
    async with process(valkey_url) as rates:
        await rates.admit(sender(0.1, 1, "a"))
        with pytest.raises(ProblemError):
            await rates.admit(sender(0.1, 1, "a"))
        await rates.admit(sender(0.1, 1, "b"))
        free = sender(0, 1, "c")
        assert all(rates.admit_now(free) for _ in range(100))
        rates.charge(free, 10**6)
        await rates.admit(free)


async def test_who_goes_away_while_waiting_holds_nobody_up(valkey_url: str) -> None:
    """Its event goes to the next."""
    async with process(valkey_url) as rates:
        producer = sender(0.1, 2)
        waiting = [asyncio.create_task(rates.admit(producer)) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError, type(None), type(None), ProblemError]


async def test_two_processes_at_full_speed(any_store: str) -> None:
    """On the real clock: a second of flooding from both lets through the burst and what the rate brings."""
    rate, burst = 2000, 300
    own = fresh_settings(any_store)
    client = connect(any_store, own)
    processes = [Rates(client, own) for _ in range(2)]
    producer = sender(rate, burst)
    admitted = 0

    async def flood(rates: Rates, end: float) -> None:
        nonlocal admitted
        while time.monotonic() < end:
            try:
                if not rates.admit_now(producer):
                    await rates.admit(producer)
                admitted += 1
            except ProblemError:
                pass
            await asyncio.sleep(0)

    started = time.monotonic()
    await asyncio.gather(*(flood(rates, started + 1) for rates in processes * 4))
    passed = time.monotonic() - started
    for rates in processes:
        await rates.close()
    await client.aclose()
    assert 0.7 * rate <= admitted <= burst + rate * passed + 1


async def test_the_key_expires_by_itself(any_store: str) -> None:
    """As soon as the producer has all of its burst again."""
    async with process(any_store) as rates:
        await rates.admit(sender(2, 2))
        client = rates._leases._client
        (key,) = [key async for key in client.scan_iter(match=f"{rates._leases._prefix}:*")]
        assert 0 < await client.pttl(key) <= 502

        async def gone() -> bool:
            return not await client.exists(key)

        await eventually(gone)


async def test_strange_rates_are_counted(any_store: str) -> None:
    """As small, as large and as crooked as they may be."""
    async with process(any_store) as rates:
        for number, (rate, burst) in enumerate([(0.001, 1), (1e9, 1), (1e9, 2**40), (1 / 3, 1), (0.1 + 0.2, 7)]):
            await rates.admit(sender(rate, burst, f"p{number}"))


async def test_the_memory_for_producers_is_bounded(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses come and go; those that are as good as new are forgotten first, then the oldest."""
    monkeypatch.setattr(rooms, "_MOST_ACCOUNTS", 20)
    async with Simulation(valkey_url, 1) as simulation:
        (rates,) = simulation.processes
        await simulation.go_on(1)
        for number in range(100):
            await simulation.send(0, anonymous(f"192.0.2.{number}", 0.5, 2))
            assert len(rates._accounts) <= 20
        debtor = sender(0.1, 1, "debtor")
        await simulation.send(0, debtor)
        assert not await simulation.send(0, debtor)
        for number in range(10):
            await simulation.send(0, anonymous(f"198.51.100.{number}", 0.5, 2))
        assert "debtor" in rates._accounts


async def test_a_store_that_is_away_is_told(own_store: StoreProcess) -> None:
    """To all that wait; nobody is admitted on trust, and a debt is not forgotten."""
    async with process(own_store.url) as rates:
        producer = sender(10, 40)
        await rates.admit(producer)
        own_store.kill()
        rates.charge(producer, 50)
        results = await asyncio.gather(*(rates.admit(producer) for _ in range(5)), return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailableError] * 5
        await settled(rates)
        own_store.start()
        with pytest.raises(ProblemError):
            await rates.admit(producer)


async def test_who_waits_at_the_end_is_told(own_store: StoreProcess) -> None:
    """A process that stops leaves nobody waiting."""
    async with process(own_store.url) as rates:
        with own_store.frozen():
            waiting = asyncio.create_task(rates.admit(sender(1, 1)))
            await asyncio.sleep(0.05)
            await rates.close()
            with pytest.raises(StoreUnavailableError):
                await waiting
