"""Change notices: receive what the scripts announce, and report every gap in which notices may be missing.

`listen` serves the hub, which watches some boards. `Changes` serves the drainer of the journals, which wants to know
which of all boards have changed, over one subscription.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from live.errors import StoreUnavailableError
from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import StoreConnection

_PING_INTERVAL: Final = 1.0  # seconds of silence after which the store is pinged
_RECONNECT_PAUSE: Final = 0.25


class Changed(msgspec.Struct, frozen=True):
    """A board changed."""

    board: str


class Missed(msgspec.Struct, frozen=True):
    """Earlier notices may be missing, but no later ones. Check `board`, or every board if that is None."""

    board: str | None = None


class Away(msgspec.Struct, frozen=True):
    """The store is unavailable."""

    reason: str


Notice = Changed | Missed | Away


class _Receiver(StoreConnection):
    """A connection with subscriptions, and a queue of what it has received."""

    def __init__(self) -> None:
        super().__init__()
        self._replies: list[Any] = []
        self._arrived = asyncio.Event()

    def received(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        self._replies.append(reply)
        self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._arrived.set()

    async def receive(self, patience: float) -> list[Any]:
        """Return what was received since the last call; empty after `patience` seconds of silence."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._arrived.wait()
        replies, self._replies = self._replies, []
        self._arrived.clear()
        return replies


class Channels:
    """The subscriptions: the id of a board for each channel. They may change at any time."""

    def __init__(self, boards: Mapping[str, str]) -> None:
        self.boards = {channel.encode(): board for channel, board in boards.items()}
        self.receiver: _Receiver | None = None

    def add(self, channel: str, board: str) -> None:
        """Subscribe to one more channel. `Missed` for its board marks the beginning."""
        self.boards[channel.encode()] = board
        if self.receiver is not None:
            self.receiver.send(("SUBSCRIBE", channel))

    def remove(self, channel: str) -> None:
        """Unsubscribe from a channel."""
        self.boards.pop(channel.encode(), None)
        if self.receiver is not None:
            self.receiver.send(("UNSUBSCRIBE", channel))


async def listen(client: Store, channels: Channels) -> AsyncIterator[Notice]:
    """Yield notices until cancelled, over any number of connections.

    When the store has confirmed every channel of a new connection, yield one `Missed`: earlier announcements are lost.
    A store that fails silently does not close its connection, so a silent store is pinged, with a deadline.

    Args:
        client: the store.
        channels: the subscriptions.
    """
    while True:
        receiver = _Receiver()
        try:
            async with store_errors():  # a block of its own, because this call may swallow a cancellation
                await receiver.open(await client.servers.subscription_pool())
            async with store_errors():
                if channels.boards:
                    receiver.send(("SUBSCRIBE", *channels.boards))
                channels.receiver = receiver
                async for notice in _receive_notices(client, receiver, channels, len(channels.boards)):
                    yield notice
        except StoreUnavailableError as error:
            yield Away(str(error))
            await asyncio.sleep(_RECONNECT_PAUSE)
        finally:
            channels.receiver = None
            receiver.abort()


async def _receive_notices(
    client: Store, receiver: _Receiver, channels: Channels, unconfirmed: int
) -> AsyncIterator[Notice]:
    """Yield the notices of one connection until it is lost. Raise an error if it stays silent or the store refuses.

    A replica that may be out of date is such an error too.

    `unconfirmed` is the number of channels of the first subscription, whose confirmations come first.
    """
    waiting_for_pong = False
    if not unconfirmed:
        yield Missed()
    while not receiver.lost.done():
        replies = await receiver.receive(_PING_INTERVAL)
        client.servers.require_current()
        if not replies and not receiver.lost.done():
            if waiting_for_pong:
                raise TimeoutError(f"the store did not answer a ping within {_PING_INTERVAL}s")
            receiver.send(("PING",))
            waiting_for_pong = True
            continue
        waiting_for_pong = False
        for reply in replies:
            match reply:
                case [b"message", channel, _] if channel in channels.boards:
                    yield Changed(channels.boards[channel])
                case [b"subscribe", *_] if unconfirmed:
                    unconfirmed -= 1
                    if not unconfirmed:
                        yield Missed()
                case [b"subscribe", channel, *_] if channel in channels.boards:
                    yield Missed(channels.boards[channel])
                case ResponseError():
                    raise reply


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
    """Collect the boards under a prefix of store keys that have changed since the last `take`."""

    def __init__(self, client: Store, prefix: str) -> None:
        self._client = client
        self._before = f"{prefix}:{{".encode()
        self._pattern = f"{prefix}:{{*}}"
        self._receiver: _ChannelReceiver | None = None
        self._missed = True  # announcements may have been missed: every board may have changed

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen in the `with` block."""
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
        """Wait `least` seconds, and then until a board changes, or until the time `until` of the loop's clock.

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
            await receiver.open(await self._client.servers.subscription_pool())
            receiver.send(("PSUBSCRIBE", self._pattern))
