"""A server with the boards of a TOML text, and checks of its answers, its pages, its sockets and the check."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx
import msgspec
from websockets.asyncio.client import connect as connect_socket

from live.domain.board_file import parse_boards
from live.domain.views import BoardPage, MemberRecords, RecordList, RecordView
from live.settings import Settings
from live.store.connection.client import connect
from live.web.pages.language import grouped
from tests.harness.checked import checked
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import DEADLINE, eventually

Rows = list[tuple[str, int]]
_ROW = re.compile(r'<tr data-member="([^"]*)"[^>]*>(.*?)</tr>', re.DOTALL)
_NUMBER = re.compile(r'class="score"[^>]*>\s*([^<\s]*)')
_RANK = re.compile(r'class="rank"[^>]*>\s*([^<\s]*)')


class Stage:
    """A running server with its boards."""

    def __init__(self, http: httpx.AsyncClient, settings: Settings) -> None:
        self.http = http
        self.settings = settings
        self.store: Any = connect(settings.store, settings)

    async def post(self, *events: dict[str, Any]) -> dict[str, Any]:
        """Post events as one array; returns the answer."""
        return await post(self.http, *events)

    async def accept(self, *events: dict[str, Any]) -> None:
        """Post events, all of which must count."""
        answer = await self.post(*events)
        assert (answer["accepted"], answer["rejected"]) == (len(events), []), answer

    async def refused(self, *events: dict[str, Any]) -> list[str]:
        """Post events; returns the codes of the refusals."""
        return [rejection["code"] for rejection in (await self.post(*events))["rejected"]]

    async def get(self, path: str, **query: Any) -> bytes:
        """Get a path, which must be answered with 200. Return the body."""
        response = await self.http.get(path, params=query)
        assert response.status_code == 200, response.text
        return response.content

    async def problem(self, path: str, **query: Any) -> tuple[int, str]:
        """The status and code of a refusal."""
        response = await self.http.get(path, params=query)
        return response.status_code, response.json()["code"]

    async def page(self, board: str, **query: Any) -> BoardPage:
        """Return one page of a board."""
        return msgspec.json.decode(await self.get(f"/v1/boards/{board}", **query), type=BoardPage)

    async def rows(self, board: str, **query: Any) -> Rows:
        """The records of one page."""
        return rows_of(await self.page(board, **query))

    async def record(self, board: str, member: str, **query: Any) -> RecordView:
        """The record of a member."""
        found = await self.get(f"/v1/boards/{board}/records/{member}", **query)
        return msgspec.json.decode(found, type=RecordView)

    async def records(self, board: str, *members: str) -> RecordList:
        """The records of several members."""
        return msgspec.json.decode(await self.get(f"/v1/boards/{board}/records", key=members), type=RecordList)

    async def member_records(self, member: str) -> MemberRecords:
        """The ranks of a member on every board."""
        return msgspec.json.decode(await self.get(f"/v1/records/{member}"), type=MemberRecords)

    async def walk(self, board: str, limit: int, **query: Any) -> list[BoardPage]:
        """Every page of a board, from the first to the last."""
        pages = [await self.page(board, limit=limit, **query)]
        while pages[-1].next_cursor:
            pages.append(await self.page(board, limit=limit, cursor=pages[-1].next_cursor))
        return pages

    async def walk_back(self, board: str, limit: int, last: BoardPage) -> list[BoardPage]:
        """Every page from the last to the first."""
        pages = [last]
        while pages[-1].prev_cursor:
            pages.append(await self.page(board, limit=limit, cursor=pages[-1].prev_cursor))
        return pages

    async def html(self, board: str) -> list[tuple[str, str, list[str]]]:
        """The member, the rank and the shown scores of each row of the HTML page."""
        text = (await self.get(f"/boards/{board}")).decode()
        found = []
        for member, cells in _ROW.findall(text):
            (rank,) = _RANK.findall(cells)
            found.append((unescape(member), rank, _NUMBER.findall(cells)))
        return found

    async def frame(self, board: str, offset: int = 0) -> ModelViewer:
        """A viewer that has received the first frames of the live route, up to an offset.

        If others watch the board, the first frame is the one that they have. It may be older than an acknowledgement.
        """
        viewer = ModelViewer()
        async with connect_socket(self._live(board, 50)) as socket, asyncio.timeout(DEADLINE):
            while viewer.offset < offset:
                viewer.receive(await socket.recv())
        return viewer

    async def shown(self, board: str) -> Rows:
        """Wait until the answer, the page and the live route agree, and return the first 50 records."""

        async def agreed() -> tuple[Rows] | None:
            page, html = await self.page(board, limit=50), await self.html(board)
            viewer = await self.frame(board)
            if not page.offset == viewer.offset == (await self.page(board, limit=50)).offset:
                return None
            assert viewer.records == list(page.records)
            content = (viewer.rank_count, viewer.total_score, viewer.period)
            assert content == (page.rank_count, page.total_score, page.period)
            assert html == [(record.member, f"{record.rank:,}", [grouped(record.score)]) for record in page.records]
            return (rows_of(page),)

        (found,) = await eventually(agreed)
        return list(found)

    @asynccontextmanager
    async def watching(self, board: str, limit: int = 50) -> AsyncIterator[ModelViewer]:
        """A viewer that applies its messages while in the context."""
        viewer = ModelViewer()
        async with connect_socket(self._live(board, limit)) as socket:
            viewer.receive(await socket.recv())

            async def watch() -> None:
                async for message in socket:
                    viewer.receive(message)

            watching = asyncio.create_task(watch())
            try:
                yield viewer
            finally:
                await socket.close()
                await watching

    def _live(self, board: str, limit: int) -> str:
        return f"{self.http.base_url}/v1/boards/{board}/live?limit={limit}".replace("http", "ws", 1)


@asynccontextmanager
async def stage(store: str, text: str, **changes: Any) -> AsyncIterator[Stage]:
    """A server with the boards of a TOML text, which are checked at the end. `changes` replace settings."""
    settings = fresh_settings(store, **{"conflation_interval": 0.01, **changes})
    parsed = parse_boards(text)
    async with run_server(settings, parsed) as url, httpx.AsyncClient(base_url=url, timeout=180) as http:
        boards = Stage(http, settings)
        try:
            yield boards
            for board in parsed:
                report = await checked(boards.store, settings, board)
                assert report.clean, report
        finally:
            await boards.store.aclose()


async def sees(viewer: ModelViewer, rows: Rows) -> None:
    """Wait until a viewer shows these records."""

    async def same() -> bool:
        return [(record.member, record.score) for record in viewer.records] == rows

    await eventually(same)


async def until(condition: Awaitable[Any], stop: asyncio.Event) -> Any:
    """Await `condition`, and then set `stop`, also after an error."""
    try:
        return await condition
    finally:
        stop.set()


def rows_of(page: BoardPage) -> Rows:
    """The members and scores of the records on a page."""
    return [(record.member, record.score) for record in page.records]


def ranking(scores: Iterable[tuple[str, int]], *, ascending: bool = False) -> Rows:
    """Records by score, then by member."""
    way = 1 if ascending else -1
    return sorted(scores, key=lambda item: (way * item[1], item[0].encode()))
