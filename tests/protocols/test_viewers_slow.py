"""Viewers that take little, or nothing: what they get, what they cost, and how they end."""

import asyncio
import termios
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from websockets.frames import Opcode

from live.metrics import SLOW_VIEWERS
from live.protocols.websocket.viewer import ViewerSocket
from live.settings import Duration
from tests.harness.raw_socket import RawSocket, frame
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.viewer import ModelViewer
from tests.harness.watching import Served, apply_next, follow, long, on_uvloop, served, until, watch

WAYS = pytest.mark.parametrize("plain", [False, True], ids=["ours", "plain"])
WINDOW = 4096
LARGEST = 110_000  # bytes of a sync of 100 long keys
KERNEL = 2 * 32 * 1024  # bytes that the kernel may hold for a viewer


async def top(server: Served) -> Any:
    """The first hundred."""
    page = (await server.client.get("/v1/boards/posts?limit=100")).content
    return msgspec.json.decode(page, type=dict[str, Any])["records"]


@asynccontextmanager
async def changing(server: Served) -> AsyncIterator[None]:
    """Change a board of long keys as fast as it goes while in the context."""
    over = False

    async def change() -> None:
        number = 0
        while not over:
            number += 1
            await server.post(*({"key": long((number * 7 + other) % 100), "amount": 50} for other in range(20)))

    changing = asyncio.create_task(change())
    try:
        yield
    finally:
        over = True
        await changing


async def has_converged(server: Served, socket: RawSocket, model: ModelViewer) -> None:
    """Post once more, and see that the viewer comes to hold the server's top."""
    await follow(socket, model, await server.post({"key": long(0), "amount": 1}))
    assert msgspec.to_builtins(model.records) == await top(server)


def viewers(server: Served) -> list[ViewerSocket]:
    """All that the reaper looks after."""
    return [viewer for slot in server.live.reaper._slots for viewer in slot if isinstance(viewer, ViewerSocket)]


def held(viewer: ViewerSocket) -> tuple[int, int]:
    """Bytes that wait in the transport, and in the kernel."""
    assert viewer._transport is not None
    fd = viewer._transport.get_extra_info("socket").fileno()
    return viewer._transport.get_write_buffer_size(), int.from_bytes(ioctl(fd, termios.TIOCOUTQ, bytes(4)), "little")


@WAYS
@on_uvloop
async def test_frames_that_are_larger_than_the_buffers_come_whole(valkey_url: str, *, plain: bool) -> None:
    """A viewer that reads in small pieces, now and then, while a board of 100 KB changes fast, holds the top."""
    async with served(valkey_url, plain=plain) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as socket, watch(server.url, "?limit=3") as other:
            model, small = ModelViewer(), ModelViewer()
            async with changing(server):
                while model.syncs + model.updates < 12:
                    await apply_next(socket, model)
                    await apply_next(other, small)
            await has_converged(server, socket, model)
            await has_converged_small(server, other, small)
        await until(lambda: server.watching == 0)


async def has_converged_small(server: Served, socket: RawSocket, model: ModelViewer) -> None:
    """The same for a viewer of the first three."""
    await follow(socket, model, await server.post({"key": long(0), "amount": 1}))
    assert msgspec.to_builtins(model.records) == (await top(server))[:3]


@on_uvloop
async def test_one_that_does_not_read_costs_a_fixed_amount(valkey_url: str) -> None:
    """However much changes; when it reads again it gets the rest of a frame, and then the latest, no backlog."""
    async with served(valkey_url) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as stalled, watch(server.url, "?limit=100") as healthy:
            model, quick = ModelViewer(), ModelViewer()
            async with changing(server):
                most = [0, 0]
                while quick.syncs + quick.updates < 60:
                    await apply_next(healthy, quick)
                    for viewer in viewers(server):
                        most = [max(pair) for pair in zip(most, held(viewer), strict=True)]
            await follow(healthy, quick, await server.post({"key": long(1), "amount": 1}))
            assert 0 < most[0] <= LARGEST
            assert most[1] <= KERNEL
            await has_converged(server, stalled, model)
            assert model.syncs + model.updates <= 4
            assert model.records[:2] == quick.records[:2]


@on_uvloop
async def test_a_viewer_that_takes_nothing_is_too_slow(valkey_url: str) -> None:
    """It is closed with 3008 and dropped; others go on."""
    before = SLOW_VIEWERS._value.get()
    async with served(valkey_url, slow_timeout=Duration(0.5)) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW), watch(server.url, "?limit=100") as healthy:
            model = ModelViewer()
            await until(lambda: bool(server.live.reaper._waiting))
            await until(lambda: server.watching == 1)
            assert SLOW_VIEWERS._value.get() == before + 1
            await has_converged(server, healthy, model)
            assert model.syncs == 1


@on_uvloop
async def test_one_that_reads_in_the_end_is_told_why(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the frame that waited comes the reason, and nothing else."""
    monkeypatch.setattr("live.protocols.viewer_reaper._CLOSE_TIMEOUT", 20.0)
    async with served(valkey_url, slow_timeout=Duration(0.3)) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as socket:
            before = SLOW_VIEWERS._value.get()
            await until(lambda: SLOW_VIEWERS._value.get() > before)
            await server.post({"key": "b"})
            received = await socket.receive()
            assert (received[0], received[1][:14]) == (Opcode.TEXT, b'{"type":"sync"')
            assert await socket.closed() == 3008


@on_uvloop
async def test_one_that_takes_a_little_is_not_too_slow(valkey_url: str) -> None:
    """Whatever waits for longer than `slow_timeout`: as long as it takes some of it, it stays."""
    async with served(valkey_url, slow_timeout=Duration(1)) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as socket:
            await until(lambda: bool(server.live.reaper._waiting))
            (viewer,) = viewers(server)
            begun = asyncio.get_running_loop().time()
            taken = b""
            while asyncio.get_running_loop().time() < begun + 4:
                taken += await socket.wire.reader.readexactly(3000)
                await asyncio.sleep(0.2)
            assert viewer.waiting
            assert server.watching == 1
            socket.wire.reader._buffer[:0] = taken  # type: ignore[attr-defined] # to be read once more, as frames
            await has_converged(server, socket, ModelViewer())


@on_uvloop
async def test_the_answer_to_a_ping_waits_for_a_frame_that_is_half_sent(valkey_url: str) -> None:
    """Neither it, nor a ping of ours, nor a close comes in the middle: the viewer is not read before it reads."""
    async with served(valkey_url) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as socket:
            await until(lambda: bool(server.live.reaper._waiting))
            await socket.send(frame(Opcode.PING, b"one"), frame(Opcode.PING, b"two"))
            for _ in server.live.reaper._slots:
                server.live.reaper.sweep()
            assert all(viewer._parser is None for viewer in viewers(server))
            ModelViewer().receive((await socket.receive())[1])
            await until(lambda: all(viewer._parser is not None for viewer in viewers(server)))
            server.live.hub.remove("posts")
            found = [await socket.receive(), await socket.receive()]
            assert found == [(Opcode.PONG, b"one"), (Opcode.PONG, b"two")]
            assert await socket.closed() == 3502


@on_uvloop
async def test_who_is_behind_is_not_silent(valkey_url: str) -> None:
    """It can't answer a ping that it has not come to; but it has to come on, from round to round."""
    async with served(valkey_url) as server:
        await server.post(*({"key": long(number)} for number in range(24)))
        async with watch(server.url, window=WINDOW) as reads, watch(server.url, window=WINDOW):
            await until(lambda: len(viewers(server)) == 2 and all(held(viewer)[1] for viewer in viewers(server)))
            assert not any(viewer.waiting for viewer in viewers(server))
            taken = b""
            for _ in range(3):
                for _ in server.live.reaper._slots:
                    server.live.reaper.sweep()
                before = held(of(server, reads))[1]
                while held(of(server, reads))[1] == before:
                    taken += await reads.wire.reader.readexactly(100)
            viewer = of(server, reads)

            def is_alone() -> bool:
                viewer.is_alive = True
                for _ in server.live.reaper._slots:
                    server.live.reaper.sweep()
                    viewer.is_alive = True
                return server.watching == 1

            await until(is_alone)
            assert viewer.viewer is not None
            reads.wire.reader._buffer[:0] = taken  # type: ignore[attr-defined] # to be read once more, as frames
            await apply_next(reads, ModelViewer())


def of(server: Served, socket: RawSocket) -> ViewerSocket:
    """The server's side of a viewer's connection."""
    own = socket.wire.writer.get_extra_info("sockname")
    (found,) = (one for one in viewers(server) if one._transport and one._transport.get_extra_info("peername") == own)
    return found


def descriptors(server: ServerProcess) -> int:
    """How many are open in its process."""
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


@asynccontextmanager
async def process(store: StoreProcess, folder: Path, **changes: Any) -> AsyncIterator[tuple[ServerProcess, Any]]:
    """A server's process, and a client of it."""
    server = ServerProcess(fresh_settings(store.url, conflation_interval=Duration(0.01), **changes), folder)
    server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        for start in range(0, 100, 50):
            events = [{"key": long(number), "amount": number + 1} for number in range(start, start + 50)]
            assert (await client.post("/v1/events", json=events)).json()["accepted"] == 50
        yield server, client
    if server.process is not None and server.process.poll() is None:
        server.kill()


@pytest.mark.fault
@on_uvloop
async def test_the_descriptors_of_slow_viewers_are_closed(own_store: StoreProcess, tmp_path: Path) -> None:
    """Thirty that never read are gone after `slow_timeout`, with all that they held."""
    async with process(own_store, tmp_path, slow_timeout=Duration(2)) as (server, client), AsyncExitStack() as stack:
        async with watch(server.url) as first:
            await first.receive()
        await client.get("/healthz")
        before = descriptors(server)
        for _ in range(30):
            await stack.enter_async_context(watch(server.url, "?limit=100", WINDOW))
        assert descriptors(server) >= before + 30
        await until(lambda: descriptors(server) <= before, deadline=20)
        assert "live_slow_viewers_total 30.0" in (await client.get("/metrics")).text
        assert server.stop() == 0


@pytest.mark.fault
@on_uvloop
async def test_a_stop_waits_for_no_slow_viewer(own_store: StoreProcess, tmp_path: Path) -> None:
    """Healthy ones are told when to come back, each at its time, and closed with 3001; nobody comes in any more."""
    async with process(own_store, tmp_path) as (server, _), AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(watch(server.url, "?limit=100", WINDOW))
        healthy = [await stack.enter_async_context(watch(server.url, "?limit=3")) for _ in range(20)]
        begun = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        told = [await last_words(socket) for socket in healthy]
        assert len(set(told)) > 5
        assert all(0 < seconds <= 30 for seconds in told)
        with pytest.raises((OSError, asyncio.IncompleteReadError, AssertionError)):
            async with watch(server.url):
                pass
        assert await stopping == 0
        assert asyncio.get_running_loop().time() < begun + 10
        assert "Traceback" not in server.log()


async def last_words(socket: RawSocket) -> float:
    """Take everything until the server lets the viewer go; gives when it is to come back."""
    retry_after = 0.0
    while (received := await socket.receive())[0] is not Opcode.CLOSE:
        retry_after = msgspec.json.decode(received[1]).get("retry_after", 0.0)
    assert received[1] == (3001).to_bytes(2) + b"the server is shutting down"
    return retry_after


@WAYS
@on_uvloop
async def test_a_server_that_stops_takes_no_viewers(valkey_url: str, *, plain: bool) -> None:
    """They are told 503, and those that there are end with 3001."""
    async with served(valkey_url, plain=plain) as server:
        async with watch(server.url) as socket:
            await socket.receive()
            server.live.hub.drain()
            with pytest.raises(AssertionError, match="503 Service Unavailable"):
                async with watch(server.url):
                    pass
            assert await socket.ended() == 3001
        await until(lambda: server.watching == 0)


@WAYS
@on_uvloop
async def test_viewers_of_a_board_that_is_removed_are_let_go(valkey_url: str, *, plain: bool) -> None:
    """With 3502, which means not to come back."""
    async with served(valkey_url, plain=plain) as server, watch(server.url) as socket:
        await socket.receive()
        server.live.hub.remove("posts")
        assert await socket.ended() == 3502
