"""The like button in a real browser: by mouse, by keyboard, without script, and in rows that come later."""

import re

import httpx
import pytest
from playwright.async_api import Page

from live.domain.board import Board
from live.domain.board_file import parse_boards
from tests.harness.browser import CHROMIUM, PATIENCE, board_in_browser, browser, until_first, until_live
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

BOARD: Board = parse_boards('[[board]]\nid = "posts"\nlike_button = true')[0]
EVENTS = ({"key": "Ada", "amount": 10}, {"key": "<b>Bo</b>", "amount": 10}, {"key": "constructor", "amount": 5})

# Keeps everything that a screen reader announces.
LISTEN = """() => {
  const announcer = document.getElementById("announcer");
  window.announced = [];
  new MutationObserver(() => announced.push(announcer.textContent))
    .observe(announcer, {childList: true, subtree: true});
}"""


async def until_score(page: Page, key: str, score: str) -> None:
    """Wait until a row shows a score."""
    await page.wait_for_function(
        "([key, score]) => [...document.querySelectorAll('#records tr')].some(row => "
        "row.dataset.key === key && row.querySelector('.score').textContent === score)",
        arg=[key, score],
        timeout=PATIENCE,
    )


async def test_a_like_counts_and_stays_marked(valkey_url: str) -> None:
    """The row moves, and the button is marked, even after a reload. A second click does nothing."""
    async with board_in_browser(valkey_url, *EVENTS, board=BOARD) as (page, producer):
        await until_live(page)
        await page.evaluate(LISTEN)
        await page.get_by_role("button", name="Like <b>Bo</b>").click()
        await until_first(page, "<b>Bo</b>")
        liked = page.get_by_role("button", name="You like <b>Bo</b>")
        await liked.wait_for(timeout=PATIENCE)
        await page.wait_for_function("() => announced.includes('You like <b>Bo</b>')", timeout=PATIENCE)
        await liked.click(force=True)
        await page.reload()
        await until_live(page)
        await liked.wait_for(timeout=PATIENCE)
        assert await liked.get_attribute("aria-disabled") == "true"
        assert await page.get_by_role("button", name="Like constructor").count() == 1
        (cookie,) = await page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        records = (await producer.get("/v1/boards/posts")).json()["records"]
        assert (records[0]["key"], records[0]["score"]) == ("<b>Bo</b>", 11)


async def test_a_new_row_can_be_liked_by_keyboard(valkey_url: str) -> None:
    """Its button has a name, and keeps the focus."""
    async with board_in_browser(valkey_url, *EVENTS, board=BOARD) as (page, producer):
        await until_live(page)
        await post(producer, {"key": "Cy", "amount": 20})
        await until_first(page, "Cy")
        button = page.get_by_role("button", name="Like Cy")
        await button.focus()
        await page.keyboard.press("Enter")
        await until_score(page, "Cy", "21")
        assert await page.evaluate("document.activeElement.ariaLabel") == "You like Cy"


async def test_a_like_without_script(valkey_url: str) -> None:
    """A form returns to the page, which says that the like counts. The record page does the same."""
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
        records = (await producer.get("/v1/boards/posts")).json()["records"]
        assert {record["key"]: record["score"] for record in records} == {"Ada": 11, "<b>Bo</b>": 10, "constructor": 6}


async def test_a_refused_like_is_reported(valkey_url: str) -> None:
    """The page says that it was not counted, and the button stays as it was."""
    settings = fresh_settings(valkey_url, like_burst=1, like_rate=1)
    async with (
        run_server(settings, [BOARD]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, *EVENTS)
        page = await chromium.new_page()
        await page.goto(f"{url}/boards/posts")
        await until_live(page)
        await page.get_by_role("button", name="Like Ada").click()  # the request for the cookie uses up the rate
        await page.wait_for_selector("#liked.shown", timeout=PATIENCE)
        assert "Try again in a minute" in (await page.text_content("#liked") or "")
        assert await page.get_by_role("button", name="Like Ada").get_attribute("aria-disabled") is None
