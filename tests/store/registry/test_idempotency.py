"""One body claims an idempotency key, and all its requests get one response for the promised time."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from live.domain.event import Answer, EventRecord
from live.errors import ProblemError, StoreUnavailableError
from live.settings import Duration
from live.store.connection.client import Store, connect
from live.store.registry.idempotency import StoredResponses
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

BODY, OTHER = hashlib.sha256(b"body").digest(), hashlib.sha256(b"other").digest()


@pytest.fixture
async def client(any_store: str) -> AsyncIterator[Store]:
    """A client of each kind of store."""
    client = connect(any_store, fresh_settings(any_store))
    yield client
    await client.aclose()


def answers(client: Store, **changes: Any) -> StoredResponses:
    """Responses under their own key prefix."""
    return StoredResponses(client, fresh_settings("", **changes))


async def test_the_response_is_stored_unchanged(client: Store) -> None:
    """A claim returns nothing until there is a response, and then always that response, in other processes too."""
    settings = fresh_settings("")
    mine, theirs = StoredResponses(client, settings), StoredResponses(client, settings)
    answer = bytes(range(256))
    assert [await mine.begin("shop", "k", BODY), await theirs.begin("shop", "k", BODY)] == [None, None]
    assert (await mine.finish("shop", "k", answer))[0] == answer
    assert (await theirs.finish("shop", "k", b"late"))[0] == answer
    assert await theirs.begin("shop", "k", BODY) == answer


async def test_a_claim_is_for_one_body(client: Store) -> None:
    """Another body is refused, before and after the first body has its response. The claim stays."""
    mine = answers(client)
    await mine.begin("shop", "k", BODY)
    for _ in range(2):
        with pytest.raises(ProblemError, match="idempotency_key_reused"):
            await mine.begin("shop", "k", OTHER)
        await mine.finish("shop", "k", b"answer")
    assert await mine.begin("shop", "k", BODY) == b"answer"


async def test_idempotency_keys_belong_to_a_producer(client: Store) -> None:
    """The same text from another producer is another idempotency key, and no two names can be confused."""
    mine = answers(client)
    await mine.begin("shop", "k", BODY)
    await mine.finish("shop", "k", b"answer")
    for producer, key in (("site", "k"), ("", "k"), ("shop", "kk"), ("sho", "pk"), ("shopk", ""), ("", "shopk")):
        assert await mine.begin(producer, key, OTHER) is None


async def test_one_of_several_concurrent_responses_is_stored(client: Store) -> None:
    """The first response is stored, and all requests get it."""
    mine = answers(client)
    assert set(await asyncio.gather(*(mine.begin("shop", "k", BODY) for _ in range(20)))) == {None}
    kept = await asyncio.gather(*(mine.finish("shop", "k", b"%d" % number) for number in range(20)))
    assert len(set(kept)) == 1


async def test_a_response_is_kept_for_the_dedupe_window(client: Store) -> None:
    """The window begins again with each request for the response. A claim without a response expires too."""
    mine = answers(client, dedupe_window=Duration(1000))
    name = mine._name("shop", "k")
    await mine.begin("shop", "k", BODY)
    for renew in (mine.begin("shop", "k", BODY), mine.finish("shop", "k", b"answer"), mine.begin("shop", "k", BODY)):
        await client.expire(name, 5)
        await renew
        assert 995 < await client.ttl(name) <= 1000


@pytest.mark.slow
async def test_a_claim_expires(client: Store) -> None:
    """After the claim of an idempotency key has expired, another body can use the key."""
    mine = answers(client, dedupe_window=Duration(0.2))
    await mine.begin("shop", "k", BODY)

    async def free() -> bool:
        return not await client.exists(mine._name("shop", "k"))

    await eventually(free)
    assert await mine.begin("shop", "k", OTHER) is None


@pytest.mark.slow
async def test_an_unavailable_store_tells_whether_events_counted(own_store: StoreProcess) -> None:
    """An error before the count means that nothing counted.

    After an error when the response is stored, events may have counted.
    """
    client = connect(own_store.url, fresh_settings("", store_timeout=Duration(0.2)))
    mine = answers(client)
    with own_store.frozen():
        with pytest.raises(StoreUnavailableError) as before:
            await mine.begin("shop", "k", BODY)
        with pytest.raises(StoreUnavailableError) as after:
            await mine.finish("shop", "k", b"answer")
    assert (before.value.unknown, after.value.unknown) == (False, True)
    await client.aclose()


async def test_stored_responses_forget_a_member(client: Store) -> None:
    """Only responses with the member's record change. They are kept as long as other responses."""
    mine = answers(client)
    plain = Answer(1, 0, (), {"posts": 1})
    position = {"board": "posts", "best": None, "period": None, "rank_count": 2, "epoch": "e", "offset": 1}
    records = [
        msgspec.convert({"index": at, "key": member, "score": 1, "rank": 1, **position}, EventRecord)
        for at, member in enumerate("ab")
    ]
    bodies = {"claimed": None, "plain": plain, "both": msgspec.structs.replace(plain, records=records)}
    for key, body in bodies.items():
        await mine.begin("shop", key, BODY)
        if body is not None:
            await mine.finish("shop", key, msgspec.json.encode(body))
    await mine.forget("b")
    assert await mine.begin("shop", "claimed", BODY) is None
    assert await mine.begin("shop", "plain", BODY) == msgspec.json.encode(plain)
    left = msgspec.json.decode(await mine.begin("shop", "both", BODY) or b"", type=Answer)
    assert left == msgspec.structs.replace(plain, records=records[:1])
