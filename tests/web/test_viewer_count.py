"""The number of viewers of a board, in its document and on its pages."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from live.store.board.keys import Keys
from live.store.connection.client import connect
from live.store.registry.presence import Presence
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow


@asynccontextmanager
async def server(store: str, *boards: str) -> AsyncIterator[tuple[httpx.AsyncClient, Presence, Presence]]:
    """Run a server with some boards, and two other processes with viewers."""
    settings = fresh_settings(store)
    others = connect(store, settings)
    async with (
        run_server(settings, [rolling_board(board=board) for board in boards]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for board in boards:
            await post(client, {"board": board, "key": "a"})
        yield client, Presence(others), Presence(others)
    await others.aclose()


def watching(html: str) -> dict[str, str]:
    """The number of viewers of each board on a page, by the id of its element."""
    return dict(re.findall(r'<span data-now(?: hidden)?><b id="(viewers[^"]*)">(.*?)</b>', html))


async def expect(client: httpx.AsyncClient, viewers: int) -> None:
    """Wait until the document has a number of viewers: a server counts them anew after a moment."""

    async def is_shown() -> bool:
        return bool((await client.get("/v1/boards/posts")).json()["viewer_count"] == viewers)

    await eventually(is_shown)


async def test_the_document_has_the_viewer_count(valkey_url: str) -> None:
    """The count includes the viewers of all processes. Any part of the board's document has it."""
    async with server(valkey_url, "posts") as (client, one, two):
        assert (await client.get("/v1/boards/posts")).json()["viewer_count"] == 0
        await one.report({"posts": 3})
        await two.report({"posts": 4})
        await expect(client, 7)
        for query in ("?limit=1", "?start=9", "?score=1"):
            assert (await client.get(f"/v1/boards/posts{query}")).json()["viewer_count"] == 7
        await two.leave()
        await expect(client, 3)


async def test_the_tag_does_not_depend_on_viewers(valkey_url: str) -> None:
    """The tag changes only with the ranking."""
    async with server(valkey_url, "posts") as (client, one, _):
        known = {"If-None-Match": (await client.get("/v1/boards/posts")).headers["etag"]}
        await one.report({"posts": 3})
        unchanged = await client.get("/v1/boards/posts", headers=known)
        assert (unchanged.status_code, unchanged.headers["etag"]) == (304, known["If-None-Match"])
        await expect(client, 3)
        assert (await client.get("/v1/boards/posts", headers=known)).status_code == 304
        await post(client, {"key": "a"})
        changed = await client.get("/v1/boards/posts", headers=known)
        assert (changed.status_code, changed.json()["viewer_count"]) == (200, 3)


async def test_pages_show_the_viewer_count(valkey_url: str) -> None:
    """If several boards are side by side, each count has an id of its own."""
    async with server(valkey_url, "posts", "other") as (client, one, two):
        await one.report({"posts": 1200, "other": 1})
        await two.report({"posts": 34})
        await expect(client, 1234)
        for path in ("/boards/posts", "/embed/posts"):
            assert watching((await client.get(path)).text) == {"viewers": "1,234"}
        side_by_side = (await client.get("/boards/posts,other")).text
        assert watching(side_by_side) == {"viewers-posts": "1,234", "viewers-other": "1"}


async def test_the_viewer_count_is_unknown_while_the_store_is_unavailable(own_store: StoreProcess) -> None:
    """The page is served without the number. The document is refused."""
    async with server(own_store.url, "posts") as (client, _, _):
        own_store.kill()
        page = await client.get("/boards/posts")
        assert (page.status_code, watching(page.text)) == (503, {"viewers": "\N{EN DASH}"})
        assert '<span data-now hidden><b id="viewers"' in page.text
        response = await client.get("/v1/boards/posts")
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")


async def test_a_stopping_process_removes_its_viewers(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count falls immediately, and not after a timeout."""
    made: list[Presence] = []

    def recorded(*given: Any, **options: Any) -> Presence:
        made.append(Presence(*given, **options))
        return made[-1]

    monkeypatch.setattr("live.web.parts.Presence", recorded)
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    viewers = Keys(settings.key_prefix, "posts").viewers
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as reader:
        await reader.get("/v1/boards/posts")
        await made[0].report({"posts": 2})
        assert await client.exists(viewers)
    assert not await client.exists(viewers)
    await client.aclose()
