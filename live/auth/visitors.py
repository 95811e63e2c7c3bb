"""Visitors of the pages, who have no API key: a signed cookie tells them apart, so that a like counts once for each."""

import secrets
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from live.store.connection.client import Store
from live.store.registry.visitor_secret import VisitorSecret

_NAME: Final = 22  # characters of base64: 128 bits
_SIGNATURE: Final = 16  # bytes
_LONGEST: Final = _NAME + 1 + 2 * _SIGNATURE


class Visitors:
    """Makes and checks the cookies of visitors. A cookie is a random name and its signature by the server's secret."""

    def __init__(self, client: Store, prefix: str) -> None:
        self._secret = VisitorSecret(client, prefix)

    async def make(self) -> str:
        """The cookie of a new visitor.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        name = secrets.token_urlsafe(16)
        return f"{name}.{_sign(await self._secret.read(), name)}"

    async def read(self, cookie: str) -> str | None:
        """Who has a cookie: a digest, from which nobody can make the cookie. None if the server did not sign it.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        name, _, signature = cookie.partition(".")
        if len(cookie) != _LONGEST or not cookie.isascii():
            return None
        secret = await self._secret.read()
        if not compare_digest(_sign(secret, name), signature):
            return None
        return blake2b(name.encode(), digest_size=16, key=secret, person=b"visitor").hexdigest()


def _sign(secret: bytes, name: str) -> str:
    return blake2b(name.encode(), digest_size=_SIGNATURE, key=secret, person=b"cookie").hexdigest()
