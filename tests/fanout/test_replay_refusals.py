"""Which replays and delays are refused, and on which boards."""

import time

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.domain.board import Journaling
from live.fanout.engine import replays
from tests.harness.boards import rolling_board
from tests.harness.replays import gone, journaling, text_of, watching
from tests.harness.server import server as server_of
from tests.harness.waiting import eventually

pytestmark = pytest.mark.usefixtures("short_times")

REFUSED = [
    ("delay=0s", "parameter_invalid"),
    ("delay=1.5s", "parameter_invalid"),
    ("delay=61m", "parameter_invalid"),
    ("delay=soon", "parameter_invalid"),
    ("at=noon", "parameter_invalid"),
    ("at=2026-11-22T12:00:00", "parameter_invalid"),
    ("at=2100-01-01T00:00:00Z", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z", "past_unavailable"),
    ("at=2001-01-01T00:00:00Z&speed=0", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z&speed=101", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z&speed=nan", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z&delay=5s", "parameter_invalid"),
    ("speed=2", "parameter_invalid"),
    ("delay=5s&speed=2", "parameter_invalid"),
    ("delay=5s&limit=10", "parameter_invalid"),
    ("delay=5s&interval=1s", "parameter_invalid"),
    ("delay=5s&key=a", "parameter_invalid"),
]


async def test_an_invalid_replay_is_refused(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The WebSocket and the event stream both give the reason."""
    monkeypatch.undo()
    async with server_of(valkey_url, rolling_board(), journal="sqlite") as client:
        for query, code in REFUSED:
            answer = await client.get(f"/v1/boards/posts/stream?{query}")
            assert answer.json()["code"] == code, answer.text
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"{client.base_url}/v1/boards/posts/live?{query}".replace("http", "ws"))
            assert msgspec.json.decode(refused.value.response.body or b"")["code"] == code


async def test_a_board_without_a_journal_refuses_replays(valkey_url: str) -> None:
    """The whole server has no journal, or only this board has none."""
    without = msgspec.structs.replace(rolling_board(), journal=Journaling(level="off"))
    for board, journal in ((rolling_board(), "off"), (without, "sqlite")):
        async with server_of(valkey_url, board, journal=journal) as client:
            answer = await client.get("/v1/boards/posts/stream?delay=5s")
            assert answer.json()["code"] == "past_unavailable"


async def test_replays_are_limited(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a limit in total and for each address. Viewers that share a running delay do not count."""
    monkeypatch.setattr(replays, "_PRESENT", -(10**9))  # no replay reaches the present, so each keeps its place
    async with journaling(valkey_url, max_replays=2, max_address_replays=2) as server:
        now = f"at={text_of(time.time())}&speed=0.1"
        async with watching(server, f"?{now}"), watching(server, "?delay=30s"), watching(server, "?delay=30s"):
            with pytest.raises(InvalidStatus):
                await connect(f"{server.url.replace('http', 'ws')}/v1/boards/posts/live?delay=31s")
            answer = await server.client.get(f"/v1/boards/posts/stream?{now}")
            assert answer.json()["code"] == "too_many_viewers"
        await eventually(lambda: gone(server))
        async with watching(server, "?delay=31s"):
            assert len(server.live.hub._replays._all) == 1
