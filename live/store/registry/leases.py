"""Credit for events, lent by the store: one clock and one count for every process that a producer sends to."""

from typing import Final

import msgspec

from live.domain.producer import Producer
from live.store.connection.client import Store, store_errors
from live.store.connection.scripts import Script

GCRA: Final = Script("gcra")

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

    def __init__(self, client: Store, prefix: str, gcra: Script = GCRA) -> None:
        self._client = client
        self._prefix = prefix
        self._gcra = gcra

    async def take(self, producer: Producer, debt: int, need: int, spare: int) -> Lease:
        """Pay a debt, and take credit for `need` requests that wait and for `spare` events to come.

        Raises:
            StoreUnavailableError: the store is away; the debt may be paid.
        """
        async with store_errors():
            reply = await self._gcra(
                self._client,
                [f"{self._prefix}:{{rate:{producer.rate_key}}}"],
                [repr(producer.rate), producer.burst, debt, need, spare],
            )
        lent, ahead, wait = (float(part) for part in reply)
        return Lease(int(lent), ahead / _MICROSECONDS, wait / _MICROSECONDS)
