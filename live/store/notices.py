"""Change notices: hears what the scripts announce, and never misses one without saying so."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from live.errors import StoreUnavailableError
from live.store.client import store_errors

log = structlog.get_logger()

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


async def listen(client: Redis, channels: Mapping[str, str]) -> AsyncIterator[Notice]:
    """Hear notices for ever, over any number of connections.

    redis-py subscribes again by itself after a cut and tells nobody that messages were lost; so a confirmation is
    taken as a gap. It does not notice a peer that went silent; so we ping it, with a deadline of our own.

    Args:
        client: the store.
        channels: board id by channel.
    """
    while True:
        pubsub = client.pubsub()
        try:
            async with store_errors():
                await pubsub.subscribe(*channels)
                async for notice in _hear(pubsub, channels):
                    yield notice
        except StoreUnavailableError as error:
            yield Away(str(error))
        finally:
            with suppress(Exception):  # the connection is being thrown away, in whatever state it is
                await pubsub.aclose()  # type: ignore[no-untyped-call]
        await asyncio.sleep(_RECONNECT_PAUSE)


async def _hear(pubsub: PubSub, channels: Mapping[str, str]) -> AsyncIterator[Notice]:
    """Notices of one connection; raises when it breaks or stays silent."""
    waiting_for_pong = False
    while True:
        message = await pubsub.get_message(timeout=_PING_INTERVAL)
        if message is None:
            if waiting_for_pong:
                raise TimeoutError(f"the store did not answer a ping within {_PING_INTERVAL}s")
            async with store_errors():
                await pubsub.ping()
            waiting_for_pong = True
            continue
        waiting_for_pong = False
        if message["type"] == "message":
            yield Changed(channels[message["channel"].decode()])
        elif message["type"] == "subscribe":
            yield Gap()
