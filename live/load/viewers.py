"""The watching side of the load test: connections that record when each message arrives."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec
from websockets.exceptions import ConnectionClosed, WebSocketException

from live.client.watching import live_url, open_viewer
from live.errors import SetupError
from live.load.latencies import Seen

_AT_ONCE: Final = 100  # concurrent handshakes
_OK: Final = 200


class _Head(msgspec.Struct):
    """The offset in a message. A status message has no offset."""

    offset: int | None = None


_Note = Callable[[bytes], None]
_Watch = Callable[[_Note], Awaitable[None]]


class ViewerPool:
    """Open connections that watch one board, over WebSockets or server-sent events."""

    def __init__(self, url: str, board: str) -> None:
        self.websocket: list[Seen] = []
        self.sse: list[Seen] = []
        self.frames = self.bytes = 0
        self._live = live_url(url, board)
        self._stream = f"{url}/v1/boards/{quote(board, safe='')}/stream"
        self._open = AsyncExitStack()
        self._watching: list[asyncio.Task[None]] = []

    @property
    def seen(self) -> list[Seen]:
        """What all viewers saw."""
        return [*self.websocket, *self.sse]

    async def connect(self, websocket: int, sse: int = 0) -> None:
        """Open the connections, and wait until each has received its first message.

        Raises:
            SetupError: the server refuses a connection.
        """
        connector = aiohttp.TCPConnector(limit=0)
        session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        await self._open.enter_async_context(session)
        gate = asyncio.Semaphore(_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(websocket):
                    tasks.create_task(self._start(gate, self.websocket, self._watch_websocket))
                for _ in range(sse):
                    tasks.create_task(self._start(gate, self.sse, lambda note: self._watch_events(session, note)))
        except* (OSError, WebSocketException, aiohttp.ClientError, TimeoutError) as group:
            raise SetupError(f"a viewer could not connect to {self._live}: {group.exceptions[0]!r}") from None

    async def await_offset(self, offset: int, patience: float) -> None:
        """Wait until every viewer has seen an offset, for at most `patience` seconds."""
        deadline = time.perf_counter() + patience
        while not all(seen.reached(offset) for seen in self.seen) and time.perf_counter() < deadline:  # noqa: ASYNC110 - cold
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close all connections."""
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self._open.aclose()

    async def _start(self, gate: asyncio.Semaphore, all_seen: list[Seen], watch: _Watch) -> None:
        """Start one viewer, and wait for its first message."""
        seen = Seen([], [])
        all_seen.append(seen)
        first = asyncio.Event()

        def note(message: bytes) -> None:
            now = time.perf_counter()
            self.frames += 1
            self.bytes += len(message)
            offset = msgspec.json.decode(message, type=_Head).offset
            if offset is not None:
                seen.add(offset, now)
            first.set()

        async def watch_until_cut() -> None:
            # If the server closes the connection of a viewer, the viewer does not converge. The report says so.
            with suppress(ConnectionClosed, aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError):
                await watch(note)

        async with gate:
            watching = asyncio.create_task(watch_until_cut())
            self._watching.append(watching)
            waiting = asyncio.create_task(first.wait())
            await asyncio.wait({watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if watching.done():
                await watching
                raise ConnectionError("the server closed the connection before the first message")

    async def _watch_websocket(self, note: _Note) -> None:
        async with await open_viewer(self._live, ping_interval=None) as connection:
            while True:
                note(await connection.recv(decode=False))

    async def _watch_events(self, session: aiohttp.ClientSession, note: _Note) -> None:
        async with session.get(self._stream, headers={"Accept-Encoding": "identity"}) as response:
            if response.status != _OK:
                raise ConnectionError(f"{self._stream} returned {response.status}: {(await response.text())[:300]}")
            received = b""
            async for data in response.content.iter_any():
                *events, received = (received + data).split(b"\n\n")
                for event in events:
                    _, found, message = event.partition(b"\ndata: ")
                    if found:
                        note(message)
