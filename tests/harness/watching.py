"""A server whose parts a test can reach, and viewers' sockets that it reads frame by frame."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import httpx
from websockets.frames import Opcode

from live.domain.board import Board
from live.web import app
from live.web.parts import Live, make_parts
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.raw_socket import HANDSHAKE, RawSocket
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import DEADLINE, eventually
from tests.harness.wire import connected, request

WATCH: Final = "/v1/boards/posts/live"
LONG: Final = 1000  # characters of a member, so that a hundred records do not fit into the buffers of a socket


class Served(NamedTuple):
    """A server in this process: its address, a client, and its parts."""

    url: str
    client: httpx.AsyncClient
    live: Live

    async def post(self, *events: dict[str, Any]) -> int:
        """Post events; returns the offset of the board afterwards."""
        offset: int = (await post(self.client, *events))["offsets"]["posts"]
        return offset

    async def fill(self) -> int:
        """Post events of a hundred members with long names, so that a sync of all of them is larger than 100 KB."""
        return await self.post(*({"key": long(number), "amount": number + 1} for number in range(100)))

    @property
    def watching(self) -> int:
        """The number of viewers in the hub."""
        hub = self.live.hub
        assert hub.viewers == sum(channel.viewers for channel in hub.channels.values())
        assert hub._by_pattern.total() == hub.viewers
        return hub.viewers


def long(number: int) -> str:
    """A long name of a member."""
    return f"{number}-".ljust(LONG, "x")


@asynccontextmanager
async def served(
    store: str, board: Board | None = None, *, certificate: Path | None = None, **changes: Any
) -> AsyncIterator[Served]:
    """A server with one board, which sends changes within about 10 ms."""
    made: list[Live] = []

    def keep(*arguments: Any) -> Live:
        made.append(make_parts(*arguments))
        return made[-1]

    settings = fresh_settings(store, **{"conflation_interval": 0.01, **changes})
    with patch.object(app, "make_parts", keep):
        async with (
            run_server(settings, [board or rolling_board()], certificate=certificate) as url,
            httpx.AsyncClient(base_url=url, verify=False, timeout=180) as client,  # noqa: S501 - it is our own
        ):
            yield Served(url, client, made[0])


@asynccontextmanager
async def watch(url: str, query: str = "", window: int | None = None) -> AsyncIterator[RawSocket]:
    """A viewer's socket after its handshake."""
    async with connected(url, window=window) as wire:
        await wire.send(request("GET", WATCH + query, *HANDSHAKE))
        head = await wire.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield RawSocket(wire)


async def follow(socket: RawSocket, model: ModelViewer, offset: int) -> None:
    """Apply messages until the viewer reaches an offset."""
    async with asyncio.timeout(60):
        while model.offset < offset:
            await apply_next(socket, model)


async def apply_next(socket: RawSocket, model: ModelViewer) -> None:
    """Apply the next message, skipping pings."""
    while (received := await socket.receive())[0] is not Opcode.TEXT:
        assert received[0] is Opcode.PING, received
    model.receive(received[1])


async def until(condition: Callable[[], bool], deadline: float = DEADLINE) -> None:
    """Wait until a condition about the server's parts holds."""

    async def ask() -> bool:
        return condition()

    await eventually(ask, deadline)
