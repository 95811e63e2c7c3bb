"""A member's own place: its percentile, several members at once, one member on all boards, contests."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from live.domain.board import DEFAULT_BOARD, Board
from live.domain.choices import Votes
from live.domain.event import make_entry
from live.domain.packing import Field, Packing
from live.domain.window import Forever, Periods
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.boards import built, rolling_board
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server, server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

RUNS = Packing((Field(name="levels", high=99), Field(name="seconds", sort_order="asc", high=999)))


def forever(name: str, **choices: Any) -> Board:
    """A board without a window, fed by likes."""
    return built(**{"id": name, "title": name, "source": frozenset({"like"}), "window": Forever(), **choices})


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_a_record_has_its_percentile(valkey_url: str, order: str) -> None:
    """The percentile is 100 for the first and for the only record, and 0 for the last. The gap is never negative."""
    async with server(valkey_url, forever("b", sort_order=order)) as client:
        await post(client, {"key": "a", "amount": 1})
        assert (await client.get("/v1/boards/b/records/a")).json()["percentile"] == 100
        await post(client, *({"key": member, "amount": amount} for member, amount in (("b", 3), ("c", 4), ("d", 9))))
        found = [(await client.get(f"/v1/boards/b/records/{key}")).json() for key in "abcd"]
    if order == "desc":
        found.reverse()
    assert [view["rank"] for view in found] == [1, 2, 3, 4]
    assert [view["percentile"] for view in found] == [100, 66.67, 33.33, 0]
    assert [view["gap"] for view in found] == ([None, 5, 1, 2] if order == "desc" else [None, 2, 1, 5])


async def test_several_records_are_read_at_once(valkey_url: str) -> None:
    """The records are in the requested order. Members that are not on the board are left out."""
    async with server(valkey_url, rolling_board()) as client:
        await post(client, *({"key": member, "amount": amount} for member, amount in (("a", 3), ("é/?&", 2), ("c", 1))))
        answer = (await client.get("/v1/boards/posts/records", params={"key": ["c", "none", "é/?&"]})).json()
        alone = (await client.get(f"/v1/boards/posts/records/{quote('é/?&', safe='')}")).json()
        nobody = (await client.get("/v1/boards/posts/records?key=none")).json()
    assert [(view["key"], view["rank"]) for view in answer["records"]] == [("c", 3), ("é/?&", 2)]
    assert answer["records"][1] | {"records": alone["records"]} == alone
    assert (answer["board"], answer["period"]) == ("posts", None)
    assert nobody == {"board": "posts", "period": None, "records": []}


@pytest.mark.parametrize("count", [0, 101])
async def test_the_number_of_members_is_limited(valkey_url: str, count: int) -> None:
    """A request may have one to a hundred members."""
    async with server(valkey_url, rolling_board()) as client:
        response = await client.get("/v1/boards/posts/records", params={"key": ["a"] * count})
        assert (response.status_code, response.json()["code"]) == (400, "parameter_invalid")
        assert (await client.get("/v1/boards/posts/records", params={"key": ["a"] * 100})).status_code == 200


async def test_a_member_is_looked_up_on_every_board(valkey_url: str) -> None:
    """The list is empty if the member is on no board. Any member can be requested, such as `a/b`."""
    boards = rolling_board(), forever("all"), forever("runs", source=frozenset({"run"}))
    async with server(valkey_url, *boards) as client:
        await post(client, {"key": "a/b", "amount": 3}, {"key": "c", "amount": 5})
        found = (await client.get("/v1/records/a%2Fb")).json()
        nothing = (await client.get("/v1/records/x")).json()
    assert (found["key"], [(view["board"], view["rank"]) for view in found["records"]]) == (
        "a/b",
        [("posts", 2), ("all", 2)],
    )
    assert [len(view["records"]) for view in found["records"]] == [1, 1]  # without neighbours
    assert nothing == {"key": "x", "records": []}


async def test_a_record_of_a_period_can_be_read(valkey_url: str) -> None:
    """The request may name the period, the previous period or no period. The answer names the period."""
    hours = forever("hours", window=Periods(unit="hour"), clock="event")
    events = [{"key": "a", "amount": amount, "time": f"2026-01-01T0{hour}:00:00Z"} for hour, amount in ((5, 2), (6, 7))]
    async with server(valkey_url, hours) as client:
        await post(client, *events)
        for query, name, score in (("", "2026-01-01T06", 7), ("?period=previous", "2026-01-01T05", 2)):
            view = (await client.get(f"/v1/boards/hours/records/a{query}")).json()
            assert (view["period"], view["score"]) == (name, score)
            listed = (await client.get("/v1/boards/hours/records", params={"key": "a", "period": name})).json()
            assert (listed["period"], listed["records"][0]["score"]) == (name, score)
        response = await client.get("/v1/boards/hours/records/a?period=2026-01-01T04")
        assert (response.status_code, response.json()["code"]) == (404, "record_not_found")


async def test_a_record_has_its_fields_and_metadata(valkey_url: str) -> None:
    """More levels are better, then fewer seconds. The metadata comes from the best run."""
    async with server(valkey_url, forever("runs", operator="best", score=RUNS)) as client:
        await post(
            client,
            {"key": "a", "fields": {"levels": 5, "seconds": 90}, "metadata": {"car": "red"}},
            {"key": "b", "fields": {"levels": 5, "seconds": 80}},
            {"key": "a", "fields": {"levels": 4, "seconds": 1}, "metadata": {"car": "blue"}},
        )
        answer = await post(client, {"key": "a", "fields": {"levels": 100, "seconds": 1}}, {"key": "a"})
        page = (await client.get("/v1/boards/runs")).json()
        view = (await client.get("/v1/boards/runs/records/a")).json()
    assert [(rejection["index"], rejection["code"]) for rejection in answer["rejected"]] == [
        (0, "fields_invalid"), (1, "fields_invalid")
    ]  # fmt: skip
    assert answer["rejected"][0]["detail"] == "levels is not a whole number from 0 to 99"
    assert (page["total_score"], [record["key"] for record in page["records"]]) == (None, ["b", "a"])
    assert page["records"][0]["fields"] == {"levels": 5, "seconds": 80}
    assert "metadata" not in page["records"][0]
    assert (view["fields"], view["metadata"]) == ({"levels": 5, "seconds": 90}, {"car": "red"})


async def test_equal_scores_share_a_rank(valkey_url: str) -> None:
    """Pages and records show the shared rank.

    `position` is the record's place in the order, if it differs from the rank.
    """
    async with server(valkey_url, forever("b", ranks="dense"), forever("c", ranks="competition")) as client:
        await post(
            client, *({"key": member, "amount": amount} for member, amount in (("a", 5), ("b", 3), ("c", 3), ("d", 1)))
        )
        ranks = {
            name: [record["rank"] for record in (await client.get(f"/v1/boards/{name}")).json()["records"]]
            for name in "bc"
        }
        view = (await client.get("/v1/boards/b/records/c?around=1")).json()
    assert ranks == {"b": [1, 2, 2, 3], "c": [1, 2, 2, 4]}
    assert (view["rank"], view["gap"]) == (2, 0)
    assert [record.get("position") for record in view["records"]] == [None, 3, 4]


async def test_a_registered_member_without_votes_has_no_rank(valkey_url: str) -> None:
    """The member has score 0, a gap to the last rank, and its metadata. An unregistered member is not found."""
    settings = fresh_settings(valkey_url)
    store = connect(valkey_url, settings)
    await store.hset(Keys(settings.key_prefix, "vote").entrants, mapping={"ann": b'{"n":1}', "bob": b"{}"})
    contest = forever("vote", votes=Votes(per_key=2, registered=True))
    async with run_server(settings, [contest]) as url, httpx.AsyncClient(base_url=url) as client:
        first = (await client.get("/v1/boards/vote/records/ann")).json()
        answer = await post(client, *({"key": member, "actor": "me"} for member in ("bob", "bob", "bob", "eve")))
        ann = (await client.get("/v1/boards/vote/records/ann")).json()
        bob = (await client.get("/v1/boards/vote/records/bob")).json()
        assert (await client.get("/v1/boards/vote/records/eve")).status_code == 404
    await store.aclose()
    assert [rejection["code"] for rejection in answer["rejected"]] == ["quota_exceeded", "entrant_unknown"]
    assert (first["gap"], first["rank_count"], first["score"], first["metadata"]) == (None, 0, 0, {"n": 1})
    assert (ann["score"], ann["rank"], ann["percentile"], ann["gap"], ann["rank_count"]) == (0, None, None, 2, 1)
    assert (bob["score"], bob["rank"], bob["metadata"]) == (2, 1, {})


@pytest.mark.slow
async def test_many_members_are_read_at_one_instant(valkey_url: str, tmp_path: Path) -> None:
    """A request for 99 members returns them at one offset and in the requested order, while another process writes."""
    keys = [f"k{number}" for number in range(99)]
    settings = fresh_settings(valkey_url)
    server = ServerProcess(settings, tmp_path)
    server.start()
    store = connect(valkey_url, settings)
    over = asyncio.Event()

    async def write() -> None:
        ledger = Ledger(store, DEFAULT_BOARD, settings)
        await ledger.writer.add([make_entry(member, number + 1) for number, member in enumerate(keys)])
        while not over.is_set():
            await ledger.writer.add([make_entry("k0"), make_entry("other")])

    writers = [asyncio.create_task(write()) for _ in range(4)]
    try:
        async with httpx.AsyncClient(base_url=server.url) as client:

            async def are_counted() -> bool:
                return bool((await client.get("/v1/boards/posts?limit=200")).json()["rank_count"] == 100)

            await eventually(are_counted)
            offsets = set()
            for _ in range(20):
                found = await client.get("/v1/boards/posts/records", params={"key": [*keys, "none"]})
                records = found.json()["records"]
                assert [record["key"] for record in records] == keys
                assert len({record["offset"] for record in records}) == 1
                offsets.add(records[0]["offset"])
            assert len(offsets) > 1
    finally:
        over.set()
        await asyncio.gather(*writers)
        await store.aclose()
        server.stop()
