"""Pages of other origins: what a browser lets them read."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from live.web.static import CLIENT
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

FRIEND = "https://friend.example"
PERMISSION = "access-control-allow-origin"
PATHS = [
    "/v1/boards", "/v1/boards/posts", "/v1/boards/posts/records?key=a", "/v1/boards/posts/records/a", "/v1/records/a",
    "/v1/boards/none", "/v1/boards/posts?limit=0", "/v1/nothing",
]  # fmt: skip


@asynccontextmanager
async def server(store: str, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A server with a like on the board `posts`, and an allowed origin."""
    settings = fresh_settings(store, allowed_origins=(FRIEND,), **changes)
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await post(client, {"key": "a"})
        yield client


def preflight(method: str = "GET", origin: str = FRIEND) -> dict[str, str]:
    """The headers of a preflight request."""
    return {
        "Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": "if-none-match",
    }  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_an_allowed_origin_may_read(valkey_url: str, path: str) -> None:
    """The answers to GET, even refusals, permit reading. Caches keep the answers to different origins apart."""
    async with server(valkey_url) as client:
        answer = await client.get(path, headers={"Origin": FRIEND})
        assert answer.headers[PERMISSION] == FRIEND
        assert answer.headers["access-control-expose-headers"] == "ETag, Retry-After"
        assert "access-control-allow-credentials" not in answer.headers
        for other in ({"Origin": "https://evil.example"}, {}):
            answer = await client.get(path, headers=other)
            assert PERMISSION not in answer.headers
            assert "Origin" in answer.headers["vary"].split(", ")


async def test_an_allowed_origin_may_read_every_route(valkey_url: str) -> None:
    """After a preflight request, the origin may read each GET route below `/v1/`, whatever the answer is."""
    values = {"board": "posts", "key": "a"}
    async with server(valkey_url) as client:
        document = (await client.get("/openapi.json")).json()
        paths = [path for path, methods in document["paths"].items() if path.startswith("/v1/") and "get" in methods]
        assert len(paths) >= 9
        for path in paths:
            route = re.sub(r"\{(\w+)\}", lambda match: values[match[1]], path)
            response = await client.options(route, headers=preflight())
            assert (response.status_code, response.headers.get(PERMISSION)) == (204, FRIEND), route
            assert response.headers["access-control-allow-methods"] == "GET, HEAD"
            async with client.stream("GET", route, headers={"Origin": FRIEND}) as answer:
                assert answer.headers.get(PERMISSION) == FRIEND, route


async def test_an_allowed_origin_may_send_conditional_requests(valkey_url: str) -> None:
    """`If-None-Match` needs a preflight request."""
    async with server(valkey_url) as client:
        answer = await client.options("/v1/boards/posts", headers=preflight())
        assert (answer.status_code, answer.headers[PERMISSION]) == (204, FRIEND)
        assert "If-None-Match" in answer.headers["access-control-allow-headers"]
        tag = (await client.get("/v1/boards/posts")).headers["etag"]
        answer = await client.get("/v1/boards/posts", headers={"Origin": FRIEND, "If-None-Match": tag})
        assert (answer.status_code, answer.headers[PERMISSION]) == (304, FRIEND)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/boards/posts", preflight(origin="https://evil.example")),
        ("/v1/boards/posts", preflight("DELETE")),
        ("/v1/boards/posts", preflight("PUT")),
        ("/v1/events", preflight("POST")),
        ("/boards/posts", preflight()),
    ],
)
async def test_nothing_else_is_permitted(valkey_url: str, path: str, headers: dict[str, str]) -> None:
    """Other origins, requests that change something, and pages are not permitted."""
    async with server(valkey_url, anonymous_admin=True) as client:
        answer = await client.options(path, headers=headers)
        assert PERMISSION not in answer.headers
        assert "access-control-allow-methods" not in answer.headers


@pytest.mark.slow
async def test_the_client_can_be_imported_from_any_origin(valkey_url: str) -> None:
    """The path of the client does not change, so browsers ask each time whether the client has changed."""
    async with server(valkey_url) as client:
        answer = await client.get("/client/live-board.js", headers={"Origin": "https://any.example"})
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers[PERMISSION] == "*"
        assert answer.headers["cache-control"] == "no-cache"
        again = await client.get("/client/live-board.js", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.headers[PERMISSION]) == (304, "*")
        for name in ("../board.js", "backoff.js", "words/none.js", "package.json", "words", ""):
            assert (await client.get(f"/client/{name}")).status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("name", [*sorted(CLIENT), "words/zh-Hans.js"])
async def test_each_entry_point_imports_only_entry_points(valkey_url: str, name: str) -> None:
    """A page of any origin can load an entry point, compressed or not."""
    async with server(valkey_url) as client:
        answer = await client.get(f"/client/{name}", headers={"Accept-Encoding": "identity"})
        packed = await client.get(f"/client/{name}", headers={"Accept-Encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.text == answer.text
        assert packed.headers["etag"] != answer.headers["etag"]
        imported = set(re.findall(r'\bfrom ?"([^"]+)"', answer.text))
        assert imported <= {"react", *(f"./{one}" for one in (*CLIENT, "row-words.js"))}
