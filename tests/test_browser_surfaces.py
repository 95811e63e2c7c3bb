"""A board on a wall display, in a frame of another page, and over a video."""

import base64
from typing import Any

import pytest
from playwright.async_api import Page

from tests.harness.browser import IN_BROWSER, PATIENCE, board_in_browser, until_first, until_live
from tests.harness.producer import post
from tests.harness.store import StoreProcess

pytestmark = IN_BROWSER

LIKES = [{"key": f"Member number {number}", "amount": 100 - number} for number in range(20)]
# The pixels of a picture that are not transparent and lie outside of a box, and how many do; and the alpha inside.
ALPHA = """async ([picture, box]) => {
    const image = new Image();
    image.src = "data:image/png;base64," + picture;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const { data } = context.getImageData(0, 0, image.width, image.height);
    const alpha = (x, y) => data[4 * (Math.floor(y) * image.width + Math.floor(x)) + 3];
    let outside = 0, visible = 0;
    for (let y = 0; y < image.height; y += 1) {
        for (let x = 0; x < image.width; x += 1) {
            if (box.top - 1 <= y && y <= box.bottom + 1 && box.left - 1 <= x && x <= box.right + 1) continue;
            outside += 1;
            if (alpha(x, y) > 0) visible += 1;
        }
    }
    return { outside, visible, inside: alpha(box.left + box.width / 2, box.top + box.height / 2) };
}"""

NOTHING_TO_CLICK = "() => ![...document.querySelectorAll('button, input, a')].some((one) => one.checkVisibility())"


async def alphas(page: Page, reader: Page, box: dict[str, float]) -> dict[str, int]:
    """What video software receives of a page, inside and outside of a box."""
    picture = base64.b64encode(await page.screenshot(omit_background=True)).decode()
    found: dict[str, int] = await reader.evaluate(ALPHA, [picture, box])
    return found


async def until_overlaid(page: Page) -> None:
    """Wait until an overlay is live, although it does not say so, and nothing moves."""
    await page.wait_for_selector("#connection[data-state=live]", state="attached", timeout=PATIENCE)
    await page.wait_for_function("() => document.getAnimations().length === 0", timeout=PATIENCE)


async def test_ten_rows_fill_a_wall_display(valkey_url: str) -> None:
    """All of them are visible, their names are large, and nothing can be clicked."""
    screen: Any = {"width": 1920, "height": 1080}
    async with board_in_browser(valkey_url, *LIKES, path="posts?display=wall&theme=dark", viewport=screen) as (page, _):
        await until_live(page)
        rows = await page.eval_on_selector_all(
            "#records tr",
            """rows => rows.map(row => [
            row.getBoundingClientRect().bottom, parseFloat(getComputedStyle(row.querySelector("bdi")).fontSize)])""",
        )
        assert len(rows) == 10
        assert max(bottom for bottom, _ in rows) <= 1080
        assert min(bottom for bottom, _ in rows[-1:]) >= 950, "the screen is used"
        assert min(size for _, size in rows) >= 40
        assert await page.locator("header, footer, .tools, main button:visible").count() == 0
        assert await page.evaluate("document.documentElement.scrollHeight <= innerHeight")


async def test_an_overlay_is_transparent_outside_of_its_rows(valkey_url: str) -> None:
    """Alpha is 0 everywhere else. The URL determines the rows and the scale."""
    screen: Any = {"width": 800, "height": 600}
    sizes = {}
    async with board_in_browser(valkey_url, *LIKES, path="../overlay/posts?rows=5&scale=1", viewport=screen) as (
        page,
        producer,
    ):
        reader = await page.context.new_page()
        address = page.url
        for theme, scale in (("dark", 1), ("light", 1.5)):
            await page.goto(address.replace("scale=1", f"scale={scale}&theme={theme}"))
            await until_overlaid(page)
            box: dict[str, float] = await page.evaluate(
                "document.querySelector('#records').getBoundingClientRect().toJSON()"
            )
            sizes[scale] = box["width"], box["height"]
            found = await alphas(page, reader, box)
            assert found["inside"] > 200
            assert found["outside"] > 100_000
            assert found["visible"] == 0
        assert sizes[1.5] == pytest.approx([1.5 * size for size in sizes[1]], rel=0.02)
        assert await page.locator("#records tr").count() == 5
        await page.wait_for_function(NOTHING_TO_CLICK, timeout=PATIENCE)  # while it connects, it may offer a retry
        await post(producer, {"key": "new", "amount": 1000})
        await until_first(page, "new")


async def test_an_overlay_says_when_it_is_stale(own_store: StoreProcess) -> None:
    """It shows a text, and its colours change."""
    async with board_in_browser(own_store.url, *LIKES, path="../overlay/posts") as (page, _):
        await page.wait_for_selector("#connection[data-state=live]", state="attached", timeout=PATIENCE)
        assert not await page.is_visible("#connection")
        color = "getComputedStyle(document.querySelector('td.score')).color"
        before = await page.evaluate(color)
        with own_store.frozen():
            await page.wait_for_selector("#connection[data-state=stale]", state="visible", timeout=PATIENCE)
            assert await page.evaluate(color) != before


async def test_a_frame_reports_its_height(valkey_url: str) -> None:
    """It does so with every change. The background of the outer page is visible if the URL asks for that."""
    async with board_in_browser(valkey_url, {"key": "a"}, path="../embed/posts?bg=transparent") as (own, producer):
        address, page = own.url, await own.context.new_page()
        await page.route("**/around", lambda route: route.fulfill(content_type="text/html", body="<!doctype html>"))
        await page.goto(address.partition("/embed")[0] + "/around")
        await page.evaluate(
            """(address) => {
            window.heights = [];
            addEventListener("message", ({ data, source }) =>
                source === frames[0] && data.type === "live-board:height" && heights.push(data.height));
            const frame = document.createElement("iframe");
            frame.src = address;
            frame.width = 500;
            document.body.append(frame);
        }""",
            address,
        )
        await page.wait_for_function("() => heights.length > 0", timeout=PATIENCE)
        frame = page.frames[1]
        await frame.wait_for_selector("#connection[data-state=live]", timeout=PATIENCE)
        first = await page.evaluate("heights.at(-1)")
        await post(producer, {"key": "b"}, {"key": "c"})
        await page.wait_for_function("(first) => heights.at(-1) > first", arg=first, timeout=PATIENCE)
        height = await frame.evaluate("[document.body.offsetHeight, getComputedStyle(document.body).backgroundColor]")
        assert height == [await page.evaluate("heights.at(-1)"), "rgba(0, 0, 0, 0)"]
        assert await frame.evaluate("parseFloat(getComputedStyle(document.querySelector('main')).paddingLeft)") >= 8
        link = frame.get_by_role("link", name="Open the board")
        assert (await link.get_attribute("href"), await link.get_attribute("target")) == ("/boards/posts", "_blank")


async def test_a_frame_has_the_theme_of_its_url(valkey_url: str) -> None:
    """The system may have the other theme."""
    async with board_in_browser(valkey_url, path="../embed/posts?theme=light", color_scheme="dark") as (page, _):
        await until_live(page)
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(245, 245, 241)"
