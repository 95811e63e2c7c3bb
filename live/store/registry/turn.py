"""A turn: something that only one process at a time may do."""

import secrets
from typing import Final

import msgspec

from live.store.connection.client import Store, store_errors
from live.store.connection.scripts import Script


class HoldRequest(msgspec.Struct):
    """Give a process the turn for `ttl` milliseconds."""

    process: str
    ttl: int


HOLD: Final = Script("hold", HoldRequest)

TTL: Final = 3.0  # seconds after which a process that does not take its turn again loses it


class Turn:
    """The turn of this process. The first process to take it has it until it does not renew it for `TTL` seconds."""

    def __init__(self, client: Store, key: str, ttl: float = TTL) -> None:
        self._client = client
        self._key = key
        self._ttl = ttl
        self._process = secrets.token_hex(8)

    async def take(self) -> bool:
        """Take the turn if it is free, or renew it. Returns whether this process has it.

        Raises:
            StoreUnavailableError: the store is unavailable.
        """
        async with store_errors():
            reply = await HOLD(self._client, [self._key], HoldRequest(self._process, round(self._ttl * 1000)))
        return bool(reply[0] == b"held")
