"""What strangers may send: endless heads and bodies, idle connections, requests whose answers they never read.

The tests run `live serve` as a process with its real event loop, so that they can measure its memory.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import pytest
from websockets.frames import Opcode

from tests.harness.boards import rolling_board
from tests.harness.raw_socket import frame, text
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.watching import WATCH, watch
from tests.harness.wire import CHUNKED, Wire, ask, chunks, connected, post, request, statuses
from tests.protocols.cases import ONE

HEALTH: Final = request("GET", "/healthz")
MOST_GROWTH: Final = 20_000_000
HUGE: Final = 200_000_000
PIECE: Final = b" " * 1_000_000


@pytest.fixture(scope="module")
def server(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server process."""
    process = ServerProcess(fresh_settings(valkey_url), tmp_path_factory.mktemp("server"))
    process.start()
    yield process
    assert "Traceback" not in process.log()
    assert process.stop() == 0


@pytest.fixture(params=["uvloop", "asyncio"])
async def url(request: pytest.FixtureRequest, server: ServerProcess, valkey_url: str) -> AsyncIterator[str]:
    """Yield the URL of a server, once on each event loop. The loops read different amounts at once."""
    if request.param == "uvloop":
        yield server.url
    else:
        async with run_server(fresh_settings(valkey_url), [rolling_board()]) as address:
            yield address


def memory(server: ServerProcess) -> int:
    """The resident memory of the server in bytes."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii").splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kilobytes) * 1024


def pieces(data: bytes, size: int) -> list[bytes]:
    """Split data into pieces of `size` bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def padded(size: int, target: str = "/v1/events") -> bytes:
    """A request whose head has about `size` bytes."""
    return post(ONE, ("X", "x" * size), target=target)


LONG_HEADS: Final = {
    "one field": [padded(70_000)],
    "a megabyte": [padded(1_000_000)],
    "a name": [post(ONE, ("x" * 70_000, "x"))],
    "many fields": [post(ONE, *[("a", "b")] * 12_000)],
    "a long target": [post(ONE, target="/v1/events?" + "x" * 70_000)],
    "another route": [padded(70_000, "/")],
    "a socket": [request("GET", WATCH, ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("X", "x" * 70_000))],
    "in small pieces": pieces(padded(70_000), 1000),
    "many fields in pieces": pieces(post(ONE, *[("a", "b")] * 12_000), 999),
    "without an end": [padded(400_000)[:-20]],
    "without an end in pieces": pieces(padded(80_000)[:-20], 5000),
    "without an end, most of it first": [padded(80_000)[:40_000], *pieces(padded(80_000)[40_000:-20], 5000)],
    "after others": [HEALTH + post(ONE) + padded(70_000)],
    "before others": [padded(70_000) + post(ONE) * 3],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_HEADS)
async def test_a_long_head_is_refused(url: str, name: str) -> None:
    """The answer is 431 and the connection ends. Earlier requests are answered, later bytes are ignored."""
    async with connected(url) as wire:
        with suppress(ConnectionError):
            await wire.send(*LONG_HEADS[name])
        said = await wire.rest()
        ahead = 2 if name == "after others" else 0
        assert said.count(b"HTTP/1.1 200 ") == ahead
        if ahead == 0:
            assert statuses([said]) == [431]
            assert said.count(b"HTTP/1.1 ") == 1
            assert b"headers_too_large" in said
            assert b"\r\nconnection: close\r\n" in said


@pytest.mark.parametrize(
    "endless",
    [post(chunks(ONE)[:-2], CHUNKED) + b"X: " + b"x" * 400_000, post(b"1;" + b"x" * 400_000, CHUNKED)],
    ids=["a trailer", "a chunk's extension"],
)
@pytest.mark.parametrize("target", [b"/v1/events", b"/v1/%65vents"])
async def test_trailers_and_chunk_extensions_are_limited(url: str, endless: bytes, target: bytes) -> None:
    """A trailer or a chunk extension must not bypass the limits."""
    async with connected(url) as wire:
        with suppress(ConnectionError):
            await wire.send(*pieces(endless.replace(b"/v1/events", target), 10_000))
        assert statuses([await wire.rest()]) == [431]


async def test_a_head_below_the_limit_is_accepted(url: str) -> None:
    """The head may come in one piece or in small pieces, with many fields, and repeatedly on one connection."""
    heads = [padded(60_000), post(ONE, *[("a", "b")] * 7000), padded(60_000, "/v1/%65vents")]
    async with connected(url) as wire:
        for head in heads:
            for sent in ([head], pieces(head, 777), [HEALTH + head], [head * 3]):
                await wire.send(*sent)
                count = sum(piece.count(b" HTTP/1.1") for piece in sent) or 1
                assert statuses(await wire.answers(count)) == [200] * count


async def test_small_chunks_of_a_large_body_are_accepted(url: str) -> None:
    """All chunk lines together are many times longer than a head may be, but each chunk line is limited alone."""
    body = ONE + b" " * 100_000
    async with connected(url) as wire:
        await wire.send(*pieces(post(chunks(*[bytes([byte]) for byte in body]), CHUNKED), 50_000))
        assert statuses([await wire.answer()]) == [200]


@pytest.mark.parametrize("target", ["/v1/events", "/v1/%65vents", "/nothing"])
@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
async def test_a_huge_body_does_not_fill_the_memory(server: ServerProcess, target: str, *, chunked: bool) -> None:
    """The server refuses a body of 200 MB at its start, drops the rest, and keeps the connection open."""
    fields = CHUNKED if chunked else ("Content-Length", str(HUGE))
    piece = chunks(PIECE)[:-5] if chunked else PIECE
    before, most = memory(server), 0
    async with connected(server.url) as wire:
        await wire.send(post(b"", fields, target=target))
        for _ in range(HUGE // len(PIECE)):
            await wire.send(piece)
            most = max(most, memory(server))
        await wire.send(b"0\r\n\r\n" if chunked else b"", post(ONE))
        status = 404 if target == "/nothing" else 413
        assert statuses(await wire.answers(2)) == [status, 200]
    assert most - before < MOST_GROWTH


async def test_a_huge_message_does_not_fill_the_memory(server: ServerProcess) -> None:
    """A frame that announces a huge message closes the socket immediately."""
    before = memory(server)
    async with watch(server.url) as socket:
        head = text(b" " * 70_000)[:2] + HUGE.to_bytes(8) + b"mask"
        with suppress(ConnectionError):
            await socket.send(head, *[PIECE] * 20)
        assert await socket.ended() == 1009
    assert memory(server) - before < MOST_GROWTH


@pytest.mark.slow
async def test_empty_fragments_do_not_fill_the_memory(server: ServerProcess) -> None:
    """A million empty fragments close the socket, like any flood of frames."""
    before = memory(server)
    async with watch(server.url) as socket:
        with suppress(ConnectionError):
            await socket.send(frame(Opcode.TEXT, b"", final=False))
            for _ in range(100):
                await socket.send(frame(Opcode.CONT, b"", final=False) * 10_000)
        assert await socket.ended() == 3501
        assert memory(server) - before < 5_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [HEALTH, post(b"{" + b" " * 500), post(b"{" + b" " * 500, target="/v1/%65vents"), HEALTH + post(b"{")],
    ids=["ordinary", "short", "events over ASGI", "mixed"],
)
async def test_a_client_that_reads_no_answers_is_throttled(server: ServerProcess, piece: bytes) -> None:
    """After some requests, the client can't send more. So it does not fill the server's memory.

    Other clients are served. When the client reads again, it gets every answer.
    """
    before, sent = memory(server), 0
    async with connected(server.url, window=4096) as wire:
        with suppress(TimeoutError):
            while sent < 400_000:
                sent += 500
                wire.writer.write(piece * 500)
                async with asyncio.timeout(3):
                    await wire.writer.drain()
        assert sent < 400_000
        assert statuses(await ask(server.url, post(ONE))) == [200, 200]
        assert memory(server) - before < MOST_GROWTH
        found = await wire.answers(1000)
    first = found[: piece.count(b" HTTP/1.1\r\n")]
    assert [statuses([answer]) for answer in found] == [statuses([answer]) for answer in first] * (1000 // len(first))


async def worst_of(wire: Wire, count: int) -> float:
    """The 99th percentile of the time of a POST, in seconds."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await wire.send(post(ONE))
        await wire.answer()
        took.append(time.perf_counter() - began)
    return statistics.quantiles(took, n=100)[98]


@pytest.mark.alone
@pytest.mark.slow
async def test_idle_connections_do_not_slow_down_a_producer(server: ServerProcess) -> None:
    """Of five hundred connections, some sent nothing, some a complete request, and some half a request."""
    async with connected(server.url) as producer:
        await worst_of(producer, 50)
        alone, among = [], []
        for _ in range(5):
            alone.append(await worst_of(producer, 150))
            async with AsyncExitStack() as stack:
                for number in range(500):
                    wire = await stack.enter_async_context(connected(server.url))
                    await wire.send([b"", HEALTH, post(ONE)[:60]][number % 3])
                among.append(await worst_of(producer, 150))
        assert statistics.median(among) < 3 * statistics.median(alone) + 0.002
