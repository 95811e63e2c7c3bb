"""Titles and pictures in a real browser: in rows that the server rendered, and in rows that come later."""

import re
from typing import Any

import httpx
import pytest
from playwright.async_api import Route

from live.boards.definitions import read_board
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, board_in_browser, browser, until_first, until_live
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER

PICTURE = "https://img.example.org/c.png"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0"
    "f01f00050001ff6e2b9a6f0000000049454e44ae426082"
)  # fmt: skip


async def test_titles_are_shown_in_old_and_new_rows(valkey_url: str) -> None:
    """Titles are text, whatever they contain. The page loads pictures from the hosts in the setting `image_hosts`."""
    settings = fresh_settings(valkey_url, anonymous_admin=True, image_hosts=("img.example.org",))
    faults: list[str] = []
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, {"key": "a", "amount": 2}, {"key": "b", "amount": 3})
        items: list[dict[str, Any]] = [
            {"key": "a", "title": "<script>alert(1)</script>"},
            {"key": "c", "title": "<img src=x onerror=alert(1)>", "image": PICTURE, "url": "https://example.org"},
            {"key": "d", "title": "שלום"},
        ]
        assert (await producer.put("/v1/items", json={"items": items})).status_code == 204
        page = await chromium.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.route("https://img.example.org/*", lambda route: route.fulfill(body=PIXEL, content_type="image/png"))
        await page.goto(f"{url}/boards/posts")
        await until_live(page)
        names = "rows => rows.map(row => row.querySelector('bdi').textContent)"
        assert await page.eval_on_selector_all("#records tr", names) == ["b", "<script>alert(1)</script>"]
        await post(producer, {"key": "a", "amount": 5})
        await page.wait_for_function(
            "() => document.getElementById('announcer').textContent === '<script>alert(1)</script> takes first from b'",
            timeout=PATIENCE,
        )
        await post(producer, {"key": "c", "amount": 19}, {"key": "d", "amount": 18}, {"key": "e", "amount": 17})
        await until_first(page, "c")
        await page.get_by_role("link", name="<img src=x onerror=alert(1)>").wait_for(timeout=PATIENCE)
        await page.wait_for_function(
            "() => document.querySelector('img.picture')?.naturalWidth === 1", timeout=PATIENCE
        )
        shown = await page.eval_on_selector_all("#records tr", names)
        assert shown == [items[1]["title"], "שלום", "e", items[0]["title"], "b"]
        assert await page.get_attribute("[data-member=c] bdi", "title") == "c"
        assert await page.locator("span.picture").all_inner_texts() == ["ש", "e", "s", "b"]
        assert [re.sub("http://[^/]*", "", one) for one in asked if "/v1/items" in one] == [
            "/v1/items?key=c&key=d&key=e"
        ]
        await page.keyboard.press("/")
        await page.fill("#find", "שלום")
        assert await page.eval_on_selector_all(".hit", "rows => rows.map(row => row.dataset.member)") == ["d"]
        await page.goto(f"{url}/boards/posts/records/c")
        assert await page.text_content("h1 bdi") == "<img src=x onerror=alert(1)>"
        assert await page.get_by_role("link", name="Open at example.org").get_attribute("href") == "https://example.org"
        for path in ("overlay/posts", "embed/posts", "boards/posts?display=wall"):
            await page.goto(f"{url}/{path}")
            await until_first(page, "c")
            assert await page.text_content("[data-member=d] bdi") == "שלום"
    assert faults == []


async def test_an_initial_replaces_each_broken_picture(valkey_url: str) -> None:
    """The pictures have failed before the script begins."""
    settings = fresh_settings(valkey_url, anonymous_admin=True, image_hosts=("img.example.org",))
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *({"key": member} for member in "abcde"))
        items = [{"key": member, "title": f"{member} title", "image": PICTURE + member} for member in "abcde"]
        assert (await producer.put("/v1/items", json={"items": items})).status_code == 204
        page = await chromium.new_page()
        failed: list[str] = []
        page.on("requestfailed", lambda request: failed.append(request.url))
        await page.route("https://img.example.org/*", lambda route: route.abort())

        async def last(route: Route) -> None:
            while len(failed) < len(items):
                await page.wait_for_timeout(20)
            await route.continue_()

        await page.route("**/later.js", last)
        await page.goto(f"{url}/boards/posts")
        await page.wait_for_function("() => !document.querySelector('#records img')", timeout=PATIENCE)
        assert await page.locator("#records span.picture").all_inner_texts() == list("abcde")


@pytest.mark.parametrize("width", [360, 1280])
async def test_metadata_stand_above_the_bar(valkey_url: str, width: int) -> None:
    """The bar of a row covers neither its name nor its metadata."""
    events = [{"key": f"m{n}", "amount": 9 - n, "metadata": {"team": "Reds", "city": "Rome"}} for n in range(5)]
    best, size = read_board("posts", {"operator": "best", "window": "forever"}), {"width": width, "height": 900}
    async with board_in_browser(valkey_url, *events, board=best, viewport=size) as (page, _):
        await until_live(page)
        covered = await page.eval_on_selector_all(
            "#records th",
            """(names) => names.filter((name) => {
                const bar = name.querySelector(".bar").getBoundingClientRect();
                const text = name.querySelector(".about").getBoundingClientRect();
                return text.bottom > bar.top + 1 || bar.bottom > name.getBoundingClientRect().bottom;
            }).length""",
        )
        assert covered == 0
