"""The page never shows old data as live, whatever the network does."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from playwright.async_api import Page

from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, board_in_browser, browser, until_first, until_live
from tests.harness.front_proxy import FrontProxy, front_proxy
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER


@asynccontextmanager
async def proxied(store: str) -> AsyncIterator[tuple[Page, FrontProxy, httpx.AsyncClient]]:
    """A page that is not open yet, a proxy in front of the server, and a producer that does not use the proxy."""
    async with (
        run_server(fresh_settings(store), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        front_proxy(url) as proxy,
        browser() as chromium,
    ):
        yield await chromium.new_page(), proxy, producer


async def test_a_stalled_connection_is_shown_as_stale(valkey_url: str) -> None:
    """The page shows the time of the last message, and continues by itself when the network works again."""
    async with proxied(valkey_url) as (page, proxy, producer):
        await post(producer, {"key": "a"})
        await page.goto(f"{proxy.url}/boards/posts")
        await until_live(page)
        proxy.stall()
        stalled = time.monotonic()
        await post(producer, {"key": "b", "amount": 5})
        await page.wait_for_selector("#connection[data-state=stale]", timeout=30_000)
        assert time.monotonic() - stalled < 30, "the page takes too long to notice a stalled connection"
        assert "Stale since" in (await page.text_content("#connection") or "")
        assert await page.is_visible("#retry")
        proxy.resume()
        await until_first(page, "b")
        await until_live(page)
        assert not await page.is_visible("#retry")


async def test_a_clock_that_is_set_back_hides_no_stall(valkey_url: str) -> None:
    """The page measures silence by a clock that nobody can set."""
    async with proxied(valkey_url) as (page, proxy, producer):
        await post(producer, {"key": "a"})
        await page.goto(f"{proxy.url}/boards/posts")
        await until_live(page)
        await page.evaluate("() => { const now = Date.now; Date.now = () => now() - 3_600_000; }")
        proxy.stall()
        await page.wait_for_selector("#connection[data-state=stale]", timeout=PATIENCE)
        proxy.resume()
        await until_live(page)


async def test_a_refused_websocket_is_replaced(valkey_url: str) -> None:
    """The page uses the event stream instead, and remembers the choice over a reload."""
    async with proxied(valkey_url) as (page, proxy, producer):
        proxy.refuses_upgrades = True
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        await page.goto(f"{proxy.url}/boards/posts")
        await until_live(page)
        await post(producer, {"key": "a"})
        await until_first(page, "a")
        assert len([url for url in asked if "/live?" in url]) == 2
        assert len([url for url in asked if "/stream?" in url]) == 1
        asked.clear()
        await page.reload()
        await until_live(page)
        assert [url for url in asked if "/live?" in url] == []


async def test_without_websocket_and_stream_the_page_polls(valkey_url: str) -> None:
    """Polls show changes as well."""
    async with proxied(valkey_url) as (page, proxy, producer):
        proxy.refuses_upgrades = True
        await page.route("**/stream?*", lambda route: route.abort())
        await page.goto(f"{proxy.url}/boards/posts")
        await until_live(page)
        await post(producer, {"key": "a"})
        await until_first(page, "a")
        await page.wait_for_function("() => document.getElementById('viewers').textContent === '1'", timeout=PATIENCE)


async def test_sums_stay_as_rendered_until_a_message_has_them(valkey_url: str) -> None:
    """A message with only the viewer count leaves the sums as the server rendered them, which count all members."""
    likes = [{"key": f"m{number}", "amount": 9} for number in range(12)]
    async with board_in_browser(valkey_url, *likes) as (first, _):
        page = await first.context.new_page()
        await page.route_web_socket("**/live**", lambda socket: socket.send('{"type":"viewers","count":41}'))
        await page.goto(first.url.replace("/boards/", "/embed/"))
        await page.wait_for_function("() => document.getElementById('viewers').innerText === '41'", timeout=PATIENCE)
        sums = "() => ['rank-count', 'total-score'].map((name) => document.getElementById(name).innerText)"
        assert await page.evaluate(sums) == ["12", "108"]
