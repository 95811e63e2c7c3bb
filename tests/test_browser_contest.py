"""A contest in a real browser, from zero votes to its result, with and without script."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from playwright.async_api import Browser, Page, WebSocketRoute

from live.domain.board import Board
from live.domain.board_file import parse_boards
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, until_live, until_loaded
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER


def contest(closes: float = 0, grace: str = "5s", opens: float = 0) -> Board:
    """A contest with a button, in which each visitor has two votes. Times are in seconds since 1970."""
    at = f', grace = "{grace}"' + "".join(
        f', {name} = "{time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))}"'
        for name, second in (("opens", opens), ("closes", closes))
        if second
    )
    (board,) = parse_boards(f"""
[[board]]
id = "pets"
types = ["vote"]
window = "forever"
votes = {{ registered = true, per_key = 1, per_actor = 2{at} }}
like_button = true
""")
    return board


@asynccontextmanager
async def running(store: str, board: Board, *members: str) -> AsyncIterator[tuple[str, Browser]]:
    """A server with registered contestants, and a browser."""
    settings = fresh_settings(store, anonymous_admin=True)
    async with run_server(settings, [board]) as url, httpx.AsyncClient(base_url=url) as admin, browser() as chromium:
        for member in members:
            assert (await admin.put(f"/v1/boards/pets/records/{member}", json={})).status_code == 201
        yield url, chromium


async def shown(page: Page, part: str) -> list[str]:
    """The members whose rows in this part of the table are visible."""
    found: list[str] = await page.eval_on_selector_all(
        f"#{part} tr[data-member]", "rows => rows.filter(row => row.checkVisibility()).map(row => row.dataset.member)"
    )
    return found


async def test_a_contest_runs_from_zero_votes_by_button_alone(valkey_url: str) -> None:
    """With its first vote, a contestant moves into the ranked rows of every page. Its button keeps the focus."""
    async with running(valkey_url, contest(), "Ada", "Bo", "Cy") as (url, chromium):
        pages = [await (await chromium.new_context()).new_page() for _ in range(2)]
        for page in pages:
            await page.goto(f"{url}/boards/pets")
            await until_live(page)
            await until_loaded(page)  # without its script, the page would send the form
            assert (await shown(page, "records"), await shown(page, "ballot")) == ([], ["Ada", "Bo", "Cy"])
            assert await page.inner_text("#ballot tr[data-member] .score") == "0"
        button = pages[0].get_by_role("button", name="Vote for Bo")
        assert await button.inner_text() == "Vote"
        await button.focus()
        await pages[0].keyboard.press("Enter")
        for page in pages:
            await page.wait_for_selector("#records tr[data-member=Bo]", timeout=PATIENCE)
            await page.wait_for_function(
                "() => !document.querySelector('#ballot [data-member=Bo]').checkVisibility()", timeout=PATIENCE
            )
            assert (await shown(page, "records"), await shown(page, "ballot")) == (["Bo"], ["Ada", "Cy"])
            assert await page.get_attribute("#records .score", "data-gap") == "100.0%"
        await pages[0].wait_for_function(
            "() => document.activeElement.closest('#records')"
            " && document.activeElement.ariaLabel === 'Undo your vote for Bo'",
            timeout=PATIENCE,
        )
        await pages[1].get_by_role("button", name="Vote for Cy").click()
        await pages[0].wait_for_function(
            "() => [...document.querySelectorAll('#records .score')].every(cell => cell.dataset.gap === '50.0%')"
            " && document.querySelectorAll('#records tr').length === 2",
            timeout=PATIENCE,
        )


async def test_a_contest_runs_without_script(valkey_url: str) -> None:
    """The form leads back to the page, which shows the vote."""
    async with running(valkey_url, contest(), "Ada", "Bo") as (url, chromium):
        page = await (await chromium.new_context(java_script_enabled=False)).new_page()
        await page.goto(f"{url}/boards/pets")
        await page.get_by_role("button", name="Vote for Bo").click()
        assert page.url == f"{url}/boards/pets#liked"
        rows = [row.split() for row in await page.locator("tbody tr").all_inner_texts()]
        assert rows == [["1", "Bo", "1", "Undo"], ["Ada", "0", "Vote"]]


async def test_an_open_page_shows_the_result_when_voting_ends(valkey_url: str) -> None:
    """The state, the winner and the shares change without a reload."""
    async with running(valkey_url, contest(time.time() + 4), "Ada", "Bo") as (url, chromium):
        vote = {"type": "vote", "key": "Ada", "actor": "a"}
        async with httpx.AsyncClient(base_url=url) as producer:
            assert (await producer.post("/v1/events", json=vote)).json()["accepted"] == 1
        page = await (await chromium.new_context()).new_page()
        await page.goto(f"{url}/boards/pets")
        await page.wait_for_selector("#connection[data-state=counting]", timeout=PATIENCE)
        assert await page.inner_text("#connection") == "Counting the last votes"
        assert await page.locator(".like button:visible").count() == await page.locator("#podium li").count() == 0
        await page.wait_for_selector("#podium li", timeout=PATIENCE)
        assert (await page.inner_text(".podium")).split() == ["Winner", "Ada", "1", "100.0%"]
        await page.wait_for_selector("#connection[data-state=closed]", timeout=PATIENCE)
        assert await page.locator(".like button:visible").count() == 0
        await page.reload()
        assert (await page.inner_text(".podium")).split() == ["Winner", "Ada", "1", "100.0%"]


ELEMENT = """<!doctype html><title>Other</title><script type="module" src="/client/element.js"></script>
    <live-board src="/boards/pets"></live-board>"""
# A visitor whose clock is wrong by `shift`, and how the page's clock is read. `shownAt` is when
# the page said that voting has ended.
CLOCK = r"""shift => {{
    const [real, origin] = [Date.now, performance.timeOrigin];
    globalThis.shift = {shift};
    Date.now = () => real() + globalThis.shift;
    Object.defineProperty(performance, "timeOrigin", {{ value: origin + {shift} }});
    const look = () => {{
        const root = document.querySelector("live-board")?.shadowRoot ?? document.body;
        if (/Ended \d/.test(root.textContent)) globalThis.shownAt ??= origin + performance.now();
        else requestAnimationFrame(look);
    }};
    addEventListener("load", look);
}}"""


class Link:
    """The WebSocket of a page, which a test cuts and restores."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.is_cut = False
        self.sockets: list[WebSocketRoute] = []

    async def start(self) -> None:
        """Begin to pass messages on."""
        await self.page.route_web_socket("**/*", self._open)

    async def _open(self, socket: WebSocketRoute) -> None:
        if self.is_cut:
            await socket.close()
            return
        socket.connect_to_server()
        self.sockets.append(socket)

    async def cut(self) -> None:
        """Cut the connection, and refuse new ones."""
        self.is_cut = True
        await self.page.context.set_offline(offline=True)
        for socket in self.sockets:
            await socket.close()

    async def restore(self) -> None:
        """Let the page connect again."""
        self.is_cut = False
        await self.page.context.set_offline(offline=False)


async def countdown_is_right(page: Page, closes: float) -> bool:
    """Whether the page tells in how many seconds voting closes, by the clock of the server."""
    text = await page.inner_text("b.clock")
    minutes, seconds = map(int, text.removesuffix(" left").split(":"))
    return abs(60 * minutes + seconds - (closes - time.time())) < 3


@pytest.mark.parametrize("shift", [600_000, -600_000], ids=["ahead", "behind"])
@pytest.mark.parametrize("fault", ["", "Date.now()"])
async def test_a_page_goes_by_the_clock_of_the_server(valkey_url: str, shift: int, fault: str) -> None:
    """The clock of the visitor may be wrong by ten minutes, or be set back while the link is dead."""
    closes = time.time() + 40
    async with running(valkey_url, contest(closes, "0s"), "Ada", "Bo") as (url, chromium):
        async with httpx.AsyncClient(base_url=url) as producer:
            vote = {"type": "vote", "key": "Ada", "actor": "a"}
            assert (await producer.post("/v1/events", json=vote)).json()["accepted"] == 1
        page = await (await chromium.new_context()).new_page()
        await page.add_init_script(f"({CLOCK.format(shift=shift)})()")
        if fault:  # as if the page read the clock of the computer
            await page.add_init_script(f"performance.now = () => {fault} - performance.timeOrigin;")
        link = Link(page)
        await link.start()
        await page.goto(f"{url}/boards/pets")
        await until_live(page)
        shows = "() => /left/.test(document.querySelector('b.clock')?.textContent)"
        await page.wait_for_function(shows, timeout=PATIENCE)
        assert await countdown_is_right(page, int(closes))
        await link.cut()
        await page.wait_for_selector("#connection:not([data-state=live])", timeout=PATIENCE)
        await page.evaluate("globalThis.shift -= 600_000")
        words = await page.inner_text("b.clock")
        await page.wait_for_function("words => document.querySelector('b.clock').textContent !== words", arg=words)
        assert await countdown_is_right(page, int(closes)) == (not fault)
        await link.restore()
        if fault:
            return
        await page.evaluate("document.getElementById('retry').click()")
        await page.wait_for_selector("#podium li", timeout=PATIENCE)
        assert 0 <= await page.evaluate("globalThis.shownAt") / 1000 - int(closes) < 2
        assert (await page.inner_text(".podium")).split() == ["Winner", "Ada", "1", "100.0%"]


async def test_every_view_says_at_once_that_voting_has_ended(valkey_url: str) -> None:
    """The page, the wall, the overlay and the element say when voting has ended, and draw one change."""
    closes = time.time() + 40
    async with running(valkey_url, contest(closes, "0s"), "Ada", "Bo") as (url, chromium):
        async with httpx.AsyncClient(base_url=url) as producer:
            vote = {"type": "vote", "key": "Ada", "actor": "a"}
            assert (await producer.post("/v1/events", json=vote)).json()["accepted"] == 1
        pages = []
        for path in ("/boards/pets", "/boards/pets?display=wall", "/overlay/pets", "/other"):
            context = await chromium.new_context()  # each page is in front in its own context
            await context.route("**/other", lambda route: route.fulfill(content_type="text/html", body=ELEMENT))
            await context.add_init_script(f"({CLOCK.format(shift=0)})()")
            pages.append(await context.new_page())
            await pages[-1].goto(url + path)
        assert await shown(pages[1], "ballot") == ["Bo"], "the wall lacks a contestant without votes"
        await until_loaded(pages[0])
        await pages[0].evaluate(
            """() => {
                const frame = document.querySelector("#board .frame, #records");
                globalThis.tops = [];
                const look = () => {
                    const top = frame.getBoundingClientRect().top;
                    if (top !== globalThis.tops.at(-1)) globalThis.tops.push(top);
                    requestAnimationFrame(look);
                };
                look();
            }"""
        )
        times = []
        for page in pages:
            await page.wait_for_function("() => globalThis.shownAt !== undefined", timeout=PATIENCE)
            times.append(await page.evaluate("globalThis.shownAt") / 1000 - int(closes))
        assert all(0 <= at < 2 for at in times), times
        await pages[0].wait_for_selector("#podium li", timeout=PATIENCE)
        assert len(await pages[0].evaluate("globalThis.tops")) == 2, "the layout has changed more than once"


async def test_every_open_view_sees_at_once_that_voting_ends(valkey_url: str) -> None:
    """A change of the definition reaches pages, walls, records, lists and elements without an event.

    Then nothing counts any more: no view has a button or says who rises.
    """
    async with running(valkey_url, rolling_board()) as (url, chromium), httpx.AsyncClient(base_url=url) as admin:
        choices = {"types": ["vote"], "window": "forever", "votes": {"per_key": 1}, "like_button": True}
        (await admin.put("/v1/boards/pets", json=choices)).raise_for_status()
        (await admin.post("/v1/events", json={"type": "vote", "key": "Ada", "actor": "a"})).raise_for_status()
        pages, states = [], ("#connection", "#connection", "#connection", ".card:has([href$=pets]) .connection")
        context = await chromium.new_context()
        await context.route("**/other", lambda route: route.fulfill(content_type="text/html", body=ELEMENT))
        for path in ("/boards/pets", "/boards/pets?display=wall", "/boards/pets/records/Ada", "/", "/other"):
            pages.append(await context.new_page())
            await pages[-1].goto(url + path)
        for page, state in zip(pages, states, strict=False):
            await page.bring_to_front()
            await page.wait_for_selector(f"{state}[data-state=live]", timeout=PATIENCE)
        await pages[-1].wait_for_selector("live-board [part=row]", timeout=PATIENCE)
        ended = {"votes": {"per_key": 1, "closes": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))}}
        (await admin.patch("/v1/boards/pets", json=ended)).raise_for_status()
        for page, state in zip(pages, states, strict=False):
            await page.bring_to_front()
            await page.wait_for_selector(f"{state}[data-state=closed]", timeout=PATIENCE)
        await pages[-1].bring_to_front()
        await pages[-1].wait_for_function(
            "() => document.querySelector('live-board').shadowRoot.querySelector('.status').innerText"
            ".startsWith('Ended ')",
            timeout=PATIENCE,
        )
        await pages[0].wait_for_selector("#podium li", timeout=PATIENCE)
        left = "main :is(.like, #rising)"
        for page in pages[:4]:
            assert await page.locator(f"{left}:visible").count() == 0, page.url


async def test_a_page_that_polls_sees_a_changed_definition(valkey_url: str) -> None:
    """Without WebSockets and event streams, the page asks again and again, and learns of it without an event."""
    async with running(valkey_url, rolling_board()) as (url, chromium), httpx.AsyncClient(base_url=url) as admin:
        choices = {"types": ["vote"], "window": "forever", "votes": {"per_key": 1}, "title": "Pets"}
        (await admin.put("/v1/boards/pets", json=choices)).raise_for_status()
        page = await chromium.new_page()
        await page.add_init_script("window.WebSocket = class { close() {} };")
        await page.route("**/stream?*", lambda route: route.abort())
        await page.goto(f"{url}/boards/pets")
        await until_live(page)
        (await admin.patch("/v1/boards/pets", json={"title": "Dogs"})).raise_for_status()
        await page.wait_for_function("() => document.querySelector('h1').textContent === 'Dogs'", timeout=PATIENCE)


async def test_a_contestant_without_votes_has_a_page(valkey_url: str) -> None:
    """The page shows the first vote as it comes. A name that is not registered has no page."""
    async with (
        running(valkey_url, contest(), "Ada", "Bo") as (url, chromium),
        httpx.AsyncClient(base_url=url) as client,
    ):
        vote = {"type": "vote", "key": "Bo", "actor": "b"}
        assert (await client.post("/v1/events", json=vote)).json()["accepted"] == 1
        page = await (await chromium.new_context()).new_page()
        await page.goto(f"{url}/boards/pets/records/Ada")
        assert (await page.inner_text("#rank"), await page.inner_text(".value")) == ("not ranked", "0")
        await until_live(page)
        assert (await page.inner_text("#rank"), await page.inner_text(".value")) == ("not ranked", "0")
        await page.get_by_role("button", name="Vote for Ada").click()
        await page.wait_for_function("() => document.querySelector('.value').innerText === '1'", timeout=PATIENCE)
        assert await page.inner_text("#behind, #ahead") == "To 1, Bo\ntied"
        assert (await client.get("/boards/pets/records/Cy")).status_code == 404


async def test_an_open_page_gets_its_buttons_when_voting_opens(valkey_url: str) -> None:
    """Until then, it counts down."""
    async with running(valkey_url, contest(opens=time.time() + 30), "Ada", "Bo") as (url, chromium):
        page = await (await chromium.new_context()).new_page()
        await page.goto(f"{url}/boards/pets")
        await page.get_by_text("in 0:").wait_for(timeout=PATIENCE)
        assert await page.get_by_role("button", name="Vote for Ada").count() == 0
        await page.get_by_role("button", name="Vote for Ada").click(timeout=PATIENCE)
        await page.wait_for_selector("#records tr[data-member=Ada]", timeout=PATIENCE)
