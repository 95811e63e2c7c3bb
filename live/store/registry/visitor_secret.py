"""The secret that signs the cookies of visitors, the same in all processes."""

import secrets
from typing import Final

from live.store.board.keys import SystemKeys
from live.store.connection.client import Store, store_errors

_BYTES: Final = 32


class VisitorSecret:
    """The secret of one key prefix. The first process that needs it creates it."""

    def __init__(self, client: Store, prefix: str) -> None:
        self._client = client
        self._key = SystemKeys(prefix).visitors
        self._known = b""

    async def read(self) -> bytes:
        """The secret. Only the first call asks the store.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        if not self._known:
            new = secrets.token_bytes(_BYTES)
            async with store_errors():
                held = await self._client.call(self._key, "SET", self._key, new, "NX", "GET")
            self._known = new if held is None else bytes(held)
        return self._known
