"""A producer's socket on our protocol and on the plain ASGI route."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode

from live.protocols.websocket import heartbeat
from live.settings import Duration
from tests.harness.boards import rolling_board
from tests.harness.producers import bearer, with_keys
from tests.harness.raw_socket import HANDSHAKE, PATH, RawSocket, close, frame, raw_socket, text
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.harness.wire import ask, connected, likes, request, statuses

ONE = b'{"key":"a"}'
MAX_BODY = 4096

WAYS = pytest.mark.parametrize("plain", [False, True], ids=["ours", "plain"])


@pytest.fixture(params=[False, True], ids=["ours", "plain"])
async def url(request: pytest.FixtureRequest, valkey_url: str) -> AsyncIterator[str]:
    """A server, of each kind in turn."""
    settings = fresh_settings(valkey_url, max_body=MAX_BODY)
    async with run_server(settings, [rolling_board()], plain=request.param) as address:
        yield address


@pytest.fixture
async def ours(valkey_url: str) -> AsyncIterator[str]:
    """A server with our protocols."""
    async with run_server(fresh_settings(valkey_url, max_body=MAX_BODY), [rolling_board()]) as address:
        yield address


@pytest.fixture
async def client(url: str) -> AsyncIterator[ClientConnection]:
    """A producer's client as there are many."""
    async with connect(at(url)) as websocket:
        yield websocket


def at(url: str) -> str:
    """The address of the socket."""
    return url.replace("http", "ws", 1) + PATH


async def told(client: ClientConnection) -> dict[str, Any]:
    """The next answer."""
    answer: dict[str, Any] = msgspec.json.decode(await client.recv())
    return answer


async def total(url: str) -> int:
    """The sum of the board."""
    async with httpx.AsyncClient(base_url=url) as http:
        score: int = (await http.get("/v1/boards/posts")).json()["total_score"]
        return score


async def test_a_thousand_in_flight_are_answered_in_order(url: str, client: ClientConnection) -> None:
    """Single events, arrays of many lengths, refused ones and no JSON, all ahead of their answers."""
    chosen = random.Random(3)
    wanted: list[tuple[int, str]] = []
    for _ in range(1000):
        count = chosen.choice([1, 1, 1, 2, 5, 100])
        kind = chosen.choice(["", "", "", "key_invalid", "malformed_body"])
        body = {"": likes(count) if count > 1 else ONE, "key_invalid": b'{"key":""}', "malformed_body": b"{"}[kind]
        wanted.append((0 if kind else count, kind))
        await client.send(body.decode())
    found = [await told(client) for _ in wanted]

    def said(answer: dict[str, Any]) -> tuple[int, str]:
        refused = answer.get("rejected") or [{"code": ""}]
        return answer.get("accepted", 0), answer.get("code", refused[0]["code"])

    assert [said(answer) for answer in found] == wanted
    offsets = [answer["offsets"]["posts"] for answer in found if answer.get("accepted")]
    assert offsets == sorted(offsets)
    assert await total(url) == sum(count for count, _ in wanted)


async def test_no_json_is_answered_and_the_socket_lives(client: ClientConnection) -> None:
    """With the document that POST would answer, for text and for bytes, and for nothing at all."""
    for message in ("{", b"{", "", b"", b'{"key":"\xff"}'):
        await client.send(message)
        answer = await told(client)
        assert (answer["status"], answer["code"]) == (400, "malformed_body")
    await client.send(ONE)
    assert (await told(client))["accepted"] == 1


async def test_an_id_counts_once(url: str, client: ClientConnection) -> None:
    """Whether it is sent on one socket, on another or by POST."""
    event = '{"key":"a","id":"1","source":"s"}'
    await client.send(event)
    await client.send(event)
    assert [(await told(client))["accepted"], (await told(client))["duplicate"]] == [1, 1]
    async with httpx.AsyncClient(base_url=url) as http:
        assert (await http.post("/v1/events", json=msgspec.json.decode(event))).json()["duplicate"] == 1
    assert await total(url) == 1


async def test_a_message_may_come_in_pieces(client: ClientConnection) -> None:
    """Of text or of bytes, with pings in between, a character cut in two, and whole messages before and behind."""

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for index in range(0, len(body), 3):
            yield body[index : index + 3]
            await (await client.ping())

    async def letters() -> AsyncIterator[str]:
        for letter in '{"key":"ä"}':
            yield letter
            await (await client.ping())

    for message in (ONE, pieces('{"key":"ä"}'.encode()), ONE.decode(), letters(), ONE):
        await client.send(message)
    assert [(await told(client))["accepted"] for _ in range(5)] == [1] * 5


async def test_a_ping_is_answered(url: str) -> None:
    """With what it held."""
    async with raw_socket(url) as socket:
        await socket.send(frame(Opcode.PING, b"so"), frame(Opcode.PONG, b"unasked"), frame(Opcode.PING, b"far"))
        assert [await socket.receive(), await socket.receive()] == [(Opcode.PONG, b"so"), (Opcode.PONG, b"far")]


@pytest.mark.parametrize("seed", range(5))
async def test_where_frames_are_cut_makes_no_difference(url: str, seed: int) -> None:
    """Frames of every length in pieces of every size, with pings among them."""
    chosen = random.Random(seed)
    counts = [chosen.choice([1, 2, 8, 9, 10, 11, 12, 100]) for _ in range(60)]
    sent = b"".join(text(likes(count)) + frame(Opcode.PING, b"") * chosen.randint(0, 1) for count in counts)
    async with raw_socket(url) as socket:
        while sent:
            size = chosen.choice([1, 2, 3, 7, 100, 3000])
            await socket.send(sent[:size])
            sent = sent[size:]
        found: list[int] = []
        while len(found) < len(counts):
            opcode, body = await socket.receive()
            if opcode is Opcode.TEXT:
                found.append(msgspec.json.decode(body)["accepted"])
    assert found == counts


async def test_a_message_that_comes_with_the_handshake_counts(ours: str) -> None:
    """A client that does not wait for the answer loses nothing by it, wherever the piece ends."""
    shake = request("GET", PATH, *HANDSHAKE)
    behind = text(ONE) + text(likes(2))
    for cut in range(len(behind) + 1):
        async with connected(ours) as wire:
            await wire.send(shake + behind[:cut], behind[cut:])
            assert (await wire.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            assert [answer["accepted"] for answer in await RawSocket(wire).answers(2)] == [1, 2]


async def test_messages_before_a_close_are_answered_first(ours: str) -> None:
    """A client that says goodbye behind a hundred messages gets a hundred answers, then its goodbye back."""
    async with raw_socket(ours) as socket:
        await socket.send(text(ONE) * 100 + close(1001))
        assert [answer["accepted"] for answer in await socket.answers(100)] == [1] * 100
        assert await socket.closed() == 1001
    assert await total(ours) == 100


BROKEN = {
    "no UTF-8": (text(b'{"key":"\xff"}'), 1007),
    "no UTF-8 in pieces": (frame(Opcode.TEXT, b"\xc3", final=False) + frame(Opcode.CONT, b"("), 1007),
    "not masked": (frame(Opcode.TEXT, ONE, mask=False), 1002),
    "too large": (text(b" " * (MAX_BODY + 1)), 1009),
    "too large in pieces": (
        frame(Opcode.TEXT, b" " * MAX_BODY, final=False) + frame(Opcode.CONT, b"  "), 1009
    ),
    "too large, and not there yet": (text(b" " * 70_000)[:20], 1009),
    "unknown opcode": (b"\x83\x80\x00\x00\x00\x00", 1002),
    "reserved bit": (b"\xc1\x80\x00\x00\x00\x00", 1002),
    "a ping in pieces": (b"\x09\x80\x00\x00\x00\x00", 1002),
    "an end without a beginning": (frame(Opcode.CONT, ONE), 1002),
    "a beginning in the middle": (frame(Opcode.TEXT, b"{", final=False) + text(ONE), 1002),
    "a close in the middle": (frame(Opcode.TEXT, b"{", final=False) + close(), 1002),
    "a malformed close": (frame(Opcode.CLOSE, b"\x03"), 1002),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_against_the_rules_closes_the_socket(url: str, name: str) -> None:
    """With the code of RFC 6455."""
    sent, code = BROKEN[name]
    async with raw_socket(url) as socket:
        await socket.send(sent)
        assert await socket.closed() == code


@pytest.mark.parametrize("name", BROKEN)
async def test_messages_before_a_broken_one_are_answered_first(ours: str, name: str) -> None:
    """Whatever ends a socket, what came before it has its answer; what came behind is not counted."""
    sent, code = BROKEN[name]
    async with raw_socket(ours) as socket:
        await socket.send(text(ONE) * 20 + sent + text(likes(7)) * 3)
        assert [answer["accepted"] for answer in await socket.answers(20)] == [1] * 20
        assert await socket.closed() == code
    assert await total(ours) == 20


async def test_the_handshake_is_refused_as_http(valkey_url: str) -> None:
    """401 without a good key, 403 to another site's page, 400 to what is no handshake, with the same documents."""
    for plain in (False, True):
        async with with_keys(valkey_url, plain=plain) as (url, _, keys):
            good = dict([bearer(keys["all"])])
            for headers, status, code in [
                ({}, 401, "credentials_required"),
                (dict([bearer("all.wrong")]), 401, "credentials_invalid"),
                (dict([bearer(keys["admin"])]), 403, "scope_forbidden"),
                ({**good, "Origin": "https://evil.example"}, 403, "origin_forbidden"),
            ]:
                with pytest.raises(InvalidStatus) as refused:
                    await connect(at(url), additional_headers=headers)
                assert refused.value.response.status_code == status
                assert msgspec.json.decode(refused.value.response.body)["code"] == code
                assert refused.value.response.headers["Content-Type"] == "application/problem+json"
                assert ("WWW-Authenticate" in refused.value.response.headers) is (status == 401)
            half = request("GET", PATH, bearer(keys["all"]), ("Connection", "Upgrade"), ("Upgrade", "websocket"))
            async with connected(url) as wire:
                await wire.send(half)
                assert statuses([await wire.rest()]) == [400]
            own = {**good, "Origin": url}
            async with connect(at(url), additional_headers=own) as websocket:
                await websocket.send(ONE)
                assert (await told(websocket))["accepted"] == 1


@pytest.mark.parametrize("path", [f"{PATH}?x=1", "/v1/%65vents/live"])
async def test_the_path_may_be_written_otherwise(url: str, path: str) -> None:
    """With a query or an encoded letter it is the same socket, with the same limits."""
    async with raw_socket(url, path=path) as socket:
        await socket.send(text(b" " * 3000 + ONE))
        assert (await socket.answer())["accepted"] == 1


async def test_a_post_is_no_handshake(ours: str) -> None:
    """The handshake is a GET."""
    fields = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    async with connected(ours) as wire:
        await wire.send(request("POST", PATH, *fields, ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")))
        assert statuses([await wire.answer()]) == [405]


@WAYS
async def test_a_key_that_is_revoked_ends_the_socket(valkey_url: str, *, plain: bool) -> None:
    """With 3500, within five seconds; what was taken in before is answered."""
    async with (
        with_keys(valkey_url, plain=plain) as (url, producers, keys),
        connect(at(url), additional_headers=[bearer(keys["all"])]) as websocket,
    ):
        await websocket.send(ONE)
        assert (await told(websocket))["accepted"] == 1
        await producers.revoke("all")

        async def is_refused() -> bool:
            try:
                await websocket.send(ONE)
                return bool((await told(websocket))["accepted"] != 1)
            except ConnectionClosed:
                return True

        await eventually(is_refused, deadline=5)
        assert websocket.close_code == 3500


@WAYS
async def test_a_key_that_is_revoked_ends_a_socket_that_is_held_back(valkey_url: str, *, plain: bool) -> None:
    """Messages that wait for their turn when the key goes are not counted."""
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
async def test_a_fast_producer_is_slowed_and_loses_nothing(valkey_url: str, *, plain: bool) -> None:
    """Over its rate it is not refused: all it sent counts, no faster than it may."""
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
async def test_a_store_that_is_away_is_told(own_store: StoreProcess, *, plain: bool) -> None:
    """Each message is refused as a POST would be; the socket lives, and counts again when the store is back."""
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
    """It can't send for ever; others are served meanwhile; when it reads again, every message has its answer."""
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


async def test_a_server_that_stops_answers_first(own_store: StoreProcess) -> None:
    """Every message under way, then 3001: come back; a socket where nothing is under way is closed at once."""
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


async def test_a_client_that_leaves_has_counted(ours: str) -> None:
    """What was taken in counts, whether or not its sender waits; the server goes on."""
    for _ in range(3):
        async with raw_socket(ours) as socket:
            await socket.send(text(ONE) * 10)
            await socket.answer()

    async def all_counted() -> bool:
        return await total(ours) == 30

    await eventually(all_counted)


async def silent_for_long(url: str, socket: RawSocket) -> None:
    """Wait until the server would have closed an idle connection, and see that it has not closed this one."""
    async with connected(url) as idle:
        await idle.send(request("GET", "/healthz"))
        await idle.answer()
        assert await idle.rest() == b""
    await socket.send(text(ONE))
    assert (await socket.answer())["accepted"] == 1


async def test_a_silent_socket_is_no_idle_connection(valkey_url: str) -> None:
    """A producer that has nothing to say for longer than `idle_timeout` and `request_timeout` keeps its socket."""
    settings = fresh_settings(valkey_url, idle_timeout=Duration(0.3), request_timeout=Duration(0.3))
    async with run_server(settings, [rolling_board()]) as url, raw_socket(url) as socket:
        await silent_for_long(url, socket)
        await silent_for_long(url, socket)


async def test_a_peer_that_is_gone_is_let_go(ours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers no ping: its connection is dropped."""
    monkeypatch.setattr(heartbeat, "_INTERVAL", 0.2)
    async with raw_socket(ours) as socket:
        assert await socket.receive() == (Opcode.PING, b"")
        assert await socket.wire.rest() == b""


async def test_a_peer_that_is_held_back_is_not_taken_for_gone(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server does not read, it can't have an answer to its ping."""
    monkeypatch.setattr(heartbeat, "_INTERVAL", 0.1)
    settings = fresh_settings(valkey_url, rate=10, burst=1)
    async with (
        run_server(settings, [rolling_board()]) as url,
        connect(at(url), ping_interval=None) as websocket,
    ):
        for _ in range(15):
            await websocket.send(ONE)
        assert [(await told(websocket))["accepted"] for _ in range(15)] == [1] * 15
