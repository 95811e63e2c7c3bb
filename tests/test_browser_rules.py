"""The rules of pages, in a real browser: rows first, whole numbers, equal heights, nothing empty, few texts."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest
from playwright.async_api import Browser, Route

from live.domain.board_file import parse_boards
from tests.harness.admin import add_key
from tests.harness.baselines import put_baseline
from tests.harness.browser import IN_BROWSER, PATIENCE, browser
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.test_browser_admin import sign_in

pytestmark = IN_BROWSER

MOST_TEXTS: Final = 25
MOST_CONTROLS: Final = 8
LEAST_CONTRAST: Final = 4.5
WIDTHS: Final = (360, 768, 1280, 1920)
HIGHEST: Final = {360: 180, 768: 200, 1280: 200, 1920: 200}  # the most pixels above the first row, by width
BOARDS: Final = """
[[board]]
id = "posts"
title = "Most liked"
max_amount = 9_000_000_000
[[board]]
id = "new"
types = ["new"]
[[board]]
id = "open"
types = ["vote"]
window = "forever"
votes = {{ registered = true, per_key = 1, per_actor = 3, closes = "{closes}" }}
like_button = true
[[board]]
id = "over"
types = ["over"]
window = "forever"
votes = {{ per_actor = 9, closes = "{over}" }}
[[board]]
id = "climb"
types = ["climb"]
window = "forever"
operator = "best"
score = [{{field = "levels", max = 99}}, {{field = "seconds", order = "asc", max = 5000}}]
"""
NAMES: Final = [f"Everything my grandmother knew about pickling plums, part {number}" for number in range(6)]
THEN: Final = {
    name: 318_204_117 - 12_000_000 * number
    for number, name in enumerate((*NAMES, *(f"Member {number}" for number in range(18))))
}
RISER: Final = "Member 17"
# What is shown where: the surfaces, each with pages of it. `Foreign` is a page of another site with the element.
SURFACES: Final = {
    "board": ("posts", f"posts?key={RISER.replace(' ', '%20')}", "new", "open", "over", "climb"),
    "compare": ("posts,new", "posts,climb,open,over"),
    "list": ("../",),
    "record": (f"posts/records/{RISER.replace(' ', '%20')}", "climb/records/Ada", "open/records/Ada"),
    "overlay": ("../overlay/posts", "../overlay/climb"),
    "embed": ("../embed/posts", "../embed/over", "../embed/climb,posts"),
    "wall": ("posts?display=wall", "open?display=wall", "over?display=wall", "posts,climb,open?display=wall"),
    "element": ("../foreign",),
    "admin": ("../admin", "../admin/boards/posts", "../admin/members?q=a", "../admin/health", "../admin/keys"),
    "reference": ("../docs",),
}
FOREIGN: Final = """<!doctype html><html lang="LANGUAGE"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Another site</title>
<script type="module" src="/client/element.js"></script><live-board src="/boards/posts" lang="LANGUAGE"></live-board>"""
READY: Final = """() => {
    const element = document.querySelector("live-board");
    const state = (element?.shadowRoot ?? document).querySelector("[data-state]");
    const isReady = !element && !state || ["live", "closed"].includes(state?.dataset.state);
    return isReady && document.readyState === "complete" && document.getAnimations().length === 0;
}"""
# Faults of a page: numbers that are cut, wrapped or outside, rows of different heights, empty boxes and dashes, texts
# that are hard to read, and pages that are wider than the window.
FAULTS: Final = """() => {
    const element = document.querySelector("live-board");
    const all = (selector) => [...(element?.shadowRoot ?? document).querySelectorAll(selector)];
    const seen = (part) =>
        part.checkVisibility() && part.getClientRects().length > 0 && !part.closest(".unseen, caption");
    const found = [];
    for (const cell of all("td.rank, td.score, .podium .sum, .sums b, .figures b, .card .value, td.number")) {
        if (!seen(cell) || getComputedStyle(cell.closest("p, td, dd, div")).clipPath !== "none") continue;
        const range = document.createRange();
        range.selectNodeContents(cell);
        const boxes = [...range.getClientRects()].filter(({ width }) => width > 0);
        const lines = new Set(boxes.map(({ bottom }) => Math.round(bottom / 12)));
        const { left, right } = cell.getBoundingClientRect();
        if (cell.matches("td") && cell.scrollWidth > cell.clientWidth + 1) found.push(`cut: ${cell.textContent}`);
        const scrolls = cell.closest(".frame[tabindex]");
        if (!scrolls && (left < 0 || right > innerWidth + 1)) found.push(`outside: ${cell.textContent}`);
        if (cell.matches("td:not(.number)") && lines.size > 1) found.push(`wrapped: ${cell.textContent}`);
    }
    for (const table of all("table:not(.plain)")) {
        const rows = [...table.querySelectorAll("tr[data-member]")].filter(seen);
        const heights = new Set(rows.map((row) => row.offsetHeight));
        if (heights.size > 1) found.push(`heights: ${[...heights]}`);
    }
    for (const box of all("main :is(section, .card, .note, ol, ul, p, dl, .frame, .pinned), .live > *")) {
        const says = box.innerText.trim() || box.querySelector("svg, img, button, input");
        if (seen(box) && box.offsetHeight > 2 && !says) found.push(`empty: ${box.outerHTML}`);
    }
    const texts = all("main, .live").map((part) => part.innerText).join();
    if (/\\u2013/.test(texts) && !all(".admin, .docs").length) found.push("a dash");
    const { scrollWidth } = document.documentElement;
    if (scrollWidth > innerWidth) found.push(`sideways: ${scrollWidth}`);
    return found;
}"""
# Texts whose contrast with the nearest opaque ground is too low. Below an overlay, this is taken as black or white.
FAINT: Final = """(least) => {
    const root = document.querySelector("live-board")?.shadowRoot ?? document.body;
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const drawn = (colours) => {
        for (const colour of colours) {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
        }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
    };
    const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const light = (colours) => {
        const [red, green, blue] = drawn(colours).map(linear);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    };
    const { theme } = document.documentElement.dataset;
    const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
        const { parentElement: part, textContent } = walker.currentNode;
        const isSeen = part?.checkVisibility() && !part.closest(".unseen, caption, script, style, noscript, option");
        if (!textContent.trim() || !isSeen) continue;
        const grounds = [];
        for (let at = part; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
        grounds.unshift(isDark ? "#000" : "#fff");
        const [text, ground] = [light([...grounds, getComputedStyle(part).color]), light(grounds)];
        const contrast = Math.max(text, ground) / Math.min(text, ground);
        if (contrast < least) found.push(`contrast ${contrast.toFixed(2)}: ${textContent.trim().slice(0, 40)}`);
    }
    return [...new Set(found)];
}"""
FIRST: Final = """() => {
    const root = document.querySelector("live-board")?.shadowRoot ?? document;
    const rows = [...root.querySelectorAll("tr[data-member], .podium, .card tr, .figures dd")];
    const tops = rows.filter((row) => row.checkVisibility()).map((row) => row.getBoundingClientRect().top);
    return Math.min(...tops) + scrollY;
}"""
# The texts and the controls that a visitor sees, besides the rows.
COUNTS: Final = """() => {
    const outside = (node) => !node.closest("table, .podium, .unseen, script, style, noscript");
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) {
        const { parentElement: part, textContent } = walker.currentNode;
        const isSeen = outside(part) && part.checkVisibility() && part.getClientRects().length > 0;
        if (textContent.trim() && isSeen) texts.push(textContent.trim());
    }
    const kinds = "a, button, input:not([type=hidden]), select, summary, textarea";
    const controls = [...document.querySelectorAll(kinds)].filter((part) => outside(part) && part.checkVisibility());
    return [texts, controls.map(({ outerHTML }) => outerHTML)];
}"""

DRAWN: Final = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))"
STYLE: Final = """(text) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(text);
    document.adoptedStyleSheets = [sheet];
}"""


@asynccontextmanager
async def running(store: str) -> AsyncIterator[tuple[Browser, str, httpx.AsyncClient, str]]:
    """A browser, the address of a server whose boards are full, new, open and over, a producer, and an API key."""

    def at(seconds: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))

    settings = fresh_settings(store, anonymous_admin=True)
    before = parse_boards(BOARDS.format(closes=at(3600), over=at(3600)))
    async with run_server(settings, before) as url, httpx.AsyncClient(base_url=url) as producer:
        await post(producer, *({"key": member, "amount": amount} for member, amount in THEN.items()))
        await post(producer, {"key": RISER, "amount": 90_000_000}, {"type": "new", "key": "Rye in three days"})
        for member in ("Ada", "Bo", "Cy"):
            (await producer.put(f"/v1/boards/open/records/{member}", json={})).raise_for_status()
        await post(producer, *({"type": "vote", "key": "Ada", "actor": f"{n}"} for n in range(5)))
        climbers = [{"levels": 50 - number, "seconds": 4999} for number in range(4)]
        await post(
            producer,
            *(
                {"type": "climb", "key": member, "fields": fields}
                for member, fields in zip(NAMES, climbers, strict=False)
            ),
            {"type": "climb", "key": "Ada", "fields": climbers[0]},
        )
        over = [("Ada", 9), ("Bo", 7), ("Cy", 5), ("Di", 2)]
        await post(
            producer, *({"type": "over", "key": member, "actor": f"{n}"} for member, most in over for n in range(most))
        )
        await producer.get("/v1/boards/posts/baseline")
    key = await add_key(settings, "chief", verbs=("admin", "post"))
    await put_baseline(settings, "posts", THEN, 1_200_000, per_minute=10)
    after = parse_boards(BOARDS.format(closes=at(3600), over=at(-60)))
    async with (
        run_server(settings, after) as url,
        httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as producer,
        browser() as chromium,
    ):
        yield chromium, url, producer, key


def elsewhere(language: str) -> Callable[[Route], Awaitable[None]]:
    """Return what answers a request for the page of another site."""

    async def answer(route: Route) -> None:
        await route.fulfill(content_type="text/html", body=FOREIGN.replace("LANGUAGE", language))

    return answer


@pytest.mark.timeout(600)
@pytest.mark.parametrize("surface", SURFACES)
async def test_pages_keep_the_rules_at_every_width(valkey_url: str, surface: str) -> None:
    """Both themes and both languages. The first row is near the top, numbers are whole, and nothing is empty."""
    async with running(valkey_url) as (chromium, url, _, key):
        found: dict[Any, Any] = {}
        for scheme, language in (("light", "en"), ("dark", "zh-Hans")):
            schemes: Any = scheme
            page = await (await chromium.new_context(color_scheme=schemes, reduced_motion="reduce")).new_page()
            await page.route("**/foreign?*", elsewhere(language))
            if surface == "admin":
                await page.goto(f"{url}/admin")
                await sign_in(page, key)
            for path in SURFACES[surface]:
                await page.set_viewport_size({"width": WIDTHS[0], "height": 800})
                await page.goto(f"{url}/boards/{path}{'&' if '?' in path else '?'}lang={language}")
                for width in WIDTHS:
                    await page.set_viewport_size({"width": width, "height": 800})
                    await page.wait_for_function(READY, timeout=PATIENCE)
                    await page.evaluate(DRAWN)
                    where = path, width, language
                    if faults := await page.evaluate(FAULTS) + await page.evaluate(FAINT, LEAST_CONTRAST):
                        found[where] = faults
                    if surface not in {"admin", "reference"} and (top := await page.evaluate(FIRST)) > HIGHEST[width]:
                        found[(*where, "top")] = top
                    texts, controls = await page.evaluate(COUNTS)
                    if (surface == "board" or path == "posts,new") and (
                        len(texts) > MOST_TEXTS or len(controls) > MOST_CONTROLS
                    ):
                        found[(*where, "counts")] = len(texts), len(controls), texts
        assert found == {}


async def test_the_followed_row_stays_at_the_foot_only_while_it_is_out_of_view(valkey_url: str) -> None:
    """On a phone, the row of the followed member is pinned. Scrolled to its place, it is in the list."""
    async with running(valkey_url) as (chromium, url, producer, _):
        page = await (await chromium.new_context(viewport={"width": 360, "height": 600})).new_page()
        await page.goto(f"{url}/boards/posts?key=Member%2010")
        own = page.locator("tr.own")
        assert await own.count() == 1
        box = await own.locator("td").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] == pytest.approx(600, abs=2)
        assert "You" in await own.evaluate("(row) => row.cells[1].dataset.note")
        await page.goto(f"{url}/boards/posts?key=nobody")
        assert await page.locator("tfoot tr.own th").get_attribute("data-note") == "You, not ranked"
        await page.wait_for_selector("#connection[data-state=live]", timeout=PATIENCE)
        await post(producer, {"key": "nobody", "amount": 7_000_000_000})
        await page.locator("#records tr.own").wait_for(timeout=PATIENCE)
        assert await page.locator("tfoot tr").count() == 0


async def test_rows_are_seen_on_a_phone_that_lies_on_its_side(valkey_url: str) -> None:
    """Two whole rows are in sight at least. The page fits, and prints without its controls."""
    async with running(valkey_url) as (chromium, url, _, _):
        page = await (await chromium.new_context(viewport={"width": 740, "height": 360})).new_page()
        for path in ("posts", "open"):
            await page.goto(f"{url}/boards/{path}")
            await page.wait_for_selector("#connection[data-state=live]", timeout=PATIENCE)
            whole = "rows => rows.filter((row) => row.getBoundingClientRect().bottom <= innerHeight - 56).length"
            assert await page.eval_on_selector_all("#records tr, #ballot tr", whole) >= 2, path
            await page.emulate_media(media="print")
            assert await page.locator(":is(.menu, .find, .like, .pinned):visible").count() == 0
            assert await page.evaluate(FAULTS) == []
            await page.emulate_media(media="screen")


async def test_the_rules_can_be_broken(valkey_url: str) -> None:
    """The checks above notice a number that is cut, a higher row, a page that is too wide, and an empty box."""
    async with running(valkey_url) as (chromium, url, _, _):
        page = await chromium.new_page()
        await page.goto(f"{url}/boards/posts")
        for work, word in (
            ("td.score { display: block; width: 3rem; overflow: hidden }", "cut"),
            ("#records tr:first-child td { height: 9rem }", "heights"),
            ("main::after { content: ''; display: block; width: 3000px; height: 1px }", "sideways"),
        ):
            await page.evaluate(STYLE, work)
            assert any(word in fault for fault in await page.evaluate(FAULTS)), word
        assert await page.evaluate(FAINT, LEAST_CONTRAST) == []
        await page.evaluate(STYLE, "td.score { color: #888 }")
        assert any("318,204,117" in fault for fault in await page.evaluate(FAINT, LEAST_CONTRAST))
        await page.evaluate(STYLE, "p { height: 3rem }")
        await page.evaluate("document.querySelector('main').append(document.createElement('p'))")
        assert any("empty" in fault for fault in await page.evaluate(FAULTS))
