"""Runs one process of a load test: connects viewers, sends its share of the load, and reports what it measured."""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from itertools import accumulate
from multiprocessing.connection import Connection
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec
import uvloop
from websockets.exceptions import ConnectionClosed, WebSocketException

from live.client.errors import AccessRefusedError, RequestRefusedError
from live.client.events import Event, encode_event
from live.client.sender import Body, Sender, ndjson, open_session
from live.client.watching import live_url, open_viewer
from live.domain.event import Answer
from live.errors import SetupError
from live.load.latencies import Acknowledged, Seen
from live.load.options import Options, Schedule

_AT_ONCE: Final = 100  # concurrent handshakes
_OK: Final = 200

_TIMEOUT: Final = 10.0
_SETTLE: Final = 3.0  # seconds for the last messages to arrive
_GRACE: Final = 1.0  # seconds after the end in which overdue requests are still sent
_JSON: Final = {"Content-Type": "application/json"}


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

    async def connect(self, websocket: int, sse: int = 0) -> None:
        """Open the connections, and wait until each has received its first message."""
        connector = aiohttp.TCPConnector(limit=0)
        session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        await self._open.enter_async_context(session)
        gate = asyncio.Semaphore(_AT_ONCE)
        first = None
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(websocket):
                    tasks.create_task(self._start(gate, self.websocket, self._watch_websocket))
                for _ in range(sse):
                    tasks.create_task(self._start(gate, self.sse, lambda note: self._watch_events(session, note)))
        except* (OSError, WebSocketException, aiohttp.ClientError, TimeoutError) as group:
            first = group.exceptions[0]  # Python 3.11.2 wraps an error that is raised here in another group
        if first is not None:
            raise SetupError(f"a viewer could not connect to {self._live}: {first!r}")

    async def await_offset(self, offset: int) -> None:
        """Wait until every viewer has seen an offset, for a few seconds at most."""
        deadline, viewers = time.perf_counter() + _SETTLE, [*self.websocket, *self.sse]
        while not all(seen.reached(offset) for seen in viewers) and time.perf_counter() < deadline:  # noqa: ASYNC110 - cold
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close all connections."""
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self._open.aclose()

    async def _start(self, gate: asyncio.Semaphore, all_seen: list[Seen], watch: _Watch) -> None:
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


class Counts(msgspec.Struct):
    """Numbers of likes by their outcome. `unsent` likes were due, but no connection was free to send them."""

    sent: int = 0
    accepted: int = 0
    rejected: int = 0
    failed: int = 0
    unsent: int = 0


class Producers:
    """Connections that share a schedule.

    The load is open-loop: a request is due at its time, however long the responses to earlier requests take. If all
    connections wait for responses, the request is sent late, but its latency counts from the time when it was due. So
    a server that stalls can't hide the delay by slowing down the sender (coordinated omission).
    """

    def __init__(self, url: str, board: str, members: int, key: str | None = None, *, seed: int = 7) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.waited: list[float] = []  # for each request that was never sent, the seconds that it had waited at the end
        self.counts = Counts()
        self.last_offset = 0
        self._url = url
        self._board = board
        self._key = key
        self._members = [f"post-{number}" for number in range(1, members + 1)]
        self._weights = list(accumulate(1 / rank for rank in range(1, members + 1)))
        self._chance = random.Random(seed)  # noqa: S311 - the same likes every time

    async def run(
        self, connections: int, schedule: Schedule, started: float, *, process: int = 0, processes: int = 1
    ) -> None:
        """Send this process's share of a schedule. The schedule starts at `started`, a time of `time.perf_counter`."""
        due = schedule.share(process, processes)
        end = started + schedule.seconds + _GRACE

        async def send(sender: Sender) -> None:
            for offset in due:  # all connections take their requests from this iterator
                at = started + offset
                if time.perf_counter() > end:
                    self._skip(schedule.batch, end - at)
                    return
                await asyncio.sleep(max(0.0, at - time.perf_counter()))
                await self._send(sender, schedule.batch, at)

        async with open_session(self._key, connections=connections) as session:
            sender = Sender(session, self._url, self._key, timeout=_TIMEOUT)
            refusal = None
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(connections):
                        tasks.create_task(send(sender))
            except* AccessRefusedError as group:
                refusal = group.exceptions[0]  # it is raised below, as in `connect`
            if refusal is not None:
                raise SetupError(str(refusal))
        for offset in due:
            self._skip(schedule.batch, end - started - offset)

    def _skip(self, batch: int, waited: float) -> None:
        self.counts.unsent += batch
        self.waited.append(waited)

    async def _send(self, sender: Sender, batch: int, due: float) -> None:
        members = self._chance.choices(self._members, cum_weights=self._weights, k=batch)
        lines = [encode_event(Event(member, board=self._board)) for member in members]
        body = Body(lines[0], _JSON, 1, repeatable=True) if batch == 1 else ndjson(lines, repeatable=True)
        self.counts.sent += batch
        sent = time.perf_counter()
        try:
            answer = await sender.attempt(body)
        except AccessRefusedError:
            raise
        except RequestRefusedError:
            self.counts.failed += batch
            return
        at = time.perf_counter()
        if not isinstance(answer, Answer):
            self.counts.failed += batch
            return
        self.counts.accepted += answer.accepted
        self.counts.rejected += batch - answer.accepted
        if answer.accepted:
            offset = answer.offsets[self._board]
            self.last_offset = max(self.last_offset, offset)
            self.acknowledged.append(Acknowledged(offset, due, sent, at, answer.accepted))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of a process."""

    counts: Counts
    acknowledged: list[Acknowledged]
    waited: list[float]
    websocket: list[Seen]
    sse: list[Seen]
    frames: int
    bytes: int


def work(options: Options, number: int, channel: Connection) -> None:
    """Take part in a load test as process `number`. Over `channel`, send a `SetupError` if the test can't run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    with suppress(EOFError, BrokenPipeError):  # the parent is gone
        try:
            uvloop.run(_work(options, number, channel))
        except SetupError as error:
            channel.send(error)


async def _work(options: Options, number: int, channel: Connection) -> None:
    """Say when the viewers are connected, and receive the time to start. Say the last offset, and receive that of all.

    Then send a `Result`. The clock is `time.perf_counter`, which the processes of a machine share.
    """
    processes, totals = options.processes, (options.producers, options.viewers, options.sse_viewers)
    connections, websocket, sse = (total // processes + (number < total % processes) for total in totals)
    viewers = ViewerPool(options.url, options.board)
    producers = Producers(options.url, options.board, options.members, options.key, seed=number)
    try:
        await viewers.connect(websocket, sse)
        channel.send(None)
        started = await asyncio.to_thread(channel.recv)
        await producers.run(connections, options.schedule, started, process=number, processes=processes)
        channel.send(producers.last_offset)
        await viewers.await_offset(await asyncio.to_thread(channel.recv))
    finally:
        await viewers.close()
    channel.send(
        Result(
            counts=producers.counts, acknowledged=producers.acknowledged, waited=producers.waited,
            websocket=viewers.websocket, sse=viewers.sse, frames=viewers.frames, bytes=viewers.bytes,
        )
    )  # fmt: skip
