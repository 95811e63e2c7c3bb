"""Visitors of the pages, who have no API key, and their likes.

A signed cookie tells visitors apart, so a like counts once for each. Likes have a rate for each address or voter, and
one at a time is counted of each visitor.
"""

import asyncio
import math
import re
import secrets
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Final
from weakref import WeakValueDictionary

import msgspec
import structlog

from live.auth.rates import RateLimiter
from live.domain.limits import Client, digest_of_client
from live.domain.producer import burst_of
from live.domain.reader import Reader
from live.errors import ProblemError
from live.settings import Settings
from live.store.connection.client import Store

_SECRET: Final = 32  # bytes
_SIGNATURE: Final = 16  # bytes
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{22}\.[0-9a-f]{32}")  # 128 bits and the signature
_FRESH: Final = 1.0  # seconds until the secret is read again; `live recover` may restore it while a server runs


class Visitors:
    """Make and check the cookies of visitors. A cookie is a random name and its signature by the server's secret.

    All processes under one key prefix share the secret. The first process that needs the secret creates it, and the
    journal keeps a copy.
    """

    def __init__(self, client: Store) -> None:
        self._client = client
        self._key = client.system.visitors
        self._known = b""
        self._until = float("-inf")  # when the secret must be read again, by `time.monotonic`

    async def make(self) -> str:
        """Make the cookie of a new visitor."""
        secret, name = await self._made_secret(), secrets.token_urlsafe(16)
        return f"{name}.{_sign(secret, name)}"

    async def sign(self, parts: Sequence[str]) -> str:
        """Sign a list of texts. No signature of other texts, and no cookie, has the same value."""
        text = msgspec.json.encode(parts)
        return blake2b(text, digest_size=_SIGNATURE, key=await self._made_secret(), person=b"texts").hexdigest()

    async def read(self, cookie: str) -> str | None:
        """Return the digest that identifies the visitor with this cookie, or None if the server did not sign it.

        Nobody can make the cookie from the digest.
        """
        if not is_cookie(cookie):
            return None
        name, _, signature = cookie.partition(".")
        secret = await self._secret()
        if not (secret and compare_digest(_sign(secret, name), signature)):
            return None
        return blake2b(name.encode(), digest_size=16, key=secret, person=b"visitor").hexdigest()

    async def _made_secret(self) -> bytes:
        self._client.high_water.require_no_loss()
        if not await self._secret():
            new = secrets.token_bytes(_SECRET)
            held = await self._client.write(self._key, "SET", self._key, new, "NX", "GET")
            self._known = new if held is None else bytes(held)
        return self._known

    async def _secret(self) -> bytes:
        """Return the secret as it was in the store at most a second ago, or empty bytes."""
        now = time.monotonic()
        if now >= self._until:
            # `write` also waits until the replicas hold the secret, because the cookies of visitors must last.
            self._known = bytes(await self._client.write(self._key, "GET", self._key) or b"")
            self._until = now + _FRESH
        return self._known


def is_cookie(text: str) -> bool:
    """Check the form of a cookie, not its signature."""
    return _COOKIE.fullmatch(text) is not None


def _sign(secret: bytes, name: str) -> str:
    return blake2b(name.encode(), digest_size=_SIGNATURE, key=secret, person=b"cookie").hexdigest()


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
        """Charge a like to the voter whose viewer token it has, or else to the network of the visitor."""
        if voter is None:
            key, whom = f"likes:{digest_of_client(network)}", "an address"
        else:
            key, whom = f"likes:voter:{digest_of_client(voter.signer, voter.voter)}", "a voter"
        sender = Client(key, self._rate, self._burst, whom, "likes", "the setting like_rate")
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
