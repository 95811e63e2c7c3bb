"""Bodies behind requests that take long: no client can make the server hold a body for as long as it likes."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import pytest

from live.protocols.asgi import _Cycle
from live.protocols.connection import HttpProtocol
from live.protocols.post import Post
from live.store.board.read.reader import BoardReader
from tests.harness.waiting import DEADLINE, eventually
from tests.harness.wire import CHUNKED, connected, post, request, statuses
from tests.security.test_unanswered_bodies import BODY, MOST_BODY, OTHER, STRANGER, serving, watching

pytestmark = pytest.mark.security

PART: Final = post(BODY)[: -len(BODY) // 2]
STREAM: Final = "/v1/boards/posts/stream"
READ: Final = request("GET", "/v1/boards/posts")
APP: Final = "/v1/%65vents"  # with this spelling, the application answers, and not the fast path
CONNECTIONS: Final = 6
patience = DEADLINE  # seconds within which the server must release a body
KINDS: Final = ["stream", "own", "stream app", "stream complete app"]


def sent_by(kind: str) -> bytes:
    """A viewer's request that has a body, or that is followed by a request with a body."""
    if kind == "own":
        return request("GET", STREAM, ("Content-Length", str(len(BODY)))) + BODY[:1000]
    first = request("GET", STREAM)
    if kind.endswith("complete app"):
        return first + post(BODY[:200_000], target=APP)
    return first + post(BODY, target=APP if kind.endswith("app") else "/v1/events")[:1000]


@contextmanager
def counting_viewers() -> Iterator[list[HttpProtocol]]:
    """Yield a list of the connections that became viewers."""
    viewers: list[HttpProtocol] = []
    release = HttpProtocol.release_place

    def released(protocol: HttpProtocol) -> None:
        release(protocol)
        viewers.append(protocol)

    with patch.object(HttpProtocol, "release_place", released):
        yield viewers


@pytest.mark.parametrize("kind", KINDS)
async def test_viewers_hold_no_bodies(valkey_url: str, kind: str) -> None:
    """The body belongs to the viewer's request, or to a request behind it.

    Another client of the same address sends a body too.
    """
    with watching() as watch, counting_viewers() as viewers:
        async with serving(valkey_url) as url, AsyncExitStack() as stack:
            async with connected(url, source=OTHER) as wire:
                await wire.send(post(BODY))
                await wire.answer()
            for _ in range(CONNECTIONS):
                wire = await stack.enter_async_context(connected(url, source=STRANGER))
                await wire.send(sent_by(kind))

            async def all_watch() -> bool:
                return len(viewers) == CONNECTIONS

            await eventually(all_watch)
            await eventually(watch.is_empty, patience)
            assert not any(viewer.held for viewer in viewers), "a viewer holds a body"
            assert not any(viewer.transport.is_closing() for viewer in viewers), "a viewer lost its connection"
            async with connected(url, source=STRANGER) as wire:
                await wire.send(post(BODY))
                assert statuses([await wire.answer()]) == [200]


async def test_a_body_behind_a_slow_request_has_a_deadline(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body counts as held until its deadline. The slow request is answered, and the body gets 408."""
    monkeypatch.setattr("live.protocols.connection_limits.REQUEST_TIMEOUT", 1.0)
    gate, select = asyncio.Event(), BoardReader.select

    async def slowly(*arguments: Any) -> Any:
        await gate.wait()
        return await select(*arguments)

    with watching() as watch, patch.object(BoardReader, "select", slowly):
        async with serving(valkey_url) as url, connected(url) as wire:
            await wire.send(READ + PART)

            async def is_held() -> bool:
                return watch.of_address > 0

            await eventually(is_held)
            try:
                await eventually(watch.is_empty, patience)
            finally:
                gate.set()
            assert statuses(await wire.answers(2)) == [200, 408]


async def test_an_answer_that_ends_the_connection_frees_the_body_behind_it(valkey_url: str) -> None:
    """An answer closes the connection although a body behind it waits. The server then frees the body."""
    send = _Cycle.send

    async def last(cycle: _Cycle, message: Any) -> None:
        cycle.keep_alive = False
        await send(cycle, message)

    with watching() as watch, patch.object(_Cycle, "send", last):
        async with serving(valkey_url) as url, connected(url) as wire:
            await wire.send(request("GET", "/nothing") + PART)
            assert statuses([await wire.answer()]) == [404]
            assert watch.of_address > 0
            await eventually(watch.is_empty, patience)


async def test_a_refused_body_is_dropped_at_once(valkey_url: str) -> None:
    """The connection keeps nothing of the body after the refusal, although the client may send more of it."""
    kept: list[int] = []
    answer = Post.answer

    def noted(exchange: Post, reply: Any) -> None:
        answer(exchange, reply)
        kept.append(len(exchange.body) + len(exchange._more))

    with patch.object(Post, "answer", noted):
        async with serving(valkey_url) as url, connected(url) as wire:
            piece = b"%x\r\n%b\r\n" % (100_000, b" " * 100_000)
            await wire.send(post(b"", CHUNKED), *[piece] * (MOST_BODY // 100_000 + 1))
            assert statuses([await wire.answer()]) == [413]
    assert kept == [0]
