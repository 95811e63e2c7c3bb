"""Each resource has one path: it is below the root path, so what a proxy blocks there has no second path."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.http.networks import below_root
from tests.harness.nginx import NGINX, behind_nginx
from tests.harness.server import server

pytestmark = pytest.mark.security

ROOT: Final = "/live"
PATHS: Final = (  # the fast path answers some paths, and the application the other paths
    "/v1/boards/posts", "/boards/posts", "/v1/boards/posts/records/a", "/v1/boards", "/docs",
    "/openapi.json", "/metrics", "/healthz", "/readyz", "/", "/embed/posts", "/v1/boards/posts/slots",
    "/v1/boards/posts/stream", "/boards/posts/qr.svg",
)  # fmt: skip
SOCKET: Final = "/v1/boards/posts/live"
BLOCKED: Final = "location = /live/metrics { return 403; }\n    "
KEEPING: Final = ("location / {", f"{BLOCKED}location /live/ {{")


async def status_of(client: httpx.AsyncClient, method: str, path: str, **request: Any) -> int:
    """The status of a response, whose body may never end."""
    async with client.stream(method, path, **request) as response:
        return response.status_code


@asynccontextmanager
async def below_a_path(store: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server below a path, with a record."""
    async with server(store, root_path=ROOT) as client:
        assert await status_of(client, "POST", f"{ROOT}/v1/events", json={"key": "a"}) == 200
        yield client


async def one_path_for_each_resource(client: httpx.AsyncClient) -> None:
    """Ask for everything below the root path, without the root path, and with the root path twice or more."""
    for path in PATHS:
        assert await status_of(client, "GET", f"{ROOT}{path}") == 200, path
        for other in (path, f"{ROOT}{ROOT}{path}", f"{ROOT}{ROOT}{ROOT}{path}", f"{ROOT}y{path}"):
            assert await status_of(client, "GET", other) == 404, other
    for target, status in (("/live", 200), ("/live?lang=en", 200), ("/live/?lang=en", 200), ("/lively", 404)):
        assert await status_of(client, "GET", target) == status, target
    for prefix in ("", f"{ROOT}{ROOT}"):
        assert await status_of(client, "POST", f"{prefix}/v1/events", json={"key": "a"}) == 404, prefix
    for prefix, status in ((ROOT, 426), ("", 404), (f"{ROOT}{ROOT}", 404)):
        assert await status_of(client, "GET", f"{prefix}{SOCKET}") == status, prefix


async def opens(url: str) -> bool:
    """Whether a WebSocket opens."""
    try:
        async with connect(url):
            return True
    except InvalidStatus:
        return False


async def test_a_socket_has_one_path(valkey_url: str) -> None:
    """A viewer can open the socket only below the root path."""
    async with below_a_path(valkey_url) as client:
        sockets = str(client.base_url).replace("http", "ws").rstrip("/")
        for prefix, is_served in ((ROOT, True), ("", False), (f"{ROOT}{ROOT}", False)):
            assert await opens(f"{sockets}{prefix}{SOCKET}") is is_served, prefix


async def test_each_resource_has_one_path(valkey_url: str) -> None:
    """The fast path and the application agree on the path."""
    async with below_a_path(valkey_url) as client:
        await one_path_for_each_resource(client)
        refused = await client.get("/metrics")
        assert refused.json()["code"] == "not_found"
        assert "/live" in refused.json()["detail"]


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_what_a_proxy_blocks_has_no_other_path(valkey_url: str, tmp_path: Path) -> None:
    """The proxy of this test blocks the metrics."""
    async with (
        behind_nginx(valkey_url, tmp_path, KEEPING, root_path=ROOT) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/live/healthz")).status_code == 200
        assert (await client.get("/live/metrics")).status_code == 403
        for path in ("/live/live/metrics", "/live/live/live/metrics", "/live//live/metrics", "/metrics"):
            answer = await client.get(path)
            assert (answer.status_code, "live_viewers" in answer.text) == (404, False), path


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_a_proxy_that_removes_the_path_serves_nothing(valkey_url: str, tmp_path: Path) -> None:
    """The server could not tell `/live/metrics` from `/live/live/metrics`. Its answer says what to change."""
    removing = (
        "location /live/ {\n        proxy_pass http://live_board;",
        "location /live/ {\n        proxy_pass http://live_board/;",
    )
    async with (
        behind_nginx(valkey_url, tmp_path, KEEPING, removing, root_path=ROOT) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        for path in PATHS:
            if path != "/metrics":
                answer = await client.get(f"{ROOT}{path}")
                assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
                assert "proxies must not remove" in answer.json()["detail"]


def removed_again(path: Any, root: Any) -> Any:
    """Make the mistake of removing the root path as often as a path begins with the root path."""
    return removed_again(below_root(path, root), root) if below_root(path, root) else path
