"""axe-core finds no problem in the story, the tools and the displays of a board, and no text that has room is cut."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.async_api import BrowserContext, Route

from live.domain.board_file import parse_boards
from tests.harness.baselines import put_baseline
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, open_menu, until_loaded
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.test_browser_axe import AXE, faults
from tests.test_browser_story import AGE, GAINS, THEN

pytestmark = [*IN_BROWSER, pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed")]

BOARDS = """
[[board]]
id = "posts"
title = "Most liked"
like_button = true
[[board]]
id = "laps"
title = "Fastest laps"
types = ["lap"]
window = "forever"
operator = "best"
sort_order = "asc"
[[board]]
id = "song"
title = "Song of the evening"
types = ["vote"]
window = "forever"
votes = {per_key = 1}
like_button = true
"""
NAMES = ("Northern lights, no filter", "Twelve birds of the marsh", "Stones that ring", "The chess club at midnight")
# The texts that are wider than their box: names, and scores with the text below them.
CUT = """() => [...document.querySelectorAll("main :is(th > bdi, td.score)")]
    .filter((part) => part.checkVisibility() && part.scrollWidth > part.clientWidth)
    .map((part) => part.textContent)"""
STARTS = """() => [...document.querySelectorAll("#records td.rank")].map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return Math.round(range.getBoundingClientRect().left);
})"""
WIDTHS = """() => [...document.querySelectorAll("tbody th > bdi")].map((name) => name.offsetWidth)"""


@asynccontextmanager
async def told(store: str, **context: Any) -> AsyncIterator[tuple[BrowserContext, httpx.AsyncClient, str]]:
    """A browser with axe, a producer, and the address of the boards' pages. The board `posts` has a baseline."""
    settings, boards = fresh_settings(store, journal="sqlite", anonymous_admin=True), parse_boards(BOARDS)
    async with run_server(settings, boards) as url, httpx.AsyncClient(base_url=url) as producer:
        scores = {member: score + GAINS.get(member, 0) for member, score in THEN.items()}
        await post(producer, *({"key": member, "amount": amount} for member, amount in scores.items()))
        await post(producer, *({"key": name, "amount": 2000 - n} for n, name in enumerate(NAMES)))
        (await producer.put("/v1/items/m03", json={"title": "Night train to Lisbon"})).raise_for_status()
        laps = [("Hedy", 54_247), ("Linus", 55_519), ("Ada", 9_999_999)]
        await post(producer, *({"type": "lap", "key": member, "amount": amount} for member, amount in laps))
        await post(producer, *({"type": "vote", "key": f"The {n} Lanterns", "actor": f"{n}"} for n in range(3)))
        await producer.get("/v1/boards/posts/baseline")
    await put_baseline(settings, "posts", THEN, AGE, per_minute=10)
    async with (
        run_server(settings, boards) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        opened = await chromium.new_context(bypass_csp=True, reduced_motion="reduce", **context)
        await opened.add_init_script(AXE.read_text(encoding="utf-8"))
        yield opened, producer, f"{url}/boards/"


@pytest.mark.parametrize(("theme", "lang"), [("light", "en"), ("dark", "zh-Hans")])
async def test_the_story_and_the_tools_are_accessible(valkey_url: str, theme: str, lang: str) -> None:
    """Axe checks the page with its story and the share menu.

    On a phone, it checks the menu and the results of a search.
    """
    async with told(valkey_url) as (context, _, boards):
        page = await context.new_page()
        await page.goto(f"{boards}posts?key=m01&theme={theme}&lang={lang}")
        await until_loaded(page)
        await page.wait_for_selector("#happened b", timeout=PATIENCE)
        assert await faults(page) == [], "story"
        await open_menu(page)
        await page.locator(".share summary").click()
        assert await faults(page) == [], "share"
        await page.set_viewport_size({"width": 360, "height": 780})
        await page.reload()
        await until_loaded(page)
        await page.locator(".menu > summary").click()
        assert await faults(page) == [], "menu"
        await page.keyboard.press("Escape")
        await page.keyboard.press("/")
        await page.keyboard.type("m0")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#found li", timeout=PATIENCE)
        assert await faults(page) == [], "search"


async def test_displays_are_accessible(valkey_url: str) -> None:
    """The displays are a programme on a wall, and the element in another page, in both themes and both languages."""
    async with told(valkey_url) as (context, _, boards):
        page = await context.new_page()
        await page.route("**/other?*", answer_with_element)
        for theme, lang in (("light", "en"), ("dark", "zh-Hans")):
            query = f"theme={theme}&lang={lang}"
            await page.goto(f"{boards}posts,laps?display=wall&rotate=1h&limit=20&{query}")
            await page.wait_for_selector(".board[data-on] .connection[data-state=live]", timeout=PATIENCE)
            assert await faults(page) == [], "wall"
            await page.goto(boards.replace("/boards/", f"/other?{query}"))
            await page.locator("live-board [part=row]").first.wait_for(timeout=PATIENCE)
            assert await faults(page) == [], "element"


async def answer_with_element(route: Route) -> None:
    """Answer with a page that holds the element, in the theme and the language of the query."""
    (theme,), (lang,) = (parse_qs(urlsplit(route.request.url).query)[name] for name in ("theme", "lang"))
    body = f"""<!doctype html><html lang="{lang}"><title>Other</title>
        <script type="module" src="/client/element.js"></script>
        <style>:root {{ color-scheme: {theme}; }}</style>
        <main><h1>Other</h1><live-board src="/boards/posts" theme="{theme}" member="m01"></live-board></main>"""
    await route.fulfill(content_type="text/html", body=body)


async def test_nothing_is_cut_where_it_has_room(valkey_url: str) -> None:
    """On a tablet, names are not cut beside sparklines and like buttons. On a phone, numbers are not cut."""
    async with told(valkey_url, viewport={"width": 820, "height": 900}) as (context, _, boards):
        page = await context.new_page()
        await page.goto(f"{boards}posts?key=m01&lang=en")
        await until_loaded(page)
        await page.wait_for_selector("#happened b", timeout=PATIENCE)
        assert await page.evaluate(CUT) == []
        assert len(set(await page.evaluate(STARTS))) == 1
        await page.set_viewport_size({"width": 360, "height": 780})
        for board in ("laps", "song"):
            await page.goto(f"{boards}{board}?lang=en")
            await until_loaded(page)
            assert await page.evaluate(CUT) == [], board
        assert min(await page.evaluate(WIDTHS)) >= 90
