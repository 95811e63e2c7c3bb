"""The board page in a real Chromium: fields, metadata, periods, and several boards on one page."""

import json
import random
import re

import msgspec

from live.domain.board_file import parse_boards
from live.domain.ranking import Record
from live.web.pages.language import languages
from live.web.pages.words import bar_width, gap_words, metadata_words, move_words, name_words, trend_points
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, PATIENCE, board_in_browser, until_first, until_live
from tests.harness.producer import post

pytestmark = IN_BROWSER

ENGLISH = languages()["en"]
CLIMB = """
[[board]]
id = "climb"
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
ranks = "competition"
"""
WEEK = '[[board]]\nid = "week"\nclock = "event"\nwindow = {calendar = "week", timezone = "Asia/Shanghai"}'

TEXTS = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"


async def test_fields_and_metadata_are_live(valkey_url: str) -> None:
    """The script renders fields and metadata as the server does: a column for each field, metadata below the name.

    Both are always text.
    """
    (board,) = parse_boards(CLIMB)
    first = [
        {"key": "a", "fields": {"levels": 7, "seconds": 1200}, "metadata": {"team": "red", "1": 1e21}},
        {"key": "b", "fields": {"levels": 5, "seconds": 10}},
    ]
    async with board_in_browser(valkey_url, *first, board=board) as (page, producer):
        await until_live(page)
        assert await page.eval_on_selector_all("#records tr", TEXTS) == [
            ["1", "a1: 1e+21 · team: red", "7", "1,200"], ["2", "b", "5", "10"],
        ]  # fmt: skip
        await page.evaluate("window.stays = document.querySelector('[data-member=a] .about')")

        nasty = {"team": "<img src=x onerror=alert(1)>", "note": "שלום" * 20, "deep": {"a": 1}, "ok": True}
        await post(
            producer,
            {"key": "b", "fields": {"levels": 7, "seconds": 1200}, "metadata": nasty},
            {"key": "c", "fields": {"levels": 8, "seconds": 4000}, "metadata": {"age": -0.5}},
            {"key": "d", "fields": {"levels": 1, "seconds": 4000}},
        )
        await until_first(page, "c")

        moved = await page.eval_on_selector_all("#records tr", TEXTS)
        note = " · ".join(metadata_words(msgspec.Raw(msgspec.json.encode(nasty))))
        assert moved == [
            ["1", "cage: -0.5", "8", "4,000"], ["2", "a1: 1e+21 · team: red", "7", "1,200"],
            ["2", "b" + note, "7", "1,200"], ["4", "d", "1", "4,000"],
        ]  # fmt: skip
        assert await page.locator("#records img").count() == 0
        assert await page.evaluate("window.stays === document.querySelector('[data-member=a] .about')"), (
            "the page drew the metadata again"
        )
        live = await page.inner_html("#records")
        rendered = await page.evaluate("""async () => {
            const html = await (await fetch(location.href)).text();
            return new DOMParser().parseFromString(html, "text/html").getElementById("records").innerHTML;
        }""")
        assert page_words(live) == page_words(rendered), "script and server render different rows"


def page_words(html: str) -> str:
    """Return markup without white space and without the attributes that only the script or a baseline adds.

    The names in a `class` are in order.
    """
    html = re.sub(r' data-moved?="[^"]*"', "", html)
    html = re.sub(r'class="([^"]*)"', lambda found: f'class="{" ".join(sorted(found[1].split()))}"', html)
    return "".join(html.replace(' style=""', "").replace(' style="z-index: 1;"', "").split())


async def test_the_script_and_the_server_show_the_same_metadata(valkey_url: str) -> None:
    """The metadata has random names, numbers, strings and orders."""
    chance = random.Random(3)
    letters = ["a", "0", "7", "é", "😀", "ש", " ", "<", "__proto__", "x" * 20]

    def text() -> str:
        return "".join(chance.choices(letters, k=chance.randint(0, 6)))

    def value() -> object:
        number = chance.choice([chance.randint(-(10**25), 10**25), chance.uniform(-1, 1), chance.randint(-3, 3)])
        scaled = number * 10.0 ** chance.randint(-30, 30)
        return chance.choice([number, scaled, scaled, text() * chance.randint(1, 4), True, None, [], {"a": 1}])

    said = [json.dumps({text(): value() for _ in range(chance.randint(0, 11))}) for _ in range(500)]
    async with board_in_browser(valkey_url) as (page, _):
        shown = await page.evaluate(
            """async (said) => {
            const own = document.querySelector('script[type=module]').src;
            const { metadataWords } = await import(own.replace('en/board', 'client/words'));
            return said.map((text) => metadataWords(JSON.parse(text)));
        }""",
            said,
        )

    assert shown == [metadata_words(msgspec.Raw(text.encode())) for text in said]


async def test_the_script_and_the_server_show_the_same_rows(valkey_url: str) -> None:
    """Names, gaps, bars, movement and sparklines are the same for random members and scores."""
    chance = random.Random(4)
    letters = [" ", "\u200d", "\u3164", "\u2800", "\u0301", "\U0001fae8", "😀", "a", "ש", "\u00ad", "\ue000", "\u034f"]
    names = ["".join(chance.choices(letters, k=chance.choice([1, 2, 5, 79, 80, 81, 200]))) for _ in range(300)]
    scores = [chance.randint(-(2**53), 2**53) >> chance.randint(0, 53) for _ in range(300)]
    async with board_in_browser(valkey_url) as (page, _):
        shown = await page.evaluate(
            """async ([names, scores]) => {
            const own = document.querySelector('script[type=module]').src;
            const words = await import(own.replace('en/board', 'client/words'));
            const { trendPoints } = await import(own.replace('en/board', 'trends'));
            const { barWidth, gapWords, moveWords, nameWords } = words;
            const records = scores.map((score, i) => ({ score, rank: i + 1 }));
            return [names.map((name) => nameWords(name)),
                    records.map((record, i) => gapWords(record, records[i - 1])),
                    scores.map((score, i) => barWidth(score, scores[(i * 7) % scores.length])),
                    scores.map((_, i) => moveWords(1 + (i * 7) % 50, i % 9 ? 1 + (i * 5) % 50 : undefined)),
                    scores.map((_, i) => trendPoints(scores.slice(i, i + i % 30).map((n) => (n % 5 ? n : null))))];
        }""",
            [names, scores],
        )
    records = [Record("", score, place) for place, score in enumerate(scores, 1)]
    assert shown == [
        [name_words(ENGLISH, name) for name in names],
        [gap_words(ENGLISH, record, above) for record, above in zip(records, [None, *records[:-1]], strict=True)],
        [bar_width(score, scores[(place * 7) % len(scores)]) for place, score in enumerate(scores)],
        [list(move_words(ENGLISH, 1 + i * 7 % 50, 1 + i * 5 % 50 if i % 9 else None)) for i in range(len(scores))],
        [trend_points([n if n % 5 else None for n in scores[i : i + i % 30]]) for i in range(len(scores))],
    ]


async def test_a_new_period_empties_the_page(valkey_url: str) -> None:
    """The first event of a new week changes the name of the period, and the old records disappear."""
    (board,) = parse_boards(WEEK)
    async with board_in_browser(valkey_url, board=board) as (page, producer):
        await until_live(page)
        assert await page.text_content("#period") == "by week in Asia/Shanghai"
        assert not await page.is_visible("a[rel=prev]")

        await post(producer, {"key": "a", "amount": 3, "time": "2025-11-12T12:00:00Z"})
        await until_first(page, "a")
        assert await page.text_content("#period") == "week 46 of 2025 in Asia/Shanghai"
        await post(producer, {"key": "b", "time": "2025-11-16T16:00:00Z"})  # midnight in Shanghai
        await until_first(page, "b")

        assert await page.text_content("#period") == "week 47 of 2025 in Asia/Shanghai"
        assert await page.eval_on_selector_all("#records tr", TEXTS) == [["1", "b", "1"]]
        assert await page.text_content("#total-score") == "1"
        await page.click("a[rel=prev]")
        await page.wait_for_selector("[data-member=a]", timeout=PATIENCE)
        assert await page.text_content("#period") == "week 46 of 2025 in Asia/Shanghai"
        assert await page.locator("script").count() == 0
        await page.click("a[rel=up]")
        await until_live(page)
        assert await page.eval_on_selector_all("#records tr", TEXTS) == [["1", "b", "1"]]


async def test_boards_side_by_side_are_live(valkey_url: str) -> None:
    """Each board has its own connection. Boards are next to each other if there is room, else below each other."""
    boards = [rolling_board(board="north"), rolling_board(board="south"), *parse_boards(CLIMB)]
    path = "north,south,climb"
    async with board_in_browser(
        valkey_url, {"board": "north", "key": "a"}, {"board": "south", "key": "b"}, board=boards, path=path
    ) as (page, producer):
        for board in path.split(","):
            await page.wait_for_selector(f"#connection-{board}[data-state=live]", timeout=PATIENCE)
        await post(producer, {"board": "south", "key": "a", "amount": 5})
        await page.wait_for_selector("#records-south tr:first-child[data-member=a]", timeout=PATIENCE)
        await post(producer, {"board": "climb", "key": "c", "fields": {"levels": 1, "seconds": 2}})
        await page.wait_for_selector("#records-climb [data-member=c]", timeout=PATIENCE)

        assert await page.eval_on_selector_all("#records-north tr", TEXTS) == [["1", "a", "1"]]
        assert await page.eval_on_selector_all("#records-south tr", TEXTS) == [["1", "a", "5"], ["2", "b", "1"]]
        assert await page.eval_on_selector_all("#records-climb tr", TEXTS) == [["1", "c", "1", "2"]]
        assert await page.text_content("#total-score-south") == "6"
        for width, columns in ((1280, 3), (390, 1)):
            await page.set_viewport_size({"width": width, "height": 800})
            lefts = await page.eval_on_selector_all(
                "section", "all => all.map(one => one.getBoundingClientRect().left)"
            )
            assert len(set(lefts)) == columns
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
