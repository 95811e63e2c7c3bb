"""Correcting scores over HTTP, on boards of every kind."""

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx

from live.domain.board_file import parse_boards
from live.errors import REFUSALS
from tests.harness.server import server
from tests.harness.waiting import eventually, until_early

# Boards of every operator and window. All of them count likes.
OF_LIKES = """
[[board]]
id = "posts"
types = ["like"]
[[board]]
id = "seconds"
types = ["like"]
window = { sliding = "1h" }
ranks = "dense"
[[board]]
id = "days"
types = ["like"]
window = { calendar = "day", timezone = "UTC" }
[[board]]
id = "best"
types = ["like"]
window = "forever"
operator = "best"
cap = 2
[[board]]
id = "last"
types = ["like"]
window = "forever"
operator = "set"
"""
BOARDS = (
    OF_LIKES
    + """[[board]]
id = "photos"
types = ["photo"]
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_key = 1, registered = true, closes = 2020-01-01T00:00:00Z }
[[board]]
id = "all"
union = ["posts", "photos"]
weights = [3, 1]
"""
)
KINDS = ("posts", "seconds", "days", "best", "last")
WHY = "counted twice"


async def correct(client: httpx.AsyncClient, board: str, member: str, **change: Any) -> httpx.Response:
    """Correct a score, with a reason."""
    return await client.patch(f"/v1/boards/{board}/records/{member}", json={"reason": WHY, **change})


async def score(client: httpx.AsyncClient, board: str, member: str, **query: str) -> int:
    """The score of a member."""
    answer = await client.get(f"/v1/boards/{board}/records/{member}", params=query)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["score"])


async def test_boards_of_every_kind_can_be_corrected(valkey_url: str) -> None:
    """A correction adds to a score or sets it, exactly once.

    The journal explains the score, and the past stays as it was.
    """
    await until_early("day")
    async with server(valkey_url, *parse_boards(BOARDS), anonymous_admin=True, journal="sqlite") as client:
        await client.post("/v1/events", json=[{"key": "a", "amount": 9}, {"key": "b", "amount": 2}])
        await asyncio.sleep(0.005)
        before = datetime.now(UTC).isoformat()
        await asyncio.sleep(0.005)
        for board in KINDS:
            assert (await correct(client, board, "a", add=-4)).json() == {"before": 9, "score": 5}
            assert (await correct(client, board, "a", score=7)).json() == {"before": 5, "score": 7}
            assert (await correct(client, board, "a", score=7)).json() == {"before": 7, "score": 7}
            both = await asyncio.gather(*(correct(client, board, "b", add=amount) for amount in (1, 10)))
            assert sorted(answer.json()["score"] for answer in both) in ([3, 13], [12, 13]), board
            await client.patch(f"/v1/boards/{board}/records/b", json={"hidden": True})
            assert (await correct(client, board, "b", score=20)).json() == {"before": 13, "score": 20}
            await client.patch(f"/v1/boards/{board}/records/b", json={"hidden": False})
            assert await score(client, board, "b") == 20

            async def is_explained(board: str, expected: list[Any]) -> bool:
                answer = await client.get(f"/v1/boards/{board}/records/a/explanation")
                return expected == [(one["amount"], one.get("reason")) for one in answer.json()["changes"]]

            changes = [(7, WHY), (5, WHY)] if board in {"best", "last"} else [(2, WHY), (-4, WHY)]
            await eventually(partial(is_explained, board, [*changes, (9, None)]))
            assert await score(client, board, "a", as_of=before) == 9
        assert (await score(client, "all", "a"), await score(client, "all", "b")) == (21, 60)

        refusals: list[tuple[str, dict[str, Any], str]] = [
            ("all", {"add": 1}, "the board is a union; correct the boards that it adds up: posts, photos"),
            ("contest", {"add": 1}, REFUSALS["entrant_unknown"]),
            ("posts", {"add": 1, "time": "2001-01-01T00:00:00Z"}, REFUSALS["late"]),
            ("posts", {"add": 1, "time": "2999-01-01T00:00:00Z"}, REFUSALS["early"]),
            ("posts", {"score": 2**53 - 1}, REFUSALS["score_out_of_range"]),
        ]
        for board, change, why in refusals:
            refused = await correct(client, board, "a", **change)
            assert (refused.status_code, refused.json()["code"]) == (409, "correction_refused"), refused.text
            assert refused.json()["detail"] == why
        await client.put("/v1/boards/contest/records/a", json={})
        assert (await correct(client, "contest", "a", add=3)).json() == {"before": None, "score": 3}

        for body in (
            {"add": 1}, {"reason": "x"}, {"add": 0, "reason": "x"}, {"add": 1, "score": 1, "reason": "x"},
            {"add": 1, "hidden": True, "reason": "x"}, {"score": True, "reason": "x"},
            {"score": 2**53 + 1, "reason": "x"},
            {"score": 1.5, "reason": "x"}, {"hidden": True, "time": "2020-01-01T00:00:00Z"},
            {"add": 1, "reason": "\u202e"}, {"add": 1, "reason": ""}, {"add": 1, "reason": "x" * 501},
            {"add": 1, "reason": "x", "time": "2020-01-01"},
        ):  # fmt: skip
            refused = await client.patch("/v1/boards/posts/records/a", json=body)
            assert (refused.status_code, refused.json()["code"]) == (422, "record_invalid"), body


async def test_a_correction_keeps_the_metadata(valkey_url: str) -> None:
    """The record keeps the metadata of the event whose amount was replaced, until an event replaces the correction."""
    async with server(valkey_url, *parse_boards(BOARDS), anonymous_admin=True) as client:
        for number, amount, corrected in ((1, 9, 5), (2, 7, 6)):
            await client.post("/v1/events", json={"key": "a", "amount": amount, "metadata": {"run": number}})
            assert (await correct(client, "best", "a", score=corrected)).json() == {
                "before": amount,
                "score": corrected,
            }
            record = (await client.get("/v1/boards/best/records/a")).json()
            assert (record["score"], record["metadata"]) == (corrected, {"run": number})


async def test_a_field_that_is_named_twice_is_refused(valkey_url: str) -> None:
    """Nobody knows which of the two values was meant. This holds for every change by an administrator."""
    async with server(valkey_url, *parse_boards(BOARDS), anonymous_admin=True) as client:
        await client.post("/v1/events", json={"key": "a", "amount": 5})
        for method, path, body in (
            ("PATCH", "/v1/boards/posts/records/a", '{"add": -5, "reason": "x", "add": 100}'),
            ("PATCH", "/v1/boards/posts/records/a", '{"add": -5, "reason": "x", "\\u0061dd": 100}'),
            ("PATCH", "/v1/boards/posts/records/a", '{"hidden": false, "hidden": true}'),
            ("PUT", "/v1/boards/contest/records/a", '{"song": "x", "song": "y"}'),
            ("PUT", "/v1/boards/fresh", '{"window": {"rolling": "1h", "rolling": "2h"}}'),
            ("PATCH", "/v1/boards/posts", '{"title": "x", "title": "y"}'),
            ("PUT", "/v1/items", '{"items": [{"key": "a", "title": "x", "title": "y"}]}'),
            ("PUT", "/v1/items/a", '{"title": "x", "title": "y"}'),
        ):
            answer = await client.request(method, path, content=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body"), path
            assert "twice" in answer.json()["detail"], path
        assert await score(client, "posts", "a") == 5
