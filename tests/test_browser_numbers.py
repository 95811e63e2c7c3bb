"""Numbers are never cut, and never printed in two forms: on each surface, from a phone to a large screen."""

from typing import Any, Final

import httpx
import pytest
from playwright.async_api import Page, Route

from live.domain.board_file import parse_boards
from tests.harness.browser import IN_BROWSER, PATIENCE, browser
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = IN_BROWSER

BOARDS: Final = """
[[board]]
id = "likes"
like_button = true
[[board]]
id = "money"
types = ["gift"]
unit = "€"
scale = 2
[[board]]
id = "fields"
types = ["run"]
window = "forever"
operator = "best"
score = [{field = "levels", max = 99999999}, {field = "seconds", order = "asc", max = 50000000}]
[[board]]
id = "pets"
types = ["vote"]
window = "forever"
unit = "votes"
like_button = true
votes = {per_key = 1}
"""
NAME: Final = "A name that is much longer than the room that a phone has for it"
WIDTHS: Final = (360, 768, 1280, 1920)
SURFACES: Final = {
    "page": "/boards/{}",
    "wall": "/boards/{}?display=wall",
    "overlay": "/overlay/{}",
    "embed": "/embed/{}",
    "record": "/boards/{}/records/a",
    "index": "/",
    "element": "/other#{}",
}
ELEMENT: Final = """<!doctype html><title>Other</title><meta name="viewport" content="width=device-width">
    <script type="module" src="/client/element.js"></script><live-board lang="en"></live-board>
    <script>document.querySelector("live-board").setAttribute("src", `/boards/${location.hash.slice(1)}`)</script>"""
ROOT: Final = "(document.querySelector('live-board')?.shadowRoot ?? document)"
# What the first row of each board shows after the last event.
EXPECTED: Final = {
    "likes": ["12,345,679"],
    "money": ["123,456.79\u00a0€"],
    "fields": ["98,765,433", "12,345,678"],
    "pets": ["192"],
}
# Returns the texts of the first row, and what is wrong with numbers: those that their own cell or an element around it
# cuts, or that lie beyond the screen, and those that are printed in two forms.
LOOK: Final = """async () => {
    const root = document.querySelector("live-board")?.shadowRoot ?? document;
    const numbers = "td.score, td.rank, .value, .strip b, .sums b, .figures b, .place b, #rising b";
    await Promise.all(document.getAnimations().map((one) => one.finished.catch(() => {})));
    const wrong = [];
    for (const cell of root.querySelectorAll(numbers)) {
        if (!cell.checkVisibility({ visibilityProperty: true }) || !cell.textContent) continue;
        const note = (what, ...more) => wrong.push([what, cell.textContent, ...more]);
        const { display, fontSize } = getComputedStyle(cell), { content } = getComputedStyle(cell, "::before");
        if (!["none", "normal"].includes(content) && fontSize !== "0px") note("in two forms", content);
        const isWider = cell.scrollWidth > cell.clientWidth + 1;
        if (isWider && display !== "inline") note("wider than its cell", cell.dataset.gap);
        const range = document.createRange();
        range.selectNodeContents(cell);
        const text = range.getBoundingClientRect();
        const isOutside = (left, right) => text.left < left - 1 || text.right > right + 1;
        for (let around = cell; around; around = around.parentElement ?? around.getRootNode().host) {
            const { overflowX, display } = getComputedStyle(around), { left, right } = around.getBoundingClientRect();
            const clips = overflowX !== "visible" && display !== "inline";
            if (clips && isOutside(left, right)) note("cut", around.className);
            if (around === document.documentElement && isOutside(0, innerWidth)) note("beyond the screen");
        }
    }
    const row = root.querySelector("tr[data-member=a], li[data-member=a], section[data-member=a]");
    return [[...(row?.querySelectorAll("td.score, .value") ?? [])].map((cell) => cell.innerText), wrong];
}"""


async def fill(producer: httpx.AsyncClient) -> None:
    """Post scores of eight digits."""
    for source, amount in (("like", 12_345_678), ("gift", 12_345_678)):
        events = [{"type": source, "key": member, "amount": amount // 2} for member in (NAME, "c")]
        await post(producer, {"type": source, "key": "a", "amount": amount}, *events)
    fields = {"levels": 98_765_432, "seconds": 12_345_678}
    runs = [{**fields, "levels": fields["levels"] - number} for number in range(3)]
    await post(
        producer,
        *({"type": "run", "key": member, "fields": run} for member, run in zip(("a", NAME, "c"), runs, strict=True)),
    )
    votes = [("a", number) for number in range(191)] + [(NAME, number) for number in range(200, 301)]
    await post(producer, *({"type": "vote", "key": member, "actor": str(number)} for member, number in votes))


async def until_drawn(page: Page, texts: list[str]) -> None:
    """Wait until the first row shows the scores of the last event."""
    await page.wait_for_function(
        f"""(texts) => {{
            const cells = [...{ROOT}.querySelectorAll("tr[data-member=a] td.score, section[data-member=a] .value")];
            return cells.map((cell) => cell.textContent).join() === texts.join();
        }}""",
        arg=texts,
        timeout=PATIENCE,
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("surface", SURFACES)
async def test_no_number_is_cut(valkey_url: str, surface: str) -> None:
    """Numbers of eight digits, with a unit, with cents and in fields are whole on each surface at each width."""
    path, faults = SURFACES[surface], dict[tuple[str, int], Any]()
    async with (
        run_server(fresh_settings(valkey_url), parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await fill(producer)
        page = await (await chromium.new_context(reduced_motion="reduce")).new_page()
        await page.route("**/other", answer)
        last: dict[str, dict[str, Any]] = {
            "likes": {"type": "like", "key": "a"},
            "money": {"type": "gift", "key": "a"},
            "fields": {"type": "run", "key": "a", "fields": {"levels": 98_765_433, "seconds": 12_345_678}},
            "pets": {"type": "vote", "key": "a", "actor": "last"},
        }
        for board in EXPECTED if surface != "index" else ("",):
            expected = EXPECTED.get(board, [])
            if (board, surface) == ("pets", "element"):  # the heading of the element is not "Votes"
                expected = ["192\u00a0votes"]
            await page.set_viewport_size({"width": WIDTHS[0], "height": 900})
            await page.goto("about:blank")
            await page.goto(url + path.format(board))
            if board:
                await page.wait_for_function(
                    f"() => {ROOT}.querySelector(':is(tr, section)[data-member=a]')", timeout=PATIENCE
                )
                await post(producer, last[board])
                await until_drawn(page, expected)
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                texts, wrong = await page.evaluate(LOOK)
                if wrong or (board and texts != expected):
                    faults[board, width] = texts, wrong
    assert faults == {}


async def answer(route: Route) -> None:
    """Answer with a page that holds the element."""
    await route.fulfill(content_type="text/html", body=ELEMENT)
