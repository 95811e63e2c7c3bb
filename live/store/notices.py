"""Change notices: hears what the scripts announce, and never misses one without saying so."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from live.errors import StoreUnavailableError
from live.store.client import Store, store_errors
from live.store.line import Wire

_PING_INTERVAL: Final = 1.0  # silence after which we ask whether the store is still there
_RECONNECT_PAUSE: Final = 0.25


class Changed(msgspec.Struct, frozen=True):
    """A board changed."""

    board: str


class Gap(msgspec.Struct, frozen=True):
    """Notices may have been missed, the connection is (again) in order: look at every board."""


class Away(msgspec.Struct, frozen=True):
    """The store can't be heard."""

    reason: str


Notice = Changed | Gap | Away


class _Ear(Wire):
    """A connection that is subscribed; what it hears waits here."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: list[Any] = []
        self._something = asyncio.Event()

    def received(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        self._heard.append(reply)
        self._something.set()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._something.set()

    async def hear(self, patience: float) -> list[Any]:
        """What has been heard since the last call; nothing when it stays silent for so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._something.wait()
        heard, self._heard = self._heard, []
        self._something.clear()
        return heard


async def listen(client: Store, channels: Mapping[str, str]) -> AsyncIterator[Notice]:
    """Hear notices for ever, over any number of connections.

    A new connection is a gap, for what was announced before it is lost. A peer that went silent does not hang up; so
    it is pinged, with a deadline.

    Args:
        client: the store.
        channels: board id by channel.
    """
    names = {channel.encode(): board for channel, board in channels.items()}
    while True:
        ear = _Ear()
        try:
            async with store_errors():
                await ear.open(client.connection_pool)
                ear.send(("SUBSCRIBE", *channels))
                async for notice in _hear(ear, names):
                    yield notice
        except StoreUnavailableError as error:
            yield Away(str(error))
            await asyncio.sleep(_RECONNECT_PAUSE)
        finally:
            ear.abort()


async def _hear(ear: _Ear, names: Mapping[bytes, str]) -> AsyncIterator[Notice]:
    """Notices of one connection, until it is lost; raises when it stays silent, or the store refuses."""
    waiting_for_pong = False
    while not ear.lost.done():
        replies = await ear.hear(_PING_INTERVAL)
        if not replies and not ear.lost.done():
            if waiting_for_pong:
                raise TimeoutError(f"the store did not answer a ping within {_PING_INTERVAL}s")
            ear.send(("PING",))
            waiting_for_pong = True
            continue
        waiting_for_pong = False
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
            kind, channel, *_ = reply
            if kind == b"message":
                yield Changed(names[channel])
            elif kind == b"subscribe":
                yield Gap()
