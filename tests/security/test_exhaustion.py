"""One client takes all that it can get of file descriptors, places and memory. Other clients are still served."""

import asyncio
import socket as sockets
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.frames import Opcode

from tests.harness.raw_socket import HANDSHAKE, frame
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.harness.wire import JSON, Wire, connected, post, request, statuses

pytestmark = [pytest.mark.slow, pytest.mark.security]

ONE = b'{"key":"a"}'
HEALTH = request("GET", "/healthz")
WATCH = request("GET", "/v1/boards/posts/live", *HANDSHAKE)
STRANGER = "127.0.0.9"  # another address of this machine


@contextmanager
def started(store: str, folder: Path, python: str | None = None, **changes: Any) -> Iterator[ServerProcess]:
    """A server process."""
    server = ServerProcess(fresh_settings(store, **changes), folder, python)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def with_files(folder: Path, soft: int, hard: int) -> str:
    """A Python launcher with a limit of open files."""
    launcher = folder / f"python-{soft}-{hard}"
    launcher.write_text(f'#!/bin/sh\nulimit -Sn {soft} && ulimit -Hn {hard} && exec {sys.executable} "$@"\n')
    launcher.chmod(0o700)
    return str(launcher)


@asynccontextmanager
async def from_address(url: str, address: str, window: int | None = None) -> AsyncIterator[Wire]:
    """A connection from an address of this machine."""
    own = sockets.socket()
    if window is not None:
        own.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, window)
    own.setblocking(False)  # noqa: FBT003 - its only argument
    own.bind((address, 0))
    parts = httpx.URL(url)
    await asyncio.get_running_loop().sock_connect(own, (parts.host, parts.port))
    wire = Wire(*await asyncio.open_connection(sock=own, limit=window or 65536))
    try:
        yield wire
    finally:
        wire.writer.transport.abort()
        with suppress(ConnectionError):
            await wire.writer.wait_closed()


async def is_served(url: str) -> bool:
    """Whether a producer and a health check are served."""
    for sent in (post(ONE), HEALTH):
        async with connected(url) as wire:
            await wire.send(sent)
            try:
                answer = await wire.answer()
            except (ConnectionError, asyncio.IncompleteReadError):
                return False
            if statuses([answer]) != [200]:
                return False
    return True


async def test_the_soft_limit_of_open_files_is_raised(valkey_url: str, tmp_path: Path) -> None:
    """Under a soft limit of 64 open files, as a login shell may set, a server takes 200 viewers."""
    with started(valkey_url, tmp_path, with_files(tmp_path, 64, 4096)) as server:
        async with AsyncExitStack() as stack:
            for _ in range(200):
                wire = await stack.enter_async_context(connected(server.url))
                await wire.send(WATCH)
                assert (await wire.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            assert await is_served(server.url)


async def test_viewers_leave_file_descriptors_to_producers_and_health(valkey_url: str, tmp_path: Path) -> None:
    """With few open files, the server logs lower limits.

    It refuses excess viewers, and serves producers and health checks.
    """
    with started(valkey_url, tmp_path, with_files(tmp_path, 300, 300)) as server:
        assert "a process may open 300 files, so it takes" in server.log()
        async with AsyncExitStack() as stack:
            for _ in range(300):
                wire = await stack.enter_async_context(connected(server.url))
                await wire.send(WATCH)
                head = await wire.reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 101 "):
                    break
            assert head.startswith(b"HTTP/1.1 503 ")
            assert await is_served(server.url)
            for _ in range(300):  # these connections send nothing
                await stack.enter_async_context(from_address(server.url, STRANGER))
            assert await is_served(server.url)
        assert "Traceback" not in server.log()


async def test_one_address_can_not_take_every_place(valkey_url: str, tmp_path: Path, effort: int) -> None:
    """Slow requests from one address take all places that it may have. Every request from other addresses is served."""
    with started(valkey_url, tmp_path, max_connections=128) as server:
        async with AsyncExitStack() as stack:

            async def come() -> None:
                wire = await stack.enter_async_context(from_address(server.url, STRANGER))
                with suppress(ConnectionError):
                    await wire.send(post(b"", ("Content-Length", "10000")))
                    while not wire.reader.at_eof():
                        await wire.send(b" ")
                        await asyncio.sleep(0.03)

            slow = [asyncio.create_task(come()) for _ in range(200)]
            try:
                await eventually(lambda: has_at_least(server, 60))
                served = [await is_served(server.url) for _ in range(50 * effort)]
            finally:
                for task in slow:
                    task.cancel()
                await asyncio.gather(*slow, return_exceptions=True)
        assert all(served), f"{served.count(False)} of {len(served)} not served"


async def test_the_limit_of_an_address_does_not_affect_others(own_store: StoreProcess, tmp_path: Path) -> None:
    """Two busy connections of one address reach its limit.

    The third connection is refused, and another address is served.
    """
    with started(own_store.url, tmp_path, max_connections=4) as server:
        assert await is_served(server.url)
        async with AsyncExitStack() as stack, connected(server.url) as other:
            with own_store.frozen():  # with a frozen store, every event waits for its answer
                for _ in range(2):
                    wire = await stack.enter_async_context(from_address(server.url, STRANGER))
                    await wire.send(post(ONE))
                wire = await stack.enter_async_context(from_address(server.url, STRANGER))
                await wire.send(post(ONE))
                assert b"too_many_connections" in await wire.rest()
                await other.send(post(ONE))
            assert statuses([await other.answer()]) == [200]
            assert await is_served(server.url)


async def test_connections_with_unread_answers_keep_their_places(valkey_url: str, tmp_path: Path) -> None:
    """Clients do not read large answers. The server never holds more connections than places."""
    changes: dict[str, Any] = {"max_connections": 10, "slow_timeout": 60}
    with started(valkey_url, tmp_path, **changes) as server:
        await fill(server.url, 1000)
        async with AsyncExitStack() as stack:
            for _ in range(40):
                wire = await stack.enter_async_context(from_address(server.url, STRANGER, window=4096))
                with suppress(ConnectionError):
                    await wire.send(request("GET", "/v1/boards/posts?limit=1000"))
            await eventually(lambda: has_at_most(server, 10))
            await eventually(lambda: is_served(server.url))


async def test_unread_bytes_are_limited(valkey_url: str, tmp_path: Path) -> None:
    """When more than twice `max_unanswered` bytes wait, the connection that made no progress for longest is dropped."""
    changes: dict[str, Any] = {"max_unanswered": 2_000_000, "slow_timeout": 60}
    with started(valkey_url, tmp_path, **changes) as server:
        await fill(server.url, 1000)
        async with AsyncExitStack() as stack:

            async def has_dropped() -> bool:
                wire = await stack.enter_async_context(from_address(server.url, STRANGER, window=4096))
                with suppress(ConnectionError):
                    # The kernel may take two answers whole. Only a connection with more than that counts as unread.
                    await wire.send(4 * request("GET", "/v1/boards/posts?limit=1000"))
                async with httpx.AsyncClient(base_url=server.url) as client:
                    metrics = (await client.get("/metrics")).text
                return 'live_dropped_connections_total{reason="unread"}' in metrics

            await eventually(has_dropped)
            assert await is_served(server.url)


async def fill(url: str, records: int) -> None:
    """Post `records` records whose members have long names."""
    async with httpx.AsyncClient(base_url=url, timeout=180) as client:
        for first in range(0, records, 200):
            events = [{"key": f"{number}-".ljust(1000, "x")} for number in range(first, first + 200)]
            assert (await client.post("/v1/events", json=events)).status_code == 200


async def has_at_least(server: ServerProcess, least: int) -> bool:
    """Return whether the stranger holds at least this many connections."""
    return held_by_stranger(server) >= least


async def has_at_most(server: ServerProcess, most: int) -> bool:
    """Return whether the stranger holds at most this many connections."""
    return held_by_stranger(server) <= most


def held_by_stranger(server: ServerProcess) -> int:
    """The number of established connections from the stranger's address, from the kernel's table."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    port = f":{httpx.URL(server.url).port:04X}"
    mine = [line.split() for line in lines]
    return sum(part[1].endswith(port) and part[2].startswith("0900007F") and part[3] == "01" for part in mine)


def memory(server: ServerProcess) -> int:
    """The resident memory of the server in bytes."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii").splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kilobytes) * 1024


@pytest.mark.parametrize("reads", [False, True], ids=["reads nothing", "reads slowly"])
async def test_a_flood_of_pings_does_not_fill_the_memory(
    valkey_url: str, tmp_path: Path, effort: int, *, reads: bool
) -> None:
    """A viewer that sends endless pings is closed or not read; the server keeps less than 5 MB for it."""
    with started(valkey_url, tmp_path) as server:
        await is_served(server.url)
        before = memory(server)
        async with from_address(server.url, STRANGER, window=4096) as wire:
            await wire.send(WATCH)
            await wire.reader.readuntil(b"\r\n\r\n")
            flood = frame(Opcode.PING, b"x" * 125) * 5000
            with suppress(ConnectionError, TimeoutError):
                for _ in range(40 * effort):
                    wire.writer.write(flood)
                    if reads:
                        wire.reader._buffer.clear()  # type: ignore[attr-defined]
                    async with asyncio.timeout(0.5):
                        await wire.writer.drain()
            assert memory(server) - before < 5_000_000
            assert await is_served(server.url)


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
async def test_every_upgrade_has_an_answer_a_place_and_a_deadline(
    valkey_url: str, tmp_path: Path, upgrade: str
) -> None:
    """A POST with an upgrade is answered as a POST, and its connection counts."""
    fields = (("Connection", "Upgrade"), ("Upgrade", upgrade), ("Sec-WebSocket-Version", "13"))
    with started(valkey_url, tmp_path, max_connections=20, idle_timeout=1) as server:
        async with AsyncExitStack() as stack:
            for _ in range(200):
                wire = await stack.enter_async_context(from_address(server.url, STRANGER))
                await wire.send(request("POST", "/v1/events", JSON, ("Content-Length", "11"), *fields, body=ONE))
                assert statuses([await wire.answer()]) == [200]
            await eventually(lambda: has_at_most(server, 20))
            assert await is_served(server.url)
            await eventually(lambda: has_at_most(server, 0))
