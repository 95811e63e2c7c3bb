"""The event loop of production, for tests that use its transports."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import uvloop
from websockets.asyncio.client import ClientConnection, connect

from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.protocols.producing import MAX_BODY, at


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Runs the tests marked `on_uvloop`."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


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
    """A producer's WebSocket from a library."""
    async with connect(at(url)) as websocket:
        yield websocket
