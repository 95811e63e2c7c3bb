"""Credit for events. The store lends it, from one count, to all processes to which a producer sends."""

from typing import Final

import msgspec

from live.domain.producer import Rated
from live.store.connection.client import Store
from live.store.connection.scripts import Script


class CreditRequest(msgspec.Struct):
    """Lend credit to a process."""

    rate: float  # events a second
    burst: int  # events that may come at once
    debt: int  # events that were counted beyond the last credit. They are paid first, even if no credit is left
    need: int  # waiting requests, one event each
    spare: int  # events to lend in addition, at most a quarter of what is left, so that other processes get some


GCRA: Final = Script("gcra", CreditRequest, waits=False)

_MICROSECONDS: Final = 1_000_000


class Loan(msgspec.Struct, frozen=True):
    """Events that a process may accept."""

    lent: int  # the number of events
    ahead: float  # seconds until the last of these events is due at the producer's rate
    wait: float  # seconds until it makes sense to ask again; 0 when every request got its event


class CreditStore:
    """Borrow credit for everything that has a rate, under one prefix of store keys."""

    def __init__(self, client: Store, gcra: Script[CreditRequest] = GCRA) -> None:
        self._client = client
        self._gcra = gcra

    async def take(self, rated: Rated, debt: int, need: int, spare: int) -> Loan:
        """Pay a debt, and take credit for `need` waiting requests and for `spare` later events.

        After an error, the debt may have been paid.
        """
        reply = await self._gcra(
            self._client,
            [f"{self._client.prefix}:{{rate:{rated.rate_key}}}"],
            CreditRequest(float(rated.rate), rated.burst, debt, need, spare),
        )
        lent, ahead, wait = (float(part) for part in reply)
        return Loan(int(lent), ahead / _MICROSECONDS, wait / _MICROSECONDS)
