"""Registering contestants and hiding records over HTTP."""

from contextlib import AbstractAsyncContextManager

import httpx
import pytest

from live.domain.board_file import parse_boards
from tests.harness.server import server

BOARDS = """
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_key = 1, per_actor = 4, registered = true }
[[board]]
id = "posts"
ranks = "dense"
"""


def contest(store: str) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """A server with a contest and a plain board."""
    return server(store, *parse_boards(BOARDS), anonymous_admin=True)


async def vote(client: httpx.AsyncClient, member: str, actor: str) -> list[str]:
    """Vote; returns the codes of refusals."""
    answer = await client.post("/v1/events", json={"key": member, "type": "vote", "actor": actor})
    return [rejection["code"] for rejection in answer.json()["rejected"]]


async def test_only_registered_contestants_receive_votes(valkey_url: str) -> None:
    """Only registered contestants can receive votes."""
    async with contest(valkey_url) as client:
        assert await vote(client, "Ada", "me") == ["entrant_unknown"]
        for name in ("Ada", "Bo"):
            made = await client.put(f"/v1/boards/contest/records/{name}", json={"song": f"{name}'s"})
            assert made.status_code == 201
        assert (await client.put("/v1/boards/contest/records/Bo", json={"song": "other"})).status_code == 204
        assert await vote(client, "Ada", "me") == []
        assert await vote(client, "Ada", "me") == ["quota_exceeded"]

        page = (await client.get("/v1/boards/contest?limit=10")).json()
        assert (page["entrant_count"], page["rank_count"], page["total_score"]) == (2, 1, 1)
        assert page["records"] == [{"key": "Ada", "score": 1, "rank": 1, "metadata": {"song": "Ada's"}}]
        unvoted = (await client.get("/v1/boards/contest/records/Bo")).json()
        assert (unvoted["score"], unvoted["rank"], unvoted["gap"]) == (0, None, 1)
        assert unvoted["metadata"] == {"song": "other"}


async def test_a_contestant_with_votes_can_not_be_removed(valkey_url: str) -> None:
    """A contestant without votes can be removed, and then receives no more votes."""
    async with contest(valkey_url) as client:
        for name in ("Ada", "Bo"):
            await client.put(f"/v1/boards/contest/records/{name}", json={})
        await vote(client, "Ada", "me")

        refused = await client.delete("/v1/boards/contest/records/Ada")
        assert (refused.status_code, refused.json()["code"]) == (409, "record_voted")
        assert (await client.delete("/v1/boards/contest/records/Bo")).status_code == 204
        assert (await client.delete("/v1/boards/contest/records/Bo")).json()["code"] == "record_not_found"
        assert await vote(client, "Bo", "you") == ["entrant_unknown"]


async def test_a_hidden_record_is_counted_and_not_shown(valkey_url: str) -> None:
    """While a record is hidden, the records below it move up.

    When it is shown again, it has all events that it received.
    """
    async with contest(valkey_url) as client:
        await client.post("/v1/events", json=[{"key": "a", "amount": 3}, {"key": "b", "amount": 2}])
        assert (await client.patch("/v1/boards/posts/records/a", json={"hidden": True})).status_code == 204
        await client.post("/v1/events", json=[{"key": "a", "amount": 3}])

        page = (await client.get("/v1/boards/posts")).json()
        assert [record["key"] for record in page["records"]] == ["b"]
        assert (page["rank_count"], page["total_score"]) == (1, 2)
        assert (await client.get("/v1/boards/posts/records/a")).status_code == 404
        await client.patch("/v1/boards/posts/records/a", json={"hidden": False})
        page = (await client.get("/v1/boards/posts")).json()
        assert [(record["key"], record["score"]) for record in page["records"]] == [("a", 6), ("b", 2)]


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "code"),
    [
        ("PUT", "/v1/boards/posts/records/a", b"{}", 409, "board_open_to_all"),
        ("DELETE", "/v1/boards/posts/records/a", b"", 409, "board_open_to_all"),
        ("PUT", "/v1/boards/none/records/a", b"{}", 404, "board_not_found"),
        ("PUT", "/v1/boards/contest/records/a", b"[]", 422, "record_invalid"),
        ("PUT", "/v1/boards/contest/records/a", b'{"a":', 422, "record_invalid"),
        ("PUT", "/v1/boards/contest/records/a", b'{"a":"' + b"x" * 5000 + b'"}', 422, "record_invalid"),
        ("PUT", "/v1/boards/contest/records/%00", b"{}", 422, "record_invalid"),
        ("PATCH", "/v1/boards/posts/records/a", b'{"hidden":1}', 422, "record_invalid"),
        ("PATCH", "/v1/boards/posts/records/a", b'{"shown":true}', 422, "record_invalid"),
    ],
)
async def test_invalid_requests_are_refused(
    valkey_url: str, *, method: str, path: str, content: bytes, status: int, code: str
) -> None:
    """The answer has the status and the code of the mistake."""
    async with contest(valkey_url) as client:
        answer = await client.request(method, path, content=content)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
