"""The past on the pages of boards: the page of a past time and the time slider, in a real browser."""

import asyncio
import random
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
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, open_menu, until_first, until_live, until_loaded
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
        # A step may lead to a time before the journal, and the page gets 404.
        assert [error for error in errors if "404" not in error] == []


@pytest.mark.parametrize(("language", "words"), [("en", "As of"), ("zh-Hans", "时的榜单")])
async def test_a_page_shows_a_board_at_a_time_without_script(valkey_url: str, language: str, words: str) -> None:
    """The page has a banner with a link to the live board, and no link to a time that it can't show.

    The first row's bar is as wide as its name.
    """
    async with page_with_past(valkey_url, java_script_enabled=False) as (page, address, _, then):
        await page.goto(f"{address}?as_of={then}&lang={language}")
        assert await page.locator("#records tr").count() == 1
        bar, name = [await page.locator(f"#records {part}").bounding_box() for part in (".bar", "th > bdi")]
        assert bar is not None
        assert name is not None
        assert (bar["x"], bar["width"]) == pytest.approx((name["x"], name["width"]), abs=1)
        assert words in await page.inner_text("#connection")
        # Every step would lead to a time before the journal or in the future.
        assert await page.locator("nav.then :is([rel=prev], [rel=next])").count() == 0
        await page.click("nav.then a[rel=up]")
        assert await page.locator("#records tr").count() == 2
        assert "as_of" not in page.url


async def test_steps_lead_to_times_that_the_journal_has(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step leads to the future, or to a time before the journal."""
    monkeypatch.setattr(
        pages, "_STEPS", ((-60, "hour_earlier"), (-1, "minute_earlier"), (1, "minute_later"), (3600, "hour_later"))
    )
    async with page_with_past(valkey_url) as (_, address, client, then):
        time = datetime.fromisoformat(then) + timedelta(seconds=1)
        at = time.isoformat().replace("+00:00", "Z")
        # Wait until this time has passed.
        await asyncio.sleep(max(0, (time - datetime.now(UTC)).total_seconds()) + 0.01)
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
    """For a time before the journal began, or in the future, the page says why it shows no board."""
    async with page_with_past(valkey_url) as (_, address, client, _):
        for time, status, words in (
            ("2001-01-01T00:00:00Z", 404, "nothing to show"),
            ("2100-01-01T00:00:00Z", 400, "in the future"),
        ):
            answer = await client.get(f"{address}?as_of={time}")
            assert answer.status_code == status, answer.text
            assert words in answer.text


async def test_the_slider_shows_the_past_and_returns_to_live(valkey_url: str) -> None:
    """The reader uses only the keyboard. Back in the present, the URL contains no time."""
    async with page_with_past(valkey_url) as (page, address, producer, _):
        await page.goto(address)
        await until_live(page)
        await until_loaded(page)
        await open_menu(page)
        await page.focus("#past")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#past-panel:not([hidden])", timeout=PATIENCE)
        await page.wait_for_function("() => document.activeElement.id === 'past-time'", timeout=PATIENCE)
        await page.keyboard.press("ArrowLeft")
        await page.wait_for_selector("#connection[data-state=past]", timeout=PATIENCE)
        assert re.search(r"\d", await page.get_attribute("#past-time", "aria-valuetext") or "")
        assert (await page.inner_text("#connection")).startswith("As of ")
        assert await page.input_value("#link") == page.url, "the address that Share gives"
        await page.focus("#past-live")
        await page.keyboard.press("Enter")
        await until_live(page)
        assert await page.is_hidden("#past-panel")
        assert "as_of" not in page.url + await page.input_value("#link")
        await post(producer, {"key": "c", "amount": 50})
        await until_first(page, "c")


# Reads what a page shows of a board: the sums, the visible parts that belong to the present, and each row.
# The page of a time without records has no table.
READ = """function read(root, isShown) {
    const text = node => node?.textContent.trim() ?? '';
    const part = name => root.querySelector('#' + name);
    const present = ['#viewers', '#since', '.trend', '.like', '#place', '#next'];
    return {
        count: text(part('rank-count')), total: text(part('total-score')), period: text(part('period')),
        present: present.filter(one => [...root.querySelectorAll(one)].some(isShown)),
        empty: isShown(part('empty')) ? [...part('empty').children].filter(isShown).map(text).join() : '',
        rows: [...part('records')?.rows ?? []].map(row => [
            row.dataset.member, text(row.cells[0]), row.cells[0].dataset.move ?? '',
            text(row.cells[1]), text(row.cells[2]),
            row.cells[2].dataset.gap ?? '', Number(row.querySelector('.bar rect').getAttribute('width')).toFixed(2)]),
    };
}"""
# Moves the slider to several times. For each, returns what the slider's page, the server's page and the API show.
LOOK_BACK = (
    """async parts => {
    """
    + READ
    + """
    const slider = document.getElementById('past-time');
    const section = document.querySelector('section[data-board]');
    const frame = () => new Promise(requestAnimationFrame);
    const found = [];
    for (const part of parts) {
        history.replaceState(null, '', '?lang=en&key=m3');
        slider.value = String(Math.min(Number(slider.min) * part, -Number(slider.step)));
        slider.dispatchEvent(new Event('input', {bubbles: true}));
        while (!location.search.includes('as_of')) await frame();
        for (let i = 0; i < 3; i++) await frame();
        const at = new URL(location.href).searchParams.get('as_of');
        const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), 'text/html');
        const still = read(page, node => !node.hidden);
        const look = () => read(section, node => node.checkVisibility({visibilityProperty: true}));
        let moved = look();
        // On a busy machine, the page draws less often.
        const end = performance.now() + 10_000;
        while (JSON.stringify(moved) !== JSON.stringify(still) && performance.now() < end) {
            await frame();
            moved = look();
        }
        const api = await (await fetch(`/v1/boards/posts?as_of=${at}&limit=50`)).json();
        found.push([at, moved, still, api]);
    }
    return found;
}"""
)


@pytest.mark.timeout(900)
async def test_the_slider_shows_what_the_page_of_a_time_and_the_api_show(valkey_url: str) -> None:
    """Slider and page agree in each cell, and with the API in the records. They show nothing of the present."""
    count = 200
    chance = random.Random(f"{count} times")
    members = [f"m{number}" for number in range(12)]
    async with page_with_past(valkey_url, viewport={"width": 1200, "height": 900}) as (page, address, producer, _):
        await page.add_init_script(
            "const wait = setTimeout;"  # the script does not wait for the slider to rest
            "window.setTimeout = (work, pause, ...given) => wait(work, pause === 150 ? 0 : pause, ...given);"
        )
        for _ in range(60):
            events = [{"key": chance.choice(members), "amount": chance.randint(-3, 9)} for _ in range(3)]
            await post(producer, *events)
            await asyncio.sleep(0.05)
        await page.goto(f"{address}?lang=en&key=m3")
        await until_live(page)
        await until_loaded(page)
        await open_menu(page)
        await page.click("#past")
        await page.wait_for_function("() => Number(document.getElementById('past-time').min) > -600", timeout=PATIENCE)
        parts = [chance.random() for _ in range(count)]
        for at, moved, still, api in await page.evaluate(LOOK_BACK, parts):
            assert moved == still, at
            assert moved["empty"] == ("" if api["records"] else "There were no records at that time."), at
            assert moved["present"] == [], at
            assert [moved["count"], moved["total"]] == [f"{api['rank_count']:,}", f"{api['total_score']:,}"], at
            shown = [[row[0], row[1], row[4].replace("\N{MINUS SIGN}", "-").replace(",", "")] for row in moved["rows"]]
            assert shown == [[one["key"], str(one["rank"]), str(one["score"])] for one in api["records"]], at


async def test_before_the_journal_there_is_nothing(valkey_url: str) -> None:
    """The slider begins with the journal.

    A link to an earlier time shows neither rows nor sums, and says that there is nothing to show.
    """
    async with page_with_past(valkey_url) as (page, address, _, then):
        before = datetime.fromisoformat(then) - timedelta(hours=1)
        await page.goto(f"{address}?lang=en#past={round(before.timestamp() * 1000)}")
        await page.wait_for_selector("#connection[data-state=past]", timeout=PATIENCE)
        assert "nothing to show" in await page.inner_text("#past-note")
        await page.wait_for_function("() => !document.querySelector('#records tr')", timeout=PATIENCE)
        assert not await page.locator("#rank-count, #total-score").locator("visible=true").count()
        assert not await page.is_visible("#empty")
        await page.wait_for_function("() => Number(document.getElementById('past-time').min) > -600", timeout=PATIENCE)
        await page.focus("#past-time")
        await page.keyboard.press("ArrowRight")
        await page.wait_for_function("() => document.getElementById('rank-count').textContent !== ''", timeout=PATIENCE)


async def test_a_drag_on_the_slider_looks_back(valkey_url: str) -> None:
    """The slider stays under the finger while the rows change. Scrolling by touch over it does not look back."""
    async with page_with_past(valkey_url, viewport={"width": 390, "height": 800}, has_touch=True) as (
        page,
        address,
        producer,
        _,
    ):
        await page.goto(f"{address}?lang=en&key=b")
        await until_loaded(page)
        await open_menu(page)
        await page.click("#past")
        box = await page.locator("#past-time").bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        await page.mouse.move(box["x"] + box["width"] * 0.9, y)
        await page.mouse.down()
        await page.mouse.move(box["x"] + 1, y, steps=4)
        await page.wait_for_selector("#connection[data-state=past]", timeout=PATIENCE)
        assert await page.locator("#past-time").bounding_box() == box
        await page.mouse.up()
        await page.click("#past-live")
        await until_live(page)
        await open_menu(page)
        await page.click("#past")
        session = await page.context.new_cdp_session(page)
        await page.evaluate(
            "['input', 'pointercancel'].forEach(name => document.getElementById('past-time')"
            ".addEventListener(name, () => { window.touched = (window.touched ?? '') + name + ' '; }))"
        )
        for kind, move in (("touchStart", 0), *(("touchMove", 12 * step) for step in range(1, 9))):
            finger = {"x": box["x"] + box["width"] / 2, "y": y - move}
            await session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [finger]})
        await session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        await page.wait_for_function("() => window.touched?.endsWith('pointercancel ')", timeout=PATIENCE)
        await post(producer, {"key": "c", "amount": 50})
        await until_first(page, "c")
        await page.wait_for_selector("#connection[data-state=live]", timeout=PATIENCE)


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_on_the_past(valkey_url: str, scheme: str) -> None:
    """The page of a time and the open slider are checked on a phone."""
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
        await open_menu(page)
        await page.click("#past")
        await page.wait_for_selector("#past-panel:not([hidden])", timeout=PATIENCE)
        await page.focus("#past-time")
        await page.keyboard.press("PageDown")
        await page.wait_for_selector("#connection[data-state=past]", timeout=PATIENCE)
        assert await faults(page) == []
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360
