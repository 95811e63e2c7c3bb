"""Viewers of a quiet board receive `alive` messages."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect

from live.fanout import channel, cohort, hub
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE

pytestmark = pytest.mark.slow


async def until(viewer: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of a type."""
    async with asyncio.timeout(DEADLINE):
        while True:
            message: dict[str, Any] = msgspec.json.decode(await viewer.recv())
            if message["type"] == kind:
                return message


async def test_quiet_viewers_receive_alive_messages(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One viewer is plain, one asks for the rank of a member, and one asks for at most one update a minute."""
    for module in (channel, cohort):
        monkeypatch.setattr(module, "SILENCE", 0.3)
    monkeypatch.setattr(hub, "_KEEP_ALIVE_INTERVAL", 0.05)
    settings = fresh_settings(valkey_url, conflation_interval=0.01)
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        AsyncExitStack() as stack,
    ):
        socket = f"{url.replace('http', 'ws')}/v1/boards/posts/live"
        plain, keyed, slow = [
            # The queue has no limit: a full queue of unread messages would delay the end of the connection.
            await stack.enter_async_context(connect(socket + query, max_queue=None))
            for query in ("", "?key=a", "?interval=60s")
        ]
        for viewer in (plain, keyed, slow):
            await until(viewer, "sync")
            for _ in range(2):
                assert (await until(viewer, "alive")).keys() == {"type", "time"}
        for _ in range(10):
            await post(producer, {"key": "a"})
            await asyncio.sleep(0.1)
        await until(slow, "alive")


async def test_busy_viewers_receive_no_alive_messages(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates show that the connection is alive. The silence starts with the last update."""
    for module in (channel, cohort):
        monkeypatch.setattr(module, "SILENCE", 1.0)
    monkeypatch.setattr(hub, "_KEEP_ALIVE_INTERVAL", 0.05)
    settings = fresh_settings(valkey_url, conflation_interval=0.01)
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        connect(f"{url.replace('http', 'ws')}/v1/boards/posts/live") as viewer,
    ):
        await until(viewer, "sync")
        kinds: list[str] = []
        last = 0.0
        for _ in range(15):
            await post(producer, {"key": "a"})
            kinds.append("")
            while kinds[-1] not in ("update", "alive"):
                kinds.append(msgspec.json.decode(await viewer.recv())["type"])
            last = time.monotonic()
            await asyncio.sleep(0.1)
        assert "alive" not in kinds
        await until(viewer, "alive")
        assert 0.9 <= time.monotonic() - last < 5
