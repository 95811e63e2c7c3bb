"""Read rates: every way to read counts for the API key or the network of a client, and nobody else is slowed down."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.harness.nginx import TRUSTED
from tests.harness.producers import with_keys
from tests.harness.wire import connected, request

MOST: Final = 60  # requests in a row; a rate of one per second refuses some of them
SOCKET: Final = "/v1/boards/posts/live"
FAST: Final = ("/v1/boards/posts", "/v1/boards/posts/records/a", "/boards/posts")
ROUTES: Final = (
    "/", "/v1/boards", "/v1/boards/posts/slots", "/boards/posts/qr.svg", "/openapi.json", "/client/live-board.js",
    "/nothing",
)  # fmt: skip
HEALTH: Final = ("/healthz", "/readyz", "/metrics")
DOORS: Final = {"fast path": FAST, "routes": ROUTES, "socket": (SOCKET,)}


@asynccontextmanager
async def limited(store: str) -> AsyncIterator[tuple[httpx.AsyncClient, dict[str, str]]]:
    """Yield a client and API keys of a server where each client may read once per second, and twice in a burst."""
    async with (
        with_keys(store, trusted_proxies=TRUSTED, read_rate=1) as (url, _, keys),
        httpx.AsyncClient(base_url=url, timeout=180) as client,
    ):
        yield client, {name: f"Bearer {key}" for name, key in keys.items()}


async def status(client: httpx.AsyncClient, target: str, fields: dict[str, str], method: str = "GET") -> int:
    """Read a target, or open the socket. Return the status."""
    if target != SOCKET:
        return (await client.request(method, target, headers=fields)).status_code
    try:
        url = f"{str(client.base_url).replace('http', 'ws').rstrip('/')}{target}"
        async with connect(url, additional_headers=fields):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


async def exhaust(client: httpx.AsyncClient, target: str, fields: dict[str, str], method: str = "GET") -> bool:
    """Read until a request is refused; returns whether a request was refused."""
    for _ in range(MOST):
        if await status(client, target, fields, method) == 429:
            return True
    return False


@pytest.mark.parametrize("door", DOORS)
async def test_every_way_to_read_counts(valkey_url: str, door: str) -> None:
    """Reads of boards, records, pages, documents, files and wrong paths count, and so do handshakes of sockets."""
    async with limited(valkey_url) as (client, _):
        for number, target in enumerate(DOORS[door]):
            fields = {"X-Forwarded-For": f"192.0.2.{number}"}
            assert await status(client, target, fields) != 429
            assert await exhaust(client, target, fields), f"{target} has no limit"
            assert await status(client, target, {"X-Forwarded-For": f"198.51.100.{number}"}) != 429


async def test_one_client_does_not_slow_down_another(valkey_url: str) -> None:
    """An API key has its own rate, from any address. A made-up API key has no rate, and health checks have no limit."""
    async with limited(valkey_url) as (client, keys):
        here, there = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}
        for path in ("/v1/boards/posts", "/v1/boards"):
            assert await exhaust(client, path, here, "HEAD")
            assert await status(client, path, there) == 200
            for number, target in enumerate(HEALTH):
                assert not await exhaust(client, target, {"X-Forwarded-For": f"203.0.113.{number}"})
            assert await status(client, path, {**here, "Authorization": keys["all"]}) == 200
            made_up = (f"Bearer all.{number}" for number in range(MOST))
            assert 429 in [await status(client, path, {**here, "Authorization": each}) for each in made_up]
            assert await exhaust(client, path, {**here, "Authorization": keys["posts"]})
            assert await status(client, path, {**there, "Authorization": keys["posts"]}) == 429
            producer = {**here, "Authorization": keys["posts"]}
            assert (await client.post("/v1/events", json={"key": "a"}, headers=producer)).status_code == 200


async def test_a_refusal_says_when_to_come_back(valkey_url: str) -> None:
    """The fast path and the routes send the same header fields, also for pages. The connection stays open."""
    async with limited(valkey_url) as (client, _), AsyncExitStack() as stack:
        for target in ("/v1/boards/posts", "/boards/posts", "/v1/boards", "/"):
            wire = await stack.enter_async_context(connected(str(client.base_url).rstrip("/")))
            for _ in range(MOST):
                await wire.send(request("GET", target))
                answer = await wire.answer()
                if answer.startswith(b"HTTP/1.1 429 "):
                    break
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b'"code":"rate_exceeded"' in body
            assert b"may send 1 requests per second, and 2 in one burst (the setting read_rate)" in body
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
            assert fields[b"retry-after"] == b"1"
            assert fields[b"ratelimit-policy"] == b'"requests";q=2;qu="requests";w=2'
            assert fields[b"ratelimit"] == b'"requests";r=0;t=1'
            assert fields[b"cache-control"] == b"no-store"
            assert b"connection" not in fields
