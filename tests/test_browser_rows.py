"""Rows of the page in a real Chromium: movement, sparklines, and members and scores of any kind."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unicodedata import normalize
from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Page, Route

from live.boards.definitions import read_board
from live.domain.board import Board
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, browser, until_first, until_live
from tests.harness.producer import post
from tests.harness.server import serving
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER

MOVES = "rows => rows.map(row => [row.dataset.member, row.cells[0].dataset.move ?? ''])"
LINE = "key => document.querySelector(`[data-member=${key}] polyline`)?.getAttribute('points')"
NASTY = [
    "\u200d", "\u3164", "\u2800", "A" * 600, normalize("NFC", "x\u0351\u036b\u0343\u036a\u0302" * 80),
    "שלום עולם " * 19 + "שלום", "<b>" * 9,    "👩‍👩‍👧‍👦", "汉字" * 90, "...", "a/b?c#d", "W" * 30,
]  # fmt: skip


@asynccontextmanager
async def page_of(url: str, **context: Any) -> AsyncIterator[Page]:
    """The page at a URL, once it is live."""
    async with browser() as chromium:
        page = await (await chromium.new_context(**context)).new_page()
        await page.goto(url)
        await until_live(page)
        yield page


async def forget_baseline(settings: Settings) -> None:
    """Delete the baseline, so that the next server stores one at once."""
    store = connect(settings.store, settings)
    await store.call("x", "DEL", Keys(settings.key_prefix, "posts").baseline)
    await store.aclose()


@asynccontextmanager
async def with_baseline(
    store: str, *events: dict[str, Any], board: Board | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a server whose board has a baseline, with the records of these events."""
    settings, boards = fresh_settings(store), [board or rolling_board()]
    async with serving(settings, *boards) as client:
        for start in range(0, len(events), 1000):
            answer = await post(client, *events[start : start + 1000])
            assert answer["accepted"] == len(events[start : start + 1000]), answer
    await forget_baseline(settings)
    async with serving(settings, *boards) as client:
        while not (await client.get("/v1/boards/posts/baseline")).json()["ranks"]:
            pass
        yield client


async def test_movement_is_relative_to_the_baseline(valkey_url: str) -> None:
    """The server renders the movement, the script updates it, and screen readers get words."""
    events = [{"key": member, "amount": amount} for member, amount in (("a", 40), ("b", 30), ("c", 20), ("d", 10))]
    async with with_baseline(valkey_url, *events) as client:
        await post(client, {"key": "c", "amount": 15})
        html = (await client.get("/boards/posts")).text
        assert re.findall(r'data-move="([^"]*)" data-moved="([^"]*)"', html) == [("▲1", "up 1"), ("▼1", "down 1")]
        assert re.search(r"▲▼ since <time[^>]*>\d\d:\d\d UTC", html)
        async with page_of(f"{client.base_url}/boards/posts") as page:
            assert await page.eval_on_selector_all("#records tr", MOVES) == [
                ["a", ""], ["c", "▲1"], ["b", "▼1"], ["d", ""],
            ]  # fmt: skip
            await page.wait_for_function("() => !document.getElementById('since').textContent.includes('UTC')")
            await post(client, {"key": "e", "amount": 99}, {"key": "d", "amount": 90})
            await until_first(page, "d")
            moves = [["d", "▲3"], ["e", "NEW"], ["a", "▼2"], ["c", "▼1"], ["b", "▼3"]]
            shown = f"({MOVES})([...document.querySelectorAll('#records tr')])"
            await page.wait_for_function(
                f"moves => JSON.stringify({shown}) === JSON.stringify(moves)", arg=moves, timeout=PATIENCE
            )
            heard = await page.locator("#records tr td.rank").all()
            assert [(await cell.aria_snapshot()).split('"')[1] for cell in heard[:3]] == ["1 up 3", "2 new", "3 down 2"]


async def test_a_member_that_comes_from_far_below_has_risen(valkey_url: str) -> None:
    """Neither the server nor the script says that the member is new. Only a member without a record is new."""
    events = [{"key": f"m{rank:04}", "amount": 10_000 - rank} for rank in range(1, 1601)]
    async with with_baseline(valkey_url, *events) as client:
        while (await client.get("/v1/boards/posts/baseline")).json()["rank_count"] != len(events):
            pass
        await post(client, {"key": "m1500", "amount": 1459}, {"key": "new", "amount": 20_000})
        html = (await client.get("/boards/posts")).text
        assert re.findall(r'data-move="([^"]*)"', html)[0] == "NEW"
        assert "▲1,457" in html, "the member is not 43rd"
        async with page_of(f"{client.base_url}/boards/posts") as page:
            await post(client, {"key": "m1400", "amount": 30_000})
            risen = "[...document.querySelectorAll('#records [data-move]')].map((cell) => cell.dataset.move)"
            await page.wait_for_function(f"() => {risen}.join().startsWith('▲1,399,NEW')", timeout=PATIENCE)
            await page.locator("#records tr[data-member=m1500] .rank[data-move='▲1,456']").wait_for(timeout=PATIENCE)


async def test_sparklines_show_the_window(valkey_url: str) -> None:
    """The server renders sparklines, with words for screen readers. A narrow screen hides them."""
    board = rolling_board("3h", "1h", clock="event")
    times = [f"2026-11-20T{hour}:30:00Z" for hour in ("09", "10", "11", "12")]
    settings = fresh_settings(valkey_url)
    async with serving(settings, board) as client:
        await post(client, *({"key": "a", "amount": 2 * i, "time": time} for i, time in enumerate(times, 1)))
        html = (await client.get("/boards/posts")).text
        assert re.findall(r'<polyline points="([^"]*)"', html) == ["0,13 50,7 100,1"]
        assert 'data-trend="3 hours"' in html
        async with page_of(f"{client.base_url}/boards/posts") as page:
            await page.wait_for_function(
                "() => document.querySelector('#records polyline').getAttribute('points') === '0,13 50,7 100,1'",
                timeout=PATIENCE,
            )
            assert await page.is_visible("#records .trend")
            words = await page.get_attribute("#records .trend", "aria-label")
            assert words == "3 hours: low 2, high 6, now 6"
            await page.set_viewport_size({"width": 400, "height": 800})
            assert not await page.is_visible("#records .trend")


async def test_rows_that_enter_or_return_have_sparklines(valkey_url: str) -> None:
    """The page keeps the sparklines of the server.

    It asks once for the sparklines of new rows, although no slot has ended since the page was rendered: slots are so
    long that none ends during the test.
    """
    times = [(datetime.now(UTC) - timedelta(days=days)).isoformat() for days in (200, 100, 0)]
    async with serving(fresh_settings(valkey_url), rolling_board("300d", "100d", clock="event")) as client:
        await post(
            client,
            *(
                {"key": member, "amount": (9 - rank) * (2 + slot), "time": time}
                for rank, member in enumerate("abcdef")
                for slot, time in enumerate(times)
            ),
        )
        async with browser() as chromium:
            page = await chromium.new_page()
            asked, may_answer = list[str](), asyncio.Event()

            async def answer(route: Route) -> None:
                asked.append(route.request.url)
                await may_answer.wait()
                await route.continue_()

            async def until_drawn(member: str) -> str:
                drawn = await page.wait_for_function(LINE, arg=member, timeout=PATIENCE)
                return str(await drawn.json_value())

            await page.route("**/slots", answer)
            await page.goto(f"{client.base_url}/embed/posts?limit=5")
            line = await until_drawn("e")
            await page.wait_for_function("() => document.adoptedStyleSheets.length > 0", timeout=PATIENCE)
            await post(client, {"key": "f", "amount": 900, "time": times[2]})
            await until_first(page, "f")
            assert await page.query_selector("[data-member=e]") is None
            await post(client, {"key": "e", "amount": 990, "time": times[2]})
            await until_first(page, "e")
            assert await until_drawn("e") == line
            may_answer.set()
            assert await until_drawn("f") != line
            assert len(asked) == 1


@pytest.mark.parametrize("width", [320, 1280])
async def test_rows_have_the_same_height(valkey_url: str, width: int) -> None:
    """The first three rows are equally high, and so are all other rows, whatever they contain.

    Nothing overflows a row, or makes the page wider than the screen.
    """
    board = read_board("posts", {"operator": "set", "window": "forever"})
    most = 2**53 - 1 if width > 320 else 10**13
    scores = [most - number for number in range(4)] + [10**number for number in (12, 9, 8, 7, 6, 3, 1)] + [-most]
    events = [{"key": member, "amount": score} for member, score in zip(NASTY, scores, strict=True)]
    async with with_baseline(valkey_url, *events, board=board) as client:
        context = {"viewport": {"width": width, "height": 900}}
        async with page_of(f"{client.base_url}/boards/posts", **context) as page:
            heights = await page.eval_on_selector_all("#records tr", "rows => rows.map(row => row.offsetHeight)")
            assert len(heights) == len(NASTY)
            assert len(set(heights)) == 1
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            cut = await page.eval_on_selector_all(
                "#records td.score", "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).length"
            )
            assert cut == 0
            names = await page.eval_on_selector_all("#records th bdi", "names => names.map(name => name.textContent)")
            assert names[:3] == ["⟨blank⟩"] * 3
            edge = "cells => Math.max(...cells.map(cell => cell.getBoundingClientRect().right))"
            assert await page.eval_on_selector_all("#records td.score", edge) <= width
            assert await page.inner_text("#records td.score") == f"{scores[0]:,}"


async def test_members_that_share_the_first_rank_lead(valkey_url: str) -> None:
    """The mark follows the rank, not the place, in rows of the server and of the script. Paper does not say "Live"."""
    board = read_board("posts", {"ranks": "competition"})
    events = [{"key": member, "amount": 5} for member in "abcdefg"]
    async with (
        with_baseline(valkey_url, *events, {"key": "h", "amount": 1}, board=board) as client,
        page_of(f"{client.base_url}/boards/posts") as page,
    ):
        assert await page.locator("#records .lead").count() == 7
        await post(client, {"key": "h", "amount": 9})
        await until_first(page, "h")
        await page.wait_for_function("() => document.querySelectorAll('#records .lead').length === 1", timeout=PATIENCE)
        await page.emulate_media(media="print")
        assert "Live" not in await page.inner_text("main")


async def test_names_link_to_their_records(valkey_url: str) -> None:
    """Rows of both server and script have links, which keep the language of the page."""
    keys = ["a/b?c#d", "...", "é!'()*~", "100%"]
    settings = fresh_settings(valkey_url)
    async with serving(settings) as client:
        await post(client, *({"key": member, "amount": 9 - place} for place, member in enumerate(keys)))
        async with page_of(f"{client.base_url}/boards/posts?lang=zh") as page:
            await post(client, {"key": "new/one", "amount": 99})
            await until_first(page, "new/one")
            links = await page.eval_on_selector_all(
                "#records th", "names => names.map(name => name.querySelector('a')?.getAttribute('href') ?? null)"
            )
        quoted = [quote(member, safe="!'()*") for member in ["new/one", *keys]]
        assert links == [f"/boards/posts/records/{name}?lang=zh" for name in quoted]
        assert "<a href" not in (await client.get("/embed/posts")).text.partition("<tbody")[2].partition("</tbody")[0]


async def test_the_readers_own_row_is_highlighted(valkey_url: str) -> None:
    """The row of the member may enter the page later."""
    async with serving(fresh_settings(valkey_url)) as client:
        await post(client, {"key": "a", "amount": 2})
        async with page_of(f"{client.base_url}/boards/posts?key=me") as page:
            assert await page.locator("#records tr.me").count() == 0
            await post(client, {"key": "me", "amount": 9})
            await until_first(page, "me")
            assert await page.get_attribute("#records tr.me", "data-member") == "me"
        assert '<tr data-member="me" class="top lead me own">' in (await client.get("/boards/posts?key=me")).text


async def test_scores_have_the_unit_of_their_board(valkey_url: str) -> None:
    """Live scores have their unit on the pages of board and record, in the list of boards, and in an element."""
    donors = read_board("donors", {"window": "forever", "unit": "€", "scale": 2})
    async with serving(fresh_settings(valkey_url), donors) as client, browser() as chromium:
        url, event = client.base_url, {"board": "donors", "key": "Ada"}
        await post(client, {**event, "amount": 123_450}, {**event, "key": "Bob", "amount": 5})
        context = await chromium.new_context()
        pages = {path: await context.new_page() for path in ("/boards/donors", "/boards/donors/records/Ada", "/", "/x")}
        for path, page in pages.items():
            await page.goto(f"{url}{path}")
        await pages["/x"].set_content(
            f'<script type="module" src="{url}/client/element.js"></script><live-board src="{url}/boards/donors">'
        )
        for page in pages.values():
            await page.get_by_text("1,234.50\u00a0€").first.wait_for(timeout=PATIENCE)
        await until_live(pages["/boards/donors"])
        await post(client, {**event, "amount": 1})
        for page in pages.values():
            await page.get_by_text("1,234.51\u00a0€").first.wait_for(timeout=PATIENCE)
        board = pages["/boards/donors"]
        assert await board.inner_text("#total-score") == "1,234.56\u00a0€"
        assert await board.locator("td.score").first.get_attribute("data-gap") == "+1,234.46\u00a0€"
