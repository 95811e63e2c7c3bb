"""Pages, walls and the element in Chromium 88, which televisions of 2021 have."""

from functools import partial
from pathlib import Path

import pytest

from live.boards.definitions import read_board
from live.domain.board import Board
from tests.harness.old_chromium import IS_INSTALLED, OldPage, old_page
from tests.harness.producer import post
from tests.harness.server import server
from tests.harness.waiting import eventually

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not IS_INSTALLED, reason="the Chromium of the npm package chrome-aws-lambda is not installed"),
]
BOARDS = [read_board(f"b{number}", {"types": ["like"], "title": f"Board {number}"}) for number in range(6)]
ROWS = """[...document.querySelectorAll('tbody tr[data-member]')].map((row) => ({
  height: Math.round(row.getBoundingClientRect().height),
  cut: [...row.children].filter((cell) => {
    const place = cell.getBoundingClientRect();
    return cell.matches('td') && (cell.scrollWidth > cell.clientWidth || place.right > innerWidth || place.left < 0);
  }).map((cell) => `${cell.className} ${cell.textContent}`),
}))"""
ADDRESSES = {  # by path: the width and height of the window, the number of rows, and how many heights they have
    "/boards/b0?display=wall": (1920, 1080, 10, 1),
    "/boards/b0,b1,b2?display=wall": (1920, 1080, 30, 1),
    "/boards/b0,b1,b2,b3,b4,b5?display=wall": (1920, 1080, 30, 1),
    "/boards/b0,b1?display=wall": (1080, 1920, 20, 1),
    "/boards/b0?display=wall&rotate=60s&limit=20": (1280, 720, 12, 1),
    "/boards/b0": (1280, 800, 12, 1),
    "/boards/b0 ": (360, 740, 12, 1),
    "/embed/b0": (480, 800, 10, 1),
    "/overlay/b0": (1280, 720, 8, 1),
}


async def test_no_row_is_cut(valkey_url: str, tmp_path: Path) -> None:
    """Rows have equal heights, and numbers are whole, on every surface. They change when events come."""
    boards: list[Board] = BOARDS
    async with server(valkey_url, *boards) as client, old_page(tmp_path) as page:
        members = {f"Member number {number}, with a name": 1_234_567 - number * 1000 for number in range(12)}
        await post(client, *({"type": "like", "key": member, "amount": amount} for member, amount in members.items()))
        for path, (width, height, rows, heights) in ADDRESSES.items():
            await page.open(f"{client.base_url}{path.strip()}", width, height)
            await eventually(partial(is_live, page, path.strip()))
            # A heading can change its height as long as the page loads its font.
            await eventually(partial(has_rows, page, rows, heights))
            found = await page.value(ROWS)
            assert [row["cut"] for row in found if row["cut"]] == [], path
            before = await page.value("document.body.textContent")
            await post(client, {"type": "like", "key": "Member number 0, with a name"})
            await eventually(partial(has_changed, page, before))
        assert page.errors == []


async def has_rows(page: OldPage, rows: int, heights: int) -> bool:
    """Whether a page has so many rows, and their heights so many values."""
    sizes = [row["height"] for row in await page.value(ROWS)]
    return (len(sizes), len(set(sizes))) == (rows, heights)


async def is_live(page: OldPage, path: str) -> bool:
    """Whether the page is at a path, and every board of it is live. Before its script runs, the page says `still`."""
    if await page.value("location.pathname + location.search") != path:
        return False
    states = await page.value("[...document.querySelectorAll('.connection')].map((part) => part.dataset.state)")
    return set(states) == {"live"}


async def has_changed(page: OldPage, before: str) -> bool:
    """Whether the page has other words than before."""
    return bool(await page.value("document.body.textContent") != before)
