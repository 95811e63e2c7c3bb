"""The rate limiter: requests share credit, a flood is refused, refusals say when to retry, and memory is bounded."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from unittest.mock import patch

import pytest

from live.auth import rates as module
from live.auth.rates import RateLimiter
from live.domain.limits import PrefixLimits
from live.errors import ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.client import Store, connect
from live.store.registry.rate_credit import CreditStore
from live.web.responses import problem_response
from tests.harness.rate_model import Model, Simulation, sender, settled
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually


@asynccontextmanager
async def process(store: str, **changes: Any) -> AsyncIterator[RateLimiter]:
    """Run a rate limiter on the real clock."""
    own = fresh_settings(store, **changes)
    client = connect(store, own)
    rate_limiter = RateLimiter(client, own)
    try:
        yield rate_limiter
    finally:
        await rate_limiter.close()
        await client.aclose()


async def test_a_refusal_ends_after_retry_after(valkey_url: str) -> None:
    """A refused request succeeds after `Retry-After`, and not earlier."""
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


async def test_processes_share_a_debt(valkey_url: str) -> None:
    """After a large body at one process, the producer must also wait at the other process."""
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


async def test_events_of_a_prefix_exceed_the_rate_by_a_body_at_most(valkey_url: str) -> None:
    """The prefix pays back its debt before more events are admitted. Each process learns of the debt after one body."""
    rate, burst, body, chance = 10, 20, 7, random.Random(1)
    limits, model, refused = PrefixLimits(prefix="acme-", rate=rate).client, Model(rate, burst), 0
    async with Simulation(valkey_url, 2) as simulation:
        for _ in range(150):
            await simulation.go_on(chance.choice([0, 0, 0.1, 0.5, 1]))
            process, events = chance.choice(simulation.processes), chance.randint(1, body)
            try:
                process.spend(limits, events)
            except ProblemError:
                refused += 1
            else:
                model.count(simulation.now, events)
            await settled(process)
    assert refused > 20
    assert burst < model.most_in_a_window() <= burst + 2 * body


async def test_a_prefix_has_its_rate_while_its_shard_is_away() -> None:
    """While the shard is away, a process keeps the rate by itself, and makes events wait until a debt is paid back."""
    account, limits, now = module._Account(), PrefixLimits(prefix="acme-", rate=10).client, 100.0
    assert account.lend(limits, 15, 0, now).wait == 0
    assert account.lend(limits, 10, 0, now).wait == pytest.approx(0.6)
    assert account.lend(limits, 0, 0, now + 0.6).wait == 0


async def test_an_exceeded_rate_is_answered_with_429(valkey_url: str) -> None:
    """The response is 429 with `Retry-After`, and with the `RateLimit` fields as structured fields."""
    async with process(valkey_url) as rate_limiter:
        producer = sender(0.25, 2)
        await rate_limiter.admit(producer)
        await rate_limiter.admit(producer)
        with pytest.raises(ProblemError) as caught:
            await rate_limiter.admit(producer)
    response = problem_response(caught.value)
    assert response.status_code == 429
    assert response.headers["retry-after"] == "4"
    assert response.headers["ratelimit-policy"] == '"events";q=2;qu="events";w=8'
    assert response.headers["ratelimit"] == '"events";r=0;t=4'
    assert b"producer shop may send 0.25 events per second, and 2 in one burst; try again in 4 s" in response.body


async def test_concurrent_requests_share_a_call(valkey_url: str) -> None:
    """A hundred concurrent requests call the store once. Later requests do not call it at all."""
    async with process(valkey_url) as rate_limiter:
        producer = sender(100_000, 200_000)
        assert not rate_limiter.admit_now(producer)
        before = await calls(rate_limiter)
        await asyncio.gather(*(rate_limiter.admit(producer) for _ in range(100)))
        assert sum(rate_limiter.admit_now(producer) for _ in range(100)) == 100
        rate_limiter.charge(producer, 1000)
        assert rate_limiter.admit_now(producer)
        assert await calls(rate_limiter) == before + 1


async def calls(rate_limiter: RateLimiter) -> int:
    """The number of scripts that the store has run."""
    stats = await rate_limiter._credit._client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


async def test_a_flood_does_not_reach_the_store(valkey_url: str) -> None:
    """The process refuses a producer without a call to the store until the announced time has come."""
    async with process(valkey_url) as rate_limiter:
        producer = sender(0.1, 1)
        await rate_limiter.admit(producer)
        with pytest.raises(ProblemError):
            await rate_limiter.admit(producer)
        before = await calls(rate_limiter)
        for _ in range(1000):
            with pytest.raises(ProblemError):
                rate_limiter.admit_now(producer)
        assert await calls(rate_limiter) == before


async def test_producers_do_not_share_a_rate(valkey_url: str) -> None:
    """One producer is refused while another is admitted. Events of a producer without a rate are not counted."""
    async with process(valkey_url) as rate_limiter:
        await rate_limiter.admit(sender(0.1, 1, "a"))
        with pytest.raises(ProblemError):
            await rate_limiter.admit(sender(0.1, 1, "a"))
        await rate_limiter.admit(sender(0.1, 1, "b"))
        free = sender(0, 1, "c")
        assert all(rate_limiter.admit_now(free) for _ in range(100))
        rate_limiter.charge(free, 10**6)
        await rate_limiter.admit(free)


async def test_a_cancelled_request_does_not_block_others(valkey_url: str) -> None:
    """The place of the cancelled request goes to the next request."""
    async with process(valkey_url) as rate_limiter:
        producer = sender(0.1, 2)
        waiting = [asyncio.create_task(rate_limiter.admit(producer)) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError, type(None), type(None), ProblemError]


@pytest.mark.slow
async def test_two_processes_at_full_speed_keep_the_rate(any_store: str) -> None:
    """During a second of flooding, two processes together admit at most the burst and what the rate adds meanwhile."""
    rate, burst = 2000, 300
    own = fresh_settings(any_store)
    client = connect(any_store, own)
    processes = [RateLimiter(client, own) for _ in range(2)]
    producer = sender(rate, burst)
    admitted = 0

    async def flood(rate_limiter: RateLimiter, end: float) -> None:
        nonlocal admitted
        while time.monotonic() < end:
            try:
                if not rate_limiter.admit_now(producer):
                    await rate_limiter.admit(producer)
                admitted += 1
            except ProblemError:
                pass
            await asyncio.sleep(0)

    started = time.monotonic()
    await asyncio.gather(*(flood(rate_limiter, started + 1) for rate_limiter in processes * 4))
    passed = time.monotonic() - started
    for rate_limiter in processes:
        await rate_limiter.close()
    await client.aclose()
    assert 0.7 * rate <= admitted <= burst + rate * passed + 1


@pytest.mark.slow
async def test_the_store_key_expires(any_store: str) -> None:
    """The store key of a producer expires when the producer has its whole burst again."""
    async with process(any_store) as rate_limiter:
        await rate_limiter.admit(sender(0.2, 2))  # the burst is whole again after five seconds
        client = rate_limiter._credit._client
        (key,) = [key async for key in client.scan_iter(match=f"{client.prefix}:*")]
        assert 0 < await client.pttl(key) <= 5002

        async def gone() -> bool:
            return not await client.exists(key)

        await eventually(gone)


async def test_extreme_rates_are_applied(any_store: str) -> None:
    """Very small, very large and fractional rates work."""
    async with process(any_store) as rate_limiter:
        for number, (rate, burst) in enumerate([(0.001, 1), (1e9, 1), (1e9, 2**40), (1 / 3, 1), (0.1 + 0.2, 7)]):
            await rate_limiter.admit(sender(rate, burst, f"p{number}"))


async def test_the_memory_for_producers_is_bounded(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers that have their whole burst are forgotten first, and a producer with a debt is kept."""
    monkeypatch.setattr(module, "_MOST_ACCOUNTS", 20)
    async with Simulation(valkey_url, 1) as simulation:
        (rate_limiter,) = simulation.processes
        await simulation.go_on(1)
        for number in range(100):
            await simulation.send(0, sender(0.5, 2, f"first {number}"))
            assert len(rate_limiter._accounts) <= 20
        debtor = sender(0.1, 1, "debtor")
        await simulation.send(0, debtor)
        assert not await simulation.send(0, debtor)
        for number in range(10):
            await simulation.send(0, sender(0.5, 2, f"second {number}"))
        assert "debtor" in rate_limiter._accounts


async def test_an_unavailable_store_fails_all_waiting_requests(own_store: StoreProcess) -> None:
    """Nobody is admitted without the store, and a debt is not forgotten."""
    async with process(own_store.url) as rate_limiter:
        producer = sender(10, 40)
        await rate_limiter.admit(producer)
        own_store.kill()
        rate_limiter.charge(producer, 50)
        results = await asyncio.gather(*(rate_limiter.admit(producer) for _ in range(5)), return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailableError] * 5
        await settled(rate_limiter)
        own_store.start()
        with pytest.raises(ProblemError):
            await rate_limiter.admit(producer)


async def test_closing_fails_waiting_requests(own_store: StoreProcess) -> None:
    """No request goes on waiting for a rate limiter that closes."""
    async with process(own_store.url) as rate_limiter:
        with own_store.frozen():
            waiting = asyncio.create_task(rate_limiter.admit(sender(1, 1)))
            await asyncio.sleep(0.05)
            await rate_limiter.close()
            with pytest.raises(StoreUnavailableError):
                await waiting


def test_a_process_that_lends_alone_keeps_the_rate() -> None:
    """Like the store, the process admits a burst first, and then events at the rate.

    After a debt, it admits no event until the debt is paid back.
    """
    account, producer = module._Account(), sender(10, 5)
    loan = account.lend(producer, 0, 20, 100.0)
    assert (loan.lent, loan.wait) == (5, 0.1)
    assert [account.lend(producer, 0, 20, 100.0 + tenths / 10).lent for tenths in (0, 1, 3, 3)] == [0, 1, 2, 0]
    assert account.lend(producer, 30, 1, 200.0).lent == 0
    assert account.lend(producer, 0, 1, 202.4).lent == 0
    assert account.lend(producer, 0, 1, 202.6).lent == 1


class _NoStore:
    """A store that fails every call: the limits of reads must not use it."""

    has_shards = False


def reading(rate: int, burst: int) -> tuple[RateLimiter, list[float]]:
    """A rate limiter for reads, and a list with the time on its clock."""
    clock = [0.0]
    store, credit = cast("Store", _NoStore()), cast("CreditStore", None)
    with patch.object(module, "READ_BURST", burst / max(1, rate)):
        return RateLimiter(store, Settings(read_rate=rate), credit, lambda: clock[0]), clock


@pytest.mark.parametrize(("rate", "burst"), [(1, 1), (2, 3), (8, 2), (100, 25)])
def test_reads_match_the_model(rate: int, burst: int) -> None:
    """A read is admitted if and only if the model has room for it. A refusal ends after `Retry-After`."""
    chance, model = random.Random(rate), Model(rate, burst)
    rates, clock = reading(rate, burst)
    refused = 0
    for _ in range(300):
        clock[0] += chance.choice([0, 0, 0, 1, 3, 8, 40]) / 8 / rate
        problem = None
        try:
            rates.admit_read("192.0.2.1")
        except ProblemError as caught:
            problem = caught
        if problem is None:
            assert model.room(clock[0]) >= 1 - 1e-3
            model.count(clock[0], 1)
            continue
        refused += 1
        assert model.room(clock[0]) < 1
        assert problem.retry_after is not None
        assert model.room(clock[0] + problem.retry_after) >= 1 - 1e-6
    assert refused


def test_readers_do_not_fill_the_memory() -> None:
    """Idle readers are forgotten first. A reader that floods stays refused while many others come."""
    rates, clock = reading(1, 2)
    for number in range(3 * module._MOST_ACCOUNTS):
        if number % 1000 == 0:
            clock[0] += 0.5
            for _ in range(2):
                with suppress(ProblemError):
                    rates.admit_read("flood")
        rates.admit_read(str(number))
        assert len(rates._reads_due) <= module._MOST_ACCOUNTS
    with pytest.raises(ProblemError):
        rates.admit_read("flood")


def test_without_a_rate_every_read_is_admitted() -> None:
    """Any number of reads at the same instant is admitted."""
    rates, _ = reading(0, 1)
    for _ in range(100):
        rates.admit_read("192.0.2.1")
