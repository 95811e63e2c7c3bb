"""Idempotency-Key: each event of a body counts once, however often, wherever and whenever the body is sent."""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import httpx
import pytest

from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.ingest import NEWS, POSTS, make_key, scores, summary
from tests.harness.server import ServerProcess, serving
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


async def outcome(client: httpx.AsyncClient, key: str, body: bytes = LIKE, **headers: str) -> tuple[int, int]:
    """Post a body with an `Idempotency-Key`. Return how many events counted, and how many were duplicates."""
    accepted, duplicate, _ = summary((await send(client, key, body, **headers)).json())
    return accepted, duplicate


@pytest.fixture
async def settings(valkey_url: str) -> Settings:
    """Settings with their own key prefix."""
    return fresh_settings(valkey_url)


async def test_a_repeated_body_has_only_duplicates(settings: Settings) -> None:
    """It is sent again to the same process, to another process, and after a restart."""
    async with serving(settings) as first, serving(settings) as second:
        assert await outcome(first, "k", TWO) == (2, 0)
        assert await outcome(first, "other") == (1, 0)
        assert [await outcome(client, "k", TWO) for client in (first, second)] == [(0, 2)] * 2
    async with serving(settings) as third:
        assert await outcome(third, "k", TWO) == (0, 2)
        assert await scores(third) == {"a": 2, "b": 2}


async def test_equal_events_of_a_body_all_count(settings: Settings) -> None:
    """Each has its own index."""
    async with serving(settings) as client:
        assert await outcome(client, "k", b'[{"key":"a"},{"key":"a"},{"key":"a"}]') == (3, 0)
        assert await outcome(client, "k", b'[{"key":"a"},{"key":"a"},{"key":"a"}]') == (0, 3)
        assert await scores(client) == {"a": 3}


async def test_another_body_counts(settings: Settings) -> None:
    """Only an event that was at the same index of the first body is a duplicate. The answer names it."""
    async with serving(settings) as client:
        assert await outcome(client, "k", TWO) == (2, 0)
        answer = (await send(client, "k", b'[{"key":"c"},{"key":"b","amount":2},{"key":"a"}]')).json()
        assert (answer["accepted"], answer["duplicate"], answer["duplicates"]) == (2, 1, [1])
        assert await outcome(client, "k", b'{"key":"a","amount":7}') == (1, 0)
        assert await scores(client) == {"a": 9, "b": 2, "c": 1}


async def test_an_event_may_be_written_in_another_way(settings: Settings) -> None:
    """Its content counts, and not the order of its fields, its white space, or the compression of the body."""
    async with serving(settings) as client:
        assert await outcome(client, "k", b'[{"key":"a","amount":2}]') == (1, 0)
        assert await outcome(client, "k", b'{ "amount": 2, "key": "a" }') == (0, 1)
        body = gzip.compress(b'[{"key":"\\u0061","amount":2}]')
        assert await outcome(client, "k", body, **{"Content-Encoding": "gzip"}) == (0, 1)
        assert await scores(client) == {"a": 2}


async def test_an_event_with_an_id_keeps_its_identity(settings: Settings) -> None:
    """It is the same event under any `Idempotency-Key`, and at any index."""
    async with serving(settings) as client:
        assert await outcome(client, "k", b'[{"key":"a"},{"key":"b","id":"1"}]') == (2, 0)
        assert await outcome(client, "l", b'[{"key":"b","id":"1"},{"key":"a"}]') == (1, 1)
        assert await scores(client) == {"a": 2, "b": 1}


async def test_a_refused_event_counts_when_it_is_valid(settings: Settings) -> None:
    """A refusal does not use up the identity of an event. The refusal comes again with each repetition."""
    async with serving(settings) as client:
        body = b'[{"key":"a"},{"key":""},{"key":"b","time":"2020-01-01T00:00:00Z"}]'
        for accepted, duplicate in ((1, 0), (0, 1)):
            answer = (await send(client, "k", body)).json()
            refused = [(one["index"], one["code"]) for one in answer["rejected"]]
            assert (answer["accepted"], answer["duplicate"], refused) == (
                accepted, duplicate, [(1, "key_invalid"), (2, "late")],
            )  # fmt: skip


@pytest.mark.slow
async def test_twenty_concurrent_requests_count_once(settings: Settings) -> None:
    """The body has events with and without ids, and goes to two servers."""
    body = b'[{"key":"a"},{"key":"b","id":"1"},{"key":"c"}]'
    async with serving(settings) as first, serving(settings) as second:
        outcomes = await asyncio.gather(*(outcome(client, "k", body) for client in (first, second) * 10))
        assert (sum(accepted for accepted, _ in outcomes), len(outcomes)) == (3, 20)
        assert {accepted + duplicate for accepted, duplicate in outcomes} == {3}
        assert await scores(first) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.slow
async def test_bodies_count_once_while_servers_are_killed(own_store: StoreProcess, tmp_path: Path) -> None:
    """Producers repeat each body until it is answered. Nothing is lost, and nothing counts twice."""
    settings = fresh_settings(own_store.url, data_dir=tmp_path / "d")
    server = ServerProcess(settings, tmp_path)
    server.start()
    answered, ended = [0] * 4, asyncio.Event()

    async def produce(number: int) -> None:
        async with httpx.AsyncClient(timeout=5) as client:
            while not ended.is_set():
                body, key = b'[{"key":"a"},{"key":"b"}]', f"{number}-{answered[number]}"
                headers = {"Content-Type": JSON, "Idempotency-Key": key}
                try:
                    answer = await client.post(f"{server.url}/v1/events", content=body, headers=headers)
                except httpx.TransportError:
                    await asyncio.sleep(0.01)
                    continue
                answered[number] += answer.status_code == 200

    producing = [asyncio.create_task(produce(number)) for number in range(len(answered))]
    for _ in range(3):
        before = sum(answered)

        async def more(before: int = before) -> bool:
            return sum(answered) > before + 50

        await eventually(more)
        server.kill()
        server = ServerProcess(settings, tmp_path)
        server.start()
    ended.set()
    await asyncio.gather(*producing)
    async with httpx.AsyncClient(base_url=server.url) as client:
        for number, count in enumerate(answered):  # the last body of each producer may have no answer
            await outcome(client, f"{number}-{count}", b'[{"key":"a"},{"key":"b"}]')
        assert await scores(client) == dict.fromkeys("ab", sum(answered) + len(answered))
    server.stop()


@pytest.mark.parametrize(
    "key", ["", '""', '"a', 'a"', "a b", '"a b"', "a" * 256, f'"{"a" * 256}"', '"a"b', '"a"; b=c', "é", "a\\b", "a\tb"]
)
async def test_a_malformed_idempotency_key_is_refused(settings: Settings, key: str) -> None:
    """An idempotency key must be one string of 1 to 255 visible characters. Otherwise nothing of the body counts."""
    async with serving(settings) as client:
        response = await send(client, key.encode())
        assert (response.status_code, response.json()["code"]) == (400, "idempotency_key_invalid")
        assert await scores(client) == {}


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
            assert [await outcome(client, form) for form in (key, f'"{key}"')] == [(1, 0), (0, 1)]
        assert await scores(client) == {"a": 4}


async def test_idempotency_keys_belong_to_a_producer(settings: Settings) -> None:
    """The same idempotency key and body from two producers are two requests."""
    shop, site = await make_key(settings, "shop"), await make_key(settings, "site")
    async with serving(settings) as client:
        outcomes = [await outcome(client, "k", Authorization=f"Bearer {key}") for key in (shop, site, shop)]
        assert outcomes == [(1, 0), (1, 0), (0, 1)]
        assert await scores(client) == {"a": 2}


@pytest.mark.parametrize(
    ("body", "media_type", "encoding"),
    [
        (b"", JSON, ""),
        (b'{"key":', JSON, ""),
        (b"[" + b",".join([LIKE] * 11) + b"]", JSON, ""),
        (LIKE, "text/plain", ""),
        (gzip.compress(LIKE, mtime=0)[:-1], JSON, "gzip"),
    ],
)
async def test_an_invalid_body_does_not_use_up_its_idempotency_key(
    settings: Settings, body: bytes, media_type: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards, the corrected body counts with the same key."""
    monkeypatch.setattr("live.ingest.intake.MOST_EVENTS", 10)
    async with serving(settings) as client:
        headers = {"Content-Encoding": encoding} if encoding else {}
        assert (await send(client, "k", body, media_type, **headers)).status_code in {400, 413, 415}
        assert await outcome(client, "k") == (1, 0)


@pytest.mark.slow
async def test_an_unavailable_board_is_fed_on_a_retry(settings: Settings) -> None:
    """The board that has counted the events reports nothing, and the other board counts them."""
    writers = Keys(settings.key_prefix, "news").writers
    store = connect(settings.store, settings)
    async with serving(settings, POSTS, NEWS) as client:
        await send(client, "first")
        await store.rename(writers, f"{writers}-unavailable")
        await store.set(writers, "not a hash")  # the store refuses all commands that use this key
        first = (await send(client, "k", TWO)).json()
        assert (first["accepted"], {entry["board"] for entry in first["rejected"]}) == (2, {"news"})
        await store.rename(f"{writers}-unavailable", writers)
        assert await outcome(client, "k", TWO) == (2, 0)
        assert await outcome(client, "k", TWO) == (0, 2)
        assert await scores(client) == await scores(client, "news") == {"a": 2, "b": 2}
    await store.aclose()


@pytest.mark.slow
async def test_an_unavailable_store_does_not_use_up_the_idempotency_key(own_store: StoreProcess) -> None:
    """The answer is 503, and the same request counts once when the store is back."""
    settings = fresh_settings(own_store.url, store_timeout=0.8, write_deadline=1)
    async with serving(settings) as client:
        await send(client, "first", b'{"key":"z"}')
        with own_store.frozen():
            unavailable = await send(client, "k", TWO)
            code = unavailable.json()["code"]
            assert (unavailable.status_code, code in {"outcome_unknown", "store_unavailable"}) == (503, True)
            assert int(unavailable.headers["Retry-After"]) >= 1

        async def answers() -> bool:
            return (await client.get("/v1/boards/posts")).status_code == 200

        async def counted() -> bool:
            return (await send(client, "k", TWO)).status_code == 200

        await eventually(answers)
        if code == "store_unavailable":  # the server gave up before it sent the batch
            assert await scores(client) == {"z": 1}
        await eventually(counted)
        assert await counted()
        assert await scores(client) == {"b": 2, "a": 1, "z": 1}
