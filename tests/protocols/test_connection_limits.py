"""Limits on connections: incomplete requests, idle connections, and the number of connections."""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.protocols import connection_limits
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.harness.wire import CHUNKED, Wire, ask, chunks, connected, likes, post, request, statuses
from tests.protocols.cases import ONE

pytestmark = pytest.mark.slow

TIMES: dict[str, Any] = {"idle_timeout": 0.6}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a request little time."""
    monkeypatch.setattr(connection_limits, "REQUEST_TIMEOUT", 0.6)


HEALTH = request("GET", "/healthz")
EXPECT = ("Expect", "100-continue")

HALVES = {
    "half a line": b"POST /v1/ev",
    "half a head": post(ONE)[:60],
    "no body": post(ONE)[: -len(ONE)],
    "half a body": post(ONE)[:-3],
    "half a chunk": post(chunks(ONE), CHUNKED)[:-12],
    "half a trailer": post(chunks(ONE), CHUNKED)[:-2] + b"a: b",
    "half a body over ASGI": post(ONE, target="/v1/%65vents")[:-3],
    "half a chunk over ASGI": post(chunks(ONE), CHUNKED, target="/v1/%65vents")[:-12],
    "half a body that nobody reads": post(ONE, target="/")[:-3],
}


async def trickle(wire: Wire, piece: bytes) -> None:
    """Send a piece repeatedly until the server closes the connection."""
    with suppress(ConnectionError):
        while not wire.reader.at_eof():
            await wire.send(piece)
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("name", HALVES)
async def test_an_incomplete_request_times_out(valkey_url: str, name: str) -> None:
    """The server answers 408 unless it has answered already, closes the connection, and counts nothing."""
    settings = fresh_settings(valkey_url, **TIMES)
    async with run_server(settings, [rolling_board()]) as url, connected(url) as wire:
        await wire.send(HALVES[name])
        received = await wire.rest()
        answered = 405 if name == "half a body that nobody reads" else 408
        assert statuses([received]) == [answered]
        assert received.count(b"HTTP/1.1 ") == 1
        if answered == 408:
            assert b"request_timeout" in received
            assert b"\r\nconnection: close\r\n" in received
        async with httpx.AsyncClient(base_url=url) as client:

            async def shown() -> httpx.Response | None:  # on a busy machine, the little time is not enough either
                answer = await client.get("/v1/boards/posts")
                return answer if answer.status_code == 200 else None

            assert (await eventually(shown)).json()["total_score"] == 0


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"POST /v1/events HTTP/1.1\r\n", b"a: b\r\n"),
        (post(b"", ("Content-Length", "999")), b" "),
        (post(b"", CHUNKED), b"1\r\n \r\n"),
        (post(b"", ("Content-Length", "999"), target="/v1/%65vents"), b" "),
        (post(b"", ("Content-Length", "999"), EXPECT), b" "),
    ],
)
async def test_a_request_that_trickles_in_times_out(valkey_url: str, first: bytes, piece: bytes) -> None:
    """Bytes that arrive do not extend the deadline, which runs from the first byte of the request."""
    settings = fresh_settings(valkey_url, **TIMES)
    async with run_server(settings, [rolling_board()]) as url, connected(url) as wire:
        await wire.send(first)
        sending = asyncio.create_task(trickle(wire, piece))
        received = await wire.rest()
        await sending
        assert statuses([received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")]) == [408]


AHEAD = [post(ONE), post(ONE, target="/v1/%65vents"), post(ONE) + HEALTH]


async def test_a_complete_request_before_an_incomplete_one_is_answered(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complete request gets its answer first. Then the incomplete request gets 408, or an earlier refusal."""

    async def behind(whole: bytes, half: bytes) -> None:
        async with connected(url) as wire:
            await wire.send(whole + half)
            count = whole.count(b" HTTP/")
            assert statuses(await wire.answers(count)) == [200] * count
            assert statuses([await wire.rest()]) in ([408], [405])

    monkeypatch.setattr(connection_limits, "REQUEST_TIMEOUT", 0.2)
    settings = fresh_settings(valkey_url)
    async with run_server(settings, [rolling_board()]) as url:
        await asyncio.gather(*(behind(whole, half) for whole in AHEAD for half in HALVES.values()))


async def test_waiting_for_an_answer_does_not_count_against_an_incomplete_request(
    own_store: StoreProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of the incomplete request starts when all earlier requests are answered."""
    monkeypatch.setattr(connection_limits, "REQUEST_TIMEOUT", 0.2)
    settings = fresh_settings(own_store.url)
    async with run_server(settings, [rolling_board()]) as url, AsyncExitStack() as stack:
        wires = []
        with own_store.frozen():
            for whole in AHEAD:
                for half in HALVES.values():
                    wire = await stack.enter_async_context(connected(url))
                    await wire.send(whole + half)
                    wires.append((wire, whole.count(b" HTTP/")))
            async with connected(url) as later:
                await later.rest()
        for wire, count in wires:
            received = await wire.rest()
            assert received.count(b"HTTP/1.1 200 ") == count
            assert received.count(b"HTTP/1.1 ") == count + 1
            assert b"\r\nconnection: close\r\n" in received or b"HTTP/1.1 405 " in received


@pytest.mark.usefixtures("hasty")
async def test_each_request_gets_one_answer(valkey_url: str) -> None:
    """A body that was refused early and never ends gets no second answer when it times out."""
    settings = fresh_settings(valkey_url, max_body=100, **TIMES)
    async with run_server(settings, [rolling_board()]) as url:
        for large in (post(b"", ("Content-Length", "1000")), post(chunks(b" " * 101)[:-5], CHUNKED)):
            for target in (b"/v1/events", b"/v1/%65vents"):
                async with connected(url) as wire:
                    await wire.send(large.replace(b"/v1/events", target) + b"5")
                    received = await wire.rest()
                    assert (statuses([received]), received.count(b"HTTP/1.1 ")) == ([413], 1)


async def test_a_connection_without_a_request_times_out(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline starts with the connection."""
    monkeypatch.setattr(connection_limits, "REQUEST_TIMEOUT", 0.3)
    settings = fresh_settings(valkey_url)
    async with run_server(settings, [rolling_board()]) as url, connected(url) as wire:
        await wire.rest()


@pytest.mark.alone
async def test_the_default_timeout_is_below_ten_seconds(valkey_url: str) -> None:
    """The timeout applies to incomplete heads and bodies."""
    clock = asyncio.get_running_loop().time
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:

        async def closes(sent: bytes) -> float:
            async with connected(url) as wire:
                began = clock()
                await wire.send(sent)
                assert statuses([await wire.rest()]) == [408]
                return clock() - began

        for took in await asyncio.gather(*map(closes, list(HALVES.values())[:4])):
            assert 7 < took < 10


@pytest.mark.usefixtures("hasty")
@pytest.mark.alone
async def test_a_steady_stream_of_requests_does_not_time_out(valkey_url: str) -> None:
    """Each write ends within a request. So one request is always incomplete, but no request is late."""
    settings = fresh_settings(valkey_url, **TIMES)
    clock = asyncio.get_running_loop().time
    async with run_server(settings, [rolling_board()]) as url, connected(url) as wire:
        whole = post(likes(3))
        await wire.send(whole[:50])
        end = clock() + 2
        while clock() < end:
            await wire.send(whole[50:] + whole[:50])
            assert statuses([await wire.answer()]) == [200]
            await asyncio.sleep(0.05)


@pytest.mark.alone
async def test_an_idle_connection_is_closed(valkey_url: str) -> None:
    """After a request on any path, a connection is closed after `idle_timeout`.

    A connection that sends in between stays open.
    """
    settings = fresh_settings(valkey_url, idle_timeout=0.8)
    clock = asyncio.get_running_loop().time
    async with run_server(settings, [rolling_board()]) as url, connected(url) as kept:
        for sent in (post(ONE), HEALTH, post(ONE) + HEALTH, HEALTH + post(ONE), post(b"{")):
            async with connected(url) as wire:
                began = clock()
                await wire.send(sent)
                while not wire.reader.at_eof():
                    await kept.send(post(ONE))
                    assert statuses([await kept.answer()]) == [200]
                    await asyncio.sleep(0.05)
                    if wire.reader._buffer:  # type: ignore[attr-defined]
                        await wire.answer()
                assert 0.7 < clock() - began < 5


async def open_connections(url: str, stack: AsyncExitStack, count: int, first: bytes) -> list[Wire]:
    """Open connections, each with one answered request."""
    wires = [await stack.enter_async_context(connected(url)) for _ in range(count)]
    for wire in wires:
        await wire.send(first)
        await wire.answer()
    return wires


@pytest.mark.parametrize("first", [post(ONE), HEALTH], ids=["short", "ordinary"])
async def test_an_idle_connection_makes_room(valkey_url: str, first: bytes) -> None:
    """The server closes the connection that was idle longest.

    The other connections stay open, and the new connection is served.
    """
    settings = fresh_settings(valkey_url, max_connections=6)
    async with run_server(settings, [rolling_board()]) as url, AsyncExitStack() as stack:
        oldest, *others = await open_connections(url, stack, 3, first)
        (new,) = await open_connections(url, stack, 1, first)
        assert await oldest.rest() == b""
        for wire in (*others, new):
            await wire.send(first)
            assert statuses([await wire.answer()]) == [200]


async def test_a_new_connection_is_refused_when_all_others_are_busy(own_store: StoreProcess) -> None:
    """The answer is 503 with Retry-After. Busy connections stay open, and later there is room again.

    Requests about health are still answered.
    """
    settings = fresh_settings(own_store.url, max_connections=6)
    async with run_server(settings, [rolling_board()]) as url, AsyncExitStack() as stack:
        await ask(url, post(ONE))
        busy = await open_connections(url, stack, 3, HEALTH)
        with own_store.frozen():
            for wire in busy:
                await wire.send(post(ONE))
                await wire.send(HEALTH[:5])

            async def is_refused() -> bool:
                async with connected(url) as wire:
                    await wire.send(post(ONE))
                    received = await wire.rest()
                    return b"too_many_connections" in received and b"\r\nretry-after: 1\r\n" in received

            await eventually(is_refused)
            async with connected(url) as wire:
                await wire.send(HEALTH)
                received = await wire.rest()
                assert statuses([received]) == [200]
                assert b"\r\nconnection: close\r\n" in received
        for wire in busy:
            assert statuses([await wire.answer()]) == [200]
            await wire.send(HEALTH[5:])
            assert statuses([await wire.answer()]) == [200]
        assert statuses(await ask(url, post(ONE))) == [200, 200]


async def test_a_connection_beyond_all_limits_is_refused_at_once(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request on this connection would be answered, so the server does not wait for a request."""
    monkeypatch.setattr(connection_limits, "HEALTH_PLACES", 0)
    settings = fresh_settings(valkey_url, max_connections=1)
    async with run_server(settings, [rolling_board()]) as url, connected(url) as busy, connected(url) as wire:
        await busy.send(HEALTH[:5])
        received = await wire.rest()
        assert statuses([received]) == [503]
        assert b"too_many_connections" in received
        await busy.send(HEALTH[5:])
        assert statuses([await busy.answer()]) == [200]


async def test_a_client_with_many_connections_takes_no_place_of_another(valkey_url: str) -> None:
    """The server refuses the client's new connection, although the only connection of another client is idle."""
    settings = fresh_settings(valkey_url, max_connections=4)
    async with run_server(settings, [rolling_board()]) as url, AsyncExitStack() as stack:
        other = await stack.enter_async_context(connected(url, source="127.0.0.2"))
        await other.send(HEALTH)
        await other.answer()
        for source in ("127.0.0.3", "127.0.0.4", "127.0.0.1"):
            wire = await stack.enter_async_context(connected(url, source=source))
            await wire.send(HEALTH[:5])
        assert b"too_many_connections" in b"".join(await ask(url, post(ONE)))
        await other.send(post(ONE))
        assert statuses([await other.answer()]) == [200]


async def test_viewers_and_producers_have_separate_limits(valkey_url: str) -> None:
    """Viewers take no places of producers, and producers take no places of viewers."""
    settings = fresh_settings(valkey_url, max_connections=4, max_viewers=10)
    async with run_server(settings, [rolling_board()]) as url, AsyncExitStack() as stack:
        watch = url.replace("http", "ws") + "/v1/boards/posts/live"
        viewers = [await stack.enter_async_context(connect(watch)) for _ in range(5)]
        producers = await open_connections(url, stack, 2, post(ONE))
        with pytest.raises(InvalidStatus) as refused:
            await connect(watch)
        assert b"too_many_viewers" in (refused.value.response.body or b"")
        for wire in producers[1:]:
            await wire.send(post(ONE))
            assert statuses([await wire.answer()]) == [200]
        for viewer in viewers:
            assert await viewer.recv()
