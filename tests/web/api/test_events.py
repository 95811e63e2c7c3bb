"""POST /v1/events: forms of a body, routing to boards, and answers after events are durable."""

import asyncio
import gzip
import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import define, run_server, server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

NDJSON = {"Content-Type": "application/x-ndjson"}


async def ranked(client: httpx.AsyncClient, board: str = "posts") -> dict[str, int]:
    """The scores of a board."""
    records = (await client.get(f"/v1/boards/{board}")).json()["records"]
    return {record["key"]: record["score"] for record in records}


def board(name: str, *source: str, clock: str = "server") -> Board:
    """A 24-hour board fed by event types."""
    return make_board(Choices(id=name, types=source, clock=clock))  # type: ignore[arg-type]


async def test_an_object_an_array_and_lines_count_alike(valkey_url: str) -> None:
    """Plain or compressed, all three bodies get the same form of answer."""
    event = {"key": "a", "amount": 2}
    async with server(valkey_url) as client:
        one = await client.post("/v1/events", json=event)
        array = await client.post("/v1/events", json=[event, event])
        lines = await client.post("/v1/events", content=b'{"key":"a"}\r\n\n{"key":"a"}', headers=NDJSON)
        compressed = await client.post(
            "/v1/events",
            content=gzip.compress(b'{"key":"a"}\n')
            + gzip.compress(b'{"key":"a"}\n'),  # two members of gzip, as `cat` would concatenate them
            headers={**NDJSON, "Content-Encoding": "gzip"},
        )

        for offset, (response, accepted) in enumerate(((one, 1), (array, 2), (lines, 2), (compressed, 2)), 1):
            assert response.status_code == 200
            assert response.headers["content-type"] == "application/json"
            assert response.json() == {
                "accepted": accepted, "duplicate": 0, "rejected": [], "offsets": {"posts": offset},
            }  # fmt: skip
        assert await ranked(client) == {"a": 10}


async def test_an_empty_array_is_valid(valkey_url: str) -> None:
    """The server counts nothing."""
    async with server(valkey_url) as client:
        assert await post(client) == {"accepted": 0, "duplicate": 0, "rejected": [], "offsets": {}}


async def test_an_event_feeds_every_board_of_its_type(valkey_url: str) -> None:
    """A type feeds every board whose source includes it, and `board` names one board.

    The answer has the offset of each board.
    """
    boards = [board("likes", "like", "love"), board("love", "love"), board("views", "view")]
    async with server(valkey_url, *boards) as client:
        answer = await post(
            client,
            {"key": "a"},
            {"key": "a", "type": "love"},
            {"key": "b", "board": "views"},
            {"key": "c", "type": "x"},
        )

        assert answer["accepted"] == 3
        assert answer["offsets"] == {"likes": 1, "love": 1, "views": 1}
        assert [(refused["index"], refused["code"]) for refused in answer["rejected"]] == [(3, "type_unknown")]
        assert await ranked(client, "likes") == {"a": 2}
        assert await ranked(client, "love") == {"a": 1}
        assert await ranked(client, "views") == {"b": 1}


async def test_one_boards_refusal_does_not_stop_the_others(valkey_url: str) -> None:
    """The event still counts on the other board, and the refusal names the board."""
    async with server(valkey_url, board("now", "like"), board("then", "like", clock="event")) as client:
        answer = await post(client, {"key": "a"})

        assert answer["accepted"] == 1
        assert answer["offsets"] == {"now": 1}
        assert [(refused["index"], refused["code"], refused["board"]) for refused in answer["rejected"]] == [
            (0, "time_required", "then")
        ]


@pytest.mark.slow
async def test_an_event_with_a_time_is_added_to_its_slot(valkey_url: str) -> None:
    """On a board of the last four seconds, a like of three seconds ago expires before a like of now."""
    async with server(valkey_url, rolling_board("4s", "1s")) as client:
        ago = (datetime.now(UTC) - timedelta(seconds=3)).isoformat()
        assert (await post(client, {"key": "old", "time": ago}, {"key": "new"}))["accepted"] == 2
        seen: list[frozenset[str]] = []
        while not seen or seen[-1]:
            now = frozenset(await ranked(client))
            if not seen or seen[-1] != now:
                seen.append(now)
            await asyncio.sleep(0.05)

        assert seen == [frozenset({"old", "new"}), frozenset({"new"}), frozenset()]


async def test_times_are_compared_across_offsets(valkey_url: str) -> None:
    """Times of the same instant in two time zones fall into one slot."""
    settings = fresh_settings(valkey_url)
    client_store: Any = connect(valkey_url, settings)
    async with (
        run_server(settings, [rolling_board(clock="event")]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await post(
            client, {"key": "a", "time": "2026-01-01T23:30:00Z"}, {"key": "a", "time": "2026-01-02T05:00:00+05:30"}
        )

        start = int(datetime(2026, 1, 1, 23, tzinfo=UTC).timestamp())
        slots = [key.decode() async for key in client_store.scan_iter(match=f"{settings.key_prefix}*slot:*")]
        assert slots == [f"{settings.key_prefix}:{{posts}}:slot:{start}"]
    await client_store.aclose()


@pytest.mark.slow
async def test_concurrent_requests_share_a_script_call(valkey_url: str) -> None:
    """Two hundred requests take far fewer script calls, and each is counted exactly."""
    chance = random.Random(2)
    keys = [f"k{chance.randrange(20)}" for _ in range(200)]
    async with server(valkey_url) as client:
        await post(client, {"key": "warm"})
        answers = await asyncio.gather(*(client.post("/v1/events", json={"key": member}) for member in keys))

        assert all(answer.json()["accepted"] == 1 for answer in answers)
        offset = max(answer.json()["offsets"]["posts"] for answer in answers)
        assert offset < 150, "no two requests shared a call"
        assert (await client.get("/v1/boards/posts")).json()["offset"] == offset
        assert await ranked(client) == {**Counter(keys), "warm": 1}


async def test_every_answer_has_only_its_own_events(valkey_url: str) -> None:
    """Requests that share a call get their own refusals with their own indexes."""
    late = {"key": "late", "time": "2020-01-01T00:00:00Z"}
    async with server(valkey_url) as client:
        bodies: Sequence[list[dict[str, Any]]] = [
            [late if (number + place) % 3 == 0 else {"key": f"k{number}"} for place in range(3)] for number in range(60)
        ]
        answers = await asyncio.gather(*(post(client, *body) for body in bodies))

        for body, answer in zip(bodies, answers, strict=True):
            expected = [index for index, event in enumerate(body) if event is late]
            assert [refused["index"] for refused in answer["rejected"]] == expected
            assert answer["accepted"] == 3 - len(expected)
        assert (await client.get("/v1/boards/posts")).json()["total_score"] == 120


@pytest.mark.slow
async def test_too_many_waiting_events_are_overload(own_store: StoreProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is frozen, a limited number of events waits. Further events get `Retry-After` at once."""
    monkeypatch.setattr("live.ingest.committer.MOST_WAITING", 5)
    settings: dict[str, Any] = {"rate": 0}  # without a rate, the server asks the store for no credit
    patience = 30
    async with server(own_store.url, **settings, store_timeout=patience, write_deadline=patience) as client:
        await asyncio.gather(*(client.get("/healthz") for _ in range(30)))  # this opens 30 connections
        await post(client, {"key": "warm"})
        with own_store.frozen():
            waiting = [asyncio.create_task(client.post("/v1/events", json={"key": "a"})) for _ in range(30)]
            done, _ = await asyncio.wait(waiting, timeout=15, return_when=asyncio.FIRST_COMPLETED)
            assert done, "no refusal arrived while the store was frozen"
            await asyncio.sleep(1)
        answers = [await task for task in waiting]

        refused = [answer for answer in answers if answer.status_code != 200]
        assert {(answer.status_code, answer.json()["code"]) for answer in refused} == {(503, "overloaded")}
        assert all(answer.headers["Retry-After"] == "1" for answer in refused)
        counted = len(answers) - len(refused)
        assert await ranked(client) == {"a": counted, "warm": 1}
        assert counted >= 5


@pytest.mark.slow
async def test_an_unavailable_store_rejects_all_waiting_requests(own_store: StoreProcess) -> None:
    """Requests that wait behind a failed batch fail together with it, and not one deadline after another."""
    body = [{"key": f"k{number}"} for number in range(1000)]
    changes: dict[str, Any] = {"rate": 0, "store_timeout": 0.3, "write_deadline": 1}
    async with server(own_store.url, **changes) as client:  # a rate would need credit from the frozen store
        await post(client, {"key": "warm"})
        with own_store.frozen():
            started = asyncio.get_running_loop().time()
            answers = await asyncio.gather(*(client.post("/v1/events", json=body) for _ in range(8)))
            duration = asyncio.get_running_loop().time() - started

        codes = Counter(answer.json()["code"] for answer in answers)
        assert codes["outcome_unknown"] >= 1, "no request has an unknown outcome, although a batch was sent"
        assert codes["store_unavailable"] >= 1, "no request failed as unsent"
        assert duration < len(answers), "each request waited for its own deadline"

        async def is_counted() -> bool:
            return (await client.post("/v1/events", json={"key": "end"})).status_code == 200

        await eventually(is_counted)
        total = (await client.get("/v1/boards/posts")).json()["total_score"]
        assert total <= 2 + 1000 * codes["outcome_unknown"]


@pytest.mark.slow
async def test_an_unknown_outcome_takes_precedence_over_a_refusal(
    own_store: StoreProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One board's queue is full, and another board's answer is lost. The answer is `outcome_unknown`."""
    boards = [board("full", "like", "only"), board("sent", "like")]
    times = {"store_timeout": 1, "write_deadline": 2}
    # With a rate, the server would ask the frozen store for credit.
    monkeypatch.setattr("live.ingest.committer.MOST_WAITING", 1)
    changes: dict[str, Any] = {"rate": 0, **times}
    async with server(own_store.url, *boards, **changes) as client:
        await post(client, {"key": "warm"})
        with own_store.frozen():
            waiting = []
            refused = 0
            while refused < 2:  # then one event is on its way to the store, and another one fills the queue
                event = asyncio.create_task(client.post("/v1/events", json={"key": "a", "type": "only"}))
                if (await asyncio.wait([event], timeout=0.1))[0]:
                    assert event.result().json()["code"] == "overloaded"
                    refused += 1
                else:
                    waiting.append(event)
            response = await client.post("/v1/events", json={"key": "a"})
            await asyncio.gather(*waiting)

        assert (response.status_code, response.json()["code"]) == (503, "outcome_unknown")


async def test_a_lost_board_does_not_affect_others(valkey_url: str) -> None:
    """An event that one board counted is accepted; the refusal names the lost board."""
    settings = fresh_settings(valkey_url)
    store: Any = connect(valkey_url, settings)
    async with (
        run_server(settings, [board("one", "like"), board("two", "like")]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await post(client, {"key": "a"})
        await store.delete(f"{settings.key_prefix}:{{two}}:meta")
        answer = await post(client, {"key": "a"})

        assert (answer["accepted"], answer["offsets"]) == (1, {"one": 2})
        assert [(refused["code"], refused["board"]) for refused in answer["rejected"]] == [("board_unavailable", "two")]
        assert await ranked(client, "one") == {"a": 2}
    await store.aclose()


@pytest.mark.slow
async def test_a_store_that_forbids_notices_counts_nothing(own_store: StoreProcess) -> None:
    """The store's user has no rights on channels. Every POST is refused, and the server keeps running.

    If the deadline passes during an attempt, the server does not learn that the store refused it.
    """
    settings = fresh_settings(own_store.url)
    await define(settings, [rolling_board()])
    store: Any
    async with aclosing(connect(own_store.url, settings)) as store:
        await store.execute_command("ACL", "SETUSER", "board", "on", ">secret", "~*", "+@all", "resetchannels")
    url = f"{own_store.url}?username=board&password=secret"
    limited = fresh_settings(url, key_prefix=settings.key_prefix, write_deadline=0.3)
    async with run_server(limited, None) as address, httpx.AsyncClient(base_url=address) as client:
        for _ in range(3):
            response = await client.post("/v1/events", json={"key": "a"})
            assert response.status_code == 503
            assert response.json()["code"] in {"store_unavailable", "outcome_unknown"}
        assert await ranked(client) == {}


async def test_a_producer_that_disconnects_harms_nobody(valkey_url: str) -> None:
    """Incomplete bodies count nothing, and other clients are answered."""
    async with server(valkey_url) as client:
        port = client.base_url.port
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(head + b'Content-Length: 100\r\n\r\n{"key":"a"}')
            await writer.drain()
            writer.close()
        await post(client, {"key": "b"})

        assert await ranked(client) == {"b": 1}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_only_post_is_allowed(valkey_url: str, method: str) -> None:
    """Other methods get 405 with `Allow`."""
    async with server(valkey_url) as client:
        response = await client.request(method, "/v1/events", content=json.dumps({"key": "a"}))

        assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
        assert response.headers["allow"] == "POST"
