"""Nobody holds more than half of a resource: while one client takes all that it gets, another client is served."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.errors import REPLACED
from live.fanout.hub import Hub
from live.system.resources import Resource
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import DEADLINE
from tests.harness.wire import connected, post, request, statuses

pytestmark = pytest.mark.security

PLACES: Final = 8
OTHER: Final = "127.0.0.2"


async def check_viewers(store: StoreProcess) -> None:
    """One address opens viewers until one is refused. Then another address watches."""
    async with run_server(fresh_settings(store.url, max_viewers=PLACES), [rolling_board()]) as url:
        address = f"{url.replace('http', 'ws')}/v1/boards/posts/live"
        async with AsyncExitStack() as stack:

            async def watch(source: str) -> bool:
                try:
                    await stack.enter_async_context(connect(address, local_addr=(source, 0)))
                except InvalidStatus:
                    return False
                return True

            watching = sum([await watch("127.0.0.1") for _ in range(PLACES + 1)])
            assert watching == PLACES // 2, f"{watching} of {PLACES} viewers have one address, and another has the rest"
            assert await watch(OTHER), "another viewer is refused"


async def check_places_of_two(store: StoreProcess) -> None:
    """Two addresses hold all places and read everything. A third address gets a place, and one of theirs loses it.

    The viewer learns that it may connect again.
    """
    async with run_server(fresh_settings(store.url, max_viewers=PLACES), [rolling_board()]) as url:
        address = f"{url.replace('http', 'ws')}/v1/boards/posts/live"
        async with AsyncExitStack() as stack:
            taken = [
                await stack.enter_async_context(connect(address, local_addr=(source, 0)))
                for source in ("127.0.0.1", "127.0.0.3")
                for _ in range(PLACES // 2)
            ]
            try:
                watching = await stack.enter_async_context(connect(address, local_addr=(OTHER, 0)))
            except InvalidStatus:
                raise AssertionError("two addresses have all places, and another is refused") from None
            assert b'"sync"' in await watching.recv(decode=False)
            lost, _ = await asyncio.wait(
                [asyncio.create_task(socket.wait_closed()) for socket in taken],
                timeout=DEADLINE,
                return_when=asyncio.FIRST_COMPLETED,
            )
            assert (len(lost), [each.close_code for each in taken if each.close_code]) == (1, [REPLACED])


async def check_connections(store: StoreProcess) -> None:
    """The store answers nobody, so all connections of one address stay busy."""
    async with run_server(fresh_settings(store.url, max_connections=PLACES), [rolling_board()]) as url:
        async with connected(url) as first:
            await first.send(post(b'{"key":"a"}'))
            assert statuses([await first.answer()]) == [200]
        async with AsyncExitStack() as stack:
            with store.frozen():
                for _ in range(PLACES + 1):
                    wire = await stack.enter_async_context(connected(url))
                    await wire.send(post(b'{"key":"a"}'))
                async with connected(url, source=OTHER) as other:
                    await other.send(request("GET", "/openapi.json"))
                    assert statuses([await other.answer()]) == [200], "another client is refused"


CHECKS: Final[dict[str, Callable[[StoreProcess], Awaitable[None]]]] = {
    "viewers": check_viewers,
    "places of two": check_places_of_two,
    "connections": check_connections,
}


@pytest.mark.parametrize("name", CHECKS)
async def test_a_greedy_client_leaves_half_to_others(own_store: StoreProcess, name: str) -> None:
    """The other client has another address."""
    await CHECKS[name](own_store)


@pytest.mark.mutant
@pytest.mark.parametrize("name", ["viewers", "connections"])
async def test_without_the_half_a_greedy_client_takes_everything(own_store: StoreProcess, name: str) -> None:
    """The mutant lets one client hold all."""
    with replaced(Resource, "is_within_half", lambda *_: True), must_be_caught("another"):
        await CHECKS[name](own_store)


@pytest.mark.mutant
async def test_a_full_server_that_takes_no_place_from_anybody_is_caught(own_store: StoreProcess) -> None:
    """The mutant only refuses."""
    with replaced(Hub, "_replace", lambda *_: False), must_be_caught("another is refused"):
        await check_places_of_two(own_store)
