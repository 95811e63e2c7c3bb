"""The past on the pages of boards: the page of a time, the time slider, and replays, in a real browser."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from playwright.async_api import Page

from live.web.pages import board as pages
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, until_first, until_live
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.test_browser_axe import AXE, faults

pytestmark = IN_BROWSER


@asynccontextmanager
async def page_with_past(store: str, **context: Any) -> AsyncIterator[tuple[Page, str, httpx.AsyncClient, str]]:
    """A page, the address of a board, a producer, and a time before `b` overtook `a`."""
    errors: list[str] = []
    async with (
        run_server(fresh_settings(store, journal="sqlite"), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await post(producer, {"key": "a", "amount": 2})
        await asyncio.sleep(0.01)
        then = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        await asyncio.sleep(0.01)
        await post(producer, {"key": "b", "amount": 5})
        page = await (await chromium.new_context(**context)).new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        yield page, f"{url}/boards/posts", producer, then
        assert [error for error in errors if "404" not in error] == []  # the journal is younger than a step back


@pytest.mark.parametrize(("language", "words"), [("en", "As of"), ("zh-Hans", "时的榜单")])
async def test_a_page_shows_a_board_at_a_time_without_script(valkey_url: str, language: str, words: str) -> None:
    """It has a banner, links to other times, and one back to live."""
    async with page_with_past(valkey_url, java_script_enabled=False) as (page, address, _, then):
        await page.goto(f"{address}?as_of={then}&lang={language}")
        assert await page.locator("#records tr").count() == 1
        assert words in await page.inner_text("[role=note]")
        assert await page.locator("nav.periods a").count() == 0  # the journal is younger, and the future unknown
        await page.click("[role=note] a[rel=up]")
        assert await page.locator("#records tr").count() == 2
        assert "as_of" not in page.url


async def test_steps_lead_to_times_that_the_journal_has(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none to a time before it, nor to the future."""
    monkeypatch.setattr(
        pages, "_STEPS", ((-60, "hour_earlier"), (-1, "minute_earlier"), (1, "minute_later"), (3600, "hour_later"))
    )
    async with page_with_past(valkey_url) as (_, address, client, then):
        time = datetime.fromisoformat(then) + timedelta(seconds=1)
        at = time.isoformat().replace("+00:00", "Z")
        await asyncio.sleep(max(0, (time - datetime.now(UTC)).total_seconds()) + 0.01)  # until it is the past
        page = (await client.get(f"{address}?as_of={at}")).text
        assert [words for words in ("1 hour earlier", "1 minute earlier", "1 hour later") if words in page] == [
            "1 minute earlier"
        ]
        link = re.search(r'<a rel="prev" href="([^"]+)"', page)
        assert link is not None
        earlier = await client.get(address.partition("?")[0] + link[1])
        assert earlier.status_code == 200
        assert "1 minute later" in earlier.text


async def test_a_time_without_a_past_is_explained(valkey_url: str) -> None:
    """It is before the journal began, or in the future."""
    async with page_with_past(valkey_url) as (_, address, client, _):
        for time, status, words in (
            ("2001-01-01T00:00:00Z", 404, "nothing to show"),
            ("2100-01-01T00:00:00Z", 400, "in the future"),
        ):
            answer = await client.get(f"{address}?as_of={time}")
            assert answer.status_code == status, answer.text
            assert words in answer.text


async def test_the_slider_shows_the_past_and_returns_to_live(valkey_url: str) -> None:
    """The keyboard is enough. The URL contains the time."""
    async with page_with_past(valkey_url) as (page, address, producer, _):
        await page.goto(address)
        await until_live(page)
        await page.focus("#past")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#past-panel:not([hidden])", timeout=PATIENCE)
        await page.wait_for_function("() => document.activeElement.id === 'past-time'", timeout=PATIENCE)
        await page.keyboard.press("ArrowLeft")
        await page.wait_for_selector("#past-banner:not([hidden])", timeout=PATIENCE)
        assert re.search(r"\d", await page.get_attribute("#past-time", "aria-valuetext") or "")
        await page.wait_for_function("() => document.querySelector('#past-banner b').textContent.length > 5")
        await page.focus("#past-live")
        await page.keyboard.press("Enter")
        await until_live(page)
        assert await page.is_hidden("#past-banner")
        assert "as_of" not in page.url
        await post(producer, {"key": "c", "amount": 50})
        await until_first(page, "c")


async def test_a_replay_plays_and_becomes_live(valkey_url: str) -> None:
    """It starts at the time in the URL."""
    async with page_with_past(valkey_url) as (page, address, producer, _):
        await page.goto(address)
        await until_live(page)
        begin = round(datetime.now(UTC).timestamp() * 1000)
        await asyncio.sleep(1.5)
        await post(producer, {"key": "a", "amount": 50})
        await until_first(page, "a")
        await asyncio.sleep(5)  # so that it is the past
        await page.goto(f"{address}?lang=en#past={begin}")
        await page.wait_for_selector("#past-banner:not([hidden])", timeout=PATIENCE)
        await until_first(page, "b")
        await page.select_option("#past-speed", "4")
        await page.click("#past-play")
        await page.wait_for_selector("#past-play >> text=Stop", timeout=PATIENCE)
        await until_first(page, "a")
        await until_live(page)
        assert await page.is_hidden("#past-banner")


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_on_the_past(valkey_url: str, scheme: str) -> None:
    """The page of a time is checked, and the open slider, on a phone too."""
    async with page_with_past(
        valkey_url,
        color_scheme=scheme,
        reduced_motion="reduce",
        bypass_csp=True,
        viewport={"width": 360, "height": 700},
    ) as (page, address, _, then):
        await page.add_init_script(AXE.read_text(encoding="utf-8"))
        await page.goto(f"{address}?as_of={then}")
        assert await faults(page) == []
        await page.goto(address)
        await until_live(page)
        await page.click("#past")
        await page.wait_for_selector("#past-panel:not([hidden])", timeout=PATIENCE)
        await page.focus("#past-time")
        await page.keyboard.press("PageDown")
        await page.wait_for_selector("#past-banner:not([hidden])", timeout=PATIENCE)
        assert await faults(page) == []
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360
