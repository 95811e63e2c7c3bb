"""Conflation: how often viewers receive frames, how late, and how often the store is read."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from live.domain.board import Board
from live.metrics import REGISTRY
from live.store.connection.client import connect as connect_store
from tests.harness.boards import changed, rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually, until_early

pytestmark = pytest.mark.slow


class Clocked:
    """A viewer that records when its frames arrive."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.model = ModelViewer()
        self.times: list[float] = []
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        try:
            async for message in self.socket:
                before = self.model.offset
                self.model.receive(message)
                if self.model.offset != before:
                    self.times.append(time.monotonic())
        except ConnectionClosed:
            pass


@asynccontextmanager
async def server(store: str, board: Board, **changes: Any) -> AsyncIterator[tuple[str, httpx.AsyncClient]]:
    """A server with a board."""
    async with (
        run_server(fresh_settings(store, **changes), [board]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        yield url, client


@asynccontextmanager
async def watching(url: str, *queries: str) -> AsyncIterator[list[Clocked]]:
    """A viewer for each query."""
    async with AsyncExitStack() as stack:
        address = f"{url.replace('http', 'ws')}/v1/boards/posts/live"
        yield [Clocked(await stack.enter_async_context(connect(address + query))) for query in queries]


async def reached(viewers: list[Clocked], offset: int) -> None:
    """Wait until all viewers reach an offset."""

    async def have_reached() -> bool:
        return all(viewer.model.offset >= offset for viewer in viewers)

    await eventually(have_reached)


@pytest.mark.alone
@pytest.mark.slow
async def test_a_viewer_receives_at_most_one_frame_per_interval(valkey_url: str) -> None:
    """The interval is the board's, or a longer one that the viewer asked for. The last frame has the latest top."""
    async with (
        server(valkey_url, rolling_board(), conflation_interval=0.05) as (url, client),
        watching(url, "?limit=5", "?limit=5&interval=200ms") as (quick, slow),
    ):
        started = time.monotonic()
        likes = 0
        while time.monotonic() < started + 2:
            offset = (await post(client, {"key": f"k{likes % 7}"}))["offsets"]["posts"]
            likes += 1
        await reached([quick, slow], offset)
        for viewer, interval in ((quick, 0.05), (slow, 0.2)):
            lasted = viewer.times[-1] - viewer.times[0]
            assert len(viewer.times) <= lasted / interval + 2
            assert len(viewer.times) > 5
        assert len(slow.times) < len(quick.times) / 2
        assert slow.model.records == quick.model.records


@pytest.mark.alone
@pytest.mark.slow
async def test_a_board_can_have_its_own_interval(valkey_url: str) -> None:
    """The board's interval replaces the server's, which is shorter here."""
    board = changed(rolling_board(), conflation_interval="250ms")
    async with (
        server(valkey_url, board, conflation_interval=0.01) as (url, client),
        watching(url, "") as (viewer,),
    ):
        started = time.monotonic()
        while time.monotonic() < started + 1.5:
            offset = (await post(client, {"key": "k"}))["offsets"]["posts"]
        await reached([viewer], offset)
        assert len(viewer.times) <= (viewer.times[-1] - viewer.times[0]) / 0.25 + 2


@pytest.mark.alone
@pytest.mark.slow
async def test_a_change_arrives_within_an_interval(valkey_url: str) -> None:
    """The median delay of single and frequent changes is below two intervals: one to wait, and one as time to send."""
    async with (
        server(valkey_url, rolling_board(), conflation_interval=0.1) as (url, client),
        watching(url, "") as (viewer,),
    ):
        late = []
        for number in range(12):
            offset = (await post(client, {"key": "k"}))["offsets"]["posts"]
            posted = time.monotonic()
            await reached([viewer], offset)
            late.append(time.monotonic() - posted)
            if number % 3:
                await asyncio.sleep(0.15)
        assert sorted(late)[len(late) // 2] < 0.2


async def reads(store: str) -> int:
    """The number of scripts that the store has run."""
    client = connect_store(store, fresh_settings(store))
    stats = await client.info("commandstats")
    await client.aclose()
    # Scripts that wait for replicas are sent as EVAL, and are not counted.
    calls: int = stats.get("cmdstat_evalsha", {"calls": 0})["calls"]
    return calls


async def test_concurrent_viewers_share_a_read(valkey_url: str) -> None:
    """A storm of viewers of two sizes on a quiet board needs hardly more reads than one viewer."""
    async with server(valkey_url, rolling_board()) as (url, client):
        await post(client, *({"key": f"k{number}"} for number in range(20)))
        before = await reads(valkey_url)
        async with watching(url, *(["?limit=5", "?limit=10"] * 50)) as viewers:
            await reached(viewers, 1)
            count = await reads(valkey_url) - before
        assert count <= 10


@pytest.mark.slow
async def test_a_quiet_board_is_not_read(valkey_url: str) -> None:
    """The board has viewers, but no changes."""
    await until_early("hour")  # a rotation at the end of a slot, and a new baseline each hour, would also read
    async with server(valkey_url, rolling_board(), conflation_interval=0.01) as (url, client):
        await post(client, {"key": "k"})
        async with watching(url, *[""] * 5) as viewers:
            await reached(viewers, 1)
            before, frames = await reads(valkey_url), [len(viewer.times) for viewer in viewers]
            await asyncio.sleep(1)
            # A read at each tick would run a hundred scripts. The process also runs one now and then, such as to count
            # the viewers.
            assert await reads(valkey_url) - before < 20
            assert [len(viewer.times) for viewer in viewers] == frames


async def test_sent_frames_are_counted(valkey_url: str) -> None:
    """The metrics count frames by type, bytes, changes that shared a frame, and ticks with their duration."""

    def sample(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, labels) or 0

    names = ("live_bytes_sent_total", "live_conflated_total", "live_tick_seconds_count", "live_send_lag_seconds_count")
    before = {name: sample(name) for name in names}
    updates = sample("live_frames_sent_total", type="update")
    async with (
        server(valkey_url, rolling_board(), conflation_interval=0.2) as (url, client),
        watching(url, "?limit=50") as (viewer,),
    ):
        await post(client, *({"key": f"a-rather-long-name-{number}"} for number in range(20)))
        await reached([viewer], 1)
        for _ in range(10):
            offset = (await post(client, {"key": "a-rather-long-name-1"}))["offsets"]["posts"]
        await reached([viewer], offset)
        assert sample("live_viewers", board="posts") >= 1
    for name in names:
        assert sample(name) > before[name], name
    assert sample("live_frames_sent_total", type="update") > updates


@pytest.mark.parametrize("query", ["?interval=0s", "?interval=2m", "?interval=soon", "?limit=0", "?around=-1"])
async def test_invalid_parameters_are_refused(valkey_url: str, query: str) -> None:
    """The detail names the parameter."""
    async with server(valkey_url, rolling_board()) as (_, client):
        answer = await client.get(
            f"/v1/boards/posts/live{query}",
            headers={
                "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
        )  # fmt: skip
        assert answer.status_code == httpx.codes.BAD_REQUEST
        assert answer.json()["code"] == "parameter_invalid"
        assert query[1:].split("=", maxsplit=1)[0] in answer.json()["detail"]
