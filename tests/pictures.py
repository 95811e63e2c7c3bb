"""Makes the pictures of the documentation: `make pictures`.

It starts a store and a server, posts likes, and takes pictures of the main states in a real browser.
The pages take the font of the system, so set `FONTCONFIG_FILE` to a configuration whose `system-ui` is one that people
have, such as Inter (`fonts-inter`).
"""

import asyncio
import base64
import contextlib
import random
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from playwright.async_api import Browser, Page

from live.demo import POSTS
from live.domain.board_file import parse_boards
from tests.harness.browser import browser
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess, valkey

FOLDER: Final = Path(__file__).parents[1] / "docs"
QUALITY: Final = 82  # percent, as WebP
BOARDS: Final = """
[[board]]
id = "posts"
title = "Most liked"
clock = "event"
[[board]]
id = "week"
title = "Best of the week"
source = ["read"]
window = {calendar = "week", timezone = "UTC"}
[[board]]
id = "climb"
title = "Climbers"
source = ["climb"]
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
[[board]]
id = "new"
title = "A new board"
source = ["new"]
"""
OVER_VIDEO: Final = """document.documentElement.style.background =
    "linear-gradient(120deg, #1f7a4d, #b06a2c 60%, #14305f)";"""


class Picture(NamedTuple):
    """A picture of a page. `work` is a script that runs first, and `state` the state that the page must then have."""

    name: str
    path: str
    width: int
    height: int
    theme: str
    work: str = ""
    state: str = "live"
    selector: str = "#connection"


PICTURES: Final = (
    Picture("board-light", "/boards/posts", 1280, 800, "light"),
    Picture("board-dark", "/boards/posts", 1280, 800, "dark"),
    Picture("phone", "/boards/posts?key=Soup%20for%20twenty", 390, 780, "dark"),
    Picture("boards", "/", 1280, 640, "light", selector=".connection"),
    Picture("wall", "/boards/posts?display=wall", 1280, 720, "dark"),
    Picture("overlay", "/overlay/posts?rows=6", 640, 360, "dark", OVER_VIDEO),
    Picture("share", "/boards/posts", 1280, 960, "light", "document.querySelector('.share').open = true;"),
    Picture("empty", "/boards/new", 1280, 520, "light"),
)


async def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        store = valkey(Path(folder))
        store.start()
        try:
            await take_all(store)
        finally:
            store.kill()


async def take_all(store: StoreProcess) -> None:
    """Take all pictures of a server with a store."""
    async with (
        run_server(fresh_settings(store.url), parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        await fill(producer)
        for picture in PICTURES:
            await take(chromium, url, picture)
        await take_stale(chromium, url, store)


async def fill(producer: httpx.AsyncClient) -> None:
    """Post the likes of a day, the same ones each time."""
    chance = random.Random(7)
    now = datetime.now(UTC)
    for age in range(23, -1, -1):
        at = (now - timedelta(hours=age)).isoformat()
        weights = [chance.uniform(0.2, 1.0) * 60 / (place + 3) for place in range(len(POSTS))]
        likes = [(key, round(weight * chance.uniform(2, 9))) for key, weight in zip(POSTS, weights, strict=True)]
        await post(
            producer, *({"board": "posts", "key": key, "amount": amount + 1, "time": at} for key, amount in likes)
        )
    reads = [(key, 40 - 7 * place) for place, key in enumerate(POSTS[:5])]
    await post(producer, *({"board": "week", "key": key, "amount": amount} for key, amount in reads))
    climbs = [("Ada", 7, 1200), ("Grace", 7, 1315), ("Edsger", 6, 990)]
    events = [
        {"key": key, "fields": {"levels": up, "seconds": seconds}, "board": "climb"} for key, up, seconds in climbs
    ]
    await post(producer, *events)


async def take(chromium: Browser, url: str, picture: Picture) -> None:
    """Open a page, wait for its state, and write its picture."""
    view: Any = {"width": picture.width, "height": picture.height}
    scheme: Any = picture.theme
    context = await chromium.new_context(viewport=view, color_scheme=scheme, reduced_motion="reduce")
    page = await context.new_page()
    await page.goto(url + picture.path)
    await page.wait_for_selector(f"{picture.selector}[data-state={picture.state}]", state="attached")
    counted = "() => document.getElementById('viewers')?.textContent !== '\\u2013'"
    await page.wait_for_function(counted)  # the page itself is one of the viewers
    await page.evaluate(f"() => {{ {picture.work} }}")
    await settled(page)
    await write(page, picture.name)
    await context.close()


async def take_stale(chromium: Browser, url: str, store: StoreProcess) -> None:
    """Take the picture of a board whose store does not answer."""
    page = await (await chromium.new_context(viewport={"width": 1280, "height": 520})).new_page()
    await page.goto(f"{url}/boards/posts")
    await page.wait_for_selector("#connection[data-state=live]")
    with store.frozen():
        await page.wait_for_selector("#connection[data-state=stale]")
        await settled(page)
        await write(page, "stale")


async def settled(page: Page) -> None:
    """Wait until the images of a page are loaded and nothing moves."""
    await page.wait_for_function(
        "() => [...document.images].every((image) => image.complete || !image.checkVisibility())"
    )
    await page.wait_for_function("() => document.getAnimations().length === 0")


async def write(page: Page, name: str) -> None:
    """Write the picture of a page."""
    session = await page.context.new_cdp_session(page)
    taken = await session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    path = FOLDER / f"{name}.webp"
    path.write_bytes(base64.b64decode(taken["data"]))
    print(f"{path.name}: {path.stat().st_size:,} bytes")  # noqa: T201 - this is what the command says


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
