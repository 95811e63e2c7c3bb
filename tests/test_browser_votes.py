"""Votes in a real browser that are changed and taken back: with script, without, and in another tab."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, Route

from live.domain.board_file import parse_boards
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, until_loaded
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.test_browser_axe import AXE, SCHEMES, faults

pytestmark = IN_BROWSER

BOARD = """
[[board]]
id = "cup"
window = "forever"
votes = {{ per_key = 1, per_actor = {most} }}
like_button = true
"""
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}}


@asynccontextmanager
async def running(store: str, most: int) -> AsyncIterator[tuple[str, Browser, httpx.AsyncClient]]:
    """A server with a contest of three members, a browser, and a client."""
    async with (
        run_server(fresh_settings(store), parse_boards(BOARD.format(most=most))) as url,
        httpx.AsyncClient(base_url=url) as client,
        browser() as chromium,
    ):
        await post(
            client,
            *({"key": member, "actor": f"fan {n}"} for member, n in (("Ada", 1), ("Ada", 2), ("Bo", 3), ("Cy", 4))),
        )
        yield f"{url}/boards/cup", chromium, client


async def opened(chromium: Browser, url: str, **choices: Any) -> Page:
    """A page of a new visitor, on a phone."""
    page = await (await chromium.new_context(**PHONE, **choices)).new_page()
    await page.goto(url)
    if choices.get("java_script_enabled", True):
        await until_loaded(page)
    return page


async def must_say(page: Page, left: str, *texts: str) -> None:
    """Wait until the page says how many votes are left, and its buttons (Ada, Bo and Cy) have these texts."""

    async def says() -> bool:
        found = [await page.inner_text(f"button[value={key}]") for key in ("Ada", "Bo", "Cy")]
        pips = str(await page.get_attribute("p.left", "data-pips")).count("●")
        of_left = pips == 0 if left == NONE_LEFT else f" {pips} of " in left
        return (await page.inner_text("p.left"), found, of_left) == (left, list(texts), True)

    await eventually(says)


async def scores(client: httpx.AsyncClient) -> dict[str, int]:
    """The scores of the board."""
    return {record["key"]: record["score"] for record in (await client.get("/v1/boards/cup")).json()["records"]}


async def press(page: Page, label: str) -> None:
    """Press a button, long after the last press: a second click on a button right after its vote does nothing."""
    await page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 750))")
    await page.get_by_role("button", name=label).click()


NONE_LEFT = "You have used your vote."
ONE_LEFT = "You have 1 of 1 vote left."
CHANGE = "Change to this"


@pytest.mark.parametrize("script", [True, False])
async def test_a_vote_is_given_changed_and_taken_back(valkey_url: str, *, script: bool) -> None:
    """The page says from the first moment how many votes are left, and which are the visitor's, also after a reload."""
    async with running(valkey_url, 1) as (url, chromium, client):
        page = await opened(chromium, url, java_script_enabled=script)
        await must_say(page, ONE_LEFT, "Vote", "Vote", "Vote")
        steps: Sequence[tuple[str, str, Sequence[str], dict[str, int]]] = (
            ("Vote for Bo", NONE_LEFT, (CHANGE, "Undo", CHANGE), {"Ada": 2, "Bo": 2, "Cy": 1}),
            ("Change to this: Cy", NONE_LEFT, (CHANGE, CHANGE, "Undo"), {"Ada": 2, "Bo": 1, "Cy": 2}),
            ("Undo your vote for Cy", ONE_LEFT, ("Vote", "Vote", "Vote"), {"Ada": 2, "Bo": 1, "Cy": 1}),
            ("Vote for Cy", NONE_LEFT, (CHANGE, CHANGE, "Undo"), {"Ada": 2, "Bo": 1, "Cy": 2}),
        )
        for label, left, texts, expected in steps:
            if script:
                await press(page, label)
            else:
                await page.get_by_role("button", name=label).click()
            await must_say(page, left, *texts)
            assert await scores(client) == expected
        width = await page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], "the page is wider than the screen"
        await page.goto(f"{url}/records/Cy")
        await page.get_by_role("button", name="Undo your vote for Cy").wait_for(timeout=PATIENCE)
        assert await page.inner_text("p.left") == NONE_LEFT
        await page.goto(url)
        await must_say(page, NONE_LEFT, CHANGE, CHANGE, "Undo")


async def test_other_tabs_show_the_same_votes(valkey_url: str) -> None:
    """An open tab asks the server when another one has voted."""
    async with running(valkey_url, 3) as (url, chromium, client):
        page = await opened(chromium, url)
        other = await page.context.new_page()
        await other.goto(url)
        await until_loaded(other)
        await press(page, "Vote for Bo")
        for tab in (page, other):
            await must_say(tab, "You have 2 of 3 votes left.", "Vote", "Undo", "Vote")
        await press(other, "Vote for Cy")
        for tab in (page, other):
            await must_say(tab, "You have 1 of 3 votes left.", "Vote", "Undo", "Undo")
        assert await scores(client) == {"Ada": 2, "Bo": 2, "Cy": 2}


async def test_a_second_click_takes_nothing_back(valkey_url: str) -> None:
    """The button becomes "Undo" under the pointer, and a double click is still one vote."""
    async with running(valkey_url, 1) as (url, chromium, client):
        page = await opened(chromium, url)
        await page.get_by_role("button", name="Vote for Bo").dblclick(delay=50)
        await must_say(page, NONE_LEFT, CHANGE, "Undo", CHANGE)
        await press(page, "Change to this: Ada")
        await must_say(page, NONE_LEFT, "Undo", CHANGE, CHANGE)
        assert await scores(client) == {"Ada": 3, "Bo": 1, "Cy": 1}


async def test_a_change_after_a_change_elsewhere_is_explained(valkey_url: str) -> None:
    """The page then shows the present votes."""
    async with running(valkey_url, 1) as (url, chromium, client):
        page = await opened(chromium, url)
        await press(page, "Vote for Bo")
        await must_say(page, NONE_LEFT, CHANGE, "Undo", CHANGE)
        (cookie,) = await page.context.cookies()
        root = url.partition("/boards/")[0]
        headers = {"Cookie": f"{cookie['name']}={cookie['value']}", "Origin": root, "Accept": "application/json"}
        answer = await client.post("/boards/cup/likes", data={"key": "Ada", "replaces": "Bo"}, headers=headers)
        assert answer.json()["counted"] is True, answer.text
        await press(page, "Change to this: Cy")
        await page.wait_for_selector(".why", timeout=PATIENCE)
        assert "changed meanwhile" in await page.inner_text(".why")
        await must_say(page, NONE_LEFT, "Undo", CHANGE, CHANGE)
        assert await scores(client) == {"Ada": 3, "Bo": 1, "Cy": 1}


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed")
async def test_buttons_of_votes_are_accessible(valkey_url: str) -> None:
    """The name of each button begins with its text, in the dark and in both languages too."""
    async with running(valkey_url, 1) as (url, chromium, _):
        for scheme, lang in zip(SCHEMES, ("en", "zh-Hans"), strict=True):
            page = await opened(chromium, f"{url}?lang={lang}", bypass_csp=True, color_scheme=scheme)
            await page.locator("button[value=Bo]").click()
            await page.wait_for_selector("button[value=Bo][data-voted]", timeout=PATIENCE)
            await page.evaluate(AXE.read_text(encoding="utf-8"))
            assert await faults(page) == []
            for button in await page.locator("td.like button").all():
                text, name = await button.inner_text(), await button.get_attribute("aria-label")
                assert (name or "").startswith(text), f"{name!r} does not begin with {text!r}"


async def test_a_change_of_mind_before_the_answer_counts(valkey_url: str) -> None:
    """The page sends the second vote after the first one, and so as its change."""
    async with running(valkey_url, 1) as (url, chromium, client):
        page = await opened(chromium, url)
        first, released = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            if not first.is_set():
                first.set()
                await released.wait()
            await route.continue_()

        await page.route("**/likes", hold)
        await page.get_by_role("button", name="Vote for Bo").click()
        await first.wait()
        await page.get_by_role("button", name="Vote for Cy").click()
        released.set()
        await must_say(page, NONE_LEFT, CHANGE, CHANGE, "Undo")
        assert await scores(client) == {"Ada": 2, "Bo": 1, "Cy": 2}
