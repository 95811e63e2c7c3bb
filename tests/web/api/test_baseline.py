"""`/baseline`: the ranks and scores at the start of the hour, against which the page measures movement."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from live.domain.window import Periods
from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.boards import built
from tests.harness.producer import post
from tests.harness.server import server, serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow


async def baseline_of(client: httpx.AsyncClient) -> dict[str, Any]:
    """Wait until the server has kept a baseline; returns the baseline."""

    async def kept() -> dict[str, Any] | None:
        response = await client.get("/v1/boards/posts/baseline")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found if found["since"] else None

    found: dict[str, Any] = await eventually(kept)
    return found


async def test_a_baseline_has_the_ranks_the_scores_and_the_time(valkey_url: str) -> None:
    """A server that finds records and no baseline keeps their ranks and scores."""
    settings = fresh_settings(valkey_url)
    async with serving(settings) as client:
        await post(client, {"key": "a", "amount": 2}, {"key": "b/c", "amount": 3})
        page = (await client.get("/v1/boards/posts")).json()
        assert (await baseline_of(client))["board"] == "posts"
    store = connect(valkey_url, settings)
    await store.call("x", "DEL", Keys(settings.key_prefix, "posts").baseline)
    await store.aclose()
    async with serving(settings) as client:
        found = await baseline_of(client)
        assert (found["epoch"], found["period"], found["ranks"]) == (page["epoch"], None, {"b/c": 1, "a": 2})
        assert found["scores"] == {"b/c": 3, "a": 2}
        ago = datetime.now(UTC) - datetime.fromisoformat(found["since"])
        assert abs(ago.total_seconds()) < 100


async def test_the_period_is_named(valkey_url: str) -> None:
    """The baseline names its period, because a page must not compare ranks of two periods."""
    board = built(id="posts", title="p", window=Periods(unit="year"), source=frozenset({"like"}))
    async with server(valkey_url, board) as client:
        await post(client, {"key": "a"})
        assert (await baseline_of(client))["period"] == (await client.get("/v1/boards/posts")).json()["period"]


async def test_bad_requests_are_refused(valkey_url: str) -> None:
    """The board or the parameter does not exist."""
    async with server(valkey_url) as client:
        assert (await client.get("/v1/boards/none/baseline")).json()["code"] == "board_not_found"
        assert (await client.get("/v1/boards/posts/baseline?limit=3")).json()["code"] == "parameter_invalid"
