"""Visitors of the pages, who have no API key: a signed cookie tells them apart, so that a like counts once for each."""

import re
import secrets
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from live.store.connection.client import Store
from live.store.registry.visitor_secret import VisitorSecret

_SIGNATURE: Final = 16  # bytes
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{22}\.[0-9a-f]{32}")  # 128 bits and the signature


class Visitors:
    """Makes and checks the cookies of visitors. A cookie is a random name and its signature by the server's secret."""

    def __init__(self, client: Store, prefix: str) -> None:
        self._secret = VisitorSecret(client, prefix)

    async def make(self) -> str:
        """Make the cookie of a new visitor.

        Raises:
            EpochLostError: the store lost data.
        """
        name = secrets.token_urlsafe(16)
        return f"{name}.{_sign(await self._secret.make(), name)}"

    async def read(self, cookie: str) -> str | None:
        """Identify who has a cookie, by a digest from which nobody can make it. None if the server did not sign it."""
        if not is_cookie(cookie):
            return None
        name, _, signature = cookie.partition(".")
        secret = await self._secret.find()
        if not (secret and compare_digest(_sign(secret, name), signature)):
            return None
        return blake2b(name.encode(), digest_size=16, key=secret, person=b"visitor").hexdigest()


def is_cookie(text: str) -> bool:
    """Check the form of a cookie, not its signature."""
    return _COOKIE.fullmatch(text) is not None


def _sign(secret: bytes, name: str) -> str:
    return blake2b(name.encode(), digest_size=_SIGNATURE, key=secret, person=b"cookie").hexdigest()
