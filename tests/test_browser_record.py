"""The page of a record in a real Chromium."""

import pytest

from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, board_in_browser, until_live
from tests.harness.producer import post

pytestmark = IN_BROWSER


async def test_figures_and_gaps_are_live(valkey_url: str) -> None:
    """Rank, score and both gaps change together, and name the records before and after."""
    events = [{"key": f"k{number}", "amount": 10 * number} for number in range(1, 20)]
    async with board_in_browser(valkey_url, *events, path="posts/records/k9") as (page, producer):
        await until_live(page)
        assert await page.inner_text("#rank") == "11"
        await post(producer, {"key": "k9", "amount": 15})
        await page.wait_for_function("() => document.getElementById('rank').textContent === '10'", timeout=PATIENCE)
        assert await page.inner_text(".value") == "105"
        assert await page.inner_text("#ahead") == "To 9, k11\n\N{MINUS SIGN}5"
        assert await page.inner_text("#behind") == "To 11, k10\n+5"
        await post(producer, {"key": "k9", "amount": -105})
        await page.wait_for_function(
            "() => document.getElementById('rank').textContent === 'not ranked'", timeout=PATIENCE
        )
        assert (
            not await page.locator("#ahead, #behind, .value").or_(page.locator(".charts")).filter(visible=True).count()
        )


async def test_the_chart_follows_the_score(valkey_url: str) -> None:
    """The server draws the chart again, and an open table stays open."""
    board = rolling_board("1h", "1s")
    async with board_in_browser(valkey_url, {"key": "a", "amount": 5}, board=board, path="posts/records/a") as (
        page,
        producer,
    ):
        await until_live(page)
        assert await page.locator(".charts").count() == 0, "one point is no chart"
        await post(producer, {"key": "a", "amount": 7})
        await page.locator(".charts summary").click(timeout=4 * PATIENCE)
        await page.evaluate("() => document.activeElement.blur()")
        cell = page.locator(".charts tbody td")
        before = await cell.count()
        await post(producer, {"key": "a", "amount": 7})
        await page.wait_for_function(
            "(before) => document.querySelectorAll('.charts tbody td').length > before",
            arg=before,
            timeout=4 * PATIENCE,
        )
        assert await cell.first.is_visible()


@pytest.mark.parametrize("width", [320, 1280])
async def test_the_page_fits_the_screen(valkey_url: str, width: int) -> None:
    """The name of the member has 300 wide letters."""
    member = "W" * 300
    async with board_in_browser(
        valkey_url,
        {"key": member, "amount": 10**9},
        path=f"posts/records/{member}",
        viewport={"width": width, "height": 800},
    ) as (page, _):
        await until_live(page)
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert await page.title() == f"{'W' * 50}…{'W' * 29} · posts · Live Board"


async def test_large_figures_are_whole(valkey_url: str) -> None:
    """The server and the script show large figures alike."""
    events = [{"key": "a", "amount": 10**9}, {"key": "b", "amount": 5}]
    async with board_in_browser(valkey_url, *events, path="posts/records/a") as (page, producer):
        figures = "els => els.filter(el => el.checkVisibility()).map(el => [el.textContent, el.title])"
        assert await page.eval_on_selector_all(".figures b", figures) == [
            ["1", ""], ["1,000,000,000", ""], ["+999,999,995", ""],
        ]  # fmt: skip
        await until_live(page)
        for _ in range(3):
            await post(producer, {"key": "a", "amount": 10**9}, {"key": "c", "amount": 9 * 10**8})
        await page.wait_for_function(
            "() => document.querySelector('.value').textContent === '4,000,000,000'", timeout=PATIENCE
        )
        assert await page.eval_on_selector_all(".figures b", figures) == [
            ["1", ""], ["4,000,000,000", ""], ["+1,300,000,000", ""],
        ]  # fmt: skip
