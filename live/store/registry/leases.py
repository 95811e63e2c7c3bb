"""Credit for events, lent by the store: one clock and one count for every process that a producer sends to."""

from typing import Final

import msgspec

from live.domain.producer import Producer
from live.store.connection.client import Store, store_errors
from live.store.connection.scripts import Script


class CreditRequest(msgspec.Struct):
    """Lend credit to a process.

    Attributes:
        rate: events a second.
        burst: events that may come at once.
        debt: events that were counted beyond the last credit; paid first, and whatever is left.
        need: requests that wait, an event each.
        spare: events to lend beyond them; at most a quarter of what is left, so that others find some.
    """

    rate: float
    burst: int
    debt: int
    need: int
    spare: int


GCRA: Final = Script("gcra", CreditRequest)

_MICROSECONDS: Final = 1_000_000


class Lease(msgspec.Struct, frozen=True):
    """Events that may be taken in.

    The last of them is due in `ahead` seconds. `wait` is the time until it is worth asking again, when there was less
    than was needed.
    """

    lent: int
    ahead: float
    wait: float


class LeaseStore:
    """The way to the credit of every producer under one key prefix."""

    def __init__(self, client: Store, prefix: str, gcra: Script[CreditRequest] = GCRA) -> None:
        self._client = client
        self._prefix = prefix
        self._gcra = gcra

    async def take(self, producer: Producer, debt: int, need: int, spare: int) -> Lease:
        """Pay a debt, and take credit for `need` requests that wait and for `spare` events to come.

        Raises:
            StoreUnavailableError: the store is unavailable; the debt may be paid.
        """
        async with store_errors():
            reply = await self._gcra(
                self._client,
                [f"{self._prefix}:{{rate:{producer.rate_key}}}"],
                CreditRequest(float(producer.rate), producer.burst, debt, need, spare),
            )
        lent, ahead, wait = (float(part) for part in reply)
        return Lease(int(lent), ahead / _MICROSECONDS, wait / _MICROSECONDS)
