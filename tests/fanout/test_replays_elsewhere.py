"""Replays after a restart, and in another process."""

import asyncio
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect

from live.fanout import recalls, recorder
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.replays import BOARD, DELAY, play, recording, watching
from tests.harness.viewer import ModelViewer
from tests.harness.watching import Served, served

pytestmark = pytest.mark.usefixtures("short_times")


async def test_viewers_recover_after_a_restart(valkey_url: str) -> None:
    """They recover from kept messages, although the new process has seen none of them."""
    model = ModelViewer()
    names = [f"a-rather-long-name-{number}" for number in range(30)]
    async with recording(valkey_url) as server, connect(live_url(server)) as socket:
        await apply_until(model, socket, await server.post(*({"key": name} for name in names)))
        offset = await server.post({"key": "first", "amount": 4})
        await apply_until(model, socket, offset)
        place = f"epoch={model.epoch}&offset={offset}"
        same: dict[str, Any] = {
            "key_prefix": server.live.settings.key_prefix,
            "data_dir": server.live.settings.data_dir,
        }
    async with served(valkey_url, BOARD, journal="sqlite", **same) as server:
        last = await server.post({"key": names[7], "amount": 5}, {"key": "first", "amount": -4})
        url = live_url(server)
        async with connect(f"{url}?{place}") as socket, connect(f"{url}?{place}") as other:
            await apply_until(model, socket, last)
            assert (model.recovered, model.updates > 0) == (True, True)
            assert [(record.key, record.score) for record in model.records[:1]] == [(names[7], 6)]
            assert {record.score for record in model.records[1:]} == {1}
            assert msgspec.json.decode(await other.recv())["recovered"] is True
            assert len(model.records) == 31
        async with connect(f"{url}?epoch={model.epoch}&offset=1000000") as socket:
            assert msgspec.json.decode(await socket.recv())["type"] == "sync"


@pytest.mark.mutant
async def test_a_recovery_from_another_state_is_detected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant finds the kept state before the one that the viewer had."""
    monkeypatch.setattr(recorder, "_SNAPSHOT", 3600)

    def before(pieces: Any, epoch: str, offset: int) -> Any:
        frames_of = [frame for piece in pieces for frame in piece.frames]
        offsets = [int(frame.position.partition(":")[2]) for frame in frames_of if frame.position]
        earlier = max((one for one in offsets if one < offset), default=offset)
        found = page_at(pieces, epoch, earlier)
        return found and msgspec.structs.replace(found, offset=offset)

    page_at = recalls.page_at
    with must_be_caught("changes since another state"), replaced(recalls, "page_at", before):
        await test_viewers_recover_after_a_restart(valkey_url)


def live_url(server: Served) -> str:
    """The address of the board's live route."""
    return f"{server.url}/v1/boards/posts/live".replace("http", "ws", 1)


async def apply_until(model: ModelViewer, socket: ClientConnection, offset: int) -> None:
    """Apply messages up to a position."""
    async with asyncio.timeout(30):
        while model.offset < offset:
            model.receive(await socket.recv())


async def test_another_process_plays_what_one_has_recorded(valkey_url: str) -> None:
    """The bytes of the process that records."""
    async with recording(valkey_url) as server, watching(server) as live:
        own = server.live.settings
        first = await server.post({"key": "mark"})
        await live.until_offset(first)
        same: dict[str, Any] = {"key_prefix": own.key_prefix, "data_dir": own.data_dir}
        async with served(valkey_url, BOARD, journal="sqlite", **same) as second:
            async with watching(second, f"?delay={DELAY}s") as delayed:
                last = await play(server, live, 5)
                await delayed.until_offset(last)
            assert not second.live.hub.channels["posts"]._viewers, "one process records"
        received = [text for text in delayed.after(first) if b'"update"' in text]
        assert received == [text for text in live.after(first) if b'"update"' in text]
