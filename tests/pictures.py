"""Makes the pictures of the documentation: `make pictures`.

It starts a store and a server, posts likes, and takes pictures of the main states in a real browser. The clock of the
store runs through a day in some seconds, so that boards have a past. All pages use Inter, because a server's fonts
differ from the fonts that people have.
"""

import asyncio
import base64
import contextlib
import math
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from playwright.async_api import Browser, BrowserContext, Page

from live.demo import POSTS
from live.domain.board_file import parse_boards
from live.domain.event import rfc3339
from live.settings import Settings
from tests.harness.baselines import put_baseline
from tests.harness.browser import browser
from tests.harness.ingest import make_key
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.shims import Clock
from tests.harness.store import StoreProcess, valkey
from tests.harness.waiting import eventually

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs"
QUALITY: Final = 82  # the quality of WebP, in percent
BOARDS: Final = """
[[board]]
id = "posts"
title = "Most liked"
[[board]]
id = "week"
title = "Best of the week"
types = ["read"]
window = {calendar = "week", timezone = "UTC"}
[[board]]
id = "climb"
title = "Climbers"
types = ["climb"]
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
[[board]]
id = "new"
title = "A new board"
types = ["new"]
"""
HOUR: Final = 3600  # seconds
MINUTE: Final = 60
LEAST: Final = 7 * MINUTE  # enough seconds to know a pace, and to take the pictures within the same hour
RATE: Final = 900  # likes per minute, of all members together
BEFORE: Final = 804  # likes per minute since the baseline
SURPRISES: Final = (("Winter swimming, day one", 6000), ("Soup for twenty", 3000))
BEAT: Final = 0.5  # seconds between two likes while pictures are taken
FONT: Final = """@font-face { font-family: Inter; src: url("/font-of-pictures"); font-weight: 100 900; }
    :root:root { font-family: Inter, sans-serif; }"""
LOOK_BACK: Final = """document.getElementById("past").click();
    const time = document.getElementById("past-time");
    time.value = String(-1500);
    time.dispatchEvent(new Event("input", { bubbles: true }));"""
SHARE: Final = "for (const name of ['.menu', '.share']) document.querySelector(name).open = true;"
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


OWN: Final = "Soup%20for%20twenty"
PICTURES: Final = (
    Picture("board-light", f"/boards/posts?key={OWN}", 1280, 800, "light"),
    Picture("board-dark", f"/boards/posts?key={OWN}", 1280, 800, "dark"),
    Picture("phone", f"/boards/posts?key={OWN}", 390, 780, "dark"),
    Picture("past", "/boards/posts", 1280, 560, "dark", LOOK_BACK, state="past"),
    Picture("boards", "/", 1280, 640, "light", selector=".connection"),
    Picture("wall", "/boards/posts?display=wall", 1280, 720, "dark"),
    Picture("overlay", "/overlay/posts?limit=6", 640, 360, "dark", OVER_VIDEO),
    Picture("share", "/boards/posts", 1000, 800, "light", SHARE),
    Picture("empty", "/boards/new", 1280, 520, "light"),
)

ADMIN: Final = (("admin", "/admin"), ("admin-members", "/admin/members?board=posts"))


async def main() -> None:
    """Write all pictures."""
    while not LEAST < time.time() % HOUR < HOUR - LEAST:  # noqa: ASYNC110 - paces are measured in this hour
        await asyncio.sleep(1)
    with tempfile.TemporaryDirectory() as folder:
        store, clock = valkey(Path(folder)), Clock(Path(folder))
        store.environment = clock.environment
        clock.shift(-24 * HOUR)
        store.start()
        try:
            settings = fresh_settings(store.url, journal="sqlite", data_dir=Path(folder), open=True)
            await take_all(store, clock, settings)
        finally:
            store.kill()


async def take_all(store: StoreProcess, clock: Clock, settings: Settings) -> None:
    """Take all pictures of a server with a store."""
    began = time.time() // HOUR * HOUR
    chance = random.Random(7)
    async with serving(settings) as (url, producer):
        await fill(producer, clock, chance, began)
        rows = (await producer.get("/v1/boards/posts", params={"limit": len(POSTS)})).json()["records"]
    clock.shift(round(began - time.time()) + 1)
    scores = {row["key"]: row["score"] for row in rows}
    age = time.time() - began
    surprises = sum(amount for _, amount in SURPRISES) * MINUTE / age
    counted = round(BEFORE - RATE - surprises)  # what is still to come makes it `BEFORE`
    await put_baseline(settings, "posts", scores, round(age * 1000), per_minute=counted)
    key = await make_key(settings, "chief", verbs=("admin",))
    async with serving(settings) as (url, producer), browser() as chromium:
        await likes_until_now(producer, clock, chance, began)
        await eventually(partial(has_past, producer))
        liking = asyncio.create_task(go_on(producer, chance))
        for picture in PICTURES:
            await take(chromium, url, picture)
        await take_admin(chromium, url, key)
        liking.cancel()
        await take_stale(chromium, url, store)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[tuple[str, httpx.AsyncClient]]:
    """A server with the boards, and a producer."""
    async with (
        run_server(settings, parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=url, timeout=180) as producer,
    ):
        yield url, producer


async def fill(producer: httpx.AsyncClient, clock: Clock, chance: random.Random, until: float) -> None:
    """Post the likes of a day, which are the same in each run, and the records of the other boards."""
    now = time.time()
    for age in range(23, 0, -1):
        clock.shift(round(until - now) - age * HOUR)
        wave = [1 + 0.7 * math.sin(age / 24 * math.tau + place) for place in range(len(POSTS))]
        likes = [(90 - place) * part * chance.uniform(0.8, 1.2) * 15 for place, part in enumerate(wave)]
        await post(
            producer, *({"key": member, "amount": round(amount)} for member, amount in zip(POSTS, likes, strict=True))
        )
    for age in range(MINUTE, 0, -1):
        await likes_of_a_minute(producer, clock, chance, until - age * MINUTE)
    reads = [(key, 40 - 7 * place) for place, key in enumerate(POSTS[:5])]
    await post(producer, *({"board": "week", "key": member, "amount": amount} for member, amount in reads))
    climbs = [("Ada", 7, 1200), ("Grace", 7, 1315), ("Edsger", 6, 990)]
    events = [
        {"key": member, "fields": {"levels": up, "seconds": seconds}, "board": "climb"}
        for member, up, seconds in climbs
    ]
    await post(producer, *events)


async def likes_until_now(producer: httpx.AsyncClient, clock: Clock, chance: random.Random, since: float) -> None:
    """Post `SURPRISES`, which the page tells about, and then the likes of this hour, minute by minute."""
    await post(producer, *({"key": member, "amount": amount} for member, amount in SURPRISES))
    for minute in range(int(time.time() - since) // MINUTE):
        await likes_of_a_minute(producer, clock, chance, since + minute * MINUTE)
    clock.shift(0)


async def likes_of_a_minute(producer: httpx.AsyncClient, clock: Clock, chance: random.Random, at: float) -> None:
    """Send the likes of a minute: each member of `POSTS` has its own pace, which changes slowly."""
    clock.shift(round(at - time.time()))
    paces = [1 + 0.9 * math.sin(at / HOUR * 2.5 + 2.4 * place) for place in range(len(POSTS))]
    shares = [RATE * pace / sum(paces) * chance.uniform(0.8, 1.2) for pace in paces]
    likes = [{"key": member, "amount": round(share)} for member, share in zip(POSTS, shares, strict=True) if share >= 1]
    await post(producer, *likes)


async def has_past(producer: httpx.AsyncClient) -> bool:
    """Whether the journal has the last hour."""
    return (
        await producer.get("/v1/boards/posts", params={"as_of": rfc3339(round((time.time() - HOUR) * 1000))})
    ).is_success


async def go_on(producer: httpx.AsyncClient, chance: random.Random) -> None:
    """Post likes at the same pace until cancelled."""
    before = time.time()
    while True:
        await asyncio.sleep(BEAT)
        now = time.time()
        await post(producer, {"key": chance.choice(POSTS), "amount": round(RATE / MINUTE * (now - before))})
        before = now


async def take(chromium: Browser, url: str, picture: Picture) -> None:
    """Open a page, wait for its state, and write its picture."""
    scheme: Any = picture.theme
    context = await opened(chromium, picture.width, picture.height, color_scheme=scheme)
    page = await context.new_page()
    await page.goto(url + picture.path)
    await page.add_style_tag(content=FONT)
    await page.wait_for_selector(f"{picture.selector}[data-state=live]", state="attached")
    counted = (
        "() => !document.getElementById('viewers') || /[0-9]/.test(document.getElementById('viewers').textContent)"
    )
    await page.wait_for_function(counted)  # the page counts itself as a viewer
    if picture.path.startswith("/boards/posts") and "display" not in picture.path:
        await page.wait_for_selector("#records td.rank[data-move]")
    await page.evaluate(f"() => {{ {picture.work} }}")
    await page.wait_for_load_state("networkidle")
    await page.wait_for_selector(f"{picture.selector}[data-state={picture.state}]", state="attached")
    await settled(page)
    await write(page, picture.name)
    await context.close()


async def take_admin(chromium: Browser, url: str, key: str) -> None:
    """Sign in, and take the pictures of pages for administrators."""
    context = await opened(chromium, 1280, 640)
    page = await context.new_page()
    await page.goto(f"{url}/admin")
    await page.fill("input[name=key]", key)
    await page.press("input[name=key]", "Enter")
    await page.wait_for_selector("table")
    for name, path in ADMIN:
        await page.goto(url + path)
        await page.add_style_tag(content=FONT)
        await page.wait_for_load_state("networkidle")
        await settled(page)
        await write(page, name)
    await context.close()


async def opened(chromium: Browser, width: int, height: int, **choices: Any) -> BrowserContext:
    """A browser whose pages can load Inter."""
    context = await chromium.new_context(
        viewport={"width": width, "height": height}, reduced_motion="reduce", bypass_csp=True, **choices
    )
    await context.route("**/font-of-pictures", lambda route: route.fulfill(path=ROOT / "static" / "inter.woff2"))
    return context


async def take_stale(chromium: Browser, url: str, store: StoreProcess) -> None:
    """Take the picture of a board whose store does not answer."""
    page = await (await opened(chromium, 1280, 520)).new_page()
    await page.goto(f"{url}/boards/posts")
    await page.add_style_tag(content=FONT)
    await page.wait_for_selector("#connection[data-state=live]")
    with store.frozen():
        await page.wait_for_selector("#connection[data-state=stale]")
        await settled(page)
        await write(page, "stale")


async def settled(page: Page) -> None:
    """Wait until fonts and images of a page are loaded, and nothing moves."""
    await page.evaluate("document.fonts.ready.then(() => null)")
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
