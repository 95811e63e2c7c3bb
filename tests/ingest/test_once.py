"""Idempotency-Key: a body gets one answer, however often, wherever and whenever it is sent."""

import asyncio
import gzip
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from live.settings import Duration, Settings
from live.store.board.keys import Keys
from live.store.connection.client import Store, connect
from tests.harness.ingest import NEWS, POSTS, make_key, scores
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

LIKE = b'{"key":"a"}'
TWO = b'[{"key":"a"},{"key":"b","amount":2}]'
JSON = "application/json"


async def send(
    client: httpx.AsyncClient, key: str | bytes, body: bytes = LIKE, media_type: str = JSON, **headers: str
) -> httpx.Response:
    """Post a body with an `Idempotency-Key`."""
    fields: dict[str, Any] = {"Content-Type": media_type, "Idempotency-Key": key, **headers}
    return await client.post("/v1/events", content=body, headers=fields)


async def problem_of(client: httpx.AsyncClient, key: str, body: bytes, **headers: str) -> tuple[int, str]:
    """The status and code of a problem."""
    response = await send(client, key, body, **headers)
    return response.status_code, response.json()["code"]


async def claims(store: Store, settings: Settings) -> list[str]:
    """The store keys of stored answers."""
    return [key async for key in store.names(f"{settings.key_prefix}:{{once:*")]


@pytest.fixture
async def settings(valkey_url: str) -> Settings:
    """Settings with their own key prefix."""
    return fresh_settings(valkey_url)


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    """A client that reads the store directly, past the server."""
    store = connect(settings.store, settings)
    yield store
    await store.aclose()


@pytest.mark.slow
async def test_the_same_body_gets_the_same_answer(settings: Settings) -> None:
    """The answer has the same bytes from another process and after a restart. The body is counted once."""
    async with serving(settings) as first, serving(settings) as second:
        answer = await send(first, "k", TWO)
        await send(first, "other")
        assert answer.json() == {"accepted": 2, "duplicate": 0, "rejected": [], "offsets": {"posts": 1}}
        again = [await send(first, "k", TWO), await send(second, "k", TWO)]
    async with serving(settings) as third:
        again.append(await send(third, "k", TWO))
        assert {response.content for response in again} == {answer.content}
        assert {response.headers["Content-Type"] for response in again} == {"application/json"}
        assert await scores(third) == {"a": 2, "b": 2}


async def test_refusals_are_part_of_the_answer(settings: Settings) -> None:
    """A repeated body with refused events gets the same answer."""
    async with serving(settings) as client:
        for body in (b'[{"key":"a"},{"key":""},{"key":"b","time":"2020-01-01T00:00:00Z"}]', b'{"key":7}', b"[]"):
            key = f"k{len(body)}"
            answers = [(await send(client, key, body)).content for _ in range(2)]
            assert answers[0] == answers[1]


@pytest.mark.slow
async def test_twenty_concurrent_requests_count_once(settings: Settings) -> None:
    """The body has events with and without ids, goes to two servers, and all responses have the same bytes."""
    body = b'[{"key":"a"},{"key":"b","id":"1"},{"key":"c"}]'
    async with serving(settings) as first, serving(settings) as second:
        answers = await asyncio.gather(*(send(client, "k", body) for client in (first, second) * 10))
        assert {(answer.status_code, answer.content) for answer in answers} == {(200, answers[0].content)}
        assert await scores(first) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("body", "counted"), [(TWO, {"b": 2, "a": 1}), (b'[{"key":"a"},{"key":"b"}]', {"a": 1, "b": 1})]
)
async def test_a_process_may_die_before_it_stores_the_answer(
    settings: Settings, store: Store, body: bytes, counted: dict[str, int]
) -> None:
    """The second answer accepts events that the dead process counted, but they are not counted again.

    This also holds for plain likes.
    """
    async with serving(settings) as client:
        first = await send(client, "k", body)
        (name,) = await claims(store, settings)
        await store.hdel(name, "answer")
        second = await send(client, "k", body)
        assert (second.json()["accepted"], second.json()["duplicate"]) == (2, 0)
        assert first.json()["accepted"] == 2
        assert await scores(client) == counted
        assert (await send(client, "k", body)).content == second.content


async def test_another_body_is_refused(settings: Settings, store: Store) -> None:
    """The second body is refused, whether or not the answer to the first body is stored.

    The idempotency key stays with the first body.
    """
    async with serving(settings) as client:
        first = await send(client, "k")
        for body in (b'{"key":"b"}', b'{ "key":"a"}', b'[{"key":"a"}]'):
            assert await problem_of(client, "k", body) == (422, "idempotency_key_reused")
        (name,) = await claims(store, settings)
        await store.hdel(name, "answer")
        assert await problem_of(client, "k", b'{"key":"b"}') == (422, "idempotency_key_reused")
        assert (await send(client, "k")).json()["accepted"] == 1
        assert first.status_code == 200
        assert await scores(client) == {"a": 1}


@pytest.mark.parametrize(
    "key", ["", '""', '"a', 'a"', "a b", '"a b"', "a" * 256, f'"{"a" * 256}"', '"a"b', '"a"; b=c', "é", "a\\b", "a\tb"]
)
async def test_a_malformed_idempotency_key_is_refused(settings: Settings, store: Store, key: str) -> None:
    """An idempotency key must be one string of 1 to 255 visible characters. Otherwise nothing of the body counts."""
    async with serving(settings) as client:
        response = await send(client, key.encode())
        assert (response.status_code, response.json()["code"]) == (400, "idempotency_key_invalid")
        assert await scores(client) == {}
        assert await claims(store, settings) == []


async def test_two_idempotency_keys_are_refused(settings: Settings) -> None:
    """The server does not guess which of two idempotency keys applies, even if they are equal."""
    async with serving(settings) as client:
        for second in ("k", "l"):
            fields = [("Content-Type", JSON), ("Idempotency-Key", "k"), ("idempotency-key", second)]
            response = await client.post("/v1/events", content=LIKE, headers=fields)
            assert (response.status_code, response.json()["code"]) == (400, "idempotency_key_invalid")


async def test_an_idempotency_key_may_be_quoted(settings: Settings) -> None:
    """An idempotency key is the same with and without the quotes of RFC 9651. It has up to 255 visible characters."""
    async with serving(settings) as client:
        for key in ("k", "k" * 255, "8e03978e-40d5-43e8-bc93-6894a57f9324", "!#$%&'()*+,-./:;<=>?@[]^_`{|}~"):
            answers = [await send(client, form) for form in (key, f'"{key}"')]
            assert {answer.content for answer in answers} == {answers[0].content}
            assert answers[0].json()["accepted"] == 1
        assert await scores(client) == {"a": 4}


async def test_idempotency_keys_belong_to_a_producer(settings: Settings) -> None:
    """The same idempotency key and body from two producers are two requests."""
    shop, site = await make_key(settings, "shop"), await make_key(settings, "site")
    async with serving(settings) as client:
        for key in (shop, site, shop):
            answer = await send(client, "k", Authorization=f"Bearer {key}")
            assert answer.json()["accepted"] == 1
        assert await scores(client) == {"a": 2}


@pytest.mark.parametrize(
    ("body", "media_type", "encoding"),
    [
        (b"", JSON, ""),
        (b'{"key":', JSON, ""),
        (b"\xff", JSON, ""),
        (b"[" + b",".join([LIKE] * 11) + b"]", JSON, ""),
        (b'{"key":"' + b"a" * 2000 + b'"}', JSON, ""),
        (LIKE, "text/plain", ""),
        (LIKE, JSON, "gzip"),
        (gzip.compress(LIKE, mtime=0)[:-1], JSON, "gzip"),
    ],
)
async def test_an_invalid_body_does_not_use_up_its_idempotency_key(
    settings: Settings, store: Store, body: bytes, media_type: str, encoding: str
) -> None:
    """The refusal is the same as without an idempotency key.

    Afterwards, the corrected body counts with the same key.
    """
    async with serving(msgspec.structs.replace(settings, max_events=10, max_body=1000)) as client:
        headers = {"Content-Encoding": encoding} if encoding else {}
        for _ in range(2):
            assert (await send(client, "k", body, media_type, **headers)).status_code in {400, 413, 415}
        assert await claims(store, settings) == []
        assert (await send(client, "k")).json()["accepted"] == 1


async def test_the_compressed_body_is_compared(settings: Settings) -> None:
    """A client must send the same compressed bytes again: the server compares bodies before it decompresses them."""
    async with serving(settings) as client:
        compressed = gzip.compress(LIKE, mtime=0)
        headers = {"Content-Encoding": "gzip"}
        answers = [await send(client, "k", compressed, **headers) for _ in range(2)]
        assert answers[0].content == answers[1].content
        assert answers[0].json()["accepted"] == 1


@pytest.mark.slow
async def test_an_unavailable_board_is_fed_on_a_retry(settings: Settings, store: Store) -> None:
    """Only a complete answer is stored, so the retry is not answered from the store."""
    writers = Keys(settings.key_prefix, "news").writers
    async with serving(settings, POSTS, NEWS) as client:
        await send(client, "first")
        await store.rename(writers, f"{writers}-unavailable")
        await store.set(writers, "not a hash")  # the store refuses all commands that use this key
        first = (await send(client, "k", TWO)).json()
        assert (first["accepted"], {entry["board"] for entry in first["rejected"]}) == (2, {"news"})
        await store.rename(f"{writers}-unavailable", writers)
        second = await send(client, "k", TWO)
        assert (second.json()["accepted"], second.json()["rejected"]) == (2, [])
        assert (await send(client, "k", TWO)).content == second.content
        assert await scores(client) == await scores(client, "news") == {"a": 2, "b": 2}


@pytest.mark.slow
async def test_an_unavailable_store_does_not_use_up_the_idempotency_key(own_store: StoreProcess) -> None:
    """The answer is 503, and the same request counts once when the store is back."""
    settings = fresh_settings(own_store.url, store_timeout=Duration(0.8), write_deadline=Duration(1))
    async with serving(settings) as client:
        await send(client, "first", b'{"key":"z"}')
        with own_store.frozen():
            unavailable = await send(client, "k", TWO)
            assert (unavailable.status_code, unavailable.json()["code"]) == (503, "store_unavailable")
            assert int(unavailable.headers["Retry-After"]) >= 1

        async def counted() -> bool:
            return (await send(client, "k", TWO)).status_code == 200

        await eventually(counted)
        assert await counted()
        assert await scores(client) == {"b": 2, "a": 1, "z": 1}


async def test_a_long_answer_is_stored_compressed(settings: Settings, store: Store) -> None:
    """The answer to 2 KB of invalid elements has 70 KB, and the store keeps it in a tenth of that."""
    body = b"[" + b",".join([b"1"] * 1000) + b"]"
    async with serving(settings) as client:
        answer = await send(client, "k", body)
        assert len(answer.content) > 70_000
        assert (await send(client, "k", body)).content == answer.content
    (name,) = await claims(store, settings)
    assert (await store.memory_usage(name) or 0) < 7000


@pytest.mark.slow
async def test_a_stored_answer_counts_towards_the_rate(valkey_url: str) -> None:
    """An answer with many different refusals takes much memory, so it is charged like many events."""
    settings = fresh_settings(valkey_url, rate=1, burst=1100)
    async with serving(settings) as client:
        names = [secrets.token_hex(60) for _ in range(1000)]
        body = ("[" + ",".join(f'{{"key":"a","{name}":1}}' for name in names) + "]").encode()
        assert (await send(client, "k", body)).status_code == 200
        assert (await client.post("/v1/events", json=[{"key": "a"}])).status_code == 429
