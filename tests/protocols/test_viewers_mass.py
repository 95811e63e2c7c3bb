"""Many viewers of one process: slow viewers stay connected while they make progress, and do not delay other viewers."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import IPPROTO_TCP, SO_LINGER, SO_RCVBUF, SOL_SOCKET, TCP_MAXSEG, socket
from statistics import median
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from tests.harness.raw_socket import HANDSHAKE
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.viewer import ModelViewer
from tests.harness.watching import WATCH
from tests.harness.wire import request

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.fault]

HEALTHY, STALLED, TRICKLING = 1000, 50, 50
RATE: Final = 1024  # bytes per second
SHAKE: Final = request("GET", WATCH + "?limit=10", *HANDSHAKE)
PING: Final = Frame(Opcode.PING, b"").serialize(mask=False)
PONG: Final = Frame(Opcode.PONG, b"").serialize(mask=True)
POSTS: Final = 100
ROUNDS: Final = 8  # the most rounds that are measured


async def request_to_watch(url: str, **options: int) -> socket:
    """A connection with a sent handshake. The options make its buffers as small as the buffers of a distant phone."""
    own, address = socket(), urlsplit(url)
    for name, value in options.items():
        own.setsockopt(*{"window": (SOL_SOCKET, SO_RCVBUF), "segment": (IPPROTO_TCP, TCP_MAXSEG)}[name], value)
    own.setblocking(False)  # noqa: FBT003 - its only argument
    loop = asyncio.get_running_loop()
    await loop.sock_connect(own, (address.hostname, address.port))
    await loop.sock_sendall(own, SHAKE)
    return own


class Trickle:
    """A viewer that reads one kilobyte per second and answers pings as it reads them."""

    def __init__(self, own: socket) -> None:
        self.own = own
        self.model = ModelViewer()
        self.running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        begun, taken, head = loop.time(), 0, b""
        parser = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN)
        while piece := await loop.sock_recv(self.own, RATE // 8):
            taken += len(piece)
            if b"\r\n\r\n" in head:
                parser.receive_data(piece)
            else:
                head += piece
                parser.receive_data(head.partition(b"\r\n\r\n")[2])
            for event in parser.events_received():
                if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                    self.model.receive(bytes(event.data))
            for data in parser.data_to_send():
                await loop.sock_sendall(self.own, data)
            await asyncio.sleep(begun + taken / RATE - loop.time())

    async def leave(self) -> None:
        """Reset the connection, and raise the error of a message that did not follow from the previous message."""
        if self.running.done():
            self.running.result()
        self.running.cancel()
        await asyncio.wait([self.running])
        hang_up(self.own)


def hang_up(own: socket) -> None:
    """Reset a connection."""
    own.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    own.close()


class Healthy(asyncio.Protocol):
    """A viewer that records when it saw each offset."""

    def __init__(self, seen: dict[int, list[float]]) -> None:
        self._seen = seen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if PING in data:  # a ping comes between other frames; no text contains these bytes
            self._transport.write(PONG)
        while found := data.find(b'"offset":') + 1:
            end = data.index(b",", found)
            self._seen.setdefault(int(data[found + 8 : end]), []).append(now)
            data = data[end:]


class Crowd:
    """A server with a board of ten members, and a thousand viewers."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url
        self.client = client
        self.seen: dict[int, list[float]] = {}

    async def change(self) -> int:
        """Change the whole top; returns the new offset."""
        events = [{"key": f"{number}".ljust(100, "x"), "amount": number + 1} for number in range(10)]
        offset: int = (await self.client.post("/v1/events", json=events)).json()["offsets"]["posts"]
        return offset

    async def add_viewers(self, viewers: int) -> None:
        """Connect healthy viewers."""
        for _ in range(viewers):
            own = await request_to_watch(self.url)
            await asyncio.get_running_loop().create_connection(lambda: Healthy(self.seen), sock=own)

    async def p99(self) -> float:
        """The 99th percentile of the seconds from before a POST until a viewer has seen its change."""
        took: list[float] = []
        for _ in range(POSTS):
            self.seen.clear()
            begun = time.perf_counter()
            offset = await self.change()
            while len(self.seen.get(offset, ())) < HEALTHY:
                await asyncio.sleep(0.001)
                assert time.perf_counter() < begun + 20
            took += [at - begun for at in self.seen[offset]]
        return sorted(took)[len(took) * 99 // 100]


@asynccontextmanager
async def crowd(store: StoreProcess, folder: Path, **changes: Any) -> AsyncIterator[Crowd]:
    """A server in its own process."""
    server = ServerProcess(fresh_settings(store.url, **changes), folder)
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=180) as client:
        try:
            yield Crowd(server.url, client)
        finally:
            server.kill()


async def test_slow_viewers_do_not_slow_down_healthy_ones(own_store: StoreProcess, tmp_path: Path) -> None:
    """Compare the p99 of a thousand viewers with and without slow viewers: fifty read nothing, and fifty 1 KB/s."""
    changes = {"conflation_interval": 0.01, "slow_timeout": 600}
    async with crowd(own_store, tmp_path, **changes) as server:
        await server.change()
        await server.add_viewers(HEALTHY)
        await server.p99()
        alone, with_slow = list[float](), list[float]()
        # Other work on this machine changes the times of single rounds. Slow viewers would slow down every round.
        while len(with_slow) < ROUNDS and (len(with_slow) < 2 or min(with_slow) > 1.2 * median(alone)):
            alone.append(await server.p99())
            stalled = [await request_to_watch(server.url, window=4096) for _ in range(STALLED)]
            trickling = [
                Trickle(await request_to_watch(server.url, window=4096, segment=1400)) for _ in range(TRICKLING)
            ]
            for _ in range(60):
                await server.change()
                await asyncio.sleep(0.02)
            with_slow.append(await server.p99())
            for trickle in trickling:
                assert not trickle.running.done()
                await trickle.leave()
            for own in stalled:
                hang_up(own)
        assert min(with_slow) <= 1.2 * median(alone)


async def test_a_viewer_that_reads_a_kilobyte_per_second_stays_connected(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    """For longer than `slow_timeout` and a round of pings, the viewer lags but stays connected.

    In the end it holds the top. Its buffers are small. With a large buffer, the kernel announces free space only when
    half of it is read, and until then the viewer looks like a viewer that never reads.
    """
    changes = {"conflation_interval": 0.05, "slow_timeout": 8}
    async with crowd(own_store, tmp_path, **changes) as server:
        await server.change()
        trickling = [
            Trickle(await request_to_watch(server.url, window=window, segment=segment))
            for window in (2048, 4096)
            for segment in (536, 1400)
        ]
        end = time.monotonic() + 22
        while time.monotonic() < end:
            last = await server.change()
            await asyncio.sleep(0.05)
        while any(trickle.model.offset < last for trickle in trickling):
            for trickle in trickling:
                assert not trickle.running.done() or trickle.running.result(), "the viewer was disconnected"
            assert time.monotonic() < end + 90
            await asyncio.sleep(0.1)
        page = (await server.client.get("/v1/boards/posts?limit=10")).json()
        for trickle in trickling:
            assert msgspec.to_builtins(trickle.model.records) == page["records"]
            assert trickle.model.syncs < 100
            await trickle.leave()
