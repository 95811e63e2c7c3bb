"""Each board chooses what the journal keeps of it, and may change that at any time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx

from live.domain.board import DEFAULT_BOARD
from tests.harness.server import server
from tests.harness.waiting import eventually


@asynccontextmanager
async def serving(store: str, level: str) -> AsyncIterator[httpx.AsyncClient]:
    """A server with a board whose choice `journal` is `level`."""
    async with server(store, DEFAULT_BOARD, journal="sqlite", anonymous_admin=True, open=True) as client:
        made = await client.put("/v1/boards/made", json={"types": ["run"], "ties": "key", "journal": level})
        assert (made.status_code, made.json()["journal"]) == (201, level), made.text
        yield client


async def run(client: httpx.AsyncClient, member: str) -> None:
    """Count an event."""
    assert (await client.post("/v1/events", json={"type": "run", "key": member})).json()["accepted"] == 1


async def past(client: httpx.AsyncClient, at: str = "") -> dict[str, Any]:
    """Return the board as of now, or as of another time."""
    query = {"as_of": at or now()}
    found: dict[str, Any] = (await client.get("/v1/boards/made", params=query)).json()
    return found


def now() -> str:
    """The current time."""
    return datetime.now(UTC).isoformat()


async def test_a_board_without_a_journal_has_no_past(valkey_url: str) -> None:
    """A change of its definition turns the journal on. The journal then has the scores, but no past before that."""
    async with serving(valkey_url, "off") as client:
        await run(client, "a")
        assert (await past(client))["code"] == "past_unavailable"
        await set_level(client, "events")
        await run(client, "b")
        assert (await keys_of(client)) == ["a", "b"]
        await set_level(client, "off")
        await run(client, "c")
        unknown = now()
        await set_level(client, "events")
        await run(client, "d")
        assert (await keys_of(client)) == ["a", "b", "c", "d"]
        assert (await past(client, unknown))["code"] == "past_unavailable"


async def set_level(client: httpx.AsyncClient, level: str) -> None:
    """Change what the journal keeps of the board."""
    changed = await client.patch("/v1/boards/made", json={"journal": level})
    assert changed.json()["journal"] == level


async def keys_of(client: httpx.AsyncClient) -> list[str]:
    """The current members according to the journal."""

    async def read() -> list[str] | None:
        found = await past(client)
        return [record["key"] for record in found["records"]] if "records" in found else None

    found: list[str] = await eventually(read)
    return found
