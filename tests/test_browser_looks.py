"""The texts on each surface have enough contrast in light and dark systems, by the pixels of screenshots."""

import base64
from collections.abc import Sequence
from typing import Any

from playwright.async_api import Page

from live.boards.definitions import read_board
from tests.harness.boards import rolling_board
from tests.harness.browser import IN_BROWSER, board_in_browser

pytestmark = IN_BROWSER

LIKES = [{"key": f"Member number {number}", "amount": 100 - number} for number in range(12)]
SCHEMES: tuple[Any, ...] = ("light", "dark")
LEAST = 4.5  # the least contrast of texts in WCAG 2.2, 1.4.3
# By path, the texts whose contrast is measured. None of the addresses chooses a theme.
SURFACES = {
    "boards/posts": ("td.rank", "td.score", "th > bdi", "h1", ".sums b"),
    "boards/posts?display=wall": ("td.rank", "td.score", "th > bdi", "h1", ".sums b"),
    "overlay/posts": ("td.rank", "td.score", "th > bdi"),
    "overlay/none": (".connection",),
    "embed/posts": ("td.rank", "td.score", "th > bdi", "h1", ".open"),
    "embed/posts?bg=transparent": ("td.rank", "td.score", "th > bdi", "h1", ".sums b", ".open"),
    "boards/posts?start=5": ("td.rank", "td.score", "th > bdi", ".periods a"),
    "boards/posts/records/Member%20number%203": (
        "h1",
        ".figures b",
        ".figures dt",
        ".sums span",
    ),
    "boards/vote": ("h1", "td.rank", "td.score", "th > bdi", ".sums b", "#rank-count"),
    "": ("h1", "li bdi", ".sums b"),
    "docs": ("h1", "main p", "nav a"),
    "nowhere": ("h1",),
}
# Returns the box of the first text for each selector.
BOXES = """(selectors) => selectors.map((selector) => {
    const range = document.createRange();
    range.selectNodeContents(document.querySelector(selector));
    const [{ left, top, width, height }] = range.getClientRects();
    return [left, top, width, height].map(Math.round);
})"""
# Takes the commonest colour in a box as the background, and the colour that differs most from it as the text.
CONTRASTS = """async ([picture, boxes]) => {
    const image = new Image();
    image.src = "data:image/png;base64," + picture;
    await image.decode();
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    const linear = (value) => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return boxes.map((box) => {
        const { data } = context.getImageData(...box);
        const counts = new Map();
        for (let i = 0; i < data.length; i += 4) {
            const light = 0.2126 * linear(data[i]) + 0.7152 * linear(data[i + 1]) + 0.0722 * linear(data[i + 2]);
            counts.set(light, (counts.get(light) ?? 0) + 1);
        }
        const ground = [...counts].reduce((most, one) => (one[1] > most[1] ? one : most))[0];
        const against = (light) => (Math.max(light, ground) + 0.05) / (Math.min(light, ground) + 0.05);
        return Math.max(...[...counts.keys()].map(against));
    });
}"""


async def contrasts(page: Page, reader: Page, selectors: Sequence[str]) -> dict[str, float]:
    """Return the contrast of the first text for each selector. All these texts must be in sight."""
    boxes, picture = None, ""
    while boxes != (now := await page.evaluate(BOXES, selectors)):  # texts move while the page becomes live
        boxes, picture = now, base64.b64encode(await page.screenshot()).decode()
    found: list[float] = await reader.evaluate(CONTRASTS, [picture, boxes])
    return dict(zip(selectors, found, strict=True))


async def test_every_surface_can_be_read_in_every_system(valkey_url: str) -> None:
    """Texts have enough contrast in light and dark systems: on pages, and in overlays over white and black."""
    vote = read_board("vote", {"types": ["vote"], "window": "forever", "votes": {"per_actor": 1}})
    votes = [{"type": "vote", "key": member, "actor": actor} for member, actor in ("Aa", "Ab", "Bc")]
    boards = [rolling_board(), vote]
    async with board_in_browser(valkey_url, *LIKES, *votes, board=boards, reduced_motion="reduce") as (own, _):
        server, reader = own.url.removesuffix("boards/posts"), await own.context.new_page()
        # The test opens another page, because one of the addresses does not exist, and `own` must report no error.
        page, poor = await own.context.new_page(), {}
        await page.set_viewport_size({"width": 1280, "height": 1800})
        for path, selectors in SURFACES.items():
            await page.goto(server + path)
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                for behind in ("white", "black") if "overlay" in path else ("",):
                    await page.evaluate("(color) => (document.documentElement.style.background = color)", behind)
                    for selector, found in (await contrasts(page, reader, selectors)).items():
                        if found < LEAST:
                            poor[path, scheme, behind, selector] = round(found, 2)
        assert poor == {}


async def test_poor_contrast_is_noticed(valkey_url: str) -> None:
    """The test above can fail: without its theme, an overlay is dark on dark in a light system."""
    async with board_in_browser(valkey_url, *LIKES, path="../overlay/posts", reduced_motion="reduce") as (page, _):
        reader = await page.context.new_page()
        assert (await contrasts(page, reader, ["td.score"]))["td.score"] > LEAST
        await page.emulate_media(color_scheme="light")
        await page.evaluate("() => delete document.documentElement.dataset.theme")
        assert (await contrasts(page, reader, ["td.score"]))["td.score"] < LEAST


async def test_a_transparent_frame_shows_the_page_around_it(valkey_url: str) -> None:
    """The frame is also transparent in a dark system, where browsers put a background behind some frames."""
    async with board_in_browser(valkey_url, *LIKES, color_scheme="dark", reduced_motion="reduce") as (own, _):
        page, reader = await own.context.new_page(), await own.context.new_page()
        html = (
            '<!doctype html><body style="margin: 0; background: #fff">'
            '<iframe src="/embed/posts?bg=transparent" width="600" height="500" style="border: 0">'
        )
        await page.route("**/around", lambda route: route.fulfill(content_type="text/html", body=html))
        await page.goto(own.url.replace("boards/posts", "around"))
        selectors = ("h1", ".sums b", "td.score")
        boxes = await page.frames[1].evaluate(BOXES, selectors)
        picture = base64.b64encode(await page.screenshot()).decode()
        assert min(await reader.evaluate(CONTRASTS, [picture, boxes])) >= LEAST
