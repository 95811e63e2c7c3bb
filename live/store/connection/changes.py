"""Which boards have changed, all of them over one subscription: what the drainer of the journals listens to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis.exceptions import ResponseError

from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import StoreConnection


class _ChannelReceiver(StoreConnection):
    """A connection with one subscription. It collects the channels on which something was announced."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: set[bytes] = set()
        self.changed = asyncio.Event()

    def received(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        match reply:
            case [b"pmessage", _, channel, _]:
                self.channels.add(channel)
                self.changed.set()
            case ResponseError():
                self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.changed.set()


class Changes:
    """The boards under a prefix of store keys that have changed since they were taken."""

    def __init__(self, client: Store, prefix: str) -> None:
        self._client = client
        self._before = f"{prefix}:{{".encode()
        self._pattern = f"{prefix}:{{*}}"
        self._receiver: _ChannelReceiver | None = None
        self._missed = True  # announcements may have been missed: every board may have changed

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen while in the context."""
        try:
            await self._open()
            yield
        finally:
            if self._receiver is not None:
                self._receiver.abort()

    def take(self) -> set[str] | None:
        """Return the boards that have changed since the last call; None if any board may have changed."""
        receiver = self._receiver
        if receiver is None or self._missed:
            self._missed = False
            return None
        channels, receiver.channels = receiver.channels, set()
        receiver.changed.clear()
        return {channel[len(self._before) : -1].decode() for channel in channels}

    async def wait(self, least: float, until: float) -> None:
        """Wait for at least `least` seconds, and then for a change, or until a time of the loop's clock.

        Raises:
            StoreUnavailableError: the connection was lost, and the store is unavailable.
        """
        await asyncio.sleep(least)
        receiver = self._receiver
        if receiver is None or receiver.ended:
            await self._open()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await receiver.changed.wait()

    async def _open(self) -> None:
        receiver = self._receiver = _ChannelReceiver()
        self._missed = True
        async with store_errors():
            await receiver.open(self._client.connection_pool)
            receiver.send(("PSUBSCRIBE", self._pattern))
