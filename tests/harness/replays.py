"""A server with a journal, and viewers that keep what they receive."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from live.domain.reader import SERVER
from live.errors import JournalError
from live.fanout.engine import replays
from live.journal.log.timelines import find_timeline
from live.settings import Duration
from tests.harness.server import until_ready
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually
from tests.harness.watching import Served, served

DELAY = 3  # seconds
States = dict[int, list[tuple[str, int]]]


@asynccontextmanager
async def journaling(store: str, **changes: Any) -> AsyncIterator[Served]:
    """A server whose journal has an event of its board."""
    usual: dict[str, Any] = {"journal": "sqlite", "conflation_interval": Duration(0.05)}
    async with served(store, **(usual | changes)) as server:
        await until_ready(server.client)
        await until_drained(server, await server.post({"key": "first"}))
        yield server


async def until_drained(server: Served, offset: int) -> None:
    """Wait until SQL has the journal of the board up to an offset."""
    ledger = server.live.registry.ledgers.find("posts", SERVER)
    assert ledger is not None
    journal, state = server.live.journal, ledger.state
    assert journal is not None
    prefix = server.live.settings.key_prefix

    async def drained() -> bool:
        try:
            timeline = await journal.run(lambda sql: find_timeline(sql, prefix, "posts", state.epoch or ""))
        except JournalError:  # the server has not made the tables yet
            return False
        return timeline is not None and timeline.offset >= offset

    await eventually(drained)


async def until_past(server: Served, offset: int) -> None:
    """Wait until an offset is old enough for a replay, which leaves out what is too close to the present."""
    await until_drained(server, offset)
    await asyncio.sleep(replays._PRESENT / 1000)


class Tape:
    """A viewer that keeps everything that it receives."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.messages: list[bytes] = []
        self.received_at = 0.0  # when the last message came, in seconds since 1970

    async def until(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Receive messages until one passes a test."""
        async with asyncio.timeout(30):
            while True:
                text = await self.socket.recv(decode=False)
                self.received_at = time.time()
                message: dict[str, Any] = msgspec.json.decode(text)
                if message["type"] != "alive":
                    self.messages.append(text)
                if found(message):
                    return message

    async def until_offset(self, offset: int) -> None:
        """Receive messages up to an offset."""
        await self.until(lambda message: message.get("offset", -1) >= offset)

    @property
    def states(self) -> States:
        """The records that the viewer showed at each offset."""
        model, found = ModelViewer(), {}
        for text in self.messages:
            if b'"type":"replay"' not in text:
                model.receive(text)
                found[model.offset] = [(record.member, record.score) for record in model.records]
        return found


@asynccontextmanager
async def watching(server: Served, query: str = "", board: str = "posts") -> AsyncIterator[Tape]:
    """A viewer that does not take compressed messages."""
    url = f"{server.url.replace('http', 'ws')}/v1/boards/{board}/live{query}"
    async with connect(url, compression=None) as socket:
        yield Tape(socket)


def text_of(seconds: float) -> str:
    """A time as requests write it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


async def play(server: Served, live: Tape, count: int) -> int:
    """Post likes, and wait after each one until `live` has received it; returns the last offset."""
    offset = 0
    for number in range(count):
        offset = await server.post({"key": f"k{number % 3}", "amount": number + 1})
        await live.until_offset(offset)
    return offset


async def gone(server: Served) -> bool:
    """Whether no replay runs."""
    replays = server.live.hub._replays
    return not (replays._all or replays._delayed or replays._addresses)
