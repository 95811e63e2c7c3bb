"""`python -m bench.paint`: how soon the page of a board is painted and live, with a round trip of 150 ms."""

import argparse
import asyncio
import shutil
import statistics
from contextlib import ExitStack
from typing import Final

import msgspec
from playwright.async_api import BrowserContext, async_playwright

from bench.board import Board
from bench.watched import fill

_MEMBERS: Final = 100
_ROUND_TRIP: Final = 150  # milliseconds
_FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

# Records when the page says that it is live, and every shift of its layout.
_PROBE: Final = """
    window.probe = { live: null, shift: 0 };
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) probe.shift += entry.value;
    }).observe({ type: "layout-shift", buffered: true });
    const look = () => {
        if (document.querySelector("#connection[data-state=live]")) probe.live = performance.now();
        else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
"""
_READ: Final = """() => ({
    painted: performance.getEntriesByName("first-contentful-paint")[0].startTime, live: probe.live, shift: probe.shift,
    requests: performance.getEntriesByType("resource").length + 1,
})"""


class Paint(msgspec.Struct, frozen=True):
    """What was measured: milliseconds until the first paint and until the page is live, layout shift, and requests."""

    painted: float
    live: float
    shift: float
    requests: int


async def load(context: BrowserContext, address: str) -> Paint:
    """Open the page with an empty cache."""
    page = await context.new_page()
    tools = await context.new_cdp_session(page)
    await tools.send("Network.enable")
    await tools.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": _ROUND_TRIP, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    await page.add_init_script(_PROBE)
    await page.goto(f"http://{address}/boards/posts")
    await page.wait_for_selector("#connection[data-state=live]")
    await asyncio.sleep(2)  # time for what loads after the page is live
    found = await page.evaluate(_READ)
    await page.close()
    return Paint(round(found["painted"]), round(found["live"]), round(found["shift"], 4), found["requests"])


async def measure(address: str, rounds: int) -> list[Paint]:
    """Open the page several times, each in a fresh browser context."""
    found = []
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        for _ in range(rounds):
            context = await chromium.new_context(viewport={"width": 1280, "height": 900})
            found.append(await load(context, address))
            await context.close()
        await chromium.close()
    return found


def main() -> None:
    """Measure, and print the medians as one line of JSON."""
    parser = argparse.ArgumentParser(prog="bench.paint", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often to open the page")
    rounds = parser.parse_args().rounds
    with ExitStack() as stack:
        board = Board(stack)
        fill(board, [{"key": f"post-{number:03d}", "amount": 1000 + number} for number in range(_MEMBERS)])
        found = asyncio.run(measure(board.server.address, rounds))
    names = Paint.__struct_fields__
    print(
        msgspec.json.encode({name: statistics.median(getattr(one, name) for one in found) for name in names}).decode()
    )


if __name__ == "__main__":
    main()
