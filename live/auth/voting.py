"""Admits the likes and votes of the pages: at a rate of each address or voter, and one at a time of each visitor."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

import structlog

from live.auth.rate_limiter import RateLimiter
from live.domain.limits import Liking
from live.domain.producer import burst_of
from live.domain.reader import Reader
from live.errors import ProblemError
from live.settings import Settings

log = structlog.get_logger()

# A hall of phones behind one address votes within some seconds of the announcement, and then hardly ever.
LIKE_BURST: Final = 20.0  # seconds of the rate
_QUIET: Final = 60.0  # seconds between two warnings


class Voting:
    """The likes and votes that this process is counting, and the rates of those who send them."""

    def __init__(self, limiter: RateLimiter, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._limiter = limiter
        self._rate, self._burst = settings.like_rate, burst_of(settings.like_rate, LIKE_BURST)
        self._clock = clock
        self._warned = -math.inf
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def admit(self, network: str, voter: Reader | None) -> None:
        """Charge a like to the voter whose viewer token it has, or else to the network of the visitor.

        Raises:
            ProblemError: `rate_exceeded`.
        """
        if voter is None:
            sender = Liking.of_network(network, self._rate, self._burst)
        else:
            sender = Liking.of_voter(voter.signer, voter.voter, self._rate, self._burst)
        try:
            await self._limiter.admit(sender)
        except ProblemError:
            if self._clock() >= self._warned + _QUIET:
                self._warned = self._clock()
                log.warning(
                    "likes must wait, because many come from one address or voter: raise LIVE_LIKE_RATE to "
                    "count more of them at once"
                )
            raise

    def turn(self, visitor: str) -> asyncio.Lock:
        """Return the lock under which a like of this visitor is counted. The visitor's other likes wait for it."""
        lock = self._turns.get(visitor)
        if lock is None:
            lock = self._turns[visitor] = asyncio.Lock()
        return lock
