"""Nobody holds more than half of a resource: while one client takes all that it gets, another client is served."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.system.ledger import Resource
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.wire import connected, post, request, statuses

pytestmark = pytest.mark.security

PLACES: Final = 8
OTHER: Final = "127.0.0.2"


async def check_viewers(store: StoreProcess) -> None:
    """One address opens viewers until one is refused."""
    async with run_server(fresh_settings(store.url, max_viewers=PLACES), [rolling_board()]) as url:
        address = f"{url.replace('http', 'ws')}/v1/boards/posts/live"
        async with AsyncExitStack() as stack:

            async def watch(source: str) -> bool:
                try:
                    await stack.enter_async_context(connect(address, local_addr=(source, 0)))
                except InvalidStatus:
                    return False
                return True

            assert not all([await watch("127.0.0.1") for _ in range(PLACES + 1)])
            assert await watch(OTHER), "another viewer is refused"


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
    "connections": check_connections,
}


@pytest.mark.parametrize("name", CHECKS)
async def test_a_greedy_client_leaves_half_to_others(own_store: StoreProcess, name: str) -> None:
    """The other client has another address."""
    await CHECKS[name](own_store)


@pytest.mark.mutant
@pytest.mark.parametrize("name", CHECKS)
async def test_without_the_half_a_greedy_client_takes_everything(own_store: StoreProcess, name: str) -> None:
    """The mutant lets one client hold all."""
    with replaced(Resource, "is_within_half", lambda *_: True), must_be_caught("another"):
        await CHECKS[name](own_store)
