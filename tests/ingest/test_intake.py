"""The intake: the short way for one plain like says what the ordinary way says, and both know each other's ids."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from live.domain.event import MAX_SCORE
from live.settings import Duration
from tests.harness.boards import rolling_board
from tests.harness.ingest import NEWS, make_key, serving
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

POSTS = rolling_board()
JSON = {"Content-Type": "application/json"}
# The same event in an array, or under a type that is not the usual one.
WAYS = {"array": ("[%s]", JSON), "lines": ("%s\n", {"Content-Type": "application/x-ndjson"})}


def at(**ahead: float) -> str:
    """The time by this machine's clock, some way ahead."""
    return (datetime.now(UTC) + timedelta(**ahead)).isoformat()


async def send(client: httpx.AsyncClient, event: str, way: str | None) -> httpx.Response:
    """Post one event, as it is or on one of the other ways."""
    form, headers = ("%s", JSON) if way is None else WAYS[way]
    return await client.post("/v1/events", content=form.replace("%s", event), headers=headers)


def without_offsets(response: httpx.Response) -> Any:
    """Status and answer, but for where boards stand."""
    answer = response.json()
    return response.status_code, {**answer, "offsets": sorted(answer.get("offsets", {}))}


@pytest.mark.parametrize("way", WAYS)
async def test_one_plain_like_is_answered_as_in_any_other_body(valkey_url: str, way: str) -> None:
    """Accepted, known, late, early, out of range, of a board or type, unreadable: only the ways differ."""
    events = [
        '{"key":"a"}', '{"key":"a","id":"%n"}', '{"key":"a","id":"%n"}', '{"key":"a","id":"%n","source":"s"}',
        f'{{"key":"a","time":"{at(days=-3)}"}}', f'{{"key":"a","time":"{at(hours=2)}","id":"x"}}',
        f'{{"key":"a","amount":{MAX_SCORE}}}', '{"key":"a","board":"posts"}', '{"key":"a","board":"x"}',
        '{"key":"a","type":"x"}', '{"key":""}', '{"key":"a","id":""}', '{"key":"a","id":"\\ud800"}',
        '{"key":"\\ud83d\\ude00","id":"\\u00e9%n"}', '{"key":"a","more":1}', '{"key":"a","key":"b"}',
    ]  # fmt: skip
    async with serving(fresh_settings(valkey_url), POSTS) as client:
        plain = [without_offsets(await send(client, event.replace("%n", "1"), None)) for event in events]
        other = [without_offsets(await send(client, event.replace("%n", "2"), way)) for event in events]
        assert plain == other
        assert [answer["accepted"] for _, answer in plain] == [1, 1, 0, 1, 0, 0, 0, 1] + [0] * 5 + [1, 0, 0]


@pytest.mark.parametrize("way", WAYS)
async def test_an_id_is_the_same_on_every_way(valkey_url: str, way: str) -> None:
    """What was counted on the short way is known on the others, and the other way round."""
    async with serving(fresh_settings(valkey_url), POSTS) as client:
        for first, second in ((None, way), (way, None)):
            for source in ("", ',"source":"s"', ',"source":"é"'):
                event = f'{{"key":"a","id":"{first}"{source}}}'
                assert (await send(client, event, first)).json()["accepted"] == 1
                assert (await send(client, event, second)).json()["duplicate"] == 1


async def test_many_plain_likes_at_once_are_told_apart(valkey_url: str) -> None:
    """Of those that share a batch each gets its own answer: known ones, refused ones, and good ones among them."""
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


async def test_a_like_for_two_boards_or_for_one_that_is_not_the_producers(valkey_url: str) -> None:
    """The short way is for likes that one board takes; a producer's scope may leave one of two, or none."""
    settings = fresh_settings(valkey_url)
    keys = [await make_key(settings, f"for{len(boards)}", boards=boards) for boards in (("posts",), ("posts", "news"))]
    keys.append(await make_key(settings, "gone", boards=("other",)))
    async with serving(settings, POSTS, NEWS) as client:
        told = []
        for key in keys:
            client.headers["Authorization"] = f"Bearer {key}"
            told.append(without_offsets(await send(client, '{"key":"a"}', None))[1])
        assert [answer["offsets"] for answer in told] == [["posts"], ["news", "posts"], []]
        assert [refusal["code"] for refusal in told[2]["rejected"]] == ["board_forbidden"]


async def test_too_many_that_wait_are_told_to_come_again(own_store: StoreProcess) -> None:
    """With as many events waiting as the server holds, the next is refused with Retry-After, and is not counted."""
    settings = fresh_settings(
        own_store.url, max_waiting=5, write_deadline=Duration(3), store_timeout=Duration(3), rate=0
    )
    async with serving(settings, POSTS) as client:
        await send(client, '{"key":"a"}', None)
        with own_store.frozen():
            sent = [asyncio.create_task(send(client, f'{{"key":"a","id":"{n}"}}', None)) for n in range(20)]
            done, _ = await asyncio.wait(sent, timeout=1.5)
        replies = await asyncio.gather(*sent)
        refused = [reply for reply in replies if reply.status_code == 503]
        assert {reply.json()["code"] for reply in refused} == {"overloaded"}
        assert all(reply.headers["Retry-After"] == "1" for reply in refused)
        assert len(done) == len(refused) >= 10
        assert (await client.get("/v1/boards/posts")).json()["total_score"] == 21 - len(refused)
