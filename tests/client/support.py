"""Helpers for tests of the client: the board as the API shows it, and a proxy that cuts connections."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from live.client import Event, Top
from live.domain.ranking import Record

_PIECE: Final = 1 << 16


class Shown(msgspec.Struct):
    """The fields that the API's page and a `Top` share."""

    epoch: str
    offset: int
    rank_count: int
    total_score: int | None
    records: tuple[Record, ...]


async def shown(url: str, limit: int = 50, board: str = "posts") -> Shown:
    """The top as the API gives it."""
    async with httpx.AsyncClient() as client:
        response = await client.get(f"{url}/v1/boards/{board}?limit={limit}")
    assert response.status_code == 200, response.text
    return msgspec.json.decode(response.content, type=Shown)


def same(top: Top, page: Shown) -> bool:
    """Whether a top is live and equal to the page of the API."""
    held = Shown(top.epoch, top.offset, top.rank_count, top.total_score, top.records)
    return held == page and top.stale is None


def sums(events: Sequence[Event]) -> dict[str, int]:
    """The scores of a board that has counted each event once."""
    totals: dict[str, int] = {}
    for event in events:
        totals[event.member] = totals.get(event.member, 0) + event.amount
    return totals


async def scores(url: str) -> dict[str, int]:
    """A whole board of up to 1,000 members."""
    return {record.key: record.score for record in (await shown(url, 1000)).records}


class Cutter:
    """A proxy before a server whose connections can be cut."""

    def __init__(self, server: str) -> None:
        self.url = ""
        self.connections = 0
        self._server = urlsplit(server)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a connection, and forward data both ways until one side closes."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._server.hostname, self._server.port)
        self.connections += 1
        self._writers |= {writer, back}
        ways = [asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._writers -= {writer, back}
            writer.transport.abort()
            back.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_PIECE):
            writer.write(data)


@asynccontextmanager
async def cutting(server: str) -> AsyncIterator[Cutter]:
    """A proxy while in the context."""
    cutter = Cutter(server)
    listening = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    cutter.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield cutter
    finally:
        listening.close()
        await cutter.end()
