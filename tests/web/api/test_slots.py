"""`/slots`: the scores of members over the window, as sparklines and charts need them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest

from live.domain.board import Board
from live.domain.window import Forever, Periods
from tests.harness.boards import built, rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

TIMES = ("2026-11-20T10:30:00Z", "2026-11-20T11:00:00Z", "2026-11-20T12:59:59Z")


@asynccontextmanager
async def server(store: str, board: Board) -> AsyncIterator[httpx.AsyncClient]:
    """A server with one board."""
    async with run_server(fresh_settings(store), [board]) as url, httpx.AsyncClient(base_url=url) as client:
        yield client


async def get(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    """The JSON of a response."""
    response = await client.get(f"/v1/boards/posts/{path}", params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def test_scores_are_read_by_slot(valkey_url: str) -> None:
    """There is one entry for each slot and member, in the order of the request."""
    async with server(valkey_url, rolling_board("3h", "1h", clock="event")) as client:
        await post(client, *({"key": "a", "time": time} for time in TIMES), {"key": "b/slots", "time": TIMES[1]})
        found = await get(client, "slots", key=["b/slots", "a", "none"])
        assert [slot["start"] for slot in found["slots"]] == [
            f"2026-11-20T{hour:02}:00:00Z" for hour in (9, 10, 11, 12)
        ]
        assert datetime.fromisoformat(found["slots"][-1]["end"]).hour == 13
        assert found["records"] == [
            {"key": "b/slots", "scores": [0, 0, 1, 0]},
            {"key": "a", "scores": [0, 1, 1, 1]},
            {"key": "none", "scores": [0, 0, 0, 0]},
        ]
        page = (await client.get("/v1/boards/posts")).json()
        assert (found["board"], found["epoch"], found["offset"]) == ("posts", page["epoch"], page["offset"])
        folded = await get(client, "slots", key=["a"], limit=2)
        assert [slot["start"] for slot in folded["slots"]] == [found["slots"][0]["start"], found["slots"][-1]["start"]]
        assert folded["records"] == [{"key": "a", "scores": [2, 1]}]


async def test_the_slots_of_one_member_are_read(valkey_url: str) -> None:
    """The name of a member may end like the path of slots, such as `a/slots`. It is then percent-encoded."""
    async with server(valkey_url, rolling_board("3h", "1h", clock="event")) as client:
        await post(client, {"key": "a/slots", "time": TIMES[0]}, {"key": "a", "time": TIMES[0], "amount": 5})
        assert (await get(client, "records/a/slots", limit=1))["records"] == [{"key": "a", "scores": [5]}]
        assert (await get(client, "records/a%2Fslots"))["score"] == 1
        assert (await get(client, "records/a%2Fslots/slots", limit=1))["records"][0]["scores"] == [1]
        assert (await client.get("/v1/boards/posts/records/none/slots")).json()["code"] == "record_not_found"
        assert (await client.get("/v1/boards/none/records/a/slots")).json()["code"] == "board_not_found"


async def test_without_members_the_top_of_the_board_is_returned(valkey_url: str) -> None:
    """The answer has the first 100 members. The sparklines of a page use it."""
    async with server(valkey_url, rolling_board()) as client:
        await post(client, *({"key": f"p{number:03}", "amount": 200 - number} for number in range(150)))
        found = await get(client, "slots")
        assert [record["key"] for record in found["records"]] == [f"p{number:03}" for number in range(100)]
        assert len(found["slots"]) == len(found["records"][0]["scores"]) == 25


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=25", "key=a&limit=x", "key=a&" * 101, "key=a&" * 7, "other=1"],
)
async def test_requests_that_ask_for_too_much_are_refused(valkey_url: str, query: str) -> None:
    """A request for too many slots or members, or with another parameter, gets 400."""
    async with server(valkey_url, rolling_board("24h", "1m")) as client:
        response = await client.get(f"/v1/boards/posts/slots?{query}")
        assert (response.status_code, response.json()["code"]) == (400, "parameter_invalid")


async def test_the_newest_slot_of_many_members_is_read(valkey_url: str) -> None:
    """With `limit=1`, the other slots of the window are not read, so more members fit into a request."""
    async with server(valkey_url, rolling_board("24h", "1m")) as client:
        members = [f"m{number}" for number in range(100)]
        found = await get(client, "slots", key=members, limit=1)
        assert [record["key"] for record in found["records"]] == members


async def test_boards_that_do_not_add_amounts_have_no_value_for_slots_without_events(valkey_url: str) -> None:
    """A slot without events has null, because zero would be a score."""
    window = Periods(unit="hour", keep=2)
    board = built(id="posts", title="p", window=window, operator="best", clock="event", source=frozenset({"like"}))
    async with server(valkey_url, board) as client:
        await post(client, {"key": "a", "amount": 7, "time": TIMES[0]}, {"key": "a", "amount": 9, "time": TIMES[2]})
        assert (await get(client, "records/a/slots"))["records"] == [{"key": "a", "scores": [7, None, 9]}]


@pytest.mark.slow
async def test_a_window_without_slots_is_one_slot_without_times(valkey_url: str) -> None:
    """A board of all time has one value for each member, as in one slot without a start and an end."""
    board = built(id="posts", title="p", window=Forever(), source=frozenset({"like"}))
    async with server(valkey_url, board) as client:
        await post(client, {"key": "a", "amount": 7})
        found = await get(client, "records/a/slots")
        assert (found["slots"], found["records"][0]["scores"]) == ([{"start": None, "end": None}], [7])
