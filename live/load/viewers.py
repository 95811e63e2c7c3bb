"""The watching side of the load test: WebSockets that record when each message arrives."""

import asyncio
import time

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from live.client.watching import live_url, open_viewer
from live.errors import SetupError
from live.load.measure import Seen

_AT_ONCE = 100  # concurrent handshakes


class _Head(msgspec.Struct):
    """The offset in a message; a status has none."""

    offset: int | None = None


class Viewers:
    """Open connections that watch one board."""

    def __init__(self, url: str, board: str) -> None:
        self._url = live_url(url, board)
        self.seen: list[Seen] = []
        self.frames = self.bytes = 0
        self._connections: list[ClientConnection] = []
        self._watching: list[asyncio.Task[None]] = []

    async def connect(self, viewers: int) -> None:
        """Open the connections, and wait until each has received its first message.

        Raises:
            SetupError: the server refuses one.
        """
        gate = asyncio.Semaphore(_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(viewers):
                    tasks.create_task(self._open(gate))
        except* (OSError, WebSocketException, TimeoutError) as group:
            raise SetupError(f"a viewer could not connect to {self._url}: {group.exceptions[0]!r}") from None

    async def await_offset(self, offset: int, patience: float) -> None:
        """Wait until every viewer has seen an offset, for at most `patience` seconds."""
        deadline = time.perf_counter() + patience
        while self.converged(offset) < len(self.seen) and time.perf_counter() < deadline:  # noqa: ASYNC110 - cold
            await asyncio.sleep(0.02)

    def converged(self, offset: int) -> int:
        """The number of viewers that have seen an offset."""
        return sum(1 for seen in self.seen if seen.offsets and seen.offsets[-1] >= offset)

    async def close(self) -> None:
        """Close all connections."""
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._connections), return_exceptions=True)

    async def _open(self, gate: asyncio.Semaphore) -> None:
        async with gate:
            connection = await open_viewer(self._url, ping_interval=None)
            self._connections.append(connection)
            seen = Seen([], [])
            self.seen.append(seen)
            self._note(seen, await connection.recv(decode=False))
        self._watching.append(asyncio.create_task(self._watch(connection, seen)))

    async def _watch(self, connection: ClientConnection, seen: Seen) -> None:
        try:
            while True:
                self._note(seen, await connection.recv(decode=False))
        except ConnectionClosed:
            return  # it did not converge, and the report says so

    def _note(self, seen: Seen, message: bytes) -> None:
        now = time.perf_counter()
        self.frames += 1
        self.bytes += len(message)
        offset = msgspec.json.decode(message, type=_Head).offset
        if offset is not None:
            seen.offsets.append(offset)
            seen.times.append(now)
