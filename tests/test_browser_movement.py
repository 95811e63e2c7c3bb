"""Moving rows in a real Chromium: the page tells who rises, and a pressed row stays under the pointer."""

import asyncio
from typing import Any

import httpx
import pytest
from playwright.async_api import Page

from live.domain.board_file import parse_boards
from tests.harness.browser import IN_BROWSER, PATIENCE, board_in_browser, until_first, until_live, until_loaded
from tests.harness.producer import post
from tests.test_browser_contest import contest, running

pytestmark = IN_BROWSER

(LIKED,) = parse_boards('[[board]]\nid = "posts"\nlike_button = true')
EVENTS = [{"key": member, "amount": amount} for member, amount in (("a", 40), ("b", 30), ("c", 20), ("d", 10))]
LEAST_CONTRAST = 4.5

# Waits until colours stop changing. Returns the contrast of each text of a row, by the formula of WCAG 2.
CONTRASTS = """async (row) => {
    await Promise.all(row.getAnimations({ subtree: true }).map((one) => one.finished));
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const light = (color) => {
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => {
            const part = value / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    return [...row.cells].flatMap((cell) => [null, "::after"].map((part) => {
        const text = light(getComputedStyle(cell, part).color);
        const ground = light(getComputedStyle(cell).backgroundColor);
        return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
    }));
}"""


async def until_told(page: Page) -> None:
    """Wait until the script that tells of moves has loaded the baseline."""
    await until_live(page)
    asked = "() => performance.getEntriesByType('resource').some(({ name }) => name.endsWith('/baseline'))"
    await page.wait_for_function(asked, timeout=PATIENCE)


async def click_while_rows_move(page: Page, producer: httpx.AsyncClient) -> None:
    """Press the like button of the last row, let the row rise to the top, and let go."""
    await until_told(page)
    box = await page.locator("#records tr[data-member=d] button").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 20, box["y"] + 20)
    await page.mouse.down()
    await post(producer, {"key": "d", "amount": 90})
    score = "() => document.querySelector('#records tr[data-member=d] td.score').textContent === '100'"
    await page.wait_for_function(score, timeout=PATIENCE)
    assert await page.locator("#records td.score").all_text_contents() == ["40", "30", "20", "100"]
    assert await page.get_attribute(".frame", "data-held") == "Order held, 1 move waiting"
    async with page.expect_request(lambda request: request.method == "POST") as liked:
        await page.mouse.up()
    assert (await liked.value).post_data == "key=d"
    await page.mouse.move(0, 0)
    await until_first(page, "d")
    assert await page.locator(".frame[data-held]").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_a_row_that_rises_says_whom_it_passed(valkey_url: str, theme: str) -> None:
    """The row's score is right at once. Its texts stay readable on the tint, in both themes, until the tint goes."""
    async with board_in_browser(valkey_url, *EVENTS, color_scheme=theme) as (page, producer):
        await until_told(page)
        await post(producer, {"key": "d", "amount": 35})  # on a busy machine, the page marks a new leader only
        row = page.locator("tr.risen[data-member=d]")
        await row.wait_for(timeout=PATIENCE)
        assert await page.get_attribute("tr.risen th", "data-told") == "▲3 passed a"
        assert await row.locator("td.score").text_content() == "45"
        contrasts = await row.evaluate(CONTRASTS)
        assert min(contrasts) >= LEAST_CONTRAST, contrasts
        await post(producer, {"key": "c", "amount": 27})  # this like moves row d down
        await page.wait_for_selector("tr.risen[data-member=c]", timeout=PATIENCE)
        await page.wait_for_selector("tr[data-member=d]:not(.risen)", timeout=PATIENCE)
        assert await page.locator("tr[data-member=d] th[data-told]").count() == 0


async def test_rows_that_stay_in_order_stay_in_the_document(valkey_url: str) -> None:
    """If one row passes others, or two rows change places, the script moves only one row in the document."""
    async with board_in_browser(valkey_url, *EVENTS) as (page, producer):
        await until_told(page)
        await page.evaluate("""() => {
            window.moved = 0;
            const count = (changes) => { for (const { addedNodes } of changes) moved += addedNodes.length; };
            new MutationObserver(count).observe(document.getElementById("records"), { childList: true });
        }""")
        for member, amount, moved in (("b", 15, 1), ("a", 10, 2), ("d", 100, 3), ("e", 1000, 4)):
            await post(producer, {"key": member, "amount": amount})
            await until_first(page, member)
            assert await page.evaluate("moved") == moved, member


async def test_a_click_lands_on_the_row_that_was_pressed(valkey_url: str) -> None:
    """While the mouse button is down, rows stay where they are, and scores go on. The page says how many moves wait."""
    async with board_in_browser(valkey_url, *EVENTS, board=LIKED) as (page, producer):
        await click_while_rows_move(page, producer)


# Until another member is under the point, or for `most` milliseconds after a vote: watches who is there in each frame.
# Returns the member before, whether it changed, and how long after the vote was marked.
WATCH = """([x, y, most]) => new Promise((resolve) => {
    const at = () => document.elementFromPoint(x, y)?.closest("tr")?.dataset.member;
    const before = at();
    let voted = Infinity;
    document.addEventListener("voted", () => { voted = performance.now(); }, { once: true });
    const look = () => {
        const after = performance.now() - voted;
        if (at() !== before || after > most) resolve([before, at() !== before, after]);
        else requestAnimationFrame(look);
    };
    look();
})"""


async def vote_and_watch(page: Page, member: str, *, by_touch: bool) -> list[Any]:
    """Vote for a member with the mouse or a finger. Returns what `WATCH` sees at the place of its button."""
    box = await page.locator(f"tr[data-member={member}] button").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    watching = asyncio.create_task(page.evaluate(WATCH, [x, y, 5000]))
    await page.evaluate("1")  # the watch has begun
    await (page.touchscreen.tap(x, y) if by_touch else page.mouse.click(x, y))
    seen: list[Any] = await watching
    return seen


@pytest.mark.parametrize("by_touch", [False, True], ids=["mouse", "touch"])
async def test_a_second_click_hits_the_same_contestant(valkey_url: str, *, by_touch: bool) -> None:
    """After a vote, rows stay in place: while a mouse is over them, and for three seconds after a finger has left.

    This holds for ranked contestants, and for those without votes, whose rows move to the ranked ones.
    """
    pets = contest()
    async with running(valkey_url, pets, "Ada", "Bo", "Cy", "Di", "Ed") as (url, chromium):
        async with httpx.AsyncClient(base_url=url) as producer:
            await post(
                producer, *({"type": "vote", "key": member, "actor": f"{member}1"} for member in ("Ada", "Bo", "Cy"))
            )
        page = await (await chromium.new_context(has_touch=by_touch)).new_page()
        await page.goto(f"{url}/boards/pets")
        await until_told(page)
        await until_loaded(page)
        for member in ("Cy", "Ed"):
            await page.mouse.move(0, 0)
            before, has_moved, after = await vote_and_watch(page, member, by_touch=by_touch)
            assert before == member
            assert has_moved == by_touch, (member, after)
            assert after >= 3000, member
        await page.mouse.move(0, 0)
        await until_first(page, "Cy")
        await page.wait_for_selector("#records tr[data-member=Ed]", timeout=PATIENCE)
