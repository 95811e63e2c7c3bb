"""No page, state, theme or language has a problem that axe-core finds. Zoom, print and forced colours lose nothing."""

import asyncio
import re
from pathlib import Path
from typing import Any, Final, Literal

import httpx
import pytest
from playwright.async_api import Page

from live.domain.board_file import parse_boards
from tests.harness.boards import rolling_board
from tests.harness.browser import AWAY, IN_BROWSER, PATIENCE, board_in_browser, browser, until_live
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

AXE: Final = Path(__file__).parents[1] / ".tools" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [
    *IN_BROWSER,
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed"),
]

BOARDS = """
[[board]]
id = "posts"
title = "Most liked"
like_button = true
[[board]]
id = "climb"
types = ["climb"]
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
[[board]]
id = "vote"
types = ["vote"]
window = "forever"
votes = {per_actor = 4, opens = 2026-01-01T00:00:00Z, closes = 2026-01-02T00:00:00Z}
[[board]]
id = "week"
types = ["week"]
window = {calendar = "week", timezone = "Asia/Shanghai"}
"""
EVENTS: list[dict[str, Any]] = [
    *({"board": "posts", "key": f"Member {number}", "amount": 90 - number} for number in range(12)),
    {"board": "climb", "key": "Ada", "fields": {"levels": 7, "seconds": 12}, "metadata": {"team": "red"}},
    {"board": "week", "key": "שלום"},
]
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
PATHS = (
    "../", "../?q=o", "../?q=none&page=2", "posts", "posts?key=Member%202", "climb", "vote", "week", "posts,climb",
    "posts?display=wall", "../embed/posts", "../overlay/posts", "none", "posts?period=x", "../docs",
    "posts/records/Member%202", "climb/records/Ada", "week/records/%D7%A9%D7%9C%D7%95%D7%9D",
)  # fmt: skip


async def faults(page: Page) -> list[str]:
    """The problems that axe-core finds on a page, with the first place of each."""
    await page.wait_for_function("() => document.getAnimations().length === 0", timeout=PATIENCE)
    found: list[dict[str, Any]] = await page.evaluate("async () => (await axe.run()).violations")
    return [f"{one['id']}: {one['nodes'][0]['html']} {one['nodes'][0]['failureSummary']}" for one in found]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("theme", "lang"), [("light", "en"), ("dark", "zh-Hans")])
async def test_every_page_is_accessible(valkey_url: str, theme: str, lang: str) -> None:
    """Panels are open. One language is enough for each theme, because colours do not depend on the language."""
    async with board_in_browser(valkey_url, *EVENTS, board=[*parse_boards(BOARDS)], bypass_csp=True) as (own, _):
        page = await own.context.new_page()
        await page.add_init_script(AXE.read_text(encoding="utf-8"))
        for path in PATHS:
            mark = "&" if "?" in path else "?"
            await page.goto(own.url.replace("/posts", f"/{path}{mark}theme={theme}&lang={lang}"))
            if await page.locator("#connection").count() and path != "vote":
                await page.wait_for_selector("#connection[data-state=live]", state="attached", timeout=PATIENCE)
            for place in range(await page.locator(":is(.menu, .charts) summary").count()):
                await page.locator(":is(.menu, .charts) summary").nth(place).click()
            assert await faults(page) == [], path


async def test_every_state_is_accessible(own_store: StoreProcess) -> None:
    """The states are paused, stale, empty and offline."""
    async with board_in_browser(own_store.url, board=[*parse_boards(BOARDS)], allowed=AWAY, bypass_csp=True) as (
        page,
        producer,
    ):
        await until_live(page)
        await page.evaluate(AXE.read_text(encoding="utf-8"))
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            assert await faults(page) == [], "empty"
        await post(producer, *(event for event in EVENTS if event["board"] == "posts"))
        await page.wait_for_selector("#records tr", timeout=PATIENCE)
        await page.keyboard.press("p")
        await page.wait_for_selector("#connection[data-state=paused]", timeout=PATIENCE)
        assert await faults(page) == [], "paused"
        await page.keyboard.press("p")
        with own_store.frozen():
            await page.wait_for_selector("#connection[data-state=stale]", timeout=PATIENCE)
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                assert await faults(page) == [], "stale"
        await until_live(page)
        await page.evaluate("() => void dispatchEvent(new Event('offline'))")
        await page.wait_for_selector("#connection[data-state=offline]", timeout=PATIENCE)
        assert await faults(page) == [], "offline"


async def test_boards_that_accept_no_events_are_accessible(valkey_url: str) -> None:
    """Frozen, closed and deleted boards say so in their state. A page whose server has stopped is checked too."""
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    contest = {"types": ["vote"], "window": "forever", "votes": {"per_key": 1, "closes": "2026-01-01T00:00:00Z"}}
    async with browser() as chromium:
        context = await chromium.new_context(bypass_csp=True)
        await context.add_init_script(AXE.read_text(encoding="utf-8"))
        pages = {state: await context.new_page() for state in ("frozen", "closed", "ended", "reconnecting")}
        async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
            for board, choices in (("frozen", {}), ("closed", contest), ("ended", {}), ("reconnecting", {})):
                (await client.put(f"/v1/boards/{board}", json=choices)).raise_for_status()
                if board != "closed":
                    await post(client, {"key": "a", "board": board})
            (await client.patch("/v1/boards/frozen", json={"frozen": True})).raise_for_status()
            for state, page in pages.items():
                await page.goto(f"{url}/boards/{state}")
                expected = "live" if state in {"ended", "reconnecting"} else state
                await page.wait_for_selector(f"#connection[data-state={expected}]", timeout=PATIENCE)
            record = await context.new_page()
            await record.goto(f"{url}/boards/ended/records/a")
            await record.wait_for_selector("#connection[data-state=live]", timeout=PATIENCE)
            (await client.delete("/v1/boards/ended")).raise_for_status()
            for page in (pages["ended"], record):
                await page.wait_for_selector("#connection[data-state=ended]", timeout=PATIENCE)
        await pages["reconnecting"].wait_for_selector("#connection[data-state=reconnecting]", timeout=PATIENCE)
        for state, page in {**pages, "ended record": record}.items():
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                assert await faults(page) == [], state


async def test_a_problem_is_detected(valkey_url: str) -> None:
    """`faults` finds an input without a label, so the tests above can fail."""
    async with board_in_browser(valkey_url, bypass_csp=True) as (page, _):
        await until_live(page)
        await page.evaluate(AXE.read_text(encoding="utf-8"))
        await page.evaluate("() => document.body.append(document.createElement('input'))")
        assert "label" in [fault.partition(":")[0] for fault in await faults(page)]


async def test_announcements_under_load_are_few(valkey_url: str) -> None:
    """The leader and the reader's own rank change all the time, but are announced at most once in ten seconds."""
    async with board_in_browser(valkey_url, {"key": "a"}, {"key": "b"}, path="posts?key=a") as (page, producer):
        await until_live(page)
        await page.evaluate("""() => {
            window.announced = [];
            new MutationObserver(() => announced.push(announcer.textContent)).observe(
                announcer, { childList: true, characterData: true, subtree: true });
        }""")
        loop = asyncio.get_running_loop()
        end = loop.time() + 21
        turn = 0
        while loop.time() < end:
            turn += 1
            spell = int(loop.time() / 4)  # the same member leads for four seconds
            lead = {"key": "ab"[spell % 2], "amount": 10 ** (spell - int(end / 4) + 8)}
            await post(producer, lead, {"key": f"c{turn % 30}", "amount": turn})
            await asyncio.sleep(0.1)
        announced = await page.evaluate("announced")
        assert 1 <= len(announced) <= 3, announced


async def test_nothing_is_lost_at_400_percent(valkey_url: str) -> None:
    """At a zoom of 400 %, a window that is 1,280 pixels wide shows as much as one of 320 pixels.

    No page is wider than the window, and the open menu fits into it.
    """
    small: Any = {"width": 320, "height": 256}
    async with board_in_browser(valkey_url, *EVENTS, board=[*parse_boards(BOARDS)], viewport=small) as (page, _):
        address = page.url
        for path in ("posts", "climb", "vote", "../"):
            for empty in ("**/*.js", "**/none"):  # also before the script brings the late sheet
                await page.goto("about:blank")  # the last page may still load scripts
                await page.route(empty, lambda route: route.fulfill(content_type="text/javascript"))
                await page.goto(address.replace("/posts", f"/{path}"))
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, empty)
                await page.unroute(empty)
        await page.goto(address)
        await until_live(page)
        for summary in await page.locator(".menu summary").all():
            await summary.click()
        box = await page.locator(".menu > div").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 320


async def test_print_and_forced_colours_are_readable(valkey_url: str) -> None:
    """On paper, the page is black on white with its address and without controls.

    With forced colours, rows keep their borders.
    """
    async with board_in_browser(valkey_url, *EVENTS, board=[*parse_boards(BOARDS)], color_scheme="dark") as (page, _):
        await until_live(page)
        await page.emulate_media(media="print")
        look = "getComputedStyle(document.querySelector('tbody td')).{}"
        assert await page.evaluate(look.format("color")) == "rgb(0, 0, 0)"
        assert await page.evaluate(look.format("backgroundColor")) == "rgb(255, 255, 255)"
        assert await page.locator(".menu, .find, .like, .state button").locator("visible=true").count() == 0
        await page.evaluate("() => void dispatchEvent(new Event('beforeprint'))")
        assert re.search(r"/boards/posts · .*20\d\d.*:\d\d", await page.inner_text("#printed"))
        await page.emulate_media(media="screen", forced_colors="active")
        assert not await page.locator(".bar").first.is_visible()
        assert await page.evaluate(look.format("borderTopStyle")) == "solid"
