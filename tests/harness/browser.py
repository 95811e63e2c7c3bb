"""The page in a real Chromium.

Starting Chromium takes a second of CPU time, so tests that are marked with `IN_BROWSER` share one
browser. Playwright binds a browser to an event loop, so these tests also share the loop of the session.
"""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import httpx
import pytest
from playwright.async_api import Browser, Page, async_playwright

from live.domain.board import Board
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

# The program chromium-headless-shell can't show windows. It opens a page with a quarter of chromium's CPU time.
CHROMIUM: Final = shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PATIENCE: Final = 150_000  # milliseconds
# What a page may report while the store is away: its requests can be answered with 503.
AWAY: Final = ("WebSocket", "status of 503")
IN_BROWSER: Final = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_chromium"),
]

_shared: list[Browser] = []
_Test = TypeVar("_Test", bound=Callable[..., object])


def in_browser(test: _Test) -> _Test:
    """Mark a single test with `IN_BROWSER`."""
    for mark in IN_BROWSER:
        test = mark(test)
    return test


@asynccontextmanager
async def launched(*flags: str) -> AsyncIterator[Browser]:
    """Start a headless Chromium with `FLAGS` and these flags."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
        try:
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def sharing() -> AsyncIterator[None]:
    """Start the Chromium that `browser` yields while in the context."""
    async with launched() as chromium:
        _shared.append(chromium)
        yield
        _shared.clear()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Yield the shared Chromium, and close its pages afterwards. If none is shared, start one for this context."""
    if not _shared:
        async with launched() as chromium:
            yield chromium
        return
    (chromium,) = _shared
    try:
        yield chromium
    finally:
        for context in chromium.contexts:
            await context.close()


@asynccontextmanager
async def board_in_browser(
    store: str,
    *events: dict[str, Any],
    board: Board | list[Board] | None = None,
    path: str = "",
    allowed: tuple[str, ...] = ("WebSocket",),
    **context: Any,
) -> AsyncIterator[tuple[Page, httpx.AsyncClient]]:
    """Yield the page of a board with some events, and a producer.

    Fails if the page reports an error that has none of the words in `allowed`, or sends a request to another server.
    """
    boards = board if isinstance(board, list) else [board or rolling_board()]
    settings = fresh_settings(store, write_deadline=2, store_timeout=1)
    faults: list[str] = []
    async with (
        run_server(settings, boards) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        if events:
            await post(producer, *events)
        page = await (await chromium.new_context(**context)).new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: faults.append(request.url) if url not in request.url else None)
        await page.goto(f"{url}/boards/{path or boards[0].id}")
        yield page, producer
        faults = [fault for fault in faults if not any(word in fault for word in allowed)]
        assert not faults, faults


async def rows(page: Page) -> list[tuple[str, str, str]]:
    """The rank, the member and the score in each row of the table."""
    found: list[list[str]] = await page.eval_on_selector_all(
        "#records tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return [(rank, member, score) for rank, member, score in found]


async def until_live(page: Page) -> None:
    """Wait until the page is live."""
    await page.wait_for_selector("#connection[data-state=live]", timeout=PATIENCE)


async def until_loaded(page: Page) -> None:
    """Wait until the page has loaded the scripts of its controls and like buttons. It loads them once it is live."""
    await page.wait_for_selector("#tools:not([inert])", state="attached", timeout=PATIENCE)


async def open_menu(page: Page) -> None:
    """Open the menu of a page."""
    await page.evaluate("document.querySelector('.menu').open = true")


async def until_first(page: Page, member: str) -> None:
    """Wait until a member is in the first row."""
    await page.wait_for_function(
        "key => document.querySelector('#records tr')?.dataset.member === key", arg=member, timeout=PATIENCE
    )
