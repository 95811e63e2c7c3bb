"""Rate limiters on a clock that the test sets, and a brute-force GCRA to compare them with."""

import asyncio
from typing import Final, Self

from live.auth.rates import RateLimiter
from live.domain.producer import Principal
from live.errors import ProblemError
from live.store.connection.client import connect
from live.store.connection.scripts import Script
from live.store.registry.rate_credit import GCRA, CreditRequest, CreditStore
from tests.harness.mutation import compiled, mutated
from tests.harness.settings import fresh_settings

NOON: Final = 1_800_000_000


def sender(rate: float, burst: int, rate_key: str = "shop") -> Principal:
    """A producer with a rate."""
    return Principal("shop", None, frozenset({"post"}), rate, burst, rate_key)


class Model:
    """GCRA by brute force: it keeps a list of all events, and computes every answer from the whole list."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.times: list[float] = []

    def room(self, now: float) -> float:
        """Return how many events are permitted at this time."""
        due = 0.0
        for time_ in self.times:
            due = max(due, time_) + 1 / self.rate
        return self.burst - max(0.0, due - now) * self.rate

    def count(self, now: float, events: int) -> None:
        """Record events."""
        self.times += [now] * events

    def most_in_a_window(self) -> float:
        """The most events in any interval beyond what the rate permits in it: at most the burst."""
        return max(
            (
                (j - i + 1) - (self.times[j] - self.times[i]) * self.rate
                for i in range(len(self.times))
                for j in range(i, len(self.times))
            ),
            default=0,
        )


class Simulation:
    """Processes on one store, with a clock that moves only when the test advances it."""

    def __init__(self, store: str, processes: int) -> None:
        self.settings = fresh_settings(store)
        self.client = connect(store, self.settings)
        self.now = 0.0
        self.skew = 0.0  # the store's clock minus the clock of the processes
        self._time_key = f"{self.settings.key_prefix}:time"
        credit = CreditStore(self.client, compiled(store, self._script()))
        self.processes = [RateLimiter(self.client, self.settings, credit, lambda: self.now) for _ in range(processes)]

    def _script(self) -> Script[CreditRequest]:
        """Change the script to read the time from a list, and to set no expiry, which would follow the real time."""
        source = GCRA.source
        right = {"redis.call('TIME')": f"redis.call('LRANGE', '{self._time_key}', 0, -1)"}
        right[", 'PX', string.format('%.0f', expiry))"] = ")"
        return GCRA.changed(mutated(source, right))

    async def go_on(self, seconds: float) -> None:
        """Let time pass, for the store and for each process."""
        self.now += seconds
        micros = round((self.now + self.skew) * 1_000_000)
        await self.client.delete(self._time_key)
        await self.client.rpush(self._time_key, str(NOON + micros // 1_000_000), str(micros % 1_000_000))

    async def set_clock(self, seconds: float) -> None:
        """Set only the store's clock, ahead or back."""
        self.skew += seconds
        await self.go_on(0)

    def wait_of(self, process: int, producer: Principal) -> float:
        """Return for how many seconds a process will refuse a producer."""
        account = self.processes[process]._accounts.get(producer.rate_key)
        return max(0.0, account.refused_until - self.now) if account else 0.0

    async def send(self, process: int, producer: Principal, events: int = 1) -> bool:
        """Send one request; returns whether it was admitted.

        If it was, the calls to the store that it has started are finished afterwards.
        """
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
    """Wait until the rate limiter waits for no call to the store."""
    for account in list(rate_limiter._accounts.values()):
        if account.task is not None:
            await asyncio.wait([account.task])
