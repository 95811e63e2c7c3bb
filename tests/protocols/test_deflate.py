"""permessage-deflate of viewers (RFC 7692): what server and client agree on, and what real clients read."""

import asyncio
import gc
import shutil
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from websockets.asyncio.client import connect
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Opcode

from live.domain.ranking import Record
from live.errors import BAD_REQUEST
from live.http.parser import parse_head
from live.protocols.websocket import shake_hands
from tests.harness.browser import CHROMIUM, launched
from tests.harness.raw_socket import HANDSHAKE, RawSocket, frame
from tests.harness.viewer import ModelViewer
from tests.harness.watching import WATCH, Served, served
from tests.harness.wire import connected, request

ACCEPTED = "permessage-deflate; client_no_context_takeover"
OFFERS = {
    "permessage-deflate": ACCEPTED,
    "permessage-deflate; client_max_window_bits": ACCEPTED,
    "permessage-deflate; client_no_context_takeover": ACCEPTED,
    "permessage-deflate; server_max_window_bits=15": f"{ACCEPTED}; server_max_window_bits=15",
    "permessage-deflate; client_max_window_bits=10": f"{ACCEPTED}; client_max_window_bits=10",
    "permessage-deflate; server_no_context_takeover": None,
    "permessage-deflate; server_max_window_bits=10": None,
    "permessage-deflate; server_max_window_bits=10, permessage-deflate": ACCEPTED,
    "permessage-deflate; server_max_window_bits=16": None,
    "permessage-deflate; unknown": None,
    "x-webkit-deflate-frame": None,
}

NODE = shutil.which("node")
NODE_READER = """
const socket = new WebSocket(process.argv[1]);
socket.onopen = () => console.log(socket.extensions);
socket.onmessage = ({ data }) => console.log(data);
"""


async def answer_to(server: Served, offer: str) -> str | None:
    """The extension that the server accepts, if any."""
    async with connected(server.url) as wire:
        await wire.send(request("GET", WATCH, *HANDSHAKE, ("Sec-WebSocket-Extensions", offer)))
        head = (await wire.reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 101 ")
        found = [line.partition(": ")[2] for line in head.splitlines() if line.startswith("sec-websocket-extensions")]
        return found[0] if found else None


async def test_offers_of_a_whole_window_are_accepted(valkey_url: str) -> None:
    """Every frame may refer to the last 32 KiB, so a client that keeps fewer bytes gets plain frames."""
    async with served(valkey_url) as server:
        assert {offer: await answer_to(server, offer) for offer in OFFERS} == OFFERS


def test_a_handshake_leaves_no_compressor_behind() -> None:
    """A compressor takes 256 KiB.

    If each compressor stayed until garbage collection, a thousand viewers would take 256 MB.
    """
    head = parse_head(request("GET", WATCH, *HANDSHAKE, ("Sec-WebSocket-Extensions", "permessage-deflate")))
    shake_hands(head)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        assert all(shake_hands(head)[2] for _ in range(20))
        assert tracemalloc.get_traced_memory()[0] < 20 * 32 * 1024
    finally:
        tracemalloc.stop()
        gc.enable()


async def compare(server: Served, path: str) -> None:
    """Watch with the `websockets` library, with and without compression, and compare the records."""
    async with AsyncExitStack() as stack:
        models = []
        for extensions in ([ClientPerMessageDeflateFactory()], None):
            socket = await stack.enter_async_context(
                connect(server.url.replace("http", "ws") + path, compression=None, extensions=extensions)
            )
            model = ModelViewer()
            model.receive(await socket.recv())
            models.append((socket, model))
        for number in range(30):
            offset = await server.post(
                *({"key": f"https://example.org/posts/{n}", "amount": 200} for n in range(number % 7, 40, 3))
            )
            for socket, model in models:
                while model.offset < offset:
                    model.receive(await socket.recv())
        (_, deflated), (_, plain) = models
        assert deflated.records == plain.records


@pytest.mark.slow
async def test_the_websockets_library_reads_the_same_with_and_without(valkey_url: str) -> None:
    """Each of 30 updates refers to the update before it."""
    async with served(valkey_url) as server:
        await server.fill()
        await compare(server, f"{WATCH}?limit=20")


@pytest.mark.slow
async def test_frames_are_compressed_with_the_message_before(valkey_url: str) -> None:
    """A client with one window for all messages reads them. Without the earlier messages, it could not read some."""
    async with served(valkey_url) as server, connected(server.url) as wire:
        await server.post(*({"key": f"https://example.org/posts/{n}", "amount": 100 - n} for n in range(50)))
        await wire.send(request("GET", WATCH, *HANDSHAKE, ("Sec-WebSocket-Extensions", "permessage-deflate")))
        await wire.reader.readuntil(b"\r\n\r\n")
        socket, window, model, needed_history = RawSocket(wire), zlib.decompressobj(-15), ModelViewer(), False
        for number in range(20):
            offset = await server.post(*({"key": f"https://example.org/posts/{n}"} for n in range(number, 50, 2)))
            while model.offset < offset:
                first = (await wire.reader.readexactly(1))[0]
                payload = await read_payload(socket)
                if first == 0xC1:
                    data = payload + b"\x00\x00\xff\xff"
                    payload = window.decompress(data)
                    needed_history = needed_history or not reads_alone(data, payload)
                model.receive(payload)
        assert needed_history


async def read_payload(socket: RawSocket) -> bytes:
    """The payload of a frame whose first byte was read."""
    reader = socket.wire.reader
    length = (await reader.readexactly(1))[0]
    if length >= 126:
        length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8))
    return await reader.readexactly(length)


def reads_alone(data: bytes, expected: bytes) -> bool:
    """Whether a message can be decompressed without the messages before it."""
    try:
        return zlib.decompressobj(-15).decompress(data) == expected
    except zlib.error:
        return False


async def test_what_a_viewer_sends_is_decompressed_within_its_bound(valkey_url: str) -> None:
    """A small frame that would become 10 MB closes the connection. A short text closes it with another code."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = (packer.compress(b" " * 10_000_000) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4][:1000]
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    hello = (packer.compress(b"hello" * 20) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    codes = []
    async with served(valkey_url) as server:
        for payload in (bomb, hello):
            async with connected(server.url) as wire:
                await wire.send(request("GET", WATCH, *HANDSHAKE, ("Sec-WebSocket-Extensions", "permessage-deflate")))
                await wire.reader.readuntil(b"\r\n\r\n")
                plain = frame(Opcode.TEXT, payload)
                await wire.send(bytes((plain[0] | 0x40,)) + plain[1:])
                codes.append(await RawSocket(wire).ended())
    assert codes == [1009, BAD_REQUEST]


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
async def test_node_reads_what_a_plain_client_reads(valkey_url: str) -> None:
    """Node's `WebSocket` offers compression. At each offset that both clients see, both have the same records."""
    async with served(valkey_url) as server, AsyncExitStack() as stack:
        await server.fill()
        address = server.url.replace("http", "ws") + f"{WATCH}?limit=20"
        node = await asyncio.create_subprocess_exec(
            str(NODE), "--experimental-websocket", "--no-warnings", "--eval", NODE_READER, address,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        stack.push_async_callback(node.communicate)  # an event loop must not be closed before its processes end
        stack.callback(node.kill)
        assert node.stdout is not None
        assert b"permessage-deflate" in await node.stdout.readline()
        plain = await stack.enter_async_context(connect(address, compression=None))
        readers: tuple[Callable[[], Awaitable[str | bytes]], ...] = node.stdout.readline, plain.recv
        models = ModelViewer(), ModelViewer()
        seen: tuple[dict[int, list[Record]], ...] = {}, {}
        for number in range(30):
            offset = await server.post(
                *({"key": f"https://example.org/posts/{n}", "amount": 200} for n in range(number % 7, 40, 3))
            )
            for model, read, found in zip(models, readers, seen, strict=True):
                async with asyncio.timeout(60):
                    while model.offset < offset:
                        model.receive(await read())
                        found[model.offset] = list(model.records)
        both = seen[0].keys() & seen[1].keys()
        assert len(both) >= 20
        assert [seen[0][offset] for offset in both] == [seen[1][offset] for offset in both]


@pytest.mark.browser
async def test_chromium_reads_compressed_frames(valkey_url: str) -> None:
    """Chromium offers compression, and shows the same records as a viewer without compression."""
    assert CHROMIUM is not None, "install Chromium to run the browser tests"
    async with served(valkey_url) as server, launched() as chromium:
        await server.post(*({"key": f"https://example.org/posts/{n}", "amount": 100 - n} for n in range(50)))
        page = await chromium.new_page()
        await page.goto(f"{server.url}/healthz")
        await page.evaluate(
            """() => {
                window.texts = [];
                window.socket = new WebSocket(location.origin.replace("http", "ws") + "/v1/boards/posts/live");
                socket.onmessage = message => texts.push(message.data);
                return new Promise(resolve => { socket.onopen = () => resolve(); });
            }"""
        )
        assert "permessage-deflate" in await page.evaluate("() => socket.extensions")
        model, done, offset = ModelViewer(), 0, 0
        for number in range(20):
            offset = await server.post(*({"key": f"https://example.org/posts/{n}"} for n in range(number, 50, 2)))
        async with asyncio.timeout(60):
            while model.offset < offset:
                texts = await page.evaluate("first => texts.slice(first)", done)
                done += len(texts)
                for text in texts:
                    model.receive(text)
        found = (await server.client.get("/v1/boards/posts?limit=50")).json()
        assert [record.member for record in model.records] == [record["key"] for record in found["records"]]
        assert found["offset"] == model.offset
