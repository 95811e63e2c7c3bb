"""Visitors of the pages, who have no API key.

A signed cookie tells them apart, so a like counts once for each visitor.
"""

import re
import secrets
import time
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

import msgspec

from live.store.board.keys import SystemKeys
from live.store.connection.client import Store

_SECRET: Final = 32  # bytes
_SIGNATURE: Final = 16  # bytes
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{22}\.[0-9a-f]{32}")  # 128 bits and the signature
_FRESH: Final = 1.0  # seconds until the secret is read again; `live rebuild` may restore it while a server runs


class Visitors:
    """Make and check the cookies of visitors. A cookie is a random name and its signature by the server's secret.

    All processes under one key prefix share the secret. The first process that needs the secret creates it, and the
    journal keeps a copy.
    """

    def __init__(self, client: Store, prefix: str) -> None:
        self._client = client
        self._key = SystemKeys(prefix).visitors
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
        """Return the digest that identifies the visitor with this cookie.

        Nobody can make the cookie from the digest. Return None if the server did not sign the cookie.
        """
        if not is_cookie(cookie):
            return None
        name, _, signature = cookie.partition(".")
        secret = await self._secret()
        if not (secret and compare_digest(_sign(secret, name), signature)):
            return None
        return blake2b(name.encode(), digest_size=16, key=secret, person=b"visitor").hexdigest()

    async def _made_secret(self) -> bytes:
        """Return the secret. Make it, if the store has none."""
        self._client.high_water.require_no_loss()
        if not await self._secret():
            new = secrets.token_bytes(_SECRET)
            held = await self._client.write(self._key, "SET", self._key, new, "NX", "GET")
            self._known = new if held is None else bytes(held)
        return self._known

    async def _secret(self) -> bytes:
        """Return the secret as it was in the store at most a second ago.

        Return empty bytes if the store had no secret.
        """
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
