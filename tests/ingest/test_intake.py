"""The intake: the fast path for one plain like gives the same answers as the general path, and knows the same ids."""

import asyncio
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from live.domain.event import MAX_SCORE
from live.ingest.intake import _Refused
from live.ingest.routing import Kind
from tests.harness.boards import rolling_board
from tests.harness.ingest import NEWS, make_key
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

POSTS = rolling_board()
JSON = {"Content-Type": "application/json"}
# One event as an array, and the same event as a line.
WAYS = {"array": ("[%s]", JSON), "lines": ("%s\n", {"Content-Type": "application/x-ndjson"})}


def at(**ahead: float) -> str:
    """Return the current time by this machine's clock, plus an offset."""
    return (datetime.now(UTC) + timedelta(**ahead)).isoformat()


async def send(client: httpx.AsyncClient, event: str, way: str | None) -> httpx.Response:
    """Post one event, plain or in another form."""
    form, headers = ("%s", JSON) if way is None else WAYS[way]
    return await client.post("/v1/events", content=form.replace("%s", event), headers=headers)


def without_offsets(response: httpx.Response) -> Any:
    """The status and the answer, with board names instead of offsets."""
    answer = response.json()
    return response.status_code, {**answer, "offsets": sorted(answer.get("offsets", {}))}


@pytest.mark.parametrize("way", WAYS)
async def test_one_plain_like_is_answered_like_any_other_body(valkey_url: str, way: str) -> None:
    """Both paths give the same answer to accepted, duplicate, late, early, unusual and invalid events."""
    events = [
        '{"key":"a"}', '{"key":"a","id":"%n"}', '{"key":"a","id":"%n"}', '{"key":"a","id":"%n","source":"s"}',
        f'{{"key":"a","time":"{at(days=-3)}"}}', f'{{"key":"a","time":"{at(hours=2)}","id":"x"}}',
        f'{{"key":"a","amount":{MAX_SCORE}}}', '{"key":"a","board":"posts"}', '{"key":"a","board":"x"}',
        '{"key":"a","type":"x"}', '{"key":""}', '{"key":"a","id":""}',
        '{"key":"\\ud83d\\ude00","id":"\\u00e9%n"}', '{"key":"a","more":1}', '{"key":"a","key":"b"}',
    ]  # fmt: skip
    async with serving(fresh_settings(valkey_url), POSTS) as client:
        plain = [without_offsets(await send(client, event.replace("%n", "1"), None)) for event in events]
        other = [without_offsets(await send(client, event.replace("%n", "2"), way)) for event in events]
        assert plain == other
        assert [answer["accepted"] for _, answer in plain] == [1, 1, 0, 1, 0, 0, 0, 1] + [0] * 4 + [1, 0, 1]


async def test_half_of_a_surrogate_pair_refuses_what_is_decoded_at_once(valkey_url: str) -> None:
    """It refuses a plain event and an array as a body. Of lines, it refuses one."""
    event = '{"key":"a","id":"\\ud800"}'
    async with serving(fresh_settings(valkey_url), POSTS) as client:
        plain, array = [await send(client, event, way) for way in (None, "array")]
        lines = await send(client, f'{{"key":"a"}}\n{event}', "lines")
    assert (plain.status_code, plain.json()["code"]) == (400, "malformed_body")
    assert without_offsets(plain) == without_offsets(array)
    assert lines.json()["accepted"] == 1
    assert [(one["index"], one["code"]) for one in lines.json()["rejected"]] == [(1, "event_invalid")]


@pytest.mark.parametrize("way", WAYS)
async def test_an_id_is_the_same_on_every_path(valkey_url: str, way: str) -> None:
    """An event that counted on the fast path is a duplicate on the other paths, and the other way round."""
    async with serving(fresh_settings(valkey_url), POSTS) as client:
        for first, second in ((None, way), (way, None)):
            for source in ("", ',"source":"s"', ',"source":"é"'):
                event = f'{{"key":"a","id":"{first}"{source}}}'
                assert (await send(client, event, first)).json()["accepted"] == 1
                assert (await send(client, event, second)).json()["duplicate"] == 1


async def test_a_producer_of_refused_events_does_not_ask_each_time(valkey_url: str) -> None:
    """The server remembers which kinds of events it has just refused. Only another kind makes it ask for new boards."""
    async with serving(fresh_settings(valkey_url), POSTS) as client:
        asked = 0
        add = _Refused.add

        def count(refused: _Refused, kinds: AbstractSet[Kind]) -> None:
            nonlocal asked
            asked += 1
            add(refused, kinds)

        with patch.object(_Refused, "add", count):
            for kinds, expected in (("x", 1), ("x", 1), ("y", 2), ("xy", 2), ("xz", 3), ("z", 3), ("", 3)):
                events = [{"key": "a", "type": kind} for kind in kinds]
                await client.post("/v1/events", json=[*events, {"key": "a"}])
                assert asked == expected, kinds


@pytest.mark.slow
async def test_plain_likes_of_one_batch_get_their_own_answers(valkey_url: str) -> None:
    """Accepted, duplicate and refused likes share a batch."""
    async with serving(fresh_settings(valkey_url), POSTS) as client:
        late = at(days=-3)
        events = [
            ['{"key":"a"}', '{"key":"a","id":"1"}', f'{{"key":"b","time":"{late}"}}', f'{{"key":"b","id":"{n}0"}}'][
                n % 4
            ]
            for n in range(200)
        ]
        replies = await asyncio.gather(*(send(client, event, None) for event in events))
        answers = [reply.json() for reply in replies]
        assert all(answer["accepted"] == 1 for answer in answers[::4] + answers[3::4])
        assert sum(answer["accepted"] for answer in answers[1::4]) == 1
        assert sum(answer["duplicate"] for answer in answers[1::4]) == 49
        assert all([refusal["code"] for refusal in answer["rejected"]] == ["late"] for answer in answers[2::4])
        assert (await client.get("/v1/boards/posts")).json()["total_score"] == 101


async def test_a_plain_like_may_reach_several_boards_or_none(valkey_url: str) -> None:
    """The fast path is for likes that reach one board. An API key may be for one board, both, or neither."""
    settings = fresh_settings(valkey_url)
    keys = [await make_key(settings, f"for{len(boards)}", boards=boards) for boards in (("posts",), ("posts", "news"))]
    keys.append(await make_key(settings, "gone", boards=("other",)))
    async with serving(settings, POSTS, NEWS) as client:
        answers = []
        for key in keys:
            client.headers["Authorization"] = f"Bearer {key}"
            answers.append(without_offsets(await send(client, '{"key":"a"}', None))[1])
        assert [answer["offsets"] for answer in answers] == [["posts"], ["news", "posts"], []]
        assert [refusal["code"] for refusal in answers[2]["rejected"]] == ["board_forbidden"]


@pytest.mark.slow
@pytest.mark.parametrize("way", [None, *WAYS])
async def test_too_many_waiting_events_are_refused_with_retry_after(
    own_store: StoreProcess, way: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the queue is full, the next event is refused and not counted."""
    monkeypatch.setattr("live.ingest.committer.MOST_WAITING", 5)
    settings = fresh_settings(own_store.url, write_deadline=3, store_timeout=3, rate=0)
    async with serving(settings, POSTS) as client:
        await send(client, '{"key":"a"}', None)
        with own_store.frozen():
            sent = [asyncio.create_task(send(client, f'{{"key":"a","id":"{n}"}}', way)) for n in range(20)]
            done, _ = await asyncio.wait(sent, timeout=1.5)
        replies = await asyncio.gather(*sent)
        refused = [reply for reply in replies if reply.status_code == 503]
        assert {reply.json()["code"] for reply in refused} == {"overloaded"}
        assert all(reply.headers["Retry-After"] == "1" for reply in refused)
        assert len(done) == len(refused) >= 10
        assert (await client.get("/v1/boards/posts")).json()["total_score"] == 21 - len(refused)
