"""Rates under a clock that the test sets, and GCRA by brute force to compare them with."""

import asyncio
from typing import Final, Self

from live.auth.rate_limiter import RateLimiter
from live.domain.producer import Producer
from live.errors import ProblemError
from live.store.connection.client import connect
from live.store.connection.scripts import Script
from live.store.registry.leases import GCRA, CreditRequest, LeaseStore
from tests.harness.mutation import Mutant, compiled, mutated
from tests.harness.settings import fresh_settings

NOON: Final = 1_800_000_000


def sender(rate: float, burst: int, rate_key: str = "shop") -> Producer:
    """A producer with a rate."""
    return Producer("shop", None, frozenset({"post"}), rate, burst, rate_key)


class Model:
    """GCRA by brute force: one list of all events; what may come next is worked out from its beginning."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.times: list[float] = []

    def room(self, now: float) -> float:
        """How many events may come at this time."""
        due = 0.0
        for time_ in self.times:
            due = max(due, time_) + 1 / self.rate
        return self.burst - max(0.0, due - now) * self.rate

    def count(self, now: float, events: int) -> None:
        """Some have come."""
        self.times += [now] * events

    def most_in_a_window(self) -> float:
        """By how much the events of any stretch of time exceed what the rate brings in it."""
        return max(
            (
                (j - i + 1) - (self.times[j] - self.times[i]) * self.rate
                for i in range(len(self.times))
                for j in range(i, len(self.times))
            ),
            default=0,
        )


class Simulation:
    """Processes on one store, whose clock stands still until it is told to go on."""

    def __init__(self, store: str, processes: int, mutant: Mutant | None = None) -> None:
        self.settings = fresh_settings(store)
        self.client = connect(store, self.settings)
        self.now = 0.0
        self.skew = 0.0  # by how much the store's clock is ahead of that of the processes
        self._time_key = f"{self.settings.key_prefix}:time"
        leases = LeaseStore(self.client, self.settings.key_prefix, compiled(store, self._script(mutant)))
        self.processes = [RateLimiter(self.client, self.settings, leases, lambda: self.now) for _ in range(processes)]

    def _script(self, mutant: Mutant | None) -> Script[CreditRequest]:
        """The script, asking a list for the time; the store's expiry goes by the real time, so there is none."""
        source = GCRA.source
        right = {"redis.call('TIME')": f"redis.call('LRANGE', '{self._time_key}', 0, -1)"}
        right[", 'PX', string.format('%.0f', expiry))"] = ")"
        if mutant is not None:
            right = {mutant.right: mutant.wrong, **right}
        return GCRA.changed(mutated(source, right))

    async def go_on(self, seconds: float) -> None:
        """Let time pass, for the store and for each process."""
        self.now += seconds
        micros = round((self.now + self.skew) * 1_000_000)
        await self.client.delete(self._time_key)
        await self.client.rpush(self._time_key, str(NOON + micros // 1_000_000), str(micros % 1_000_000))

    async def set_clock(self, seconds: float) -> None:
        """Set the store's clock, and only that, ahead or back."""
        self.skew += seconds
        await self.go_on(0)

    def wait_of(self, process: int, producer: Producer) -> float:
        """For how many seconds a process refuses a producer."""
        account = self.processes[process]._accounts.get(producer.rate_key)
        return max(0.0, account.refused_until - self.now) if account else 0.0

    async def send(self, process: int, producer: Producer, events: int = 1) -> bool:
        """One request; whether it was admitted. What it leads to is done when it returns."""
        rate_limiter = self.processes[process]
        try:
            await rate_limiter.admit(producer)
        except ProblemError as problem:
            if problem.code != "rate_exceeded":
                raise
            return False
        rate_limiter.charge(producer, events)
        await settled(rate_limiter)
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for rate_limiter in self.processes:
            await rate_limiter.close()
        await self.client.delete(self._time_key)
        await self.client.aclose()


async def settled(rate_limiter: RateLimiter) -> None:
    """Wait until nothing is under way."""
    for account in list(rate_limiter._accounts.values()):
        if account.task is not None:
            await asyncio.wait([account.task])
