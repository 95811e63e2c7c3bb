"""Processes that only accept events, or only serve viewers, on one store."""

import httpx
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer

pytestmark = pytest.mark.slow


async def test_events_of_one_process_are_shown_by_another(valkey_url: str) -> None:
    """A viewer of the other process receives the events over its WebSocket."""
    settings = fresh_settings(valkey_url)
    boards = [rolling_board()]
    async with (
        run_server(replace(settings, role="ingest"), boards) as ingest,
        run_server(replace(settings, role="viewers"), boards) as viewers,
        httpx.AsyncClient(base_url=ingest) as producer,
        connect(viewers.replace("http", "ws") + "/v1/boards/posts/live") as socket,
    ):
        viewer = ModelViewer()
        viewer.receive(await socket.recv())
        await post(producer, {"key": "a"})
        while not viewer.records:
            viewer.receive(await socket.recv())

        assert viewer.records[0].member == "a"


@pytest.mark.parametrize("path", ["/", "/boards/posts", "/v1/boards"])
async def test_an_ingest_process_serves_no_viewers(valkey_url: str, path: str) -> None:
    """The process answers requests for pages and boards with 404, and suggests no such path."""
    async with (
        run_server(fresh_settings(valkey_url, role="ingest"), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get(path)).status_code == 404
        for near in ("/post", "/boards"):  # similar to paths that this process does not serve
            assert "Did you mean" not in (await client.get(near)).text, near
        assert (await client.get("/readyz")).status_code == 200
        with pytest.raises(InvalidStatus):
            await connect(url.replace("http", "ws") + "/v1/boards/posts/live")


async def test_a_viewer_process_accepts_no_events(valkey_url: str) -> None:
    """A POST of an event gets 404."""
    async with (
        run_server(fresh_settings(valkey_url, role="viewers"), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.post("/v1/events", json={"key": "a"})).status_code == 404
        assert (await client.get("/boards/posts")).status_code == 200
