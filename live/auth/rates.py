"""The rate limiter: limits the events of each producer and of each prefix of boards, and the reads of each client.

Events are limited over all processes. A process borrows credit for about a tenth of a second from the store and spends
it locally, so few requests wait for the store. Each borrowed event has a time at which it would be due at an even
pace. If it is not spent by then, it expires. So in any period, all processes together spend at most `burst` events
plus the events that the rate adds in that period. A process knows the number of events in a body only after it has
read the body. Then the events become a debt of the producer. The process pays it from new credit before it admits more
requests of this producer. Against the limit of a prefix of boards, all events count as a debt.

One server of a Cluster keeps the count of a producer. While it is away, each process lends credit to the producer by
itself, because the boards may be on other servers.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from live.auth.requester import Requester
from live.domain.limits import Client
from live.domain.producer import Principal, Rated, burst_of
from live.domain.reader import Reader
from live.errors import ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.client import Store, is_unanswered, may_have_run
from live.store.registry.rate_credit import CreditStore, Loan

_BORROWED: Final = 0.1  # seconds of a producer's rate that a process borrows
_MOST_ACCOUNTS: Final = 10_000
_ROUNDING: Final = 1e-6  # the part of an event that rounding may lose
_RETRY_PAUSE: Final = 0.05
_KEY: Final = "key "  # prefix of the id of an API key that pays for a read
READ_BURST: Final = 2.0  # seconds of the rate of reads: a page with its parts, or several pages at once
_ALONE: Final = 1.0  # seconds for which a process lends credit by itself before it asks the store again


class _Account:
    """The credit of one producer in this process, and the requests that wait for more credit."""

    __slots__ = ("alone_due", "alone_until", "credit", "due", "refused_until", "task", "waiting")

    def __init__(self) -> None:
        self.credit = 0  # events; a negative number is a debt
        self.due = 0.0  # when the last event of the credit would be due at an even pace
        self.refused_until = 0.0
        self.alone_until = 0.0  # until then, the process does not ask the store
        self.alone_due = 0.0  # when the next event that the process lends by itself would be due
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.task: asyncio.Task[None] | None = None

    def lapse(self, now: float, rate: float) -> int:
        """Drop credit that has expired. Return the credit that is left."""
        if self.credit > 0:
            self.credit = max(0, min(self.credit, math.floor((self.due - now) * rate + _ROUNDING)))
        return self.credit

    def is_idle(self, now: float) -> bool:
        spent = self.credit == 0 or (self.credit > 0 and now >= self.due)
        return self.task is None and now >= self.refused_until and spent

    def lend(self, rated: Rated, debt: int, need: int, now: float) -> Loan:
        """Lend credit without the store, by the rule of `gcra.lua`."""
        gap = 1 / rated.rate
        self.alone_due = max(self.alone_due, now) + debt * gap
        left = math.floor(rated.burst - (self.alone_due - now) / gap + _ROUNDING)
        lent = max(0, min(need, left))
        self.alone_due += lent * gap
        wait = 0.0 if left >= max(1, need) else max(gap, self.alone_due - now - (rated.burst - 1) * gap)
        return Loan(lent, 0, wait)

    def admit_waiting(self, most: int) -> int:
        """Admit the first waiting requests, at most `most`. Return their number, without cancelled requests."""
        admitted = 0
        while self.waiting and admitted < most:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                admitted += 1
        return admitted

    def refuse_waiting(self, make_error: Callable[[], Exception]) -> None:
        """Refuse all waiting requests, each with its own error."""
        while self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_exception(make_error())


class RateLimiter:
    """The rates of all producers in one process. `on_refused` gets the API key's id of each request above a rate."""

    def __init__(
        self,
        client: Store,
        settings: Settings,
        credit: CreditStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._has_shards = client.has_shards
        self._credit = credit or CreditStore(client)
        self._clock = clock
        self._patience = float(settings.write_deadline)
        self.on_refused: Callable[[str], None] = lambda _api_key: None
        self._accounts: dict[str, _Account] = {}
        self._read_rate = settings.read_rate
        self._read_burst = burst_of(settings.read_rate, READ_BURST)
        self._read_gap = 1 / settings.read_rate if settings.read_rate else 0.0
        self._read_ahead = (self._read_burst - 1 + _ROUNDING) * self._read_gap
        self._reads_due: dict[str, float] = {}  # when the next read of each client would be due at an even pace

    def admit_now(self, producer: Rated) -> bool:
        """Admit a request at the price of one event without the store. Return False if `admit` must ask the store."""
        if not producer.rate:
            return True
        account = self._accounts.get(producer.rate_key)
        if account is None:
            return False
        now = self._clock()
        if 0 < account.credit <= (account.due - now) * producer.rate + _ROUNDING:  # no credit has expired
            account.credit -= 1
            return True
        if account.lapse(now, producer.rate) > 0:
            account.credit -= 1
            return True
        if now < account.refused_until:
            raise self._refusal(producer, account.refused_until - now)
        return False

    async def admit(self, producer: Rated) -> None:
        """Admit a request at the price of one event. One call to the store serves all waiting requests."""
        if not self.admit_now(producer):
            await self.wait(producer)

    def wait(self, producer: Rated) -> asyncio.Future[None]:
        """Ask the store once for all waiting requests. The future gets the result or the error of `admit`."""
        account = self._account(producer)
        waiter = asyncio.get_running_loop().create_future()
        account.waiting.append(waiter)
        self._start_call(producer, account)
        return waiter

    def charge(self, producer: Principal, events: int) -> None:
        """Charge the events of an admitted request when their number is known. One event is paid already."""
        if not producer.rate or events <= 1:
            return
        self._owe(producer, self._account(producer), events - 1)

    def spend(self, rated: Rated, events: int) -> None:
        """Admit all of the given events or none, as a debt. Events during one call to the store may exceed the rate."""
        if not rated.rate:
            return
        account, now = self._account(rated), self._clock()
        if now < account.refused_until:
            raise self._refusal(rated, account.refused_until - now)
        self._owe(rated, account, events)

    def admit_read(self, client: str) -> None:
        """Admit a read of a client. `client` is the name from `payer_of`."""
        now = self._clock()
        due = self._reads_due.get(client)
        if due is None or due < now:
            if due is None and len(self._reads_due) >= _MOST_ACCOUNTS:
                # Forget clients that may read a whole burst. If this is not enough, forget the oldest clients too.
                self._reads_due = {other: until for other, until in self._reads_due.items() if until > now}
                excess = len(self._reads_due) - _MOST_ACCOUNTS * 3 // 4
                for other in list(self._reads_due)[: max(0, excess)]:
                    del self._reads_due[other]
            self._reads_due[client] = now + self._read_gap
        elif due - now <= self._read_ahead:
            self._reads_due[client] = due + self._read_gap
        else:
            whom = f"API {client}" if client.startswith(_KEY) else "an address without an API key"
            reading = Client(client, self._read_rate, self._read_burst, whom, "requests", "the setting read_rate")
            raise self._refusal(reading, due - now - self._read_ahead)

    def give_back(self, producer: Rated) -> None:
        """Give back the price of an admitted request that does not count. It expires like credit that was not spent."""
        account = self._accounts.get(producer.rate_key)
        if account is not None:
            account.credit += 1

    async def close(self) -> None:
        """Cancel calls to the store. Waiting requests fail as if the store were unavailable."""
        tasks = [account.task for account in self._accounts.values() if account.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _account(self, rated: Rated) -> _Account:
        account = self._accounts.get(rated.rate_key)
        if account is None:
            if len(self._accounts) >= _MOST_ACCOUNTS:
                # Forget idle accounts. If this is not enough, forget the oldest accounts too, with their credit.
                now = self._clock()
                self._accounts = {key: account for key, account in self._accounts.items() if not account.is_idle(now)}
                excess = len(self._accounts) - _MOST_ACCOUNTS * 3 // 4
                quiet = [key for key, account in self._accounts.items() if account.task is None]
                for key in quiet[: max(0, excess)]:
                    del self._accounts[key]
            account = self._accounts[rated.rate_key] = _Account()
        return account

    def _owe(self, rated: Rated, account: _Account, events: int) -> None:
        account.credit = account.lapse(self._clock(), rated.rate) - events
        if account.credit < 0:  # other processes must see a debt before they admit more
            self._start_call(rated, account)

    def _start_call(self, rated: Rated, account: _Account) -> None:
        if account.task is None:
            account.task = asyncio.get_running_loop().create_task(self._settle(rated, account))

    async def _settle(self, rated: Rated, account: _Account) -> None:
        """Ask the store until no request waits and no debt is left."""
        spare = max(1, min(round(rated.rate * _BORROWED), rated.burst // 4))
        try:
            while account.waiting or account.credit < 0:
                need = sum(not waiter.done() for waiter in account.waiting)
                if not need:
                    account.waiting.clear()  # every waiting request was cancelled
                debt = max(0, -account.credit)
                # This time is taken before the store's time, so credit expires too early rather than too late.
                asked_at = self._clock()
                loan = await self._take(rated, account, debt, need, spare)
                # The store has just lent this credit for the waiting requests, so none of it can have expired.
                lent = loan.lent - account.admit_waiting(min(need, loan.lent))
                account.credit += debt + lent
                account.due = asked_at + loan.ahead
                now = self._clock()
                left = account.lapse(now, rated.rate)
                if left > 0:
                    account.credit -= account.admit_waiting(left)
                if loan.wait:
                    account.refused_until = now + loan.wait
                    account.refuse_waiting(partial(self._refusal, rated, loan.wait))
        except StoreUnavailableError as error:
            account.refuse_waiting(partial(StoreUnavailableError, str(error)))
        finally:
            account.task = None
            account.refuse_waiting(partial(StoreUnavailableError, "the rate could not be read"))

    def _refusal(self, rated: Rated, wait: float) -> ProblemError:
        """Make the refusal of a client that sent too much, with headers of draft-ietf-httpapi-ratelimit-headers-10."""
        api_key = rated.id if isinstance(rated, Principal) else rated.rate_key.partition(_KEY)[2]
        if api_key:
            self.on_refused(api_key)
        seconds = max(1, math.ceil(wait))
        window = max(1, math.ceil(rated.burst / rated.rate))
        quota = max(1, math.floor(rated.rate * window))
        limit = f" ({rated.limit})" if rated.limit else ""
        return ProblemError(
            "rate_exceeded",
            f"{rated.whom} may send {rated.rate:g} {rated.unit} per second, and {rated.burst} in one burst{limit}; "
            f"try again in {seconds} s",
            retry_after=seconds,
            headers={
                "RateLimit-Policy": f'"{rated.unit}";q={quota};qu="{rated.unit}";w={window}',
                "RateLimit": f'"{rated.unit}";r=0;t={seconds}',
            },
        )

    async def _take(self, rated: Rated, account: _Account, debt: int, need: int, spare: int) -> Loan:
        """Ask the store, again until the write deadline while it is away. With several shards, lend credit instead."""
        if self._clock() < account.alone_until:
            await asyncio.sleep(0)
            return account.lend(rated, debt, need, self._clock())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while True:
            try:
                return await self._credit.take(rated, debt, need, spare)
            except StoreUnavailableError as error:
                if self._has_shards and is_unanswered(error):
                    account.alone_until = self._clock() + _ALONE
                    return account.lend(rated, debt, need, self._clock())
                if may_have_run(error) or loop.time() + _RETRY_PAUSE >= deadline:
                    raise
            await asyncio.sleep(_RETRY_PAUSE)


def payer_of(reader: Reader, requester: Requester) -> str:
    """Name who pays for a read: the API key of the reader, or else the network of the client."""
    return f"{_KEY}{reader.api_key}" if reader.api_key else requester.network
