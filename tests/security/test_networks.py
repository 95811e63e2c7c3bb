"""Limits count a client by its network: all addresses of one IPv6 /64 network are one client for every limit."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import httpx
import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.harness.boards import rolling_board
from tests.harness.nginx import TRUSTED
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = pytest.mark.security

EVENT: Final = {"key": "a"}
REFUSED: Final = {429, 503}
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}

Door = Callable[[AsyncExitStack, httpx.AsyncClient, dict[str, str]], Awaitable[int]]


async def by_socket(stack: AsyncExitStack, client: httpx.AsyncClient, fields: dict[str, str]) -> int:
    """Watch a board over a WebSocket. Return the status of the handshake."""
    url = f"{str(client.base_url).replace('http', 'ws').rstrip('/')}/v1/boards/posts/live"
    try:
        await stack.enter_async_context(connect(url, additional_headers=fields))
    except InvalidStatus as refused:
        return refused.response.status_code
    return 200


async def by_stream(stack: AsyncExitStack, client: httpx.AsyncClient, fields: dict[str, str]) -> int:
    """Watch a board as server-sent events. Return the status."""
    watched = client.stream("GET", "/v1/boards/posts/stream", headers=fields)
    return (await stack.enter_async_context(watched)).status_code


async def by_event(_: AsyncExitStack, client: httpx.AsyncClient, fields: dict[str, str]) -> int:
    """Post an event without an API key. Return the status."""
    return (await client.post("/v1/events", json=EVENT, headers=fields)).status_code


async def by_like(_: AsyncExitStack, client: httpx.AsyncClient, fields: dict[str, str]) -> int:
    """Like a member as a new visitor. Return the status."""
    origin = str(client.base_url).rstrip("/")
    fields = {**fields, **FORM, "Origin": origin}
    await post(client, EVENT)
    client.cookies.clear()
    answer = await client.post("/boards/posts/likes", content="key=a", headers=fields, follow_redirects=True)
    return answer.status_code


async def by_read(_: AsyncExitStack, client: httpx.AsyncClient, fields: dict[str, str]) -> int:
    """Read a board. Return the status."""
    return (await client.get("/v1/boards/posts", headers=fields)).status_code


DOORS: Final[dict[str, tuple[Door, dict[str, Any]]]] = {
    "WebSocket": (by_socket, {"max_viewers": 4}),
    "stream": (by_stream, {"max_viewers": 4}),
    "event": (by_event, {"rate": 1}),
    "like": (by_like, {"like_rate": 1}),
    "read": (by_read, {"read_rate": 1}),
}


@pytest.mark.parametrize("name", DOORS)
async def test_addresses_of_one_ipv6_network_share_a_limit(
    valkey_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits of viewers and the rates count addresses of one /64 network as one client."""
    monkeypatch.setattr("live.auth.visitors.LIKE_BURST", 2)
    door, changes = DOORS[name]
    settings = fresh_settings(valkey_url, trusted_proxies=TRUSTED, open=True, **changes)
    async with (
        run_server(settings, [msgspec.structs.replace(rolling_board(), like_button=True)]) as url,
        httpx.AsyncClient(base_url=url, timeout=180) as client,
        AsyncExitStack() as stack,
    ):

        async def come(address: str) -> int:
            return await door(stack, client, {"X-Forwarded-For": address})

        assert await come("2001:db8:0:1::1") < 400, "the server refuses the first address"
        statuses = [await come(f"2001:db8:0:1:{number:x}::1") for number in range(1, 10)]
        assert statuses[-1] in REFUSED, "new addresses of one network pass a limit"
        assert await come("2001:db8:0:2::1") < 400, "the limit of one network refuses another one"
