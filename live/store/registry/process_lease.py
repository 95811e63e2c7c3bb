"""A lease: the right to do something that only one process at a time may do."""

import secrets
from typing import Final

import msgspec

from live.store.connection.client import Store
from live.store.connection.scripts import Script


class HoldRequest(msgspec.Struct):
    """Give a process the lease for `ttl` milliseconds."""

    process: str
    ttl: int


HOLD: Final = Script("hold", HoldRequest)

TTL: Final = 3.0  # seconds after which a process that does not renew its lease loses it


class ProcessLease:
    """The lease of this process. The first process to take it holds it while it renews it within `TTL` seconds."""

    def __init__(self, client: Store, key: str, ttl: float = TTL) -> None:
        self._client = client
        self._key = key
        self._ttl = ttl
        self._process = secrets.token_hex(8)

    async def take(self) -> bool:
        """Take the lease if it is free, or renew it. Return whether this process holds it."""
        reply = await HOLD(self._client, [self._key], HoldRequest(self._process, round(self._ttl * 1000)))
        return bool(reply[0] == b"held")
