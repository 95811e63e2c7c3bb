"""How viewers are admitted, refused and disconnected."""

import asyncio
import random
import struct
from contextlib import AsyncExitStack
from socket import SO_LINGER, SO_SNDBUF, SOL_SOCKET
from typing import Any

import httptools
import msgspec
import pytest

from live.protocols.connection import HttpProtocol
from tests.harness.raw_socket import HANDSHAKE, RawSocket, close, frame
from tests.harness.viewer import ModelViewer
from tests.harness.watching import WATCH, Served, apply_next, follow, long, served, until, watch
from tests.harness.wire import Wire, connected, request

pytestmark = pytest.mark.slow

VERSION_12 = (*HANDSHAKE[:2], ("Sec-WebSocket-Version", "12"), HANDSHAKE[3])

REFUSED = {
    "unknown board": (request("GET", "/v1/boards/none/live", *HANDSHAKE), 404, "board_not_found"),
    "board id with a foreign letter": (request("GET", "/v1/boards/%C3%A4/live", *HANDSHAKE), 404, "board_not_found"),
    "board id that is not UTF-8": (request("GET", "/v1/boards/%ff/live", *HANDSHAKE), 404, "board_not_found"),
    "limit of zero": (request("GET", WATCH + "?limit=0", *HANDSHAKE), 400, "parameter_invalid"),
    "large limit": (request("GET", WATCH + "?limit=101", *HANDSHAKE), 400, "parameter_invalid"),
    "odd limit": (request("GET", WATCH + "?limit=%20", *HANDSHAKE), 400, "parameter_invalid"),
    "odd interval": (request("GET", WATCH + "?interval=soon", *HANDSHAKE), 400, "parameter_invalid"),
    "other page": (request("GET", WATCH, *HANDSHAKE, ("Origin", "https://evil.example")), 403, "origin_forbidden"),
    "opaque origin": (request("GET", WATCH, *HANDSHAKE, ("Origin", "null")), 403, "origin_forbidden"),
    "page of another origin, unknown board": (
        request("GET", "/v1/boards/none/live", *HANDSHAKE, ("Origin", "https://evil.example")), 403, "origin_forbidden"
    ),
    "no key": (request("GET", WATCH, *HANDSHAKE[:3]), 400, ""),  # `websockets` writes these three responses
    "bad key": (request("GET", WATCH, *HANDSHAKE[:3], ("Sec-WebSocket-Key", "short")), 400, ""),
    "other version": (request("GET", WATCH, *VERSION_12), 400, ""),
    "no WebSocket": (request("GET", "/v1/events/live", *HANDSHAKE, ("Connection", "close")), 404, "not_found"),
    "no upgrade": (request("GET", WATCH, ("Connection", "close")), 426, "upgrade_required"),
}  # fmt: skip


async def refusal(server: Served, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """The answer to a request, which must be the last answer on its connection."""
    async with connected(server.url) as wire:
        await wire.send(sent)
        answer = _Answer()
        parser = httptools.HttpResponseParser(answer)
        parser.feed_data(await wire.rest())
        assert answer.is_whole
        return parser.get_status_code(), answer.headers, answer.body


class _Answer:
    """A parsed HTTP answer."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in {b"date", b"connection", b"server"}:
            self.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True


async def test_a_refused_handshake_is_an_http_answer(valkey_url: str) -> None:
    """The answer has the status and the code of the problem."""
    async with served(valkey_url) as server:
        for name, (sent, status, code) in REFUSED.items():
            found, headers, body = await refusal(server, sent)
            assert found == status, name
            if code:
                assert headers["content-type"] == "application/problem+json", name
                assert msgspec.json.decode(body)["code"] == code, name
        await expect_empty(server)


@pytest.mark.parametrize("setting", ["max_viewers", "max_board_viewers"])
async def test_a_viewer_beyond_a_limit_is_refused(valkey_url: str, setting: str) -> None:
    """The problem names the limit, and says when to try again."""
    limits: dict[str, Any] = {setting: 0}
    async with served(valkey_url, **limits) as server:
        status, headers, body = await refusal(server, request("GET", WATCH, *HANDSHAKE))
        problem = msgspec.json.decode(body)
        assert (status, problem["code"], headers["retry-after"]) == (503, "too_many_viewers", "5")
        assert setting in problem["detail"]
        await expect_empty(server)


async def expect_empty(server: Served) -> None:
    """Check that no viewer and no connection holds a place."""
    limits = server.live.limits
    await server.client.aclose()
    await until(lambda: not (server.watching or limits._places.held or limits._receiving or limits._idle))
    assert not server.live.reaper.connections


@pytest.mark.parametrize("limits", [{"max_viewers": 4}, {"max_board_viewers": 2}], ids=["address", "board"])
async def test_a_viewer_that_leaves_makes_room(valkey_url: str, limits: dict[str, Any]) -> None:
    """The viewer closes the WebSocket, closes the connection, or resets it."""
    async with served(valkey_url, **limits) as server:
        shake = request("GET", WATCH, *HANDSHAKE)
        for leave in ("close", "hang up", "reset"):
            async with AsyncExitStack() as stack:
                sockets = [await stack.enter_async_context(watch(server.url)) for _ in range(2)]
                assert (await refusal(server, shake))[0] == 503
                if leave == "close":
                    await sockets[0].send(close())
                elif leave == "hang up":
                    sockets[0].wire.writer.close()
                else:
                    reset(sockets[0])
                await until(lambda: server.watching == 1)
                async with watch(server.url) as third:
                    await third.receive()
                    assert (await refusal(server, shake))[0] == 503
        await expect_empty(server)


def reset(socket: RawSocket) -> None:
    """Reset a connection."""
    own = socket.wire.writer.get_extra_info("socket")
    own.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    socket.wire.writer.transport.abort()


async def test_500_viewers_come_and_go(valkey_url: str) -> None:
    """Some viewers leave during the handshake, some right after it, and some are refused. No viewer keeps a place."""
    chance = random.Random(1)
    async with served(valkey_url, max_connections=100, max_viewers=80) as server:
        shake = request("GET", WATCH, *HANDSHAKE)

        async def come_and_go(number: int) -> None:
            async with connected(server.url) as wire:
                sent = list(REFUSED.values())[number % len(REFUSED)][0] if number % 5 == 0 else shake
                await wire.send(sent[: chance.randrange(len(sent))] if number % 5 == 1 else sent)
                if number % 5 > 2:
                    await wire.reader.readuntil(b"\r\n\r\n")
                if number % 2:
                    reset(RawSocket(wire))

        for begin in range(0, 500, 20):
            await asyncio.gather(*(come_and_go(number) for number in range(begin, begin + 20)))
        async with watch(server.url) as socket:
            model = ModelViewer()
            await follow(socket, model, await server.post({"key": "a"}))
            assert server.watching == 1
        await expect_empty(server)


@pytest.mark.slow
async def test_reused_file_descriptors_receive_no_foreign_frames(valkey_url: str) -> None:
    """Viewers disconnect without a close while other viewers connect.

    Every message must follow from the previous message.
    """
    async with served(valkey_url) as server:
        await server.post(*({"key": f"k{number}", "amount": number} for number in range(100)))
        chance, over = random.Random(2), False
        shown: list[int] = []

        async def change() -> None:
            while not over:
                await server.post({"key": f"k{chance.randrange(100)}", "amount": chance.randint(-20, 20)})

        async def come_and_go() -> None:
            for _ in range(40):
                size = chance.choice([1, 3, 10, 100])
                async with watch(server.url, f"?limit={size}") as socket:
                    model = ModelViewer()
                    for _ in range(chance.randrange(8)):
                        await apply_next(socket, model)
                        assert len(model.records) <= size
                    if chance.random() < 0.3:
                        await socket.send(frame(chance.choice([0x1, 0x8, 0x9]), b"a", mask=False))  # type: ignore[arg-type]
                    shown.append(model.updates)
                    if chance.random() < 0.7:
                        reset(socket)

        changing = asyncio.create_task(change())
        await asyncio.gather(*(come_and_go() for _ in range(12)))
        over = True
        await changing
        assert sum(shown) > 500
        await expect_empty(server)


async def test_an_unread_answer_is_sent_before_the_handshake(valkey_url: str) -> None:
    """A client requests a large page, does not read it, and upgrades to WebSocket: the page arrives intact."""
    async with served(valkey_url) as server, connected(server.url, window=4096) as wire:
        for start in range(0, 1000, 100):
            await server.post(*({"key": long(start + number)} for number in range(100)))
        await wire.send(request("GET", "/healthz"))
        await wire.answer()
        connection = connection_of(server, wire)
        connection.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 4096)
        await wire.send(request("GET", "/v1/boards/posts?limit=1000"))
        await until(lambda: connection.unsent > 0)
        await wire.send(request("GET", WATCH, *HANDSHAKE))
        for number in range(20):
            last = await server.post({"key": long(number), "amount": 1000})
        body = (await wire.answer()).partition(b"\r\n\r\n")[2]
        assert len(msgspec.json.decode(body)["records"]) == 1000
        assert (await wire.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        model = ModelViewer()
        await follow(RawSocket(wire), model, last)
        assert model.syncs == 1


def connection_of(server: Served, wire: Wire) -> HttpProtocol:
    """The server's side of a connection."""
    own = wire.writer.get_extra_info("sockname")
    places = server.live.limits._places.things.values()
    everyone = (one for held in places for one in held if isinstance(one, HttpProtocol))
    (found,) = (one for one in everyone if one.transport.get_extra_info("peername") == own)
    return found
