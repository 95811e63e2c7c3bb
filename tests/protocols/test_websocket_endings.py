"""What ends a producer's WebSocket, and what only slows it down."""

import asyncio
from contextlib import suppress

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Opcode

from live.protocols.websocket import heartbeat
from live.settings import Duration
from tests.harness.boards import rolling_board
from tests.harness.producers import bearer, with_keys
from tests.harness.raw_socket import RawSocket, raw_socket, text
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.harness.wire import ask, connected, likes, request
from tests.protocols.producing import ONE, WAYS, at, next_answer, total

pytestmark = pytest.mark.slow


@WAYS
async def test_a_revoked_api_key_ends_the_socket(valkey_url: str, *, plain: bool) -> None:
    """The close code is 3500, within five seconds. Messages received before are answered."""
    async with (
        with_keys(valkey_url, plain=plain) as (url, producers, keys),
        connect(at(url), additional_headers=[bearer(keys["all"])]) as websocket,
    ):
        await websocket.send(ONE)
        assert (await next_answer(websocket))["accepted"] == 1
        await producers.revoke("all")

        async def is_refused() -> bool:
            try:
                await websocket.send(ONE)
                return bool((await next_answer(websocket))["accepted"] != 1)
            except ConnectionClosed:
                return True

        await eventually(is_refused, deadline=5)
        assert websocket.close_code == 3500


@WAYS
async def test_a_revoked_api_key_ends_a_slowed_down_socket(valkey_url: str, *, plain: bool) -> None:
    """Messages that wait because of the rate are not counted."""
    async with (
        with_keys(valkey_url, plain=plain, rate=2, burst=2) as (url, producers, keys),
        raw_socket(url, bearer(keys["all"])) as socket,
    ):
        await socket.send(text(ONE) * 100)
        await socket.answer()
        await producers.revoke("all")
        found = 1
        while (received := await socket.receive())[0] is Opcode.TEXT:
            found += 1
        assert received[0] is Opcode.CLOSE
        assert received[1].startswith((3500).to_bytes(2))
        assert found < 15
        assert await total(url) == found


@WAYS
async def test_a_fast_producer_is_slowed_down(valkey_url: str, *, plain: bool) -> None:
    """Above its rate it is not refused: all its events count, no faster than the rate permits."""
    settings = fresh_settings(valkey_url, rate=100, burst=20)
    async with run_server(settings, [rolling_board()], plain=plain) as url, raw_socket(url) as socket:
        started = asyncio.get_running_loop().time()
        await socket.send((text(ONE) + text(likes(2))) * 80)
        accepted = [answer["accepted"] for answer in await socket.answers(160)]
        took = asyncio.get_running_loop().time() - started
        assert accepted == [1, 2] * 80
        assert await total(url) == 240
    assert (240 - 20 - 10) / 100 < took < 8


@WAYS
async def test_an_unavailable_store_is_reported(own_store: StoreProcess, *, plain: bool) -> None:
    """Each message is refused like a POST. The socket stays open, and events count again when the store is back."""
    settings = fresh_settings(own_store.url, write_deadline=Duration(1), store_timeout=Duration(1))
    async with run_server(settings, [rolling_board()], plain=plain) as url, raw_socket(url) as socket:
        await socket.send(text(ONE))
        assert (await socket.answer())["accepted"] == 1
        own_store.kill()
        await socket.send(text(ONE), text(likes(2)))
        assert {answer["status"] for answer in await socket.answers(2)} == {503}
        own_store.start()

        async def counts() -> bool:
            await socket.send(text(ONE))
            return (await socket.answer()).get("accepted") == 1

        await eventually(counts)


@WAYS
async def test_a_producer_that_reads_no_answers_is_not_read(valkey_url: str, *, plain: bool) -> None:
    """It can't send without limit, and others are served. When it reads again, every message has its answer."""
    settings = fresh_settings(valkey_url)
    async with (
        run_server(settings, [rolling_board()], plain=plain) as url,
        raw_socket(url, window=4096) as socket,
    ):
        sent, bad = 0, text(b"{" + b" " * 1000) * 1000
        with suppress(TimeoutError):
            while sent < 1_000_000:
                sent += 1000
                socket.wire.writer.write(bad)
                async with asyncio.timeout(1):
                    await socket.wire.writer.drain()
        assert sent < 1_000_000
        async with raw_socket(url) as other:
            await other.send(text(ONE))
            assert (await other.answer())["accepted"] == 1
        answered = 0
        while answered < sent:
            answered += (await socket.receive())[0] is Opcode.TEXT


async def test_a_stopping_server_answers_first(own_store: StoreProcess) -> None:
    """Messages in progress are answered before close code 3001. An idle socket is closed immediately."""
    server = run_server(fresh_settings(own_store.url, shutdown_timeout=5), [rolling_board()])
    url = await server.__aenter__()
    async with raw_socket(url) as idle, raw_socket(url) as socket:
        await socket.send(text(ONE))
        await socket.answer()
        with own_store.frozen():
            await socket.send(text(ONE) * 30)
            await ask(url, request("GET", "/healthz"))
            stopping = asyncio.create_task(server.__aexit__(None, None, None))
            assert await idle.closed() == 3001
        assert [answer["accepted"] for answer in await socket.answers(30)] == [1] * 30
        assert await socket.closed() == 3001
    await stopping


async def test_messages_of_a_client_that_disconnects_count(ours: str) -> None:
    """Received messages count, even if nobody reads the answers."""
    for _ in range(3):
        async with raw_socket(ours) as socket:
            await socket.send(text(ONE) * 10)
            await socket.answer()

    async def all_counted() -> bool:
        return await total(ours) == 30

    await eventually(all_counted)


async def wait_idle(url: str, socket: RawSocket) -> None:
    """Wait until the server would have closed an idle connection; check that this socket is still open."""
    async with connected(url) as idle:
        await idle.send(request("GET", "/healthz"))
        await idle.answer()
        assert await idle.rest() == b""
    await socket.send(text(ONE))
    assert (await socket.answer())["accepted"] == 1


async def test_a_silent_socket_stays_open(valkey_url: str) -> None:
    """Neither `idle_timeout` nor `request_timeout` applies to a producer's socket."""
    settings = fresh_settings(valkey_url, idle_timeout=Duration(0.3), request_timeout=Duration(0.3))
    async with run_server(settings, [rolling_board()]) as url, raw_socket(url) as socket:
        await wait_idle(url, socket)
        await wait_idle(url, socket)


async def test_a_peer_that_answers_no_ping_is_disconnected(ours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is dropped."""
    monkeypatch.setattr(heartbeat, "_INTERVAL", 0.2)
    async with raw_socket(ours) as socket:
        assert await socket.receive() == (Opcode.PING, b"")
        assert await socket.wire.rest() == b""


async def test_a_slowed_down_peer_is_not_disconnected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server does not read, no answer to its ping can arrive."""
    monkeypatch.setattr(heartbeat, "_INTERVAL", 0.1)
    settings = fresh_settings(valkey_url, rate=10, burst=1)
    async with (
        run_server(settings, [rolling_board()]) as url,
        connect(at(url), ping_interval=None) as websocket,
    ):
        for _ in range(15):
            await websocket.send(ONE)
        assert [(await next_answer(websocket))["accepted"] for _ in range(15)] == [1] * 15
