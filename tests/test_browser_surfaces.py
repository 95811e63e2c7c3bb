"""A board on a wall display, in a frame of another page, and over a video."""

import asyncio
import base64
import time
from contextlib import suppress
from typing import Any

import pytest
from playwright.async_api import Page
from playwright.async_api import TimeoutError as SlowError

from live.boards.definitions import read_board
from live.domain.board_file import parse_boards
from tests.harness.browser import AWAY, IN_BROWSER, PATIENCE, board_in_browser, until_first, until_live
from tests.harness.producer import post
from tests.harness.store import StoreProcess

pytestmark = IN_BROWSER

LIKES = [{"key": f"Member number {number}", "amount": 100 - number} for number in range(20)]
# Counts all pixels and the visible pixels outside of a box, and reads the alpha in its middle.
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
    """Return what video software receives of a page, inside and outside of a box."""
    picture = base64.b64encode(await page.screenshot(omit_background=True)).decode()
    found: dict[str, int] = await reader.evaluate(ALPHA, [picture, box])
    return found


async def until_overlaid(page: Page) -> None:
    """Wait until an overlay is live and nothing moves. The overlay does not show that it is live."""
    await page.wait_for_selector("#connection[data-state=live]", state="attached", timeout=PATIENCE)
    await page.wait_for_function("() => document.getAnimations().length === 0", timeout=PATIENCE)


async def test_ten_rows_fill_a_wall_display(valkey_url: str) -> None:
    """All ten rows are visible, their names are large, and nothing can be clicked."""
    screen: Any = {"width": 1920, "height": 1080}
    async with board_in_browser(valkey_url, *LIKES, path="posts?display=wall&theme=dark", viewport=screen) as (page, _):
        await until_live(page)
        rows = await page.eval_on_selector_all(
            "#records tr",
            """rows => rows.map(row => [
            row.getBoundingClientRect().bottom, parseFloat(getComputedStyle(row.querySelector("bdi")).fontSize)])""",
        )
        assert len(rows) == 10
        cut = "names => names.filter((name) => name.scrollHeight > name.clientHeight).length"
        assert await page.eval_on_selector_all("th > bdi", cut) == 0, "parts of letters are cut off"
        assert max(bottom for bottom, _ in rows) <= 1080
        assert min(bottom for bottom, _ in rows[-1:]) >= 900, "the rows leave much of the screen empty"
        assert min(size for _, size in rows) >= 30
        assert await page.locator("header, footer, .tools, main button:visible").count() == 0
        assert await page.evaluate("document.documentElement.scrollHeight <= innerHeight")


WALL = """
[[board]]
id = "posts"
[[board]]
id = "large"
title = "The largest numbers that are shown in full, with the longest of titles"
types = ["large"]
max_amount = 20_000_000_000
[[board]]
id = "climb"
types = ["climb"]
window = "forever"
operator = "best"
score = [{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]
[[board]]
id = "few"
types = ["few"]
[[board]]
id = "none"
types = ["none"]
[[board]]
id = "week"
types = ["week"]
window = {calendar = "week", timezone = "UTC"}
"""
ON_WALL: list[dict[str, Any]] = [
    *({"board": "posts", "key": f"Member number {n}", "amount": 900 - n} for n in range(12)),
    *({"board": "large", "key": f"A name too long for a wall {n}", "amount": 9_999_999 - n} for n in range(11)),
    {"board": "large", "key": "huge", "amount": 12_345_678_901},
    *({"board": "climb", "key": f"Member {n}", "fields": {"levels": 50 - n, "seconds": 4999}} for n in range(12)),
    {"board": "few", "key": "Ada"},
    *({"board": "week", "key": f"Member number {n}", "amount": 1000 * n} for n in range(12)),
]
FORMATS = ((1920, 1080), (1080, 1920), (1024, 768), (2560, 1080))
# Lists faults of the rows on a screen: cells that are cut, names that are almost hidden, rows beyond the edge.
CUT = """() => [...document.querySelectorAll("[data-board] tbody tr")].flatMap((row) => {
    const name = row.querySelector("bdi"), text = parseFloat(getComputedStyle(name).fontSize);
    const within = row.closest("[data-board]").getBoundingClientRect(), box = row.getBoundingClientRect();
    return [
        ...[...row.querySelectorAll("td")].filter((cell) => cell.scrollWidth > cell.clientWidth)
            .map((cell) => cell.textContent),
        ...(name.offsetWidth < Math.min(6, name.textContent.length / 3) * text || text < 12 ? [name.textContent] : []),
        ...(box.bottom > Math.min(within.bottom, innerHeight) + 1 || box.right > innerWidth
            ? [`outside: ${row.dataset.member}`] : []),
    ];
})"""


async def fitted(page: Page) -> None:
    """Wait until the rows of a wall have the size of the window."""
    with suppress(SlowError):
        await page.wait_for_function(f"() => ({CUT})().length === 0", timeout=5_000)


async def test_every_format_of_a_wall_shows_names_ranks_and_scores(valkey_url: str) -> None:
    """A wall is upright or wide, with one, three or six boards. No number is cut, and names are visible."""
    boards = list(parse_boards(WALL))
    async with board_in_browser(valkey_url, *ON_WALL, board=boards, path="posts?display=wall") as (page, _):
        address = page.url
        for ids in ("large", "posts,large,climb", "posts,large,climb,few,none,week"):
            await page.goto(address.replace("/posts", f"/{ids}"))
            await page.wait_for_selector(".connection[data-state=live]", timeout=PATIENCE)
            for width, height in FORMATS:
                await page.set_viewport_size({"width": width, "height": height})
                await fitted(page)
                assert await page.evaluate(CUT) == [], (ids, width, height)
                ends = "boards => boards.map((board) => board.getBoundingClientRect().bottom)"
                assert 0.85 * height < max(await page.eval_on_selector_all(".board", ends)) <= height, (ids, width)


async def test_a_wall_shows_one_page_after_another(valkey_url: str) -> None:
    """In each format, a page has whole rows of one board."""
    boards = list(parse_boards(WALL))
    path = "large,climb,none?display=wall&rotate=5s&limit=20"
    async with board_in_browser(valkey_url, *ON_WALL, board=boards, path=path) as (page, _):
        seen = """() => {
            const board = [...document.querySelectorAll("[data-board]")].filter((one) => one.checkVisibility());
            const frame = board[0].querySelector(".frame").getBoundingClientRect();
            const head = board[0].querySelector(".packed thead")?.getBoundingClientRect().bottom ?? frame.top;
            const rows = [...board[0].querySelectorAll("tbody tr")].map((row) => row.getBoundingClientRect());
            const whole = rows.filter((row) => row.top > head - 2 && row.bottom < frame.bottom + 2);
            return [board.map((one) => one.dataset.board).join(), whole.length, Math.round(whole[0]?.height ?? 0)];
        }"""
        turns: list[tuple[str, int]] = []
        while len(turns) < 5:
            name, rows, height = await page.evaluate(seen)
            if turns[-1:] != [(name, rows)]:
                turns.append((name, rows))
                for width, tall in FORMATS if len(turns) == 1 else ():
                    await page.set_viewport_size({"width": width, "height": tall})
                    (cut,) = [await page.evaluate(CUT.replace("[data-board] tbody tr", "[data-board=large] tr.top"))]
                    assert cut == [], (width, tall)
                    assert await page.evaluate("document.documentElement.scrollHeight <= innerHeight")
                    images = "() => [...document.images].every((image) => image.complete && image.naturalWidth > 0)"
                    await page.wait_for_function(images)
                assert height < 200
            await page.wait_for_timeout(200)
        assert turns == [("large", 10), ("large", 2), ("climb", 10), ("climb", 2), ("none", 0)]


async def test_rows_of_a_wall_share_its_height(valkey_url: str) -> None:
    """However many there are, the rows have one height and fill the screen, and the gap has half the score's size."""
    look = """() => {
        const rows = [...document.querySelectorAll("#records tr")], score = rows.at(-1).querySelector("td.score");
        const size = (...of) => parseFloat(getComputedStyle(...of).fontSize);
        const frame = document.querySelector(".cols > div").getBoundingClientRect();
        return [rows.length, new Set(rows.map((row) => row.offsetHeight)).size,
            frame.bottom - rows.at(-1).getBoundingClientRect().bottom, innerHeight - frame.bottom,
            size(score, "::after") / size(score)];
    }"""
    screen: Any = {"width": 1280, "height": 720}
    async with board_in_browser(valkey_url, LIKES[0], path="posts?display=wall", viewport=screen) as (page, producer):
        for count in (1, 2, 3, 6, 10):
            await post(producer, *LIKES[1:count], {"key": LIKES[0]["key"]})
            await page.wait_for_function(
                """(count) => document.querySelectorAll('#records tr').length === count
                    && document.querySelectorAll('#records [data-gap]').length === (count > 1 ? count : 0)""",
                arg=count,
                timeout=PATIENCE,
            )
            at_rest = "() => document.getAnimations().length === 0"  # a row that flies is outside for a moment
            await page.wait_for_function(at_rest, timeout=PATIENCE)
            for width, height in FORMATS:
                await page.set_viewport_size({"width": width, "height": height})
                with suppress(SlowError):
                    await page.wait_for_function(
                        f"(count) => {{ const left = ({look})()[2]; return left >= 0 && left <= count + 1; }}",
                        arg=count,
                        timeout=5_000,
                    )
                rows, heights, left, below, part = await page.evaluate(look)
                assert (rows, heights) == (count, 1), (width, height)
                assert 0 <= left <= count + 1, (count, width, height)
                assert below <= 0.05 * height, (count, width, height)
                assert part == pytest.approx(0.5, abs=0.01) or count == 1
                assert await page.evaluate(CUT) == [], (count, width, height)


async def test_a_wall_asks_for_votes_and_then_shows_the_result(valkey_url: str) -> None:
    """While people vote, the code and the time that is left are large. Then steps come, and nothing asks any more."""
    closes = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 8))
    votes = {"per_key": 1, "per_actor": 9, "closes": closes}
    contest = read_board("posts", {"types": ["vote"], "window": "forever", "like_button": True, "votes": votes})
    names = ["Paper lanterns", "Last tram home", "Salt and static", "Slow comet", "Rooftop choir"]
    events = [
        {"type": "vote", "key": name, "actor": f"{actor}"} for at, name in enumerate(names) for actor in range(9 - at)
    ]
    screen: Any = {"width": 1920, "height": 1080}
    async with board_in_browser(valkey_url, *events, board=contest, path="posts?display=wall", viewport=screen) as (
        page,
        _,
    ):
        code = await page.locator(".scan img").bounding_box()
        assert code is not None
        assert code["width"] > 250
        assert await page.inner_text(".scan b") == "Vote: scan"
        assert (await page.inner_text(".scan span")).endswith("/boards/posts")
        await page.locator(".left time", has_text=":").wait_for(timeout=PATIENCE)
        clock = await page.locator(".left time").bounding_box()
        assert clock is not None
        assert clock["height"] > 80
        await page.wait_for_selector(".final .podium li", timeout=PATIENCE)
        assert not await page.locator(".ask").is_visible()
        assert await page.locator(".podium bdi").all_inner_texts() == names[:3]
        assert await page.locator("#records tr:visible bdi").all_inner_texts() == names[3:]
        places = "els => els.map(el => el.getBoundingClientRect()).map(({ bottom, right }) => [bottom, right])"
        for width, height in FORMATS:
            await page.set_viewport_size({"width": width, "height": height})
            for bottom, right in await page.eval_on_selector_all(".podium li, #records tr", places):
                assert bottom <= height, (width, height)
                assert right <= width, (width, height)


async def test_an_overlay_is_transparent_outside_of_its_rows(valkey_url: str) -> None:
    """All pixels outside of the rows have alpha 0. The URL determines the number of rows and their scale."""
    screen: Any = {"width": 800, "height": 600}
    sizes = {}
    async with board_in_browser(valkey_url, *LIKES, path="../overlay/posts?limit=5&scale=1", viewport=screen) as (
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
        # While the page connects, it may show a button to retry.
        await page.wait_for_function(NOTHING_TO_CLICK, timeout=PATIENCE)
        await post(producer, {"key": "new", "amount": 1000})
        await until_first(page, "new")


async def test_an_overlay_says_when_it_is_stale(own_store: StoreProcess) -> None:
    """The overlay shows a text, and changes its colours."""
    async with board_in_browser(own_store.url, *LIKES, path="../overlay/posts", allowed=AWAY) as (page, _):
        await page.wait_for_selector("#connection[data-state=live]", state="attached", timeout=PATIENCE)
        assert not await page.is_visible("#connection")
        color = "getComputedStyle(document.querySelector('td.score')).color"
        before = await page.evaluate(color)
        with own_store.frozen():
            await page.wait_for_selector("#connection[data-state=stale]", state="visible", timeout=PATIENCE)
            assert await page.evaluate(color) != before


async def test_frames_and_codes_work_on_isolated_pages(valkey_url: str) -> None:
    """A page of another site that is isolated (COEP `require-corp`) shows a live frame and a QR code."""
    async with board_in_browser(valkey_url, {"key": "a"}, path="../embed/posts") as (own, _):
        site = own.url.partition("/embed")[0]
        body = f'<!doctype html><img src="{site}/boards/posts/qr.svg"><iframe src="{site}/embed/posts"></iframe>'
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
            "Cross-Origin-Embedder-Policy: require-corp\r\nCross-Origin-Opener-Policy: same-origin\r\n\r\n"
        )

        async def show(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write((head + body).encode())
            writer.close()

        async with await asyncio.start_server(show, "127.0.0.1", 0) as outer:
            page = await own.context.new_page()
            await page.goto(f"http://localhost:{outer.sockets[0].getsockname()[1]}/")
            assert await page.evaluate("crossOriginIsolated")
            assert await page.evaluate("document.images[0].naturalWidth") > 0
            await page.frames[1].wait_for_selector("#connection[data-state=live]", timeout=PATIENCE)
            await page.close()


async def test_a_frame_reports_its_height(valkey_url: str) -> None:
    """The frame reports each new height. If the URL asks for it, the outer page's background is visible."""
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
    """The frame ignores the theme of the system. An empty board keeps its table when the late script comes."""
    async with board_in_browser(valkey_url, path="../embed/posts?theme=light", color_scheme="dark") as (page, _):
        await until_live(page)
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 246, 243)"
        assert await page.is_visible(".frame")
