"""Strict requests: a board counts all events of such a request, or none."""

import random
from collections import Counter
from typing import Any

import httpx
import pytest

from live.domain.board_file import parse_boards
from live.errors import RETRYABLE
from live.store.board.write import writer
from tests.harness.ingest import make_key
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producers import bearer
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings

BOARDS = """
[[board]]
id = "likes"
types = ["like"]
max_amount = 10
[[board]]
id = "first"
types = ["both"]
[[board]]
id = "second"
types = ["both"]
max_amount = 5
[[board]]
id = "songs"
types = ["vote"]
window = "forever"
votes = { per_actor = 2 }
[[board]]
id = "best"
types = ["run"]
operator = "best"
window = "forever"
max_members = 3
"""
STRICT = {"Prefer": "respond-async, handling=strict"}
LATE = "2020-01-01T00:00:00Z"


async def strictly(client: httpx.AsyncClient, *events: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
    """Post a strict request; returns the status and the answer."""
    answer = await client.post("/v1/events", json=list(events), headers=STRICT | headers)
    return answer.status_code, answer.json()


def codes(answer: dict[str, Any]) -> list[str]:
    """Return the codes of the refusals in order. Check that each refusal says whether it is retryable."""
    assert all(one["retryable"] is (one["code"] in RETRYABLE) for one in answer["rejected"])
    return [one["code"] for one in answer["rejected"]]


async def counts(client: httpx.AsyncClient, board: str) -> int:
    """Return how many members are on a board."""
    count: int = (await client.get(f"/v1/boards/{board}")).json()["rank_count"]
    return count


async def test_nothing_counts_if_one_event_is_refused(valkey_url: str) -> None:
    """The decoder, the routing, the plan or the script may refuse the event. Without a refusal, everything counts."""
    good = {"key": "a"}
    async with server(valkey_url, *parse_boards(BOARDS)) as client:
        for bad, code in (
            ({"key": ""}, "key_invalid"),
            ({"key": "b", "type": "none"}, "type_unknown"),
            ({"key": "b", "amount": 11}, "amount_too_large"),
            ({"key": "b", "time": LATE}, "late"),
            ({"key": "b", "time": "2999-01-01T00:00:00Z"}, "early"),
        ):
            for body, expected in (([good, bad], ["not_counted", code]), ([bad, good], [code, "not_counted"])):
                status, answer = await strictly(client, *body)
                assert (status, answer["accepted"], answer["offsets"]) == (422, 0, {})
                assert codes(answer) == expected
            by_query = await client.post("/v1/events?strict=true", json=[good, bad])
            assert (by_query.status_code, codes(by_query.json())) == (422, ["not_counted", code])
            ranked = await client.post("/v1/events?strict=true&rank=true", json=[good, bad])
            assert (ranked.status_code, ranked.json()["records"]) == (422, [])
            for query in ("", "?rank=true"):
                lenient = await client.post(f"/v1/events{query}", json=[bad])
                assert (lenient.status_code, codes(lenient.json())) == (200, [code])
        assert await counts(client, "likes") == 0
        vote = {"key": "x", "type": "vote", "actor": "me"}
        status, answer = await strictly(client, *[vote] * 3)
        assert (status, sorted(codes(answer)), await counts(client, "songs")) == (
            422, ["not_counted", "not_counted", "quota_exceeded"], 0,
        )  # fmt: skip
        runs = [{"key": f"k{number}", "type": "run", "amount": number} for number in range(4)]
        assert ((await strictly(client, *runs))[0], await counts(client, "best")) == (422, 0)
        assert ((await strictly(client, *runs[:3]))[0], await counts(client, "best")) == (200, 3)
        assert await strictly(client, good, {"key": "b", "amount": 10}) == (
            200, {"accepted": 2, "duplicate": 0, "rejected": [], "offsets": {"likes": 1}},
        )  # fmt: skip


async def test_a_duplicate_is_no_refusal(valkey_url: str) -> None:
    """A duplicate passes even if it would now be late. A refused body counts nothing, and uses up no id."""
    async with server(valkey_url, *parse_boards(BOARDS)) as client:
        events: list[dict[str, Any]] = [{"key": "a", "id": "1"}, {"key": "b", "id": "2"}]
        assert (await strictly(client, *events))[0] == 200
        status, answer = await strictly(client, *events, {"key": "c", "id": "3"})
        assert (status, answer["accepted"], answer["duplicate"]) == (200, 1, 2)
        status, answer = await strictly(client, {"key": "z", "id": "1", "time": LATE}, {"key": "d", "id": "4"})
        assert (status, answer["accepted"], answer["duplicate"]) == (200, 1, 1)
        twice: list[dict[str, Any]] = [
            {"key": "e", "id": "5"},
            {"key": "e", "id": "5"},
            {"key": "e", "amount": 11, "id": "6"},
        ]
        assert (await strictly(client, *twice))[0] == 422
        assert await counts(client, "likes") == 4
        assert (await strictly(client, twice[0]))[1]["accepted"] == 1


async def test_each_of_several_boards_counts_all_or_none(valkey_url: str) -> None:
    """The response says which boards counted. With ids, the same body can be sent again."""
    async with server(valkey_url, *parse_boards(BOARDS)) as client:
        events: list[dict[str, Any]] = [
            {"key": "a", "type": "both", "id": "1"},
            {"key": "b", "type": "both", "amount": 6, "id": "2"},
        ]
        for accepted in (2, 0):
            status, answer = await strictly(client, *events)
            assert (status, answer["accepted"]) == (422, accepted)
            assert [(one["board"], one["code"]) for one in answer["rejected"]] == [
                ("second", "not_counted"), ("second", "amount_too_large"),
            ]  # fmt: skip
        assert (await counts(client, "first"), await counts(client, "second")) == (2, 0)


async def test_a_refused_request_does_not_use_up_its_idempotency_key(valkey_url: str) -> None:
    """The client sends it again, and the events then count once."""
    async with server(valkey_url, *parse_boards(BOARDS), anonymous_admin=True) as client:
        await client.put("/v1/boards/open", json={"types": ["visit"], "frozen": True})
        event, once = {"key": "a", "type": "visit"}, {"Idempotency-Key": "k"}
        assert (await strictly(client, event, **once))[0] == 422
        await client.patch("/v1/boards/open", json={"frozen": False})
        answers = [await strictly(client, event, **once) for _ in range(2)]
        outcomes = [(status, answer["accepted"], answer["duplicate"]) for status, answer in answers]
        assert outcomes == [(200, 1, 0), (200, 0, 1)]
        assert (await client.get("/v1/boards/open")).json()["total_score"] == 1


async def test_hidden_refusals_do_not_change_the_status(valkey_url: str) -> None:
    """A private board that the API key may not read counts what it can, and shows nothing."""
    text = BOARDS.replace('id = "second"', 'id = "second"\nvisibility = "private"')
    settings = fresh_settings(valkey_url)
    key = await make_key(settings, "shop", verbs=("post",))
    async with run_server(settings, parse_boards(text)) as url, httpx.AsyncClient(base_url=url) as client:
        client.headers.update([bearer(key)])
        status, answer = await strictly(client, {"key": "a", "type": "both"}, {"key": "b", "type": "both", "amount": 6})
        assert (status, answer["accepted"], answer["rejected"]) == (200, 2, [])


async def count_at_random(store: str, seed: int) -> None:
    """Post random bodies, strict or not, and check that the board holds the sums of what was accepted."""
    chance = random.Random(seed)
    async with server(store, *parse_boards(BOARDS)) as client:
        expected: Counter[str] = Counter()
        for _ in range(60):
            drawn = [(chance.choice("abc"), chance.randint(1, 11)) for _ in range(3)]
            status, _ = await strictly(client, *({"key": member, "amount": amount} for member, amount in drawn))
            assert (status == 422) == any(amount == 11 for _, amount in drawn)
            key, more = chance.choice("abc"), chance.choice((1, 11))
            await client.post("/v1/events", json=[{"key": key, "amount": more}])
            for member, amount in [*(drawn if status == 200 else ()), *([(key, 1)] if more == 1 else ())]:
                expected[member] += amount
        shown = {one["key"]: one["score"] for one in (await client.get("/v1/boards/likes")).json()["records"]}
        assert shown == dict(expected)


async def test_accepted_strict_bodies_are_what_a_board_holds(valkey_url: str) -> None:
    """The bodies are random. A mutant that withholds nothing is noticed."""
    await count_at_random(valkey_url, 1)
    with must_be_caught("events of refused bodies count"), replaced(writer, "withheld_by", lambda *_: frozenset()):
        await count_at_random(valkey_url, 2)


@pytest.mark.parametrize("prefer", ["handling=lenient", "strict", "handling=strictly", "xhandling=strict"])
async def test_another_preference_is_not_strict(valkey_url: str, prefer: str) -> None:
    """The server ignores preferences that it does not know, as RFC 7240 says."""
    async with server(valkey_url, *parse_boards(BOARDS)) as client:
        answer = await client.post("/v1/events", json=[{"key": "a"}, {"key": ""}], headers={"Prefer": prefer})
        assert (answer.status_code, answer.json()["accepted"]) == (200, 1)


async def test_a_best_needs_an_amount(valkey_url: str) -> None:
    """The default amount, 1, would be a score that nobody has reached."""
    async with server(valkey_url, *parse_boards(BOARDS)) as client:
        answer = await client.post("/v1/events", json=[{"key": "a", "type": "run"}])
        assert codes(answer.json()) == ["amount_required"]
        mixed = [{"key": "a", "board": "best"}, {"key": "b", "type": "run", "amount": 2}, {"key": "c"}]
        assert codes((await client.post("/v1/events", json=mixed)).json()) == ["amount_required"]
        assert (await counts(client, "best"), await counts(client, "likes")) == (1, 1)
