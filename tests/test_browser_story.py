"""The story beside the rows: who rises, what happened, and the member that you follow."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from playwright.async_api import Page

from live.domain.text import MINUS
from tests.harness.baselines import put_baseline
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, open_menu, until_loaded
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.test_browser_rows import page_of, with_baseline

pytestmark = IN_BROWSER

MINUTE = 60_000
AGE = 20 * MINUTE  # of the baseline
THEN = {f"m{number:02}": 1000 - 20 * number for number in range(12)}
GAINS = {"m00": 100, "m03": 330, "m11": 300}  # the gains since `THEN`: they make m03 first and m11 third


@asynccontextmanager
async def told(store: str, path: str = "", **context: Any) -> AsyncIterator[tuple[Page, httpx.AsyncClient]]:
    """The page of a board with a baseline, and a producer."""
    settings, faults = fresh_settings(store), list[str]()
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as producer:
        scores = {member: score + GAINS.get(member, 0) for member, score in THEN.items()}
        await post(producer, *({"key": member, "amount": amount} for member, amount in scores.items()))
        await producer.get("/v1/boards/posts/baseline")
    await put_baseline(settings, "posts", THEN, AGE, per_minute=10, unranked=2)
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        page = await (await chromium.new_context(**context)).new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.goto(f"{url}/boards/posts{path}")
        yield page, producer
        assert faults == []


async def shown(page: Page) -> dict[str, Any]:
    """Return what the server and the script draw of a board with a baseline."""
    found: dict[str, Any] = await page.evaluate(
        """() => ({
            moves: [...document.querySelectorAll("#records td.rank")].map((rank) => rank.dataset.move),
            bars: [...document.querySelectorAll("#records rect")].map((bar) => bar.getAttribute("width")),
            gaps: [...document.querySelectorAll("#records td.score")].map((score) => score.dataset.gap),
            rising: [...document.querySelectorAll("#rising li")].map((line) => line.innerText.replace(/\\s+/g, " ")),
        })"""
    )
    return found


async def test_the_server_and_the_script_tell_alike(valkey_url: str) -> None:
    """Both draw the same movement, bars and gaps, and name the same members as rising.

    The page is complete without script.
    """
    async with told(valkey_url) as (page, _):
        await until_loaded(page)
        await page.wait_for_function("() => document.querySelector('#happened b') !== null", timeout=PATIENCE)
        plain = await page.context.browser.new_context(java_script_enabled=False)  # type: ignore[union-attr]
        other = await plain.new_page()
        await other.goto(page.url)
        drawn = await shown(other)
        assert drawn["bars"][:3] == ["100%", "86.5%", "85%"]
        assert drawn["gaps"][:2] == ["+170", f"{MINUS}170"]
        assert await other.locator(".rail section:visible").count() == 1
        assert [words.rpartition(" ")[0] for words in drawn["rising"]] == ["m03", "m11", "m00"]
        scripted = await shown(page)
        for name in ("moves", "bars", "gaps"):
            assert scripted[name] == drawn[name], name
        # These figures are divided by the time since the baseline, which is longer for the page that is read later.
        paces = [[int("".join(filter(str.isdigit, words))) for words in each["rising"]] for each in (scripted, drawn)]
        assert paces[0] == pytest.approx(paces[1], rel=0.1)


async def test_the_rail_tells_what_happened(valkey_url: str) -> None:
    """The rail first tells what happened since the baseline, then each story as it happens."""
    async with told(valkey_url) as (page, producer):
        await page.wait_for_function("() => document.querySelectorAll('#happened b').length > 1", timeout=PATIENCE)
        lines = await page.locator("#happened li").all_inner_texts()
        assert any("m03 takes first from m00" in line for line in lines), lines
        assert any("m11 enters the top ten" in line for line in lines), lines
        await post(producer, {"key": "m05", "amount": 5000})
        await page.wait_for_function(
            "() => document.querySelector('#happened li').innerText.includes('m05 takes first from m03')",
            timeout=PATIENCE,
        )
        await page.goto(page.url.replace("/boards/", "/overlay/"))
        # The server draws the first change, and the script the second one.
        for amount, move in ((1, "▲5"), (9000, "▲2")):
            await post(producer, {"key": "m02", "amount": amount})
            arrow = "getComputedStyle(document.querySelector('#records td.rank'), '::after').content"
            await page.wait_for_function(f"move => {arrow}.includes(move)", arg=move, timeout=PATIENCE)


async def test_nothing_is_said_about_what_is_not_known(valkey_url: str) -> None:
    """Neither the server nor the script writes a dash, or that nothing happened."""
    async with (
        with_baseline(valkey_url, {"key": "a", "amount": 5}) as client,
        page_of(f"{client.base_url}/boards/posts") as page,
    ):
        async with page.expect_response("**/baseline*", timeout=PATIENCE) as asked:
            await page.reload()
        await (await asked.value).finished()
        await page.evaluate("new Promise((draw) => requestAnimationFrame(() => requestAnimationFrame(draw)))")
        plain = await page.context.browser.new_context(java_script_enabled=False)  # type: ignore[union-attr]
        other = await plain.new_page()
        await other.goto(page.url)
        for each in (page, other):
            assert not await each.is_visible("text=What happened")
            text = await each.inner_text("main")
            assert "\N{EN DASH}" not in text
            assert "yet" not in text


async def test_the_followed_member_stays_in_sight(valkey_url: str) -> None:
    """A form in the menu chooses the member. Its row stays in sight, also at the next visit, until it is let go."""
    small = {"width": 360, "height": 500}
    async with told(valkey_url, viewport=small) as (page, _):
        await until_loaded(page)
        await open_menu(page)
        await page.locator(".follow summary").click()
        await page.fill("#me", "m07")
        await page.locator("#follow button").click()
        await page.wait_for_url("**key=m07")
        await until_loaded(page)
        await page.goto(page.url.partition("?")[0])
        await page.wait_for_selector("tr.own", timeout=PATIENCE)
        own = page.locator("tr.own")
        assert await own.get_attribute("data-member") == "m07"
        box = await own.locator("td").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 501
        await until_loaded(page)
        await open_menu(page)
        await page.locator(".follow summary").click()
        await page.locator("#unfollow").click()
        await until_loaded(page)
        assert await page.locator("tr.own").count() == 0


async def test_nothing_shifts_while_the_story_loads(valkey_url: str) -> None:
    """The page keeps room for what loads later, on a phone and on a desk, with a member and without."""
    script = """window.shifts = []; new PerformanceObserver((list) => {
        for (const { hadRecentInput, value, sources } of list.getEntries()) if (!hadRecentInput) shifts.push([
            value, ...sources.map(({ node, previousRect: from, currentRect: to }) =>
                `${node?.id || node?.className || node?.nodeName}: ${from.x} ${from.y} to ${to.x} ${to.y}`),
        ]);
    }).observe({ type: "layout-shift", buffered: true });"""
    async with told(valkey_url) as (page, _):
        await page.context.add_init_script(script)
        for width in (360, 768, 1440):
            await page.set_viewport_size({"width": width, "height": 900})
            for query in ("", "?key=m07"):
                await page.goto(page.url.partition("?")[0] + query)
                await until_loaded(page)
                await page.wait_for_function("() => document.querySelector('#happened b') !== null", timeout=PATIENCE)
                shifts = await page.evaluate("shifts")
                assert sum(value for value, *_ in shifts) <= 0.02, (width, query, shifts)
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, query)
