"""`python -m bench.motion`: how smoothly the page of a busy board moves in Chromium, and how far it is behind.

The program sends 2,000 likes per second to 300 members whose scores are close together, so that rows move all the time.
With `--minutes`, it sends 300 likes per second for so many minutes, looks back now and then, and shows whether memory
stays the same.
"""

import argparse
import asyncio
import bisect
import itertools
import random
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from playwright.async_api import Browser, CDPSession, Page, async_playwright

from bench.board import Board
from bench.processes import BenchError, descendants_of
from bench.watched import EVENTS, fill

_MEMBERS: Final = 300
_LIKES: Final = 100  # in one POST
_FEW_LIKES: Final = 15  # in one POST while memory is measured
_RATE: Final = 20  # POSTs per second
_FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-precise-memory-info"]

# Counts frames and long tasks. Also records each total that the page shows, with the time.
_PROBE: Final = """() => {
    window.probe = { frames: 0, long: [], totals: [], began: performance.now() };
    const total = document.getElementById("total-score");
    const look = () => {
        probe.frames += 1;
        const shown = Number(total.textContent.replaceAll(",", ""));
        if (probe.totals.at(-1)?.[1] !== shown) probe.totals.push([Date.now() / 1000, shown]);
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) probe.long.push(entry.duration);
    }).observe({ entryTypes: ["longtask"] });
}"""
_READ: Final = "() => ({ ...probe, seconds: (performance.now() - probe.began) / 1000 })"


class Motion(msgspec.Struct, frozen=True):
    """What was measured. Times are in milliseconds.

    `main_thread`, `main_thread_cpu` and `script` are per second. `long_tasks` counts tasks of more than 50 ms.
    """

    rows: int
    slowdown: int
    frames_per_second: float
    main_thread: float
    main_thread_cpu: float  # CPU time of the thread
    script: float
    long_tasks: int
    longest_task: float
    behind_median: float
    behind_p99: float
    heap_growth: float  # MB
    order_is_right: bool


@asynccontextmanager
async def _opened(board: Board, query: str) -> AsyncIterator[tuple[Browser, Page, CDPSession]]:
    """Open a board in Chromium itself, not in its headless shell. Wait until it is live. Close Chromium at the end."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        page = await chromium.new_page(viewport={"width": 1280, "height": 900})
        await page.goto(f"http://{board.server.address}/boards/posts?{query}")
        await page.wait_for_selector("#connection[data-state=live]")
        tools = await page.context.new_cdp_session(page)
        await tools.send("Performance.enable")
        yield chromium, page, tools
        await chromium.close()


async def measure(board: Board, rows: int, slowdown: int, seconds: float) -> Motion:
    """Watch the page while likes arrive."""
    async with _opened(board, f"limit={rows}") as (chromium, page, tools):
        if slowdown > 1:
            await tools.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
        acknowledged: list[tuple[float, int]] = []
        liking = asyncio.create_task(_like(board, acknowledged))
        await asyncio.sleep(3)
        await tools.send("HeapProfiler.collectGarbage")
        main_thread = await _main_thread(chromium)
        before, ran_before = await _metrics(tools), _ran(main_thread)
        await page.evaluate(_PROBE)
        await asyncio.sleep(seconds)
        probe = await page.evaluate(_READ)
        after, ran_after = await _metrics(tools), _ran(main_thread)
        if liking.done():
            liking.result()  # this task ends only if it fails: raise its error
        liking.cancel()
        await asyncio.wait({liking})
        await tools.send("HeapProfiler.collectGarbage")
        ended = await _metrics(tools)
        right = await _is_right(page, board, rows)
    behind = sorted(_behind(probe["totals"], acknowledged))
    if not behind:
        raise BenchError("the page showed nothing that was acknowledged")
    return Motion(
        rows=rows,
        slowdown=slowdown,
        frames_per_second=round(probe["frames"] / probe["seconds"], 1),
        main_thread=round((after["TaskDuration"] - before["TaskDuration"]) / probe["seconds"] * 1000),
        main_thread_cpu=round((ran_after - ran_before) / probe["seconds"] * 1000),
        script=round((after["ScriptDuration"] - before["ScriptDuration"]) / probe["seconds"] * 1000),
        long_tasks=len(probe["long"]),
        longest_task=round(max(probe["long"], default=0)),
        behind_median=round(behind[len(behind) // 2] * 1000),
        behind_p99=round(behind[int(len(behind) * 0.99)] * 1000),
        heap_growth=round((ended["JSHeapUsedSize"] - before["JSHeapUsedSize"]) / 2**20, 2),
        order_is_right=right,
    )


class Memory(msgspec.Struct, frozen=True):
    """Memory in MB and numbers of objects that the page and the server hold, after a garbage collection."""

    minute: int
    heap: float
    nodes: int
    listeners: int
    server: float  # resident, of all processes but the store


async def watch_memory(board: Board, minutes: int) -> None:
    """Print the memory of a page with 100 rows once a minute, and use the page's controls in between."""
    async with _opened(board, "limit=100&key=post-000") as (_, page, tools):
        liking = asyncio.create_task(_like(board, [], _FEW_LIKES))
        began = time.monotonic()
        for minute in range(minutes + 1):
            await asyncio.sleep(max(0, began + minute * 60 - time.monotonic()))
            await tools.send("HeapProfiler.collectGarbage")
            found = await _metrics(tools)
            memory = Memory(
                minute=minute,
                heap=round(found["JSHeapUsedSize"] / 2**20, 2),
                nodes=int(found["Nodes"]),
                listeners=int(found["JSEventListeners"]),
                server=round(sum(_resident(one.pid) for one in (board.server, *descendants_of(board.server))), 1),
            )
            print(msgspec.json.encode(memory).decode(), flush=True)
            if minute % 2:
                await _use(page)
        if liking.done():
            liking.result()  # this task ends only if it fails: raise its error
        liking.cancel()


async def _use(page: Page) -> None:
    """Look back and return, find a name, open the menu and what it folds away, and pause."""
    await page.click(".menu > summary")
    await page.click("#past")
    for _ in range(10):
        await page.keyboard.press("ArrowLeft")
    await page.wait_for_selector("section[data-past]")
    await page.click("#past-live")
    await page.wait_for_selector("#connection[data-state=live]")
    await page.fill("#find", "post-29")
    await asyncio.sleep(1)
    await page.fill("#find", "")
    await page.click(".menu > summary")
    for summary in await page.query_selector_all(".menu details > summary"):
        await summary.click()
        await summary.click()
    await page.click(".menu > summary")
    for _ in range(2):
        await page.keyboard.press("p")
        await asyncio.sleep(1)


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def _metrics(tools: CDPSession) -> dict[str, float]:
    answer = await tools.send("Performance.getMetrics")
    return {metric["name"]: metric["value"] for metric in answer["metrics"]}


async def _main_thread(chromium: Browser) -> Path:
    browser = await chromium.new_browser_cdp_session()
    processes = (await browser.send("SystemInfo.getProcessInfo"))["processInfo"]
    busiest = max((one for one in processes if one["type"] == "renderer"), key=lambda one: one["cpuTime"])
    return Path(f"/proc/{busiest['id']}/task/{busiest['id']}/schedstat")


def _ran(thread: Path) -> float:
    return int(thread.read_text(encoding="ascii").split()[0]) / 1e9


async def _like(board: Board, acknowledged: list[tuple[float, int]], likes_each: int = _LIKES) -> None:
    """Post likes at a steady rate, and note the total of the board at each acknowledgement."""
    chance = random.Random(1)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {board.key}"}
    url = f"http://{board.server.address}"
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{url}/v1/boards/posts?limit=1") as answer:
            total = msgspec.json.decode(await answer.read())["total_score"]
        due = time.monotonic()
        while True:
            likes = [{"key": f"post-{chance.randrange(_MEMBERS):03d}"} for _ in range(likes_each)]
            async with session.post(url + EVENTS, data=msgspec.json.encode(likes)) as answer:
                accepted = msgspec.json.decode(await answer.read())["accepted"]
            total += accepted
            acknowledged.append((time.time(), total))
            due += 1 / _RATE
            await asyncio.sleep(max(0, due - time.monotonic()))


def _behind(shown: list[tuple[float, int]], acknowledged: list[tuple[float, int]]) -> list[float]:
    """Return how many seconds the screen is behind the acknowledged likes, sampled every 10 ms."""
    totals, found = [total for _, total in acknowledged], []
    for (begins, total), (ends, _) in itertools.pairwise(shown):
        place = bisect.bisect_right(totals, total)
        if place == len(totals):
            continue
        newer = acknowledged[place][0]  # when the first like that the screen did not show was acknowledged
        found += [max(0.0, begins + step / 100 - newer) for step in range(int((ends - begins) * 100) + 1)]
    return found


async def _is_right(page: Page, board: Board, rows: int) -> bool:
    """Tell whether the page shows what the API returns, once the page is quiet."""
    await asyncio.sleep(3)
    url = f"http://{board.server.address}/v1/boards/posts?limit={rows}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        records = msgspec.json.decode(await answer.read())["records"]
    shown = await page.eval_on_selector_all(
        "#records tr", "rows => rows.map(row => [row.dataset.member, row.cells[2].textContent])"
    )
    return bool(shown == [[record["key"], f"{record['score']:,}"] for record in records])


def main() -> None:
    """Measure, and print one line of JSON for each view."""
    parser = argparse.ArgumentParser(prog="bench.motion", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure each view")
    parser.add_argument("--minutes", type=int, help="measure memory instead, for so many minutes")
    options = parser.parse_args()
    with ExitStack() as stack:
        board = Board(stack)
        fill(board, [{"key": f"post-{number:03d}", "amount": 1000} for number in range(_MEMBERS)])
        if options.minutes:
            asyncio.run(watch_memory(board, options.minutes))
            return
        for rows, slowdown in ((100, 1), (50, 4)):
            print(msgspec.json.encode(asyncio.run(measure(board, rows, slowdown, options.seconds))).decode())


if __name__ == "__main__":
    main()
