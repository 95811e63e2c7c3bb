"""`POST /v1/events?rank=true`: the records of members after their events."""

import asyncio
from typing import Any

import httpx

from live.domain.board_file import parse_boards
from live.settings import Settings
from tests.harness.ingest import make_key
from tests.harness.producers import bearer
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings

BOARDS = """
[[board]]
id = "posts"
ties = "key"
[[board]]
id = "best"
types = ["run"]
operator = "best"
window = "forever"
cap = 3
[[board]]
id = "fast"
types = ["lap"]
operator = "best"
sort_order = "asc"
window = { calendar = "day", keep = 3, grace = "1d" }
clock = "event"
[[board]]
id = "sum"
union = ["posts", "more"]
weights = [2, 1]
ties = "key"
[[board]]
id = "more"
types = ["more"]
ties = "key"
[[board]]
id = "game"
types = ["game"]
operator = "best"
window = "forever"
score = [{ field = "levels", max = 99 }, { field = "seconds", order = "asc", max = 999 }]
"""


async def records(client: httpx.AsyncClient, *events: dict[str, Any]) -> list[dict[str, Any]]:
    """The records in the answer to some events."""
    answer = await client.post("/v1/events?rank=true", json=list(events))
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["records"]
    return found


async def test_records_follow_the_events(valkey_url: str) -> None:
    """The answer has a record for each event and board, even for a plain like, in the order of the events."""
    async with server(valkey_url, *parse_boards(BOARDS)) as client:
        await client.post("/v1/events", json=[{"key": "a", "amount": 5}, {"key": "b", "amount": 2}])
        found = await records(client, {"key": "b", "amount": 9}, {"key": "c"}, {"key": "b", "amount": -11})
        page = (await client.get("/v1/boards/posts")).json()
        place = {"epoch": page["epoch"], "offset": page["offset"], "rank_count": 2, "period": None, "best": None}
        on_posts = [one for one in found if one["board"] == "posts"]
        assert on_posts == [
            {"index": 0, "board": "posts", "key": "b", "score": None, "rank": None, **place},
            {"index": 1, "board": "posts", "key": "c", "score": 1, "rank": 2, **place},
            {"index": 2, "board": "posts", "key": "b", "score": None, "rank": None, **place},
        ]
        assert [one["score"] for one in found if one["board"] == "sum"] == [None, 2, None]
        assert [one["index"] for one in found] == [0, 0, 1, 1, 2, 2]
        answer = (await client.post("/v1/events?rank=true", json={"key": "d", "amount": 3})).json()
        assert [(one["board"], one["score"], one["rank"]) for one in answer["records"]] == [
            ("posts", 3, 2),
            ("sum", 6, 2),
        ]
        assert "records" not in (await client.post("/v1/events", json={"key": "d"})).json()
        assert "records" not in (await client.post("/v1/events?rank=false", json={"key": "d"})).json()
        assert (await client.post("/v1/events?rank=yes", json={"key": "d"})).status_code == 400


async def test_a_new_best_is_known(valkey_url: str) -> None:
    """A value is a new best if it beats all earlier values of its member, also those before it in the body.

    A member's first value is a new best if it has a place in the ranking. A tie is no new best.
    """
    async with server(valkey_url, *parse_boards(BOARDS)) as client:

        async def bests(*amounts: tuple[str, int]) -> list[bool]:
            found = await records(
                client, *({"type": "run", "key": member, "amount": amount} for member, amount in amounts)
            )
            return [one["best"] for one in found]

        assert await bests(("a", 5), ("a", 4), ("a", 6), ("a", 6), ("b", -1)) == [True, False, True, False, True]
        assert await bests(("a", 6), ("a", 7), ("b", -2)) == [False, True, False]
        assert await bests(("c", 9), ("d", 8)) == [True, True]
        (out,) = await records(client, {"type": "run", "key": "worst", "amount": -9})
        assert (out["best"], out["score"], out["rank"], out["rank_count"]) == (False, None, None, 3)
        (kept,) = await records(client, {"type": "run", "key": "a", "amount": 1})
        assert (kept["best"], kept["score"], kept["rank"]) == (False, 7, 3)
        fields = {"levels": 5, "seconds": 90}
        for levels, is_best in ((5, True), (4, False)):
            (won,) = await records(client, {"type": "game", "key": "a", "fields": {**fields, "levels": levels}})
            assert (won["best"], won["fields"]) == (is_best, fields), (
                "the answer lacks the fields of the packed score, or `best` is wrong"
            )


async def test_the_rank_is_that_of_the_period_of_the_event(valkey_url: str) -> None:
    """A late event gets the rank in its own period.

    A best in one period is no best in another. Lower is better here.
    """
    async with server(valkey_url, *parse_boards(BOARDS)) as client:

        async def lap(member: str, seconds: int, day: int, **more: str) -> tuple[Any, ...]:
            event = {"type": "lap", "key": member, "amount": seconds, "time": f"2026-11-{day}T12:00:00Z", **more}
            (one,) = await records(client, event)
            return one["period"], one["score"], one["rank"], one["best"]

        assert await lap("a", 50, 20) == ("2026-11-20", 50, 1, True)
        assert await lap("b", 40, 21) == ("2026-11-21", 40, 1, True)
        assert await lap("b", 45, 20) == ("2026-11-20", 45, 1, True)
        assert await lap("a", 60, 20) == ("2026-11-20", 50, 2, False)
        assert await lap("a", 60, 21, id="1") == ("2026-11-21", 60, 2, True)
        assert await lap("a", 60, 21, id="1") == ("2026-11-21", 60, 2, None)


async def test_only_events_that_count_have_records(valkey_url: str) -> None:
    """Refused events have no records. Duplicates by an `Idempotency-Key` have the present record."""
    async with server(valkey_url, *parse_boards(BOARDS)) as client:
        assert await records(client, {"key": "a", "type": "none"}, {"key": ""}) == []
        once = {"Idempotency-Key": "k"}
        answers = [await client.post("/v1/events?rank=true", json={"key": "a"}, headers=once) for _ in range(2)]
        assert [answer.json()["accepted"] for answer in answers] == [1, 0]
        assert [answer.json()["records"][0]["score"] for answer in answers] == [1, 1]
        many = [{"key": f"k{number}"} for number in range(501)]  # each event counts on two boards
        refused = await client.post("/v1/events?rank=true", json=many)
        assert (refused.status_code, refused.json()["code"]) == (413, "too_many_events")
        assert (await client.get("/v1/boards/posts")).json()["rank_count"] == 1
        assert len(await records(client, *many[:500])) == 1000


async def test_what_a_producer_may_not_read_has_no_record(valkey_url: str) -> None:
    """A private board counts the events of an API key that may only post, but the answer has no record of the board."""
    text = '[[board]]\nid = "open"\n[[board]]\nid = "secret"\nvisibility = "private"\n'
    settings: Settings = fresh_settings(valkey_url)
    poster = await make_key(settings, "poster", verbs=("post",))
    reader = await make_key(settings, "reader", verbs=("post", "read"))
    async with run_server(settings, parse_boards(text)) as url, httpx.AsyncClient(base_url=url) as client:
        for key, boards in ((poster, ["open"]), (reader, ["open", "secret"])):
            answer = await client.post("/v1/events?rank=true", json={"key": "a"}, headers=[bearer(key)])
            assert [one["board"] for one in answer.json()["records"]] == boards


async def test_bests_are_exact_under_load(valkey_url: str) -> None:
    """Among many concurrent requests, no two new bests have the same amount, and the largest amount is a new best."""
    async with server(valkey_url, *parse_boards(BOARDS)) as client:

        async def run(amount: int) -> tuple[int, int, int] | None:
            (one,) = await records(client, {"type": "run", "key": "a", "amount": amount})
            assert one["score"] >= amount
            return (one["offset"], amount, one["score"]) if one["best"] else None

        amounts = [(number * 37) % 101 for number in range(100)]
        bests = [found for found in await asyncio.gather(*map(run, amounts)) if found is not None]
        assert max(amount for _, amount, _ in bests) == max(amounts)
        assert len({amount for _, amount, _ in bests}) == len(bests)
