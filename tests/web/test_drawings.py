"""Clients take turns with drawings: pages, tables, pictures and metrics. A drawing is shared for a second."""

import asyncio
import time
from http import HTTPStatus
from typing import Any, Final

import pytest

from live.domain.board import Board
from live.http.reply import Reply
from live.web import responses
from live.web.pages import board as pages
from live.web.responses import Drawings
from tests.harness.boards import rolling_board
from tests.harness.mutation import replaced
from tests.harness.producer import post
from tests.harness.server import server
from tests.harness.waiting import DEADLINE

SHARED: Final = ("/", "/metrics", "/boards/posts/qr.svg", "/boards/posts/records.csv")


@pytest.mark.parametrize("path", SHARED)
async def test_a_reply_is_drawn_once_a_second(valkey_url: str, path: str) -> None:
    """The replies are the list of boards, the metrics, a QR code and a table."""
    async with server(valkey_url, rolling_board()) as client:
        await post(client, {"key": "a"})
        drawn, keep = 0, Drawings._keep

        def count(self: Drawings, *drawing: Any) -> None:
            nonlocal drawn
            drawn += 1
            keep(self, *drawing)

        with replaced(Drawings, "_keep", count):
            began = time.monotonic()
            answers = [await client.get(path) for _ in range(10)]
            answers += await asyncio.gather(*(client.get(path) for _ in range(20)))
            seconds = time.monotonic() - began
        assert {answer.status_code for answer in answers} == {200}
        assert drawn <= 1 + seconds, f"{drawn} drawings for {len(answers)} requests in {seconds:.1f} s"


async def test_metrics_wait_for_no_page(valkey_url: str) -> None:
    """An operator gets the metrics although the page of somebody else is not drawn yet."""
    drawing, done = asyncio.Event(), asyncio.Event()

    async def slow(*_: object, **__: object) -> Reply:
        drawing.set()
        await done.wait()
        return Reply(HTTPStatus.OK, b"text/html", b"")

    async with server(valkey_url, rolling_board()) as client:
        with replaced(pages, "_index", slow):
            page = asyncio.create_task(client.get("/"))
            await asyncio.wait_for(drawing.wait(), DEADLINE)
            asked = asyncio.create_task(client.get("/metrics"))
            finished, _ = await asyncio.wait([asked], timeout=DEADLINE)
            done.set()
            assert (await page).status_code == (await asked).status_code == 200
            assert finished, "the metrics wait for a page"


async def test_kept_drawings_have_a_limit_of_memory(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest replies are dropped. All kept replies count as memory."""
    monkeypatch.setattr(responses, "_MOST_MEMORY", 30_000)
    boards: list[Board] = [rolling_board(board=f"b{number}") for number in range(20)]
    kept: list[Drawings] = []
    keep = Drawings._keep

    def note(self: Drawings, *drawing: Any) -> None:
        keep(self, *drawing)
        kept.append(self)

    with replaced(Drawings, "_keep", note):
        async with server(valkey_url, *boards) as client:
            for board in boards:
                assert (await client.get(f"/boards/{board.id}/qr.svg")).status_code == 200
                size = sum(one.size for one in kept[0]._kept.values())
                assert kept[0]._size == size <= 30_000
    assert len(kept) == len(boards)


async def test_errors_and_changed_boards_are_not_kept(valkey_url: str) -> None:
    """A new board is on the list at once."""
    async with server(valkey_url, rolling_board(), anonymous_admin=True, open=True) as client:
        assert "another" not in (await client.get("/")).text
        assert (await client.put("/v1/boards/another", json={"types": ["x"]})).status_code == 201
        assert "another" in (await client.get("/")).text
        assert (await client.get("/boards/another/records.csv?period=x")).status_code == 400
