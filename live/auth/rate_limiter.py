"""The rate limiter: each producer may send a number of events a second, over all processes.

Few requests wait for the store.

A process borrows credit for about a tenth of a second from the store, and spends it by itself. Each event of a lease
has a time at which it would be due if all came evenly; credit that is not spent until then lapses. So at no time do all
processes together admit more than `burst` and what the rate has brought since. A body's events are known when it was
read, though: they become a debt, which is paid before the process admits anything else.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from live.domain.producer import Producer
from live.errors import ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.client import Store
from live.store.registry.leases import LeaseStore

_LEASE: Final = 0.1  # seconds of a producer's rate that a process borrows
_MOST_ACCOUNTS: Final = 10_000
_ROUNDING: Final = 1e-6  # of an event


class _Account:
    """What this process holds of one producer's credit, and who waits for more."""

    __slots__ = ("credit", "due", "refused_until", "task", "waiting")

    def __init__(self) -> None:
        self.credit = 0  # below zero: a debt
        self.due = 0.0  # when the last event of the credit is due
        self.refused_until = 0.0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.task: asyncio.Task[None] | None = None

    def lapse(self, now: float, rate: float) -> int:
        """Give up what should have been spent by now; gives the credit that is left."""
        if self.credit > 0:
            self.credit = max(0, min(self.credit, math.floor((self.due - now) * rate + _ROUNDING)))
        return self.credit

    def is_idle(self, now: float) -> bool:
        """Whether a new account would do as well."""
        spent = self.credit == 0 or (self.credit > 0 and now >= self.due)
        return self.task is None and now >= self.refused_until and spent

    def admit_waiting(self, most: int) -> int:
        """Let the first of those that wait pass; gives how many did. Who has gone away meanwhile does not count."""
        admitted = 0
        while self.waiting and admitted < most:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                admitted += 1
        return admitted

    def refuse_waiting(self, make_error: Callable[[], Exception]) -> None:
        """Tell all that wait what went wrong, each with an error of its own."""
        while self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_exception(make_error())


class RateLimiter:
    """The rates of all producers, as one process sees them."""

    def __init__(
        self,
        client: Store,
        settings: Settings,
        leases: LeaseStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases or LeaseStore(client, settings.key_prefix)
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def admit_now(self, producer: Producer) -> bool:
        """Take in a request, at the price of one event, if that needs no word of the store; else `admit` has to ask.

        Raises:
            ProblemError: `rate_exceeded`.
        """
        if not producer.rate:
            return True
        account = self._accounts.get(producer.rate_key)
        if account is None:
            return False
        now = self._clock()
        if 0 < account.credit <= (account.due - now) * producer.rate + _ROUNDING:  # nothing has lapsed
            account.credit -= 1
            return True
        if account.lapse(now, producer.rate) > 0:
            account.credit -= 1
            return True
        if now < account.refused_until:
            raise _refusal(producer, account.refused_until - now)
        return False

    async def admit(self, producer: Producer) -> None:
        """Take in a request, at the price of one event.

        Raises:
            ProblemError: `rate_exceeded`.
            StoreUnavailableError: the store is away.
        """
        if not self.admit_now(producer):
            await self.wait(producer)

    def wait(self, producer: Producer) -> asyncio.Future[None]:
        """Ask the store, once for all requests that wait; the future ends as `admit` does."""
        account = self._account(producer)
        waiter = asyncio.get_running_loop().create_future()
        account.waiting.append(waiter)
        self._ask(producer, account)
        return waiter

    def charge(self, producer: Producer, events: int) -> None:
        """Count the events of a request that was admitted, once they are known; one was paid with the admission."""
        if not producer.rate or events <= 1:
            return
        account = self._account(producer)
        account.credit = account.lapse(self._clock(), producer.rate) - (events - 1)
        if account.credit < 0:  # other processes are to know of it before they admit more
            self._ask(producer, account)

    async def close(self) -> None:
        """End what is under way; those that wait are told that the store is away."""
        tasks = [account.task for account in self._accounts.values() if account.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _account(self, producer: Producer) -> _Account:
        account = self._accounts.get(producer.rate_key)
        if account is None:
            if len(self._accounts) >= _MOST_ACCOUNTS:
                self._make_room()
            account = self._accounts[producer.rate_key] = _Account()
        return account

    def _make_room(self) -> None:
        """Forget what is as good as new; when that is not enough, the oldest too, at the price of their credit."""
        now = self._clock()
        self._accounts = {key: account for key, account in self._accounts.items() if not account.is_idle(now)}
        excess = len(self._accounts) - _MOST_ACCOUNTS * 3 // 4
        quiet = [key for key, account in self._accounts.items() if account.task is None]
        for key in quiet[: max(0, excess)]:
            del self._accounts[key]

    def _ask(self, producer: Producer, account: _Account) -> None:
        if account.task is None:
            account.task = asyncio.get_running_loop().create_task(self._settle(producer, account))

    async def _settle(self, producer: Producer, account: _Account) -> None:
        """Ask the store until nobody waits and no debt is left."""
        try:
            while account.waiting or account.credit < 0:
                await self._borrow(producer, account)
        except StoreUnavailableError as error:
            reason = str(error)
            account.refuse_waiting(lambda: StoreUnavailableError(reason))
        finally:
            account.task = None
            account.refuse_waiting(lambda: StoreUnavailableError("the rate could not be looked up"))

    async def _borrow(self, producer: Producer, account: _Account) -> None:
        """Ask the store once."""
        need = sum(not waiter.done() for waiter in account.waiting)
        debt = max(0, -account.credit)
        spare = max(1, min(round(producer.rate * _LEASE), producer.burst // 4))
        asked = self._clock()  # before the store's now: credit lapses rather too early than too late
        lease = await self._leases.take(producer, debt, need, spare)
        # Those that waited were counted at the store's now, so for them nothing can have lapsed.
        lent = lease.lent - account.admit_waiting(min(need, lease.lent))
        account.credit += debt + lent
        account.due = asked + lease.ahead
        now = self._clock()
        left = account.lapse(now, producer.rate)
        if left > 0:
            account.credit -= account.admit_waiting(left)
        if lease.wait:
            account.refused_until = now + lease.wait
            account.refuse_waiting(lambda: _refusal(producer, lease.wait))


def _refusal(producer: Producer, wait: float) -> ProblemError:
    """What a producer is told that has sent too much.

    Header fields as in draft-ietf-httpapi-ratelimit-headers-10.
    """
    seconds = max(1, math.ceil(wait))
    window = max(1, math.ceil(producer.burst / producer.rate))
    quota = max(1, math.floor(producer.rate * window))
    whom = f"producer {producer.id}" if producer.id else "an address without a key"
    return ProblemError(
        "rate_exceeded",
        f"{whom} may send {producer.rate:g} events per second, and {producer.burst} in one burst; "
        f"try again in {seconds} s",
        retry_after=seconds,
        headers={
            "RateLimit-Policy": f'"events";q={quota};qu="events";w={window}',
            "RateLimit": f'"events";r=0;t={seconds}',
        },
    )
