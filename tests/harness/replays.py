"""A server that keeps frames, and viewers that keep what they receive."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from live.journal.database import JournalError
from live.settings import Duration
from tests.harness.boards import rolling_board
from tests.harness.server import until_ready
from tests.harness.waiting import eventually
from tests.harness.watching import Served, served

BOARD = msgspec.structs.replace(rolling_board(), replay=3600)
DELAY = 2  # seconds


@asynccontextmanager
async def recording(store: str, **changes: Any) -> AsyncIterator[Served]:
    """A server that keeps the frames of its board, and has already kept some."""
    usual: dict[str, Any] = {"journal": "sqlite", "conflation_interval": Duration(0.05)}
    async with served(store, BOARD, **(usual | changes)) as server:
        await until_ready(server.client)
        await server.post({"key": "first"})
        await until_kept(server)
        yield server


async def until_kept(server: Served) -> None:
    """Wait until SQL has frames of the board."""
    recordings = server.live.recordings
    assert recordings is not None

    async def kept() -> bool:
        state = server.live.ledgers["posts"].state
        try:
            return await recordings.start("posts", state.epoch or "", 2**50) is not None
        except JournalError:  # its tables are not there yet
            return False

    await eventually(kept)


class Recorder:
    """A viewer that keeps everything that it receives."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.messages: list[bytes] = []

    async def until(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Receive messages until one passes a test."""
        async with asyncio.timeout(30):
            while True:
                text = await self.socket.recv(decode=False)
                message: dict[str, Any] = msgspec.json.decode(text)
                if message["type"] != "alive":
                    self.messages.append(text)
                if found(message):
                    return message

    async def until_offset(self, offset: int) -> None:
        """Receive messages up to an offset."""
        await self.until(lambda message: message.get("offset", -1) >= offset)

    def after(self, offset: int) -> list[bytes]:
        """Everything that it received after a position."""
        found = [msgspec.json.decode(text).get("offset", -1) for text in self.messages]
        return self.messages[found.index(offset) + 1 :]


@asynccontextmanager
async def watching(server: Served, query: str = "", board: str = "posts") -> AsyncIterator[Recorder]:
    """A viewer that does not take compressed messages."""
    url = f"{server.url.replace('http', 'ws')}/v1/boards/{board}/live{query}"
    async with connect(url, compression=None) as socket:
        yield Recorder(socket)


def text_of(seconds: float) -> str:
    """A time in the form of requests."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


async def play(server: Served, live: Recorder, count: int) -> int:
    """Post likes, each of which viewers receive before the next one; returns the last offset."""
    offset = 0
    for number in range(count):
        offset = await server.post({"key": f"k{number % 3}", "amount": number + 1})
        await live.until_offset(offset)
    return offset


async def gone(server: Served) -> bool:
    """Whether no replay runs."""
    replays = server.live.hub._replays
    return not (replays._all or replays._delayed or replays._addresses)
