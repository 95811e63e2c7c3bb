"""The list of boards in a real browser."""

import re
from pathlib import Path
from typing import Any

from live.domain.board_file import parse_boards
from tests.harness.baselines import put_baseline
from tests.harness.boards import rolling_board
from tests.harness.browser import AWAY, IN_BROWSER, PATIENCE, board_in_browser, browser
from tests.harness.producer import post
from tests.harness.server import ServerProcess, serving
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

pytestmark = IN_BROWSER

SMALL: Any = {"width": 320, "height": 500}
CARD = "[data-board={}] .connection[data-state={}]"
ROWS = """board => [...document.querySelectorAll(`[data-board=${board}] tr[data-member]`)].map(
    row => [...row.cells].map(cell => (cell.querySelector("bdi") ?? cell).textContent))"""
LINES = """nodes => nodes.map(node => {
    const text = document.createRange();
    text.selectNodeContents(node);
    return new Set([...text.getClientRects()].map(({ bottom }) => Math.round(bottom / 8))).size;
})"""
CLIMB = '[[board]]\nid="climb"\nwindow="forever"\noperator="best"\nscore=[{field="levels", max=99}]'


async def test_cards_are_live(valkey_url: str) -> None:
    """The script lets records overtake each other, appear and disappear.

    Afterwards, the list is as the server renders it.
    """
    boards = [rolling_board(board="posts"), *parse_boards(CLIMB)]
    events = [{"key": member, "amount": amount, "board": "posts"} for member, amount in (("a", 3), ("b", 2), ("c", 1))]
    async with board_in_browser(valkey_url, *events, board=boards, path="../") as (page, producer):
        await page.wait_for_selector(CARD.format("posts", "live"), timeout=PATIENCE)
        await page.wait_for_selector(CARD.format("climb", "live"), timeout=PATIENCE)
        await page.evaluate("window.stays = document.querySelector('[data-member=b]')")
        likes = ({"key": "b", "amount": 1200}, {"key": "<b>", "amount": 5})
        await post(producer, *({**like, "board": "posts"} for like in likes))
        await post(producer, {"key": "x", "board": "climb", "fields": {"levels": 7}})
        await page.wait_for_selector("[data-board=climb] [data-member=x]", timeout=PATIENCE)
        await page.wait_for_selector("[data-board=posts] [data-member='<b>']", timeout=PATIENCE)

        assert await page.evaluate(ROWS, "posts") == [["1", "b", "1,202"], ["2", "<b>", "5"], ["3", "a", "3"]]
        assert await page.evaluate(ROWS, "climb") == [["1", "x", "7"]]
        assert await page.evaluate("stays === document.querySelector('[data-board=posts] tr[data-member]')"), (
            "the page made a new row instead of moving the old one"
        )
        assert await page.text_content("#rank-count-posts") == "4"
        live = await page.inner_html("[data-board=climb] tbody")

        async def is_drawn() -> bool:  # the server keeps a drawn list for a second
            return 'data-member="x"' in (await producer.get("/")).text

        await eventually(is_drawn)
        await page.reload()
        loaded = await page.inner_html("[data-board=climb] tbody")
        assert "".join(loaded.split()) == "".join(live.replace("lead top", "top lead").split()), await page.inner_html(
            "[data-board=climb]"
        )


async def test_cards_tell_what_moves(valkey_url: str) -> None:
    """The server draws movement, and the script keeps it live. The most active board comes first."""
    settings, boards = fresh_settings(valkey_url), [rolling_board(), rolling_board(board="other")]
    async with serving(settings, *boards) as client:
        await post(
            client, *({"board": "other", "key": member, "amount": amount} for member, amount in (("a", 4), ("b", 3)))
        )
        await client.get("/v1/boards/other/baseline")
    await put_baseline(settings, "other", {"a": 4, "b": 3}, 1_800_000, per_minute=10)
    async with serving(settings, *boards) as client:

        async def comes_first() -> bool:
            return 'class="card" data-board="other"' in (await client.get("/")).text.partition('data-board="posts"')[0]

        await eventually(comes_first)
        await post(client, {"board": "other", "key": "b", "amount": 3})
        # No page has been drawn for this address, so the server draws it now.
        html = (await client.get("/?lang=en")).text
        moves = re.findall(r'data-move="([^"]*)" data-moved="([^"]*)">\d</td><th scope="row"><bdi>(\w)', html)
        assert moves == [("▲1", "up 1", "b"), ("▼1", "down 1", "a")]
        async with browser() as chromium:
            page = await (await chromium.new_context()).new_page()
            async with page.expect_response("**/boards/other/baseline"):
                await page.goto(f"{client.base_url}/")
            await post(client, {"board": "other", "key": "c", "amount": 99})
            await page.wait_for_selector("[data-board=other] [data-member=c] [data-move=NEW]", timeout=PATIENCE)
            lines = await page.locator("[data-board=other] td.rank").all()
            assert [await line.get_attribute("data-move") for line in lines] == ["NEW", None, "▼2"]
            await page.set_viewport_size(SMALL)
            await post(client, {"board": "other", "key": "the longest name of them all", "amount": 1000})
            await page.wait_for_selector("[data-board=other] [data-member^=the]", timeout=PATIENCE)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            long, *_, short = await page.locator("[data-board=other] bdi").evaluate_all(LINES)
            assert long > short, "the long name does not wrap"
            assert await page.locator("[data-board=other] .score").evaluate_all(LINES) == [1, 1, 1]


async def test_a_card_says_when_it_is_stale(own_store: StoreProcess) -> None:
    """When the store is back, the card goes on by itself."""
    async with board_in_browser(own_store.url, {"key": "a"}, path="../", allowed=AWAY) as (page, _):
        await page.wait_for_selector(CARD.format("posts", "live"), timeout=PATIENCE)
        with own_store.frozen():
            await page.wait_for_selector(CARD.format("posts", "stale"), timeout=PATIENCE)
        await page.wait_for_selector(CARD.format("posts", "live"), timeout=PATIENCE)


async def test_only_cards_in_sight_are_live(valkey_url: str) -> None:
    """A card further down opens no connection until it is scrolled into view.

    Then the first card closes its connection.
    """
    boards = [rolling_board(board=f"b{number}") for number in range(40)]
    async with board_in_browser(valkey_url, board=boards, path="../", viewport=SMALL) as (
        page,
        _,
    ):
        await page.wait_for_selector(CARD.format("b0", "live"), timeout=PATIENCE)
        assert await page.locator(CARD.format("b39", "live")).count() == 0
        await page.locator("[data-board=b39]").scroll_into_view_if_needed()
        await page.wait_for_selector(CARD.format("b39", "live"), timeout=PATIENCE)
        await page.wait_for_selector(CARD.format("b0", "still"), timeout=PATIENCE)
        assert await page.text_content("[data-board=b0] .connection") == "As loaded"


async def test_boards_are_searched_without_script(valkey_url: str) -> None:
    """The form is sent by keyboard, and keeps the language."""
    boards = [rolling_board(), rolling_board(board="other")]
    path = "../?q=none&lang=zh-Hans"
    async with board_in_browser(valkey_url, board=boards, path=path, java_script_enabled=False) as (page, _):
        assert await page.locator(".card").count() == 0
        await page.get_by_label("按标题或标识搜索").fill("OTH")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/?lang=zh-Hans&q=OTH", timeout=PATIENCE)
        assert await page.locator(".card").get_attribute("data-board") == "other"


async def test_the_first_page_moves_by_itself(valkey_url: str, tmp_path: Path) -> None:
    """The sample likes of `make run` appear soon after the page is opened."""
    server = ServerProcess(fresh_settings(valkey_url, demo=True), tmp_path)
    server.start()
    async with browser() as chromium:
        page = await (await chromium.new_context()).new_page()
        await page.goto(server.url)
        shown = await page.inner_text(".card tbody")
        await page.wait_for_function(
            "shown => document.querySelector('.card tbody').innerText !== shown", arg=shown, timeout=PATIENCE
        )
    assert server.stop() == 0
