"""The secret that signs the cookies of visitors, the same in all processes."""

import secrets
import time
from typing import Final

from live.store.board.keys import SystemKeys
from live.store.connection.client import Store

_BYTES: Final = 32
_FRESH: Final = 1.0  # seconds without asking the store again: `live rebuild` restores the secret beside a server


class VisitorSecret:
    """The secret of one key prefix. The first process that needs it creates it, and the journal keeps a copy."""

    def __init__(self, client: Store, prefix: str) -> None:
        self._client = client
        self._key = SystemKeys(prefix).visitors
        self._known = b""
        self._until = float("-inf")  # by the monotonic clock

    async def find(self) -> bytes:
        """Return the secret, at most a second old; empty if there is none."""
        now = time.monotonic()
        if now >= self._until:
            self._known = bytes(await self._client.call(self._key, "GET", self._key) or b"")
            self._until = now + _FRESH
        return self._known

    async def make(self) -> bytes:
        """Return the secret, and create it if there is none.

        Raises:
            EpochLostError: the store lost data, and perhaps the secret.
        """
        self._client.high_water.require_no_loss()
        if not await self.find():
            new = secrets.token_bytes(_BYTES)
            held = await self._client.call(self._key, "SET", self._key, new, "NX", "GET")
            self._known = new if held is None else bytes(held)
        return self._known
