"""Viewers over TLS: frames do not go directly to a socket, and everything works as over TCP."""

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from live.protocols.websocket import ViewerSocket
from tests.harness.certificate import OPENSSL, make_certificate
from tests.harness.viewer import ModelViewer
from tests.harness.watching import WATCH, Served, served, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not OPENSSL, reason="openssl is not installed")]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate with its private key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    made, both = make_certificate(folder), folder / "both.pem"
    both.write_bytes(made.key.read_bytes() + made.path.read_bytes())
    return both


def watching(server: Served, certificate: Path, query: str = "") -> connect:
    """A viewer that trusts the certificate. Its frames are not compressed, so that they fill its buffers."""
    trust = ssl.create_default_context(cafile=certificate)
    return connect(server.url.replace("http", "ws") + WATCH + query, ssl=trust, max_queue=1, compression=None)


async def follow(socket: ClientConnection, model: ModelViewer, offset: int) -> None:
    """Apply messages until the viewer reaches an offset."""
    async with asyncio.timeout(60):
        while model.offset < offset:
            model.receive(await socket.recv())


async def drain(socket: ClientConnection) -> None:
    """Read messages until the connection ends."""
    while True:
        await socket.recv()


async def top(server: Served, size: int) -> object:
    """The first `size` records."""
    return (await server.client.get(f"/v1/boards/posts?limit={size}")).json()["records"]


async def test_viewers_over_tls_reach_the_top(valkey_url: str, certificate: Path) -> None:
    """Frames are small and large. Small frames are sent immediately, so the viewer stays in its cohort."""
    async with (
        served(valkey_url, certificate=certificate) as server,
        watching(server, certificate, "?limit=3") as small,
        watching(server, certificate, "?limit=100") as large,
    ):
        models = [ModelViewer(), ModelViewer()]
        for number in range(20):
            last = await server.post({"key": f"k{number}", "amount": number + 1})
            for socket, model in zip((small, large), models, strict=True):
                await follow(socket, model, last)
            assert not server.live.reaper.waiting, "a small frame was not sent at once"
        assert [model.syncs for model in models] == [1, 1]
        last = await server.fill()
        for socket, model, size in zip((small, large), models, (3, 100), strict=True):
            await follow(socket, model, last)
            assert msgspec.to_builtins(model.records) == await top(server, size)


async def test_a_slow_viewer_over_tls_skips_changes(valkey_url: str, certificate: Path) -> None:
    """A bounded number of bytes waits for the viewer. When it reads again, it soon reaches the board's offset."""
    async with served(valkey_url, certificate=certificate) as server:
        await server.fill()
        async with watching(server, certificate, "?limit=100") as socket:
            (viewer,) = (viewer for slot in server.live.reaper._slots for viewer in slot)
            assert isinstance(viewer, ViewerSocket)
            await until(lambda: viewer.viewer is not None)
            number = 0
            while not viewer.waiting or number < 100:
                number += 1
                last = await server.post(*({"key": f"{number * 7 % 100}-".ljust(1000, "x"), "amount": 9},) * 20)
                assert viewer._transport is not None
                assert viewer._transport.get_write_buffer_size() < 150_000
            model = ModelViewer()
            await follow(socket, model, last)
            assert msgspec.to_builtins(model.records) == await top(server, 100)


async def test_a_viewer_over_tls_without_progress_is_disconnected(valkey_url: str, certificate: Path) -> None:
    """The server disconnects the viewer as it does over TCP."""
    async with served(valkey_url, certificate=certificate, slow_timeout=0.5) as server:
        await server.fill()
        async with watching(server, certificate, "?limit=100") as socket:
            number = 0
            while server.watching:
                number += 1
                await server.post(*({"key": f"{number * 7 % 100}-".ljust(1000, "x"), "amount": 9},) * 20)
                await asyncio.sleep(0.01)
                assert number < 3000
            with pytest.raises(ConnectionClosed):
                await drain(socket)


async def test_either_side_can_close_over_tls(valkey_url: str, certificate: Path) -> None:
    """Either side may close, with the right codes. Pings are answered."""
    async with served(valkey_url, certificate=certificate) as server:
        async with watching(server, certificate) as socket:
            await socket.recv()
            await (await socket.ping(b"so"))
        assert socket.close_code == 1000
        async with watching(server, certificate) as socket:
            await socket.recv()
            await socket.send("hello")
            with pytest.raises(ConnectionClosed) as closed:
                await drain(socket)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 3501
        await until(lambda: server.watching == 0)


async def test_the_refusal_of_a_large_body_arrives_over_tls(valkey_url: str, certificate: Path) -> None:
    """A client that sends six megabytes before it reads gets the answer, not a reset."""
    trust = ssl.create_default_context(cafile=certificate)
    async with served(valkey_url, certificate=certificate) as server:
        host, port = server.url.removeprefix("https://").split(":")
        for _ in range(5):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=trust)
            writer.write(b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")
            writer.write(b"Content-Type: application/json\r\nContent-Length: 6000000\r\n\r\n" + b" " * 6_000_000)
            async with asyncio.timeout(60):
                await writer.drain()
                assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
            writer.close()
