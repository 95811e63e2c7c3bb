"""How much each kind of page loads, and how often it asks the server, in a real browser."""

from datetime import UTC, datetime
from typing import Any, Final

import httpx
from playwright.async_api import Page

from live.domain.board_file import parse_boards
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, until_loaded
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER

MOST_RAW: Final = 42 * 1024
MOST_COMPRESSED: Final = 12 * 1024
MOST_EXTRA: Final = 384  # more bytes with what units and contests need
ON_SURFACE: Final = {  # more bytes: a style sheet of its own, and on a wall the end of a contest, which must not wait
    "wall": 1664,
    "overlay": 512,
}
MOST_REQUESTS: Final = {  # without WebSockets and the icon; the overlay loads a font, and `/` a baseline for each board
    "/boards/plain": 6,
    "/boards/plain/records/a": 6,
    "/overlay/plain": 7,
    "/": 10,
}
LATER: Final = 1_900  # milliseconds after which pages load the rest, even if they are not live yet

BOARDS: Final = """
[[board]]
id = "plain"
types = ["plain"]
[[board]]
id = "posts"
like_button = true
unit = "€"
[[board]]
id = "climb"
types = ["climb"]
operator = "best"
window = "forever"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
[[board]]
id = "vote"
types = ["vote"]
window = "forever"
like_button = true
votes = {per_key = 1, closes = 2099-01-01T00:00:00Z}
[[board]]
id = "over"
types = ["over"]
window = "forever"
votes = {per_actor = 9, closes = 2026-01-01T00:00:00Z}
"""
EVENTS: Final[list[dict[str, Any]]] = [
    {"type": "plain", "key": "a"},
    {"key": "a", "amount": 2},
    {"type": "climb", "key": "a", "fields": {"levels": 7, "seconds": 1234}},
    {"type": "vote", "key": "a", "actor": "x"},
]
ALL: Final = "plain,posts,climb,vote,over"
PATHS: Final = (
    *(f"/boards/{board}" for board in ("plain", "posts", "vote", "over", ALL)),
    *(f"/boards/{board}/records/a" for board in ("posts", "climb")),
    f"/boards/{ALL}?display=wall",
    f"/embed/{ALL}",
    f"/overlay/{ALL}",
    "/",
    "/boards/posts?start=1",
    "/boards/posts?as_of=",
    "/boards/none",
)
# Notes when the page receives the first records, before its scripts see them. No request waits for a random time.
PROBE: Final = """
    Math.random = () => 0;
    window.WebSocket = class extends WebSocket {
        constructor(...given) {
            super(...given);
            this.addEventListener("message", () => (window.liveAt ??= performance.now()));
        }
    };
    sessionStorage.clear();  // after slow answers, the last page has noted to begin without a WebSocket
"""
LOADED: Final = """(later) => {
    const files = performance.getEntriesByType("resource").filter(({ name }) => /\\.(js|css)$/.test(name));
    const script = files.find(({ name }) => /(board|cards|record)\\.js$/.test(name));
    const until = Math.min(window.liveAt ?? Infinity, script ? script.responseEnd + later : Infinity);
    const before = files.filter(({ startTime }) => startTime < until);
    const sum = (field) => before.reduce((all, file) => all + file[field], 0);
    return [sum("encodedBodySize"), sum("decodedBodySize"), before.map(({ name }) => name)];
}"""


async def test_no_page_loads_much_before_it_is_live(valkey_url: str) -> None:
    """The script and style of each kind of page have limits, plain and compressed, in both languages."""
    settings = fresh_settings(valkey_url, journal="sqlite", anonymous_admin=True)
    still_open = parse_boards(BOARDS.replace("2026", "2099"))
    async with run_server(settings, still_open) as url, httpx.AsyncClient(base_url=url) as producer:
        await post(producer, {"type": "over", "key": "a", "actor": "x"})
    async with (
        run_server(settings, parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *EVENTS)
        title = {"key": "a", "title": "A title"}
        assert (await producer.put("/v1/items", json={"items": [title]})).status_code == 204
        then = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        page = await (await chromium.new_context()).new_page()
        await page.add_init_script(PROBE)
        await page.context.add_cookies([{"name": "live-rows", "value": "compact", "url": url}])
        too_much = {}
        for path in PATHS:
            for language in ("en", "zh-Hans"):
                address = path.replace("as_of=", f"as_of={then}")
                await page.goto(f"{url}{address}{'&' if '?' in path else '?'}lang={language}")
                if await page.query_selector("script[src*='/en/'], script[src*='/zh-Hans/']"):
                    await page.wait_for_function("() => window.liveAt", timeout=PATIENCE)
                packed, plain, names = await page.evaluate(LOADED, LATER)
                assert packed, path
                extra = 0 if path == "/boards/plain" else MOST_EXTRA
                most = MOST_COMPRESSED + extra + sum(more for surface, more in ON_SURFACE.items() if surface in path)
                if packed > most or plain > MOST_RAW:
                    too_much[path, language] = packed, plain, names
        assert not too_much


async def test_pages_make_few_requests(valkey_url: str) -> None:
    """The limits hold until two seconds after a page is live, with all that it loads later."""
    async with (
        run_server(fresh_settings(valkey_url, journal="sqlite"), parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *EVENTS)
        context = await chromium.new_context()
        await context.add_init_script(PROBE)
        asked = dict[tuple[str, str], list[str]]()

        def note(page: Page, paths: list[str]) -> None:
            page.on("request", lambda request: paths.append(request.url.removeprefix(url)))

        for path in MOST_REQUESTS:
            for language in ("en", "zh-Hans"):
                page = await context.new_page()
                note(page, asked.setdefault((path, language), []))
                await page.goto(f"{url}{path}?lang={language}")
                await page.wait_for_function("() => window.liveAt", timeout=PATIENCE)
        await context.pages[0].bring_to_front()
        await until_loaded(context.pages[0])
        await context.pages[-1].wait_for_timeout(2_000)
        assert {which: paths for which, paths in asked.items() if len(paths) > MOST_REQUESTS[which[0]]} == {}
        loaded = {path.rpartition("/")[2] for path in asked["/boards/plain", "en"]}
        assert loaded >= {"later.js", "baseline"}, "the story"
