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


class Channels:
    """What is listened to: board id by channel; it may change while it is listened to."""

    def __init__(self, boards: Mapping[str, str]) -> None:
        self.boards = {channel.encode(): board for channel, board in boards.items()}
        self.ear: _Ear | None = None

    def add(self, channel: str, board: str) -> None:
        """Listen to one more; a gap is heard when it has begun."""
        self.boards[channel.encode()] = board
        if self.ear is not None:
            self.ear.send(("SUBSCRIBE", channel))

    def remove(self, channel: str) -> None:
        """Listen to one no more."""
        self.boards.pop(channel.encode(), None)
        if self.ear is not None:
            self.ear.send(("UNSUBSCRIBE", channel))


async def listen(client: Store, channels: Channels) -> AsyncIterator[Notice]:
    """Hear notices for ever, over any number of connections.

    A new connection is a gap, for what was announced before it is lost. A peer that went silent does not hang up; so
    it is pinged, with a deadline.

    Args:
        client: the store.
        channels: what to listen to.
    """
    while True:
        ear = _Ear()
        try:
            async with store_errors():  # by itself, for it is here that a cancellation may be swallowed
                await ear.open(client.connection_pool)
            async with store_errors():
                ear.send(("SUBSCRIBE", *channels.boards))
                channels.ear = ear
                async for notice in _hear(ear, channels):
                    yield notice
        except StoreUnavailableError as error:
            yield Away(str(error))
            await asyncio.sleep(_RECONNECT_PAUSE)
        finally:
            channels.ear = None
            ear.abort()


async def _hear(ear: _Ear, channels: Channels) -> AsyncIterator[Notice]:
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
            if kind == b"message" and channel in channels.boards:
                yield Changed(channels.boards[channel])
            elif kind == b"subscribe":
                yield Gap()
