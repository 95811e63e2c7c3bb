"""Credit for events. The store lends it, from one count, to all processes to which a producer sends."""

from typing import Final

import msgspec

from live.domain.limits import Rated
from live.store.connection.client import Store
from live.store.connection.scripts import Script


class CreditRequest(msgspec.Struct):
    """Lend credit to a process.

    Attributes:
        rate: events a second.
        burst: events that may come at once.
        debt: events that were counted beyond the last credit. They are paid first, even if no credit is left.
        need: waiting requests, one event each.
        spare: events to lend in addition, at most a quarter of what is left, so that other processes get some.
    """

    rate: float
    burst: int
    debt: int
    need: int
    spare: int


GCRA: Final = Script("gcra", CreditRequest, waits=False)

_MICROSECONDS: Final = 1_000_000


class Loan(msgspec.Struct, frozen=True):
    """Events that a process may accept.

    Attributes:
        lent: the number of events.
        ahead: seconds until the last of these events is due at the producer's rate.
        wait: seconds until it makes sense to ask again; 0 when every request got its event.
    """

    lent: int
    ahead: float
    wait: float


class CreditStore:
    """Borrow credit for everything that has a rate, under one prefix of store keys."""

    def __init__(self, client: Store, prefix: str, gcra: Script[CreditRequest] = GCRA) -> None:
        self._client = client
        self._prefix = prefix
        self._gcra = gcra

    async def take(self, rated: Rated, debt: int, need: int, spare: int) -> Loan:
        """Pay a debt, and take credit for `need` waiting requests and for `spare` later events.

        Raises:
            StoreUnavailableError: the store is unavailable; the debt may have been paid.
        """
        reply = await self._gcra(
            self._client,
            [f"{self._prefix}:{{rate:{rated.rate_key}}}"],
            CreditRequest(float(rated.rate), rated.burst, debt, need, spare),
        )
        lent, ahead, wait = (float(part) for part in reply)
        return Loan(int(lent), ahead / _MICROSECONDS, wait / _MICROSECONDS)
