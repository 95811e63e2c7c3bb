"""Change notices: receive the notices of scripts, and report every gap in which notices may be missing.

Each board has a channel on the server of its store keys. So a process listens to each server that has one of its
channels, and a gap or a silent server affects only the boards of this server. A primary that has lost its replicas
counts as silent, because another server may be the primary by now.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from redis.crc import key_slot
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import ResponseError

from live.errors import StoreUnavailableError
from live.store.connection.client import Store, store_errors
from live.store.connection.pipelined import ERRORS, StoreConnection, as_unavailable
from live.store.connection.replicated import PrimaryConnection
from live.store.connection.topology import Servers, refusal

_PING_INTERVAL: Final = 1.0  # seconds of silence after which a server is pinged
_RECONNECT_PAUSE: Final = 0.25


class Changed(msgspec.Struct, frozen=True):
    """A board changed."""

    board: str


class Missed(msgspec.Struct):
    """Earlier notices of these boards may be missing, but no later notices. Check the boards."""

    boards: list[str]


class Away(msgspec.Struct):
    """The server of these boards is unavailable."""

    boards: list[str]
    reason: str


Notice = Changed | Missed | Away


class Channels:
    """The subscriptions: the id of a board for each channel. They may change at any time."""

    def __init__(self, boards: Mapping[str, str]) -> None:
        self.boards = {channel.encode(): board for channel, board in boards.items()}
        self.ears: Ears | None = None

    def add(self, channel: str, board: str) -> None:
        """Subscribe to one more channel. A `Missed` for its board says that notices arrive from now on."""
        name = channel.encode()
        self.boards[name] = board
        if self.ears is not None:
            self.ears.place([name])

    def remove(self, channel: str) -> None:
        """Unsubscribe from a channel."""
        name = channel.encode()
        self.boards.pop(name, None)
        if self.ears is not None:
            self.ears.leave(name)


async def listen(client: Store, channels: Channels) -> AsyncIterator[Notice]:
    """Yield notices until cancelled, over any number of connections.

    When a server has confirmed channels, yield `Missed` for their boards: earlier notices may be missing. A server that
    fails silently does not close its connection, so a silent server is pinged, with a deadline.
    """
    ears = channels.ears = Ears(client.servers, channels.boards)
    try:
        ears.place(channels.boards)
        while True:
            for notice in await ears.receive():
                yield notice
    finally:
        channels.ears = None
        await ears.close()


class _Ear(StoreConnection):
    """A connection to a server, with the channels that this server holds."""

    def __init__(self, ears: "Ears", server: PrimaryConnection) -> None:
        super().__init__()
        self.server = server
        self.channels: set[bytes] = set()
        self.confirmed: set[bytes] = set()  # the channels whose notices all arrive
        self.refusal: ResponseError | None = None  # the error of the server that ended this connection
        self.has_heard = False  # whether anything arrived since the last check
        self._ears = ears
        self._is_open = False
        self._moved: dict[int, ResponseError] = {}  # by slot of a Cluster: the error that names another server

    def begin(self) -> None:
        """Subscribe to all channels on the open connection, each with its own command, as a Cluster demands."""
        self._is_open = True
        self.send(*(("SSUBSCRIBE", channel) for channel in self.channels))
        self._end_if_idle()

    def join(self, channel: bytes) -> None:
        """Add a channel, and subscribe to it if the connection is open."""
        if channel not in self.channels:
            self.channels.add(channel)
            if self._is_open:
                self.send(("SSUBSCRIBE", channel))

    def leave(self, channel: bytes) -> None:
        """Unsubscribe from a channel. If it was the last channel, drop the connection."""
        if channel in self.channels:
            self.channels.discard(channel)
            self.confirmed.discard(channel)
            if self._is_open:
                self.send(("SUNSUBSCRIBE", channel))
                self._end_if_idle()

    def received(self, reply: Any) -> None:  # noqa: ANN401 - any reply
        """Take a notice, or the reply to a subscription."""
        self.has_heard = True
        match reply:
            case [b"smessage", channel, _]:
                self._ears.hear(channel)
            case [b"ssubscribe", channel, _] if channel in self.channels:
                self.confirmed.add(channel)
                self._ears.miss(channel)
            # The channel's slot of the Cluster has moved.
            case [b"sunsubscribe", channel, _] if channel in self.confirmed:
                self.confirmed.discard(channel)
                self.send(("SSUBSCRIBE", channel))  # the reply says which server holds the slot now
            case ResponseError() if refusal(reply) == "MOVED":
                if not self._moved:
                    asyncio.get_running_loop().call_soon(self._hand_over)
                self._moved[int(str(reply).split()[1])] = reply
            case ResponseError():
                self.refusal = reply
                self.abort()

    def _hand_over(self) -> None:
        """Let other servers take the channels that this one does not hold."""
        moved, self._moved = self._moved, {}
        for channel in self.channels - self.confirmed:
            if (error := moved.get(key_slot(channel))) is not None:
                self.channels.discard(channel)
                self._ears.place([channel], error)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self.channels:
            self.abort()


class Ears:
    """The connections over which notices arrive: one for each server that holds a channel."""

    def __init__(self, servers: Servers, boards: Mapping[bytes, str]) -> None:
        self._servers = servers
        self._boards = boards
        self._ears: dict[PrimaryConnection, _Ear] = {}
        self._homeless: dict[bytes, Exception | None] = {}  # channels without a server, with the reason
        self._notices: list[Notice] = []
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._placing: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None

    @property
    def confirmed(self) -> set[bytes]:
        """The channels whose notices all arrive."""
        return {channel for ear in self._ears.values() for channel in ear.confirmed}

    async def receive(self) -> list[Notice]:
        """Wait until there are notices, and return them."""
        await self._arrived.wait()
        self._arrived.clear()
        if self._broken is not None:
            raise self._broken
        notices, self._notices = self._notices, []
        return notices

    async def close(self) -> None:
        """Drop all connections, and listen to nothing more."""
        self._boards = {}
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Notices

    def hear(self, channel: bytes) -> None:
        """Report a change of the board of a channel."""
        if (board := self._boards.get(channel)) is not None:
            self._notices.append(Changed(board))
            self._arrived.set()

    def miss(self, channel: bytes) -> None:
        """Report that a gap in the notices of a channel has ended."""
        if (board := self._boards.get(channel)) is None:
            return
        last = self._notices[-1] if self._notices else None
        if isinstance(last, Missed):
            last.boards.append(board)
        else:
            self._notices.append(Missed([board]))
            self._arrived.set()

    def _lose(self, channels: Iterable[bytes], error: Exception) -> None:
        """Find the servers of the channels again after a pause."""
        left = [channel for channel in channels if channel in self._boards]
        if left:
            self._notices.append(Away([self._boards[channel] for channel in left], str(as_unavailable(error))))
            self._arrived.set()
            asyncio.get_running_loop().call_later(_RECONNECT_PAUSE, self.place, left, error)

    # Servers

    def place(self, channels: Iterable[bytes], error: Exception | None = None) -> None:
        """Find the servers of channels and listen there. `error` says why their last server can't be used."""
        self._homeless.update({channel: error for channel in channels if channel in self._boards})
        if self._homeless and self._placing is None:
            self._placing = self._begin(self._place())

    def leave(self, channel: bytes) -> None:
        """Stop listening to a channel."""
        self._homeless.pop(channel, None)
        for ear in self._ears.values():
            ear.leave(channel)

    async def _place(self) -> None:
        try:
            while self._homeless:
                waiting, self._homeless = self._homeless, {}
                failed: dict[bytes, Exception] = {}
                for channel, error in waiting.items():
                    if channel not in self._boards:
                        continue
                    try:
                        server = await self._find(channel.decode(), error, next(iter(failed.values()), None))
                    except (*ERRORS, StoreUnavailableError) as reason:
                        failed[channel] = reason
                    else:
                        self._join(server, channel)
                if failed:
                    self._lose(failed, next(iter(failed.values())))
        finally:
            self._placing = None

    async def _find(self, key: str, error: Exception | None, failed: Exception | None) -> PrimaryConnection:
        """Find the server of a channel, unless `failed` is the error of such a search a moment ago."""
        if error is not None:
            await self._servers.learn(key, error)
        server = self._servers.primary(key)
        if server is None and failed is not None:
            raise failed
        return server or await self._servers.find(key)

    def _join(self, server: PrimaryConnection, channel: bytes) -> None:
        if channel not in self._boards:
            return  # removed meanwhile
        ear = self._ears.get(server)
        if ear is None or ear.ended:
            ear = self._ears[server] = _Ear(self, server)
            self._begin(self._run(ear))
        ear.join(channel)

    async def _run(self, ear: _Ear) -> None:
        """Listen until the server is unavailable, or no longer holds the channels."""
        error: Exception = LostConnectionError("the connection to the store was lost")
        is_away = False
        try:
            async with store_errors():  # a separate block, because this call may swallow a cancellation
                await ear.open(ear.server.pool)
            async with store_errors():
                await ear.server.require_replicas()
                ear.begin()
                await self._watch(ear)
        except StoreUnavailableError as reason:
            is_away = True
            error = reason.__cause__ if isinstance(reason.__cause__, Exception) else reason
        finally:
            ear.abort()
            if self._ears.get(ear.server) is ear:
                del self._ears[ear.server]
        if is_away:
            self._lose(ear.channels, error)
        else:
            self.place(ear.channels, error)

    async def _watch(self, ear: _Ear) -> None:
        """Return when another server holds the channels, or when the connection is lost after it worked.

        The errors are those of a silent server, one that refuses, and one that has lost its replicas.
        """
        is_waiting = False
        loop = asyncio.get_running_loop()
        ping_at = loop.time() + _PING_INTERVAL
        while True:
            trusted_until = ping_at
            # `require_replicas` uses the connection for calls. Ignore the loss of that connection: if the server has
            # failed, the connection for notices fails too.
            with suppress(StoreUnavailableError, LostConnectionError):
                trusted_until = await ear.server.require_replicas()
            await asyncio.wait([ear.lost], timeout=max(0.0, min(trusted_until, ping_at) - loop.time()))
            if ear.lost.done():
                if ear.confirmed and ear.refusal is None:
                    return
                raise ear.refusal or LostConnectionError("the connection to the store was lost")
            if loop.time() < ping_at:
                continue
            ping_at = loop.time() + _PING_INTERVAL
            if not ear.has_heard:
                if is_waiting:
                    raise TimeoutError(f"the store did not answer a ping within {_PING_INTERVAL}s")
                ear.send(("PING",))
            is_waiting, ear.has_heard = not ear.has_heard, False
            # After a failover, all channels have another server, so checking one channel is enough. If a slot of a
            # Cluster moves, the server says so.
            channel = next(iter(ear.confirmed), None)
            if channel is not None and self._servers.primary(channel.decode()) not in {None, ear.server}:
                return

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
            self._arrived.set()
