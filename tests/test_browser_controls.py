"""The controls of the page: pause, find, theme, speed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
from playwright.async_api import Page

from tests.harness.boards import rolling_board
from tests.harness.browser import (
    IN_BROWSER,
    PATIENCE,
    board_in_browser,
    browser,
    open_menu,
    until_first,
    until_live,
    until_loaded,
)
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER


@asynccontextmanager
async def board_page(store: str, **context: Any) -> AsyncIterator[tuple[Page, str, httpx.AsyncClient]]:
    """A page that has opened no address yet, the address of a board, and a producer."""
    async with (
        run_server(fresh_settings(store), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        yield await (await chromium.new_context(**context)).new_page(), f"{url}/boards/posts", producer


async def test_a_paused_page_counts_changes(valkey_url: str) -> None:
    """The key p pauses and resumes. Afterwards the page shows the latest state."""
    async with board_page(valkey_url) as (page, address, producer):
        await post(producer, {"key": "a"})
        await page.goto(address)
        await until_live(page)
        await until_loaded(page)
        await page.keyboard.press("p")
        for _ in range(3):
            await post(producer, {"key": "b", "amount": 5})
        await page.wait_for_function(
            "() => document.getElementById('connection').textContent === 'Paused, 3 changes waiting'", timeout=PATIENCE
        )
        assert await page.get_attribute("#pause", "aria-pressed") == "true"
        assert await page.locator("[data-member=b]").count() == 0
        assert await page.text_content("#total-score") == "1"
        await page.keyboard.press("p")
        await until_first(page, "b")
        await until_live(page)
        assert await page.text_content("#total-score") == "16"


async def test_a_name_is_found_by_keyboard(valkey_url: str) -> None:
    """The page marks the matching rows. The server finds members below the shown rows, with links to their pages."""
    async with board_page(valkey_url) as (page, address, producer):
        await post(producer, *({"key": f"Member {number}", "amount": 100 - number} for number in range(60)))
        await page.goto(address)
        await until_live(page)
        await until_loaded(page)
        await page.keyboard.press("/")
        await page.keyboard.type("member 49")
        assert await page.eval_on_selector_all(".hit", "rows => rows.map(row => row.dataset.member)") == ["Member 49"]
        assert await page.locator("[data-member='Member 49']").is_visible()
        await page.fill("#find", "Member 59")
        await page.press("#find", "Enter")
        found = page.get_by_role("link", name="Member 59")
        await found.wait_for(timeout=PATIENCE)
        assert await page.locator("#found li").all_inner_texts() == ["Member 59\nrank 60"]
        await page.fill("#find", "Mallory")
        await page.wait_for_function(
            "() => document.querySelector('#found p').textContent"
            " === 'No member is called “Mallory”, and no word in a name or title begins with it.'",
            timeout=PATIENCE,
        )
        await page.press("#find", "Escape")
        assert not await page.locator("#found").is_visible()
        await page.fill("#find", "Member 59")
        await found.click()
        await page.wait_for_url("**/records/Member%2059", timeout=PATIENCE)


async def test_a_name_is_found_without_script(valkey_url: str) -> None:
    """The field is in a form. The page lists members with their ranks, or says that no member matches."""
    async with board_page(valkey_url, java_script_enabled=False) as (page, address, producer):
        await post(producer, *({"key": f"Member {number}", "amount": 100 - number} for number in range(60)))
        await page.goto(address)
        for text, names, said in (
            ("member 5", 10, "There are more: type more of the name."),
            ("member 59", 1, ""),
            ("<b>", 0, "No member is called “<b>”, and no word in a name or title begins with it."),
        ):
            await page.fill("#find", text)
            await page.press("#find", "Enter")
            await page.wait_for_selector("#found li >> nth=0" if names else "#found p", timeout=PATIENCE)
            assert (await page.locator("#found li").count(), await page.inner_text("#found p")) == (names, said)
            assert await page.input_value("#find") == text


async def test_a_theme_is_chosen_and_kept(valkey_url: str) -> None:
    """One click sets the theme of this and every later page. The click removes `theme` from the address."""
    async with board_page(valkey_url) as (page, address, _):
        await page.emulate_media(color_scheme="light")
        await page.goto(address)
        await until_live(page)
        await until_loaded(page)
        ground = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(ground)
        await page.goto(f"{address}?theme=light&key=a")
        await open_menu(page)
        await page.get_by_role("button", name="dark", exact=True).click()
        await page.wait_for_url(f"{address}?key=a")
        for path in (address, address.replace("/boards/posts", "/"), address.replace("/boards/posts", "/docs")):
            await page.goto(path)
            assert await page.evaluate(ground) != light
            assert await page.get_attribute("button[value=dark]", "aria-pressed") == "true"


async def test_a_new_speed_opens_another_connection(valkey_url: str) -> None:
    """The page stays live while it changes connections, and then shows a change."""
    async with board_page(valkey_url) as (page, address, producer):
        asked: list[str] = []
        page.on("websocket", lambda socket: asked.append(socket.url))
        await page.goto(address)
        await until_live(page)
        await until_loaded(page)
        await open_menu(page)
        await page.select_option("#speed", "1000")
        async with asyncio.timeout(60):
            while len(asked) < 2:
                await page.wait_for_timeout(20)
        assert "interval=1000ms" in asked[1]
        assert await page.get_attribute("#connection", "data-state") == "live"
        await post(producer, {"key": "a"})
        await until_first(page, "a")


async def test_the_menu_closes_and_the_first_row_is_near_on_a_phone(valkey_url: str) -> None:
    """Escape or a press elsewhere closes the menu. Escape gives the focus back. On loopback, there is no QR code."""
    async with board_page(valkey_url, viewport={"width": 360, "height": 800}) as (page, address, producer):
        await post(producer, {"key": "a", "amount": 2}, {"key": "b"})
        await page.goto(address)
        await until_live(page)
        await until_loaded(page)
        top = await page.evaluate("document.querySelector('#records').getBoundingClientRect().top")
        assert top <= 180
        menu, share = page.locator(".menu > summary"), page.locator(".share > summary")
        await menu.click()
        await share.click()
        assert await page.locator("#link").is_visible()
        assert await page.locator(".share img").count() == 0
        await page.focus("#link")
        await page.keyboard.press("Escape")
        assert not await page.locator("#link").is_visible()
        assert await menu.evaluate("summary => summary === document.activeElement")
        await menu.press("Enter")
        assert await page.locator("#link").is_visible()
        await page.mouse.click(20, 700)
        assert not await page.locator("#link").is_visible()
        assert await page.title() == "a leads · posts · Live Board"
        await open_menu(page)
        await page.click("button[name=rows][value=compact]")
        await page.wait_for_selector("[data-rows=compact]", timeout=PATIENCE)
        height = "[...document.querySelectorAll('#records tr')].map(row => row.offsetHeight)"
        assert await page.evaluate(height) == [36, 36]


async def test_the_title_of_the_page_names_one_leader(valkey_url: str) -> None:
    """It begins with the leader, also if a member or the product has the title of the board in its name."""
    board = msgspec.structs.replace(rolling_board(), title="Live")
    async with board_in_browser(valkey_url, {"key": "Live Red"}, board=board) as (page, producer):
        await until_live(page)
        await until_loaded(page)
        for leader, amount in (("Live Blue", 10), ("Live Red", 20), ("Live Blue", 40)):
            await post(producer, {"key": leader, "amount": amount})
            expected = f"{leader} leads · Live · Live Board"
            await page.wait_for_function("text => document.title === text", arg=expected, timeout=PATIENCE)
