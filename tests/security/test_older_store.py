"""A store that is older than what was acknowledged: viewers and processes notice, and a loss can be accepted."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket

from live.domain.board import Board
from live.fanout.variant import Variants
from live.settings import Settings
from live.store.connection.high_water import HighWater
from tests.harness.boards import rolling_board
from tests.harness.lost_store import EVENTS, codes, hammer, http
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.store import Copy, StoreProcess
from tests.harness.viewer import ModelViewer

pytestmark = [pytest.mark.security, pytest.mark.fault]


# A store that goes back


async def watch(url: str, position: tuple[str, int] | None = None) -> tuple[ClientConnection, ModelViewer]:
    """A viewer, which may resume from a position."""
    query = "" if position is None else f"?epoch={position[0]}&offset={position[1]}"
    socket = await connect_socket(f"{url.replace('http', 'ws')}/v1/boards/posts/live{query}")
    return socket, ModelViewer()


async def shows(socket: ClientConnection, viewer: ModelViewer, scores: dict[str, int], deadline: float = 10) -> None:
    """Receive messages until the viewer shows these scores."""
    try:
        async with asyncio.timeout(deadline):
            while {record.member: record.score for record in viewer.records} != scores:
                viewer.receive(await socket.recv())
    except TimeoutError:
        shown = {record.member: record.score for record in viewer.records}
        raise AssertionError(f"the viewer shows {shown}, the store holds {scores}") from None


@asynccontextmanager
async def gone_back(settings: Settings, store: StoreProcess, folder: Path) -> AsyncIterator[tuple[str, Any, Any]]:
    """A server whose store went back from {a: 2, b: 1} to {a: 1}, with its viewer, and the viewer's old position."""
    boards: list[Board] = [rolling_board()]
    async with run_server(settings, boards) as url, http(url) as client:
        await post(client, {"key": "a"})
        copy = Copy(store, folder)
        await post(client, {"key": "a"}, {"key": "b"})
        socket, viewer = await watch(url)
        await shows(socket, viewer, {"a": 2, "b": 1})
        before = (viewer.epoch, viewer.offset)
        copy.restore()
        yield url, (socket, viewer), before
        await socket.close()


async def test_viewers_see_the_restored_state(own_store: StoreProcess, tmp_path: Path) -> None:
    """Connected, new and returning viewers see the restored state, and no event is counted."""
    settings = fresh_settings(own_store.url)
    with capture_logs() as logs:
        async with gone_back(settings, own_store, tmp_path) as (url, (socket, viewer), before):
            await shows(socket, viewer, {"a": 1})
            for position in (None, before):
                other, newcomer = await watch(url, position)
                await shows(other, newcomer, {"a": 1})
                assert not newcomer.recovered
                await other.close()
            assert await hammer(url, {}, attempts=EVENTS) == []
            assert await codes(url, {}, EVENTS) == {(503, "epoch_lost")}
            async with http(url) as client:
                assert (await client.get("/readyz")).status_code == 503
                assert (await client.get("/v1/boards/posts")).json()["total_score"] == 1
    assert [line["reason"] for line in logs if line["event"].startswith("the data of a board was lost")]


@pytest.mark.parametrize("part", ["channel", "high_water"])
async def test_missing_checks_of_offsets_are_caught(
    own_store: StoreProcess, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above fails if one of the two checks is missing: in the channel, or in the facts about the store."""
    if part == "channel":
        monkeypatch.setattr(Variants, "forget", lambda _variants: None)
    else:
        monkeypatch.setattr(HighWater, "lose_boards", lambda _high_water, _reasons: None)
    settings = fresh_settings(own_store.url)
    async with gone_back(settings, own_store, tmp_path) as (url, (socket, viewer), _):
        if part == "channel":
            with pytest.raises(AssertionError, match="the viewer shows"):
                await shows(socket, viewer, {"a": 1}, 3)
        else:
            with pytest.raises(AssertionError, match="accepted"):
                assert await hammer(url, {}, attempts=EVENTS) == []


async def test_accepting_a_loss_begins_a_new_epoch(own_store: StoreProcess, tmp_path: Path) -> None:
    """A returning viewer receives the whole top, although the offset has been reached again."""
    settings = fresh_settings(own_store.url, workers=2, log_level="warning")
    server = ServerProcess(settings, tmp_path)
    server.start()
    try:
        async with http(server.url) as client:
            await post(client, {"key": "a"})
            copy = Copy(own_store, tmp_path)
            for _ in range(5):
                await post(client, {"key": "a"})
            before = (await client.get("/v1/boards/posts")).json()
            copy.restore()
            assert await hammer(server.url, {}, attempts=EVENTS) == []
        server.stop()
        server.start()
        assert "went back from offset" in server.log()
        assert await codes(server.url, {}, EVENTS) == {(503, "epoch_lost")}
        server.stop()
        server.recover_from_store()
        server.start()
        async with http(server.url) as client:
            for _ in range(6):
                await post(client, {"key": "b"})
            after = (await client.get("/v1/boards/posts")).json()
            assert after["offset"] >= before["offset"]
            assert after["epoch"] != before["epoch"]
            socket, viewer = await watch(server.url, (before["epoch"], before["offset"]))
            await shows(socket, viewer, {"a": 1, "b": 6})
            assert not viewer.recovered
            await socket.close()
    finally:
        server.kill()


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
async def test_processes_share_acknowledged_offsets(
    own_store: StoreProcess, tmp_path: Path, end: signal.Signals
) -> None:
    """Only the process that is frozen or killed saw the highest offset. Another process refuses to count below it."""
    settings = fresh_settings(own_store.url, log_level="warning")
    one, two = ServerProcess(settings, tmp_path), ServerProcess(settings, tmp_path)
    one.start()
    two.start()
    try:
        async with http(one.url) as client, http(two.url) as other:
            await post(client, {"key": "a"})
            await post(other, {"key": "a"})
            copy = Copy(own_store, tmp_path)
            assert (await post(client, {"key": "a"}))["accepted"] == 1
            assert one.process is not None
            one.process.send_signal(end)
            copy.restore()
            assert await hammer(two.url, {}, attempts=EVENTS) == []
    finally:
        one.kill()
        two.kill()


async def test_a_restarted_store_has_lost_nothing(own_store: StoreProcess) -> None:
    """A store that was killed and started again still has everything that was acknowledged."""
    settings = fresh_settings(own_store.url)
    async with run_server(settings, [rolling_board()]) as url, http(url) as client:
        for number in range(5):
            await post(client, {"key": "a"})
            own_store.kill()
            own_store.start()
            await until_ready(client)
            assert (await client.get("/v1/boards/posts")).json()["total_score"] == number + 1
