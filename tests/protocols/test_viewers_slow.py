"""Viewers that read slowly or not at all: what they receive, what they cost, and how they end."""

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

from live.metrics import DROPPED_VIEWERS
from live.protocols.websocket import ViewerSocket
from tests.harness.raw_socket import RawSocket, frame
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.viewer import ModelViewer
from tests.harness.watching import Served, apply_next, follow, long, served, until, watch

WINDOW = 4096
LARGEST = 110_000  # the bytes of a sync with 100 long members
KERNEL = 2 * 32 * 1024  # the bytes that the kernel may buffer for a viewer


async def top(server: Served) -> Any:
    """The first 100 records."""
    page = (await server.client.get("/v1/boards/posts?limit=100")).content
    return msgspec.json.decode(page, type=dict[str, Any])["records"]


@asynccontextmanager
async def changing(server: Served) -> AsyncIterator[None]:
    """Change a board of members with long names, as fast as it goes, while in the context."""
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


async def expect_converged(server: Served, socket: RawSocket, model: ModelViewer) -> None:
    """Post once more, and check that the viewer reaches the server's top."""
    await follow(socket, model, await server.post({"key": long(0), "amount": 1}))
    assert msgspec.to_builtins(model.records) == await top(server)


def viewers(server: Served) -> list[ViewerSocket]:
    """Return all viewers of the reaper."""
    return [viewer for slot in server.live.reaper._slots for viewer in slot if isinstance(viewer, ViewerSocket)]


def held(viewer: ViewerSocket) -> tuple[int, int]:
    """Bytes that wait in the transport and in the kernel."""
    assert viewer._transport is not None
    fd = viewer._transport.get_extra_info("socket").fileno()
    return viewer._transport.get_write_buffer_size(), int.from_bytes(ioctl(fd, termios.TIOCOUTQ, bytes(4)), "little")


@pytest.mark.slow
async def test_frames_larger_than_the_buffers_arrive_complete(valkey_url: str) -> None:
    """A viewer that reads slowly, in small pieces, still ends with the server's latest top.

    The board has 100 KB and changes fast.
    """
    async with served(valkey_url) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as socket, watch(server.url, "?limit=3") as other:
            model, small = ModelViewer(), ModelViewer()
            async with changing(server):
                while model.syncs + model.updates < 12:
                    await apply_next(socket, model)
                    await apply_next(other, small)
            await expect_converged(server, socket, model)
            await expect_converged_small(server, other, small)
        await until(lambda: server.watching == 0)


async def expect_converged_small(server: Served, socket: RawSocket, model: ModelViewer) -> None:
    """Do the same as `expect_converged` for a viewer of the first three records."""
    await follow(socket, model, await server.post({"key": long(0), "amount": 1}))
    assert msgspec.to_builtins(model.records) == (await top(server))[:3]


@pytest.mark.slow
async def test_a_viewer_that_does_not_read_has_a_bounded_cost(valkey_url: str) -> None:
    """The board may change any number of times.

    When the viewer reads again, it gets the rest of the current frame, and then the latest state.
    """
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
            await expect_converged(server, stalled, model)
            assert model.syncs + model.updates <= 4
            assert model.records[:2] == quick.records[:2]


async def test_what_a_viewer_read_before_its_data_began_to_wait_is_no_progress(valkey_url: str) -> None:
    """Otherwise, a viewer that stops reading would stay connected for another `slow_timeout`."""
    async with served(valkey_url) as server, watch(server.url) as socket:
        await socket.receive()
        viewer = of(server, socket)
        await until(lambda: held(viewer) == (0, 0))  # the viewer has acknowledged everything
        assert viewer._transport is not None
        viewer.pause_writing()
        has_progressed = viewer._has_acknowledged(viewer._transport.get_extra_info("socket"))
        viewer.resume_writing()
        assert not has_progressed


@pytest.mark.alone
@pytest.mark.slow
async def test_a_viewer_without_progress_is_disconnected(valkey_url: str) -> None:
    """The close code is 3008. Other viewers are not affected."""
    before = DROPPED_VIEWERS.labels("slow")._value.get()
    async with served(valkey_url, slow_timeout=0.5) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW), watch(server.url, "?limit=100") as healthy:
            model = ModelViewer()
            await until(lambda: bool(server.live.reaper.waiting))
            await until(lambda: server.watching == 1)
            assert DROPPED_VIEWERS.labels("slow")._value.get() == before + 1
            await expect_converged(server, healthy, model)
            assert model.syncs == 1


@pytest.mark.slow
async def test_a_slow_viewer_receives_the_close_code(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The viewer receives the rest of the current frame, and then only the close frame."""
    monkeypatch.setattr("live.protocols.websocket._SLOW_CLOSE_TIMEOUT", 20.0)
    async with served(valkey_url, slow_timeout=0.3) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as socket:
            before = DROPPED_VIEWERS.labels("slow")._value.get()
            await until(lambda: DROPPED_VIEWERS.labels("slow")._value.get() > before)
            await server.post({"key": "b"})
            received = await socket.receive()
            assert (received[0], received[1][:14]) == (Opcode.TEXT, b'{"type":"sync"')
            assert await socket.closed() == 3008


@pytest.mark.alone
@pytest.mark.slow
async def test_a_viewer_with_some_progress_stays_connected(valkey_url: str) -> None:
    """Data may wait for longer than `slow_timeout`."""
    async with served(valkey_url, slow_timeout=1) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as socket:
            await until(lambda: bool(server.live.reaper.waiting))
            (viewer,) = viewers(server)
            begun = asyncio.get_running_loop().time()
            consumed = b""
            while asyncio.get_running_loop().time() < begun + 4:
                consumed += await socket.wire.reader.readexactly(3000)
                await asyncio.sleep(0.2)
            assert viewer.waiting
            assert server.watching == 1
            socket.wire.reader._buffer[:0] = consumed  # type: ignore[attr-defined] # put the frames back
            await expect_converged(server, socket, ModelViewer())


async def test_the_answer_to_a_ping_waits_for_an_incomplete_frame(valkey_url: str) -> None:
    """No pong, ping or close comes in the middle of a frame.

    The server does not read from a viewer that does not read.
    """
    async with served(valkey_url) as server:
        await server.fill()
        async with watch(server.url, "?limit=100", WINDOW) as socket:
            await until(lambda: bool(server.live.reaper.waiting))
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


async def test_a_slow_viewer_that_makes_progress_is_alive(valkey_url: str) -> None:
    """The viewer has not reached the ping yet, so it can't answer. But it must make progress in every round."""
    async with served(valkey_url) as server:
        await server.post(*({"key": long(number)} for number in range(24)))
        async with watch(server.url, window=WINDOW) as reads, watch(server.url, window=WINDOW):
            await until(lambda: len(viewers(server)) == 2 and all(held(viewer)[1] for viewer in viewers(server)))
            assert not any(viewer.waiting for viewer in viewers(server))
            consumed = b""
            for _ in range(3):
                for _ in server.live.reaper._slots:
                    server.live.reaper.sweep()
                before = held(of(server, reads))[1]
                while held(of(server, reads))[1] == before:
                    consumed += await reads.wire.reader.readexactly(100)
            viewer = of(server, reads)

            def is_alone() -> bool:
                viewer.is_alive = True
                for _ in server.live.reaper._slots:
                    server.live.reaper.sweep()
                    viewer.is_alive = True
                return server.watching == 1

            await until(is_alone)
            assert viewer.viewer is not None
            reads.wire.reader._buffer[:0] = consumed  # type: ignore[attr-defined] # put the frames back
            await apply_next(reads, ModelViewer())


def of(server: Served, socket: RawSocket) -> ViewerSocket:
    """The server's side of a viewer's connection."""
    own = socket.wire.writer.get_extra_info("sockname")
    (found,) = (one for one in viewers(server) if one._transport and one._transport.get_extra_info("peername") == own)
    return found


def descriptors(server: ServerProcess) -> int:
    """The number of open file descriptors of a server process."""
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


@asynccontextmanager
async def process(store: StoreProcess, folder: Path, **changes: Any) -> AsyncIterator[tuple[ServerProcess, Any]]:
    """A server process, and a client."""
    server = ServerProcess(fresh_settings(store.url, conflation_interval=0.01, **changes), folder)
    server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        for start in range(0, 100, 50):
            events = [{"key": long(number), "amount": number + 1} for number in range(start, start + 50)]
            assert (await client.post("/v1/events", json=events)).json()["accepted"] == 50
        yield server, client
    if server.process is not None and server.process.poll() is None:
        server.kill()


@pytest.mark.fault
async def test_the_descriptors_of_slow_viewers_are_closed(own_store: StoreProcess, tmp_path: Path) -> None:
    """Thirty viewers that never read are gone after `slow_timeout`, with everything that they held."""
    async with process(own_store, tmp_path, slow_timeout=2) as (server, client), AsyncExitStack() as stack:
        async with watch(server.url) as first:
            await first.receive()
        await client.get("/healthz")
        before = descriptors(server)
        for _ in range(30):
            await stack.enter_async_context(watch(server.url, "?limit=100", WINDOW))
        assert descriptors(server) >= before + 30
        await until(lambda: descriptors(server) <= before, deadline=20)
        assert 'live_dropped_viewers_total{reason="slow"} 30.0' in (await client.get("/metrics")).text
        assert server.stop() == 0


@pytest.mark.alone
@pytest.mark.fault
async def test_a_stop_does_not_wait_for_slow_viewers(own_store: StoreProcess, tmp_path: Path) -> None:
    """Healthy viewers get different `retry_after` values and close code 3001. New viewers are refused."""
    async with process(own_store, tmp_path) as (server, _), AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(watch(server.url, "?limit=100", WINDOW))
        healthy = [await stack.enter_async_context(watch(server.url, "?limit=3")) for _ in range(20)]
        begun = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        retry_afters = [await retry_after_of(socket) for socket in healthy]
        assert len(set(retry_afters)) > 5
        assert all(0 < seconds <= 30 for seconds in retry_afters)
        with pytest.raises((OSError, asyncio.IncompleteReadError, AssertionError)):
            async with watch(server.url):
                pass
        assert await stopping == 0
        assert asyncio.get_running_loop().time() < begun + 10
        assert "Traceback" not in server.log()


async def retry_after_of(socket: RawSocket) -> float:
    """Read until the server closes the connection; returns the last `retry_after`."""
    retry_after = 0.0
    while (received := await socket.receive())[0] is not Opcode.CLOSE:
        retry_after = msgspec.json.decode(received[1]).get("retry_after", 0.0)
    assert received[1] == (3001).to_bytes(2) + b"the server is shutting down"
    return retry_after


async def test_a_stopping_server_refuses_viewers(valkey_url: str) -> None:
    """New viewers get 503, and connected viewers are closed with 3001. A stream ends, so an EventSource reconnects."""
    async with served(valkey_url) as server:
        async with watch(server.url) as socket:
            await socket.receive()
            server.live.hub.drain()
            with pytest.raises(AssertionError, match="503 Service Unavailable"):
                async with watch(server.url):
                    pass
            async with httpx.AsyncClient(base_url=server.url) as client:
                stream = await client.get("/v1/boards/posts/stream")
            assert stream.headers["content-type"].startswith("text/event-stream")
            retry, status = stream.text.strip().split("\n\n")
            assert int(retry.removeprefix("retry: ")) > 0
            assert '"reason":"the server is shutting down"' in status
            assert await socket.ended() == 3001
        await until(lambda: server.watching == 0)


@pytest.mark.slow
async def test_viewers_of_a_deleted_board_are_disconnected(valkey_url: str) -> None:
    """The close code 3502 tells the viewers not to reconnect."""
    async with served(valkey_url) as server, watch(server.url) as socket:
        await socket.receive()
        server.live.hub.remove("posts")
        assert await socket.ended() == 3502
