"""Clients that wait for a change: they count as viewers, and further requests follow on their connections."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import pytest

from live.metrics import VIEWERS
from live.protocols.http.connection import HttpProtocol
from live.protocols.http.parser import MAX_HEAD
from live.protocols.http.pipeline import Get
from live.settings import Duration
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.watching import Served, served, until
from tests.harness.wire import CLOSE, Wire, connected, post, request, statuses

BOARD = "/v1/boards/posts"
HEALTH = request("GET", "/healthz")
ONE = b'{"key":"a"}'


@pytest.fixture(autouse=True)
def _count_from_zero() -> Iterator[None]:
    """Forget the viewers that mutants leave behind, because all servers of this process share the gauge."""
    yield
    VIEWERS.clear()


async def tag_of(here: Served) -> str:
    """The tag of the board."""
    tag: str = (await here.client.get(BOARD)).headers["etag"]
    return tag


async def wait(here: Served, *fields: tuple[str, str], seconds: int = 60) -> bytes:
    """A request that waits for the next change."""
    return request("GET", f"{BOARD}?wait={seconds}s", ("If-None-Match", await tag_of(here)), *fields)


@contextmanager
def shallow_stack() -> Iterator[None]:
    """Let the stack be half as deep as usual, so that a recursion over requests is noticed."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before // 2)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


async def ignored(here: Served, wire: Wire) -> None:
    """Check that nothing is answered yet: the connection still waits after another client was served."""
    assert (await here.client.get("/healthz")).status_code == 200
    assert not wire.reader._buffer  # type: ignore[attr-defined]


async def test_requests_behind_a_waiting_one_are_answered_after_it(valkey_url: str) -> None:
    """The requests come together with the waiting request or later, in any pieces."""
    async with served(valkey_url) as here, connected(here.url) as wire:
        await wire.send(await wait(here) + HEALTH + request("GET", f"{BOARD}?limit=1"))
        await until(lambda: here.watching == 1)
        await wire.send(post(ONE)[:30], post(ONE)[30:] + HEALTH[:9], HEALTH[9:])
        await ignored(here, wire)
        await here.post({"key": "b"})
        answers = await wire.answers(5)
        assert statuses(answers) == [200] * 5
        assert [b'"board":"posts"' in answer for answer in answers] == [True, False, True, False, False]
        assert b'"accepted":1,' in answers[3]
        assert here.watching == 0


async def test_several_requests_on_one_connection_wait_in_turn(valkey_url: str) -> None:
    """Only one of the requests is a viewer at a time."""
    async with served(valkey_url) as here, connected(here.url) as wire:
        await wire.send(post(ONE) + (await wait(here)).replace(b"wait=60s", b"wait=50ms") * 3 + HEALTH)
        found = statuses(await wire.answers(5))
        assert found[0] == found[-1] == 200
        assert set(found[1:4]) <= {200, 304}
        assert here.watching == 0


async def test_many_requests_that_need_not_wait_are_answered_in_one_go(valkey_url: str) -> None:
    """The requests are queued behind another request.

    The page is known, because another client waits for its next change.
    """
    async with served(valkey_url) as here, connected(here.url) as other, connected(here.url) as wire:
        old = await wait(here)
        await here.post({"key": "b"})
        await other.send(await wait(here))
        await until(lambda: here.watching == 1)
        channel = here.live.hub.channels["posts"]
        channel.set_viewer_count(1)  # the next heartbeat would also do this; afterwards, an answer needs no read
        await until(lambda: channel.is_settled)
        with shallow_stack():
            await wire.send(request("GET", "/v1/boards") + old * 64 + HEALTH)
            assert statuses(await wire.answers(66)) == [200] * 66
        await ignored(here, other)


async def test_a_body_behind_a_waiting_request_is_never_a_request(valkey_url: str) -> None:
    """Bytes that arrive during the wait are parsed as the rest of the body."""
    async with served(valkey_url) as here, connected(here.url) as wire:
        smuggled = request("GET", f"{BOARD}?wait=x")
        await wire.send(await wait(here) + post(smuggled)[: -len(smuggled)])
        await until(lambda: here.watching == 1)
        await wire.send(smuggled[:10], smuggled[10:] + HEALTH)
        await here.post({"key": "b"})
        answers = await wire.answers(3)
        assert statuses(answers) == [200, 400, 200]
        assert b'"code":"malformed_body"' in answers[1]


async def test_an_incomplete_body_that_came_before_the_wait_is_dropped(valkey_url: str) -> None:
    """The request ahead may wait for any time, and the server holds no memory for the body behind it.

    The connection ends after the answer to the request ahead.
    """
    async with served(valkey_url) as here, connected(here.url) as wire:
        await wire.send(HEALTH + await wait(here) + post(ONE)[: -len(ONE)])
        await until(lambda: here.watching == 1)
        (own,) = [each for each in here.live.reaper._connections if isinstance(each, HttpProtocol) and each._is_viewer]
        assert own.held == 0
        await here.post({"key": "b"})
        assert statuses(await wire.answers(2)) == [200, 200]
        assert await wire.rest() == b""


async def test_bytes_behind_a_waiting_request_are_bounded(valkey_url: str) -> None:
    """The server stops reading, and reads on after the answer."""
    async with served(valkey_url) as here, connected(here.url) as wire:
        await wire.send(await wait(here))
        await until(lambda: here.watching == 1)
        requests = 200_000
        wire.writer.write(HEALTH * requests)
        await until(lambda: _unread(here) >= MAX_HEAD)
        await ignored(here, wire)
        assert _unread(here) <= 5 * MAX_HEAD
        await here.post({"key": "b"})
        assert statuses(await wire.answers(1 + 1000)) == [200] * 1001
        wire.writer.transport.abort()


def _unread(here: Served) -> int:
    """The most bytes that a connection holds and has not parsed."""
    connections = here.live.reaper._connections
    return max(each._reader.unread for each in connections if isinstance(each, HttpProtocol))


Leaving = Callable[[Wire], Awaitable[None]]


async def half_close(wire: Wire) -> None:
    """Close the sending direction."""
    wire.writer.write_eof()
    assert await wire.rest() == b""


async def reset(wire: Wire) -> None:
    """End the connection at once."""
    wire.writer.transport.abort()


@pytest.mark.parametrize("leave", [half_close, reset])
async def test_a_client_that_leaves_is_removed_at_once(valkey_url: str, leave: Leaving) -> None:
    """The client's request gets no answer, with or without requests behind it.

    A mutant that keeps the client is noticed.
    """
    async with served(valkey_url) as here:

        async def come_and_leave() -> None:
            async with connected(here.url) as wire:
                await wire.send(await wait(here) + HEALTH)
                await until(lambda: here.watching == 1)
                await leave(wire)
            await until(lambda: here.watching == 0, 2)

        await come_and_leave()
        with replaced(Get, "disconnect", lambda _get: None), must_be_caught("a client that has left is still a viewer"):
            await come_and_leave()


async def test_a_client_that_has_left_before_its_turn_does_not_wait(valkey_url: str) -> None:
    """The client sent its last byte before the request ahead was answered."""
    async with served(valkey_url) as here, connected(here.url) as wire:
        wire.writer.write(post(ONE) + await wait(here))
        wire.writer.write_eof()
        answer, rest = await wire.answer(), await wire.rest()
        assert (statuses([answer]), rest) == ([200], b"")
        assert here.watching == 0


async def test_the_last_request_of_a_connection_can_wait(valkey_url: str) -> None:
    """The connection ends after the answer to this request."""
    async with served(valkey_url) as here, connected(here.url) as wire:
        await wire.send(await wait(here, CLOSE) + HEALTH)
        await until(lambda: here.watching == 1)
        await here.post({"key": "b"})
        answer, rest = await wire.answer(), await wire.rest()
        assert (statuses([answer]), rest) == ([200], b"")
        assert b"\r\nconnection: close\r\n" in answer


async def test_a_waiting_client_that_reads_no_answers_is_disconnected(valkey_url: str) -> None:
    """The client asked for more answers than the kernel holds. Then it waits, and sends nothing more."""
    async with served(valkey_url, slow_timeout=Duration(1)) as here:
        await here.fill()
        limits, answers = here.live.limits, request("GET", f"{BOARD}?limit=100") * 60
        before = limits._count
        async with connected(here.url, window=4096) as wire:
            await wire.send(answers + await wait(here, seconds=2))
            wire.writer.write_eof()
            await until(lambda: limits._count == before and not limits._unread and not here.watching, 20)
            assert not limits._unread_bytes


async def test_a_full_server_says_that_it_closes_the_connection(valkey_url: str) -> None:
    """No place is free when the wait ends, and the server closes no other connection to make room."""
    async with served(valkey_url, max_connections=2) as here, connected(here.url) as wire:
        await wire.send(await wait(here))
        await until(lambda: here.watching == 1)
        async with connected(here.url) as other:
            await other.send(HEALTH)
            assert statuses([await other.answer()]) == [200]
            await here.post({"key": "b"})
            answer, rest = await wire.answer(), await wire.rest()
            assert (statuses([answer]), rest) == ([200], b"")
            assert b"\r\nconnection: close\r\n" in answer
            await other.send(HEALTH)
            assert statuses([await other.answer()]) == [200]


@asynccontextmanager
async def several(url: str, count: int) -> AsyncIterator[list[Wire]]:
    """Open some connections."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connected(url)) for _ in range(count)]


async def test_a_stopping_server_ends_the_connection_after_the_answer(valkey_url: str) -> None:
    """Requests behind the waiting request are not answered."""
    async with AsyncExitStack() as stack:
        async with served(valkey_url, shutdown_timeout=10) as here:
            wires = await stack.enter_async_context(several(here.url, 3))
            for wire in wires:
                await wire.send(await wait(here) + HEALTH)
            await until(lambda: here.watching == 3)
        for wire in wires:
            answer, rest = await wire.answer(), await wire.rest()
            assert (statuses([answer]), rest) == ([503], b"")
            assert b'"code":"stopping"' in answer
            assert b"\r\nconnection: close\r\n" in answer
        assert here.watching == 0


async def test_a_waiting_client_has_no_task(valkey_url: str) -> None:
    """A hundred waiting clients need hardly more tasks than no waiting client."""
    async with served(valkey_url) as here, several(here.url, 100) as wires:
        sent = await wait(here)
        await asyncio.gather(*(wire.send(HEALTH) for wire in wires))
        await asyncio.gather(*(wire.answer() for wire in wires))
        before = len(asyncio.all_tasks())
        for wire in wires:
            wire.writer.write(sent)
        await until(lambda: here.watching == 100)
        assert len(asyncio.all_tasks()) <= before + 10
