"""The like button in a real browser: by mouse, by keyboard, without script, and in rows that come later."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from playwright.async_api import BrowserContext, Page, Route

from live.domain.board import Board
from live.domain.board_file import parse_boards
from tests.harness.browser import IN_BROWSER, PATIENCE, board_in_browser, browser, until_first, until_loaded
from tests.harness.producer import post
from tests.harness.proxy import Proxy, listening
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER

(BOARD,) = parse_boards('[[board]]\nid = "posts"\nlike_button = true')
EVENTS = ({"key": "Ada", "amount": 10}, {"key": "<b>Bo</b>", "amount": 10}, {"key": "constructor", "amount": 5})

# Keeps everything that a screen reader announces.
LISTEN = """() => {
  const announcer = document.getElementById("announcer");
  window.announced = [];
  new MutationObserver(() => announced.push(announcer.textContent))
    .observe(announcer, {childList: true, subtree: true});
}"""


async def until_score(page: Page, member: str, score: str) -> None:
    """Wait until a row shows a score."""
    await page.wait_for_function(
        "([key, score]) => [...document.querySelectorAll('#records tr')].some(row => "
        "row.dataset.member === key && row.querySelector('.score').textContent === score)",
        arg=[member, score],
        timeout=PATIENCE,
    )


async def test_a_like_counts_and_stays_marked(valkey_url: str) -> None:
    """The row moves, and the button is marked, even after a reload. A second click does nothing."""
    async with board_in_browser(valkey_url, *EVENTS, board=BOARD) as (page, producer):
        await until_loaded(page)
        await page.evaluate(LISTEN)
        await page.get_by_role("button", name="Like <b>Bo</b>").click()
        await page.mouse.move(0, 0)  # the rows stay in place while the pointer is over them
        await until_first(page, "<b>Bo</b>")
        liked = page.get_by_role("button", name="You like <b>Bo</b>")
        await liked.wait_for(timeout=PATIENCE)
        await page.wait_for_function("() => announced.includes('You like <b>Bo</b>')", timeout=PATIENCE)
        await liked.click(force=True)
        await page.reload()
        await until_loaded(page)
        await liked.wait_for(timeout=PATIENCE)
        assert await liked.get_attribute("aria-disabled") == "true"
        assert await page.get_by_role("button", name="Like constructor").count() == 1
        (cookie,) = await page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        records = (await producer.get("/v1/boards/posts")).json()["records"]
        assert (records[0]["key"], records[0]["score"]) == ("<b>Bo</b>", 11)


async def test_a_mark_stays_whatever_the_clock_of_the_visitor_says(valkey_url: str) -> None:
    """The page remembers a like for as long as the server does, by the clock of the server."""
    async with board_in_browser(valkey_url, *EVENTS, board=BOARD) as (page, _):
        await until_loaded(page)
        await page.get_by_role("button", name="Like Ada").click()
        liked = page.get_by_role("button", name="You like Ada")
        await liked.wait_for(timeout=PATIENCE)
        await page.add_init_script(
            "const [real, origin, year] = [Date.now, performance.timeOrigin, 366 * 86_400_000];"
            "Date.now = () => real() + year;"
            "Object.defineProperty(performance, 'timeOrigin', {value: origin + year});"
        )
        for path in (page.url, f"{page.url}/records/Ada"):
            await page.goto(path)
            await liked.wait_for(timeout=PATIENCE)


async def test_a_new_row_can_be_liked_by_keyboard(valkey_url: str) -> None:
    """The button has a name, and keeps the focus after the like."""
    async with board_in_browser(valkey_url, *EVENTS, board=BOARD) as (page, producer):
        await until_loaded(page)
        await post(producer, {"key": "Cy", "amount": 20})
        await until_first(page, "Cy")
        button = page.get_by_role("button", name="Like Cy")
        await button.focus()
        await page.keyboard.press("Enter")
        await until_score(page, "Cy", "21")
        await page.wait_for_function("document.activeElement.ariaLabel === 'You like Cy'", timeout=PATIENCE)


async def test_a_like_needs_no_script(valkey_url: str) -> None:
    """A form returns to the page, which says that the like counts. The record page does the same.

    Paper has no buttons.
    """
    async with board_in_browser(valkey_url, *EVENTS, board=BOARD, java_script_enabled=False) as (page, producer):
        assert not await page.locator("#liked").is_visible()
        for _ in range(2):
            await page.get_by_role("button", name="Like Ada").click()
            await page.wait_for_url(re.compile(r"/boards/posts#liked$"))
            assert await page.locator("#liked").is_visible()
        await page.get_by_role("link", name="constructor").click()
        await page.get_by_role("button", name="Like constructor").click()
        await page.wait_for_url(re.compile(r"/records/constructor#liked$"))
        assert await page.locator("#liked").is_visible()
        assert await page.locator(".like").is_visible()
        await page.emulate_media(media="print")
        assert not await page.locator(".like").is_visible()
        records = (await producer.get("/v1/boards/posts")).json()["records"]
        assert {record["key"]: record["score"] for record in records} == {"Ada": 11, "<b>Bo</b>": 10, "constructor": 6}


async def test_a_refused_like_is_reported(valkey_url: str) -> None:
    """The page says that the like was not counted, and the button stays as it was."""
    async with (
        run_server(fresh_settings(valkey_url), [BOARD]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *EVENTS)
        page = await chromium.new_page()
        await page.goto(f"{url}/boards/posts")
        await until_loaded(page)
        await post(producer, {"key": "Bo", "amount": 9})
        await page.wait_for_selector("tr[data-member=Bo] button", timeout=PATIENCE)
        await page.route("**/likes", lambda route: route.abort())
        await page.get_by_role("button", name="Like Bo").click()
        await page.wait_for_selector("tr[data-member=Bo] .why", timeout=PATIENCE)
        assert await page.locator(".why").all_text_contents() == [
            "The server does not answer. Press again when your network works."
        ]
        box, own = await page.locator(".why").bounding_box(), await page.locator("tr[data-member=Bo]").bounding_box()
        assert box is not None
        assert own is not None
        assert own["y"] <= box["y"] + box["height"] / 2 <= own["y"] + own["height"], (
            "the reason is not beside the button"
        )


async def test_each_refusal_says_why(valkey_url: str) -> None:
    """Each refusal has its own reason, and none says to reload the page."""
    async with (
        run_server(fresh_settings(valkey_url), [BOARD]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *EVENTS)
        page = await chromium.new_page()
        await page.goto(f"{url}/boards/posts")
        await until_loaded(page)
        told: set[str] = set()
        for status, code in (
            (409, "votes_used"), (409, "likes_closed"), (409, "like_refused"), (404, "record_not_found"),
            (403, "likes_not_allowed"), (404, "board_not_found"), (403, "cookie_required"), (403, "origin_forbidden"),
            (500, "internal_error"),
        ):  # fmt: skip
            answer = partial(refuse, status, code)
            await page.route("**/likes", answer)
            await page.get_by_role("button", name="Like Ada").click()
            await page.wait_for_function(
                "told => document.querySelector('.why') && !told.includes(document.querySelector('.why').textContent)",
                arg=list(told),
                timeout=PATIENCE,
            )
            told.add(await page.text_content(".why") or "")
            await page.unroute("**/likes", answer)
        assert len(told) == 9
        assert not [text for text in told if "eload" in text]
        assert "Not counted: Ada is not on this board." in told


async def test_a_like_that_must_wait_is_sent_again(valkey_url: str) -> None:
    """The page counts down, says so once to a screen reader, and sends the like until it counts."""
    async with (
        run_server(fresh_settings(valkey_url), [BOARD]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *EVENTS)
        page = await chromium.new_page()
        await page.goto(f"{url}/boards/posts")
        await until_loaded(page)
        await page.evaluate(LISTEN)
        asked = 0

        async def answer(route: Route) -> None:
            nonlocal asked
            asked += 1
            if asked > 3:
                await route.fallback()
            else:
                status, code = (503, "store_unavailable") if asked == 2 else (429, "rate_exceeded")
                fields = {"Retry-After": "1"}
                problem = "application/problem+json"
                await route.fulfill(status=status, json={"code": code}, content_type=problem, headers=fields)

        await page.route("**/likes", answer)
        await page.evaluate("""() => {
          window.whys = [];
          new MutationObserver(() => whys.push(document.querySelector(".why")?.textContent ?? ""))
            .observe(document.querySelector("main"), {childList: true, subtree: true, characterData: true});
        }""")
        await page.get_by_role("button", name="Like constructor").click()
        liked = page.get_by_role("button", name="You like constructor")
        await liked.wait_for(timeout=PATIENCE)
        whys, announced = [set(await page.evaluate(f"window.{name}")) for name in ("whys", "announced")]
        assert re.search("^Many are voting. Yours is sent again in 1 s$", "\n".join(whys), re.MULTILINE)
        assert any(text.startswith("The server can't count it now. Yours is sent again in") for text in whys)
        assert len([text for text in announced if "sent again" in text]) == 1, "a screen reader hears it repeatedly"
        assert await page.locator(".why").count() == 0
        await page.unroute("**/likes")
        await until_score(page, "constructor", "6")
        assert (await producer.get("/v1/boards/posts")).json()["records"][-1]["score"] == 6


async def test_a_like_that_must_wait_needs_no_script(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without script says when the like is sent again, and reloads until it counts. Its button sends it too."""
    monkeypatch.setattr("live.auth.visitors.LIKE_BURST", 1)
    settings = fresh_settings(valkey_url, like_rate=1)
    async with (
        run_server(settings, [BOARD]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *EVENTS)
        context = await chromium.new_context(java_script_enabled=False, locale="en")
        page = await context.new_page()
        for member, presses in (("Ada", False), ("constructor", True)):
            while "/likes" not in page.url:  # use the rate up
                await page.goto(f"{url}/boards/posts")
                await page.get_by_role("button", name=f"Like {member}", exact=True).click()
                await page.wait_for_load_state()
            await page.get_by_role("heading", name="Many are voting. Yours is sent again in").wait_for(timeout=PATIENCE)
            if presses:
                await page.get_by_role("button", name=f"Like {member}", exact=True).click()
            await page.wait_for_url(re.compile(r"/boards/posts#liked$"), timeout=PATIENCE)
            assert await page.locator("#liked").is_visible()
        records = (await producer.get("/v1/boards/posts")).json()["records"]
        assert {record["key"]: record["score"] for record in records} == {"Ada": 11, "<b>Bo</b>": 10, "constructor": 6}


async def refuse(status: int, code: str, route: Route) -> None:
    """Answer a like with a refusal of the server."""
    await route.fulfill(status=status, json={"code": code}, content_type="application/problem+json")


(SONGS,) = parse_boards(
    '[[board]]\nid = "songs"\nwindow = "forever"\nvotes = {per_key = 1, per_actor = 1}\nlike_button = true'
)


class Distance(Proxy):
    """A network with latency. It counts likes, and holds back their answers until `passing` is set."""

    def __init__(self, upstream: str, latency: float) -> None:
        super().__init__(upstream)
        self.latency = latency
        self.likes = 0
        self.enough = asyncio.Event()
        self.passing = asyncio.Event()

    async def request(self, data: bytes) -> bytes | None:
        # Requests that follow a redirect have another path, and are not counted.
        self.likes += data.count(b"/likes HTTP/1.1\r\n")
        if self.likes >= 2:
            self.enough.set()
        return data

    async def answer(self, data: bytes) -> bytes | None:
        await asyncio.sleep(self.latency)
        if b"307 " in data[:20]:
            await self.passing.wait()
        return data


@asynccontextmanager
async def far_away(
    store: str, board: Board, latency: float, **context: Any
) -> AsyncIterator[tuple[BrowserContext, Distance, httpx.AsyncClient]]:
    """A browser that reaches a board through a slow network, and a producer that does not."""
    async with (
        run_server(fresh_settings(store), [board]) as url,
        listening(Distance(url, latency)) as distance,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *({"key": member, "actor": member} for member in ("Ada", "Bo")))
        yield await chromium.new_context(**context), distance, producer


async def scores(producer: httpx.AsyncClient, board: Board) -> dict[str, int]:
    """The scores of a board."""
    records = (await producer.get(f"/v1/boards/{board.id}")).json()["records"]
    return {record["key"]: record["score"] for record in records}


async def double_click(visitor: BrowserContext, distance: Distance, board: Board) -> None:
    """Like a member with two clicks, before the first answer arrives."""
    distance.passing.set()
    page = await visitor.new_page()
    await page.goto(f"{distance.url}/boards/{board.id}")
    await until_loaded(page)
    button = page.locator("button[value=Ada]")
    distance.passing.clear()  # on a busy machine, the second click can take longer than the distance
    await button.dblclick()
    distance.passing.set()
    await page.wait_for_selector("button[value=Ada]:is([aria-disabled], [data-voted])", timeout=PATIENCE)
    # This click is sent last, so the requests of the double click are over.
    await page.locator("button[value=Bo]").click()
    await page.wait_for_function(
        "() => document.querySelector('button[value=Bo]:is([aria-disabled], [data-voted]), button[value=Bo] + .why')",
        timeout=PATIENCE,
    )
    assert distance.likes == 2, "each click sent a request"  # the second click on Ada sends nothing


@pytest.mark.parametrize("board", [BOARD, SONGS], ids=["likes", "votes"])
async def test_a_double_click_is_one_like(valkey_url: str, board: Board) -> None:
    """The second click waits for the cookie that the first click brings, and does not take the vote back.

    A click on another button changes the vote of a visitor who has one vote.
    """
    async with far_away(valkey_url, board, 0.15) as (visitor, distance, producer):
        await double_click(visitor, distance, board)
        assert await scores(producer, board) == {"Ada": 2 if board is BOARD else 1, "Bo": 2}
        assert len(await visitor.cookies()) == 1


@pytest.mark.parametrize("board", [BOARD, SONGS], ids=["likes", "votes"])
@pytest.mark.parametrize("script", [True, False])
async def test_two_tabs_without_a_cookie_are_one_visitor(valkey_url: str, board: Board, *, script: bool) -> None:
    """Both tabs send a like before either has an answer."""
    async with far_away(valkey_url, board, 0, java_script_enabled=script) as (visitor, distance, producer):
        tabs = [await visitor.new_page() for _ in range(2)]
        for tab in tabs:
            await tab.goto(f"{distance.url}/boards/{board.id}")
            await tab.locator("button[value=Ada]").click(no_wait_after=True)
        await asyncio.wait_for(distance.enough.wait(), PATIENCE / 1000)
        distance.passing.set()
        for tab in tabs:
            if script:
                await tab.wait_for_selector("button[value=Ada]:is([aria-disabled], [data-voted])", timeout=PATIENCE)
            else:
                await tab.wait_for_url(re.compile(f"/boards/{board.id}#liked$"), timeout=PATIENCE)
        assert await scores(producer, board) == {"Ada": 2, "Bo": 1}
        await tabs[0].reload()
        await tabs[0].locator("button[value=Ada]").wait_for(timeout=PATIENCE)
        assert len(await visitor.cookies()) == 1
