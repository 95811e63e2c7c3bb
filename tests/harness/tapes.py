"""Viewers that keep what they receive."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from tests.harness.waiting import DEADLINE
from tests.harness.watching import Served


class Tape:
    """A viewer that keeps all messages except `alive`, and when each of them came."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.messages: list[bytes] = []
        self.times: list[float] = []

    async def until(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Receive messages until one passes a test."""
        async with asyncio.timeout(DEADLINE):
            while True:
                text = await self.socket.recv(decode=False)
                message: dict[str, Any] = msgspec.json.decode(text)
                if message["type"] != "alive":
                    self.messages.append(text)
                    self.times.append(time.monotonic())
                if found(message):
                    return message

    async def until_offset(self, offset: int) -> None:
        """Receive messages up to an offset."""
        await self.until(lambda message: message.get("offset", -1) >= offset)


@asynccontextmanager
async def taping(server: Served, query: str = "", board: str = "posts") -> AsyncIterator[Tape]:
    """A viewer that does not take compressed messages."""
    url = f"{server.url.replace('http', 'ws')}/v1/boards/{board}/live{query}"
    async with connect(url, compression=None) as socket:
        yield Tape(socket)
