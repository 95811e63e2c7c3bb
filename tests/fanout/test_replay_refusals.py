"""Replays and delays that are refused."""

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.harness.boards import rolling_board
from tests.harness.server import server as server_of

pytestmark = pytest.mark.usefixtures("short_times")

REFUSED = [
    ("delay=5s&speed=2", "parameter_invalid"),
    ("at=noon", "parameter_invalid"),
    ("at=2026-11-22T12:00:00", "parameter_invalid"),
    ("at=2100-01-01T00:00:00Z", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z", "past_unavailable"),
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
