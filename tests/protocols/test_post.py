"""POST /v1/events: its answers, their order, and when connections end."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from live.metrics import REGISTRY
from tests.harness.boards import rolling_board
from tests.harness.producers import bearer, with_keys
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.harness.wire import CHUNKED, CLOSE, ask, chunks, connected, likes, post, request, statuses
from tests.protocols.cases import CASES, MAX_BODY, ONE

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def served(store: str, **changes: Any) -> AsyncIterator[str]:
    """Run a server with one board."""
    async with run_server(fresh_settings(store, **changes), [rolling_board()]) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def url(valkey_url: str) -> AsyncIterator[str]:
    """Yield the address of a server that takes small bodies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("live.ingest.intake.MOST_EVENTS", 10)
        async with served(valkey_url, max_body=MAX_BODY) as server:
            yield server


@pytest.mark.parametrize("name", CASES)
async def test_a_request_is_answered(url: str, name: str) -> None:
    """The requests have bodies of many forms, and many mistakes. Then the connection is open or closed as expected."""
    case = CASES[name]
    found = await ask(url, *case.sent, answers=len(case.statuses))
    if not case.is_http:
        assert b'"code":"malformed_request"' in found[-2]
    assert statuses(found) == [*case.statuses, *([200] if case.stays_open else [])]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.stays_open and len(case.statuses) == 1])
async def test_repeated_requests_are_answered_alike(url: str, name: str) -> None:
    """What the server remembers of a head does not change the answers."""
    sent = CASES[name].sent
    found = await ask(url, *sent, *post(ONE).partition(b"\r\n"), *sent, *sent, answers=4)
    assert statuses(found) == [CASES[name].statuses[0], 200, *CASES[name].statuses * 2, 200]


async def test_a_client_may_wait_for_status_100(url: str) -> None:
    """The server asks for the body behind the answers to earlier requests. It asks nobody whom it refuses."""
    async with connected(url) as wire:
        expects = ("Expect", "100-continue")
        for _ in range(2):
            await wire.send(post(ONE) + post(ONE, expects)[: -len(ONE)])
            assert statuses(await wire.answers(2)) == [200, 100]
            await wire.send(ONE)
            assert statuses([await wire.answer()]) == [200]
        await wire.send(post(ONE, expects, ("Content-Type", "a/b"))[: -len(ONE)])
        assert statuses([await wire.rest()]) == [415]


def mixed(count: int, seed: int) -> tuple[bytes, list[int]]:
    """Pipelined valid and invalid requests to several routes, and the statuses of their answers."""
    chosen = random.Random(seed)
    names = [
        name for name, case in CASES.items() if case.stays_open and len(case.statuses) == 1 and "idempotent" not in name
    ]
    good = (post(likes(chosen.randint(1, 10))) for _ in range(count))
    other = [(request("GET", "/healthz"), 200), (request("GET", "/v1/nothing"), 404)]
    sent, expected = b"", []
    for body in good:
        if chosen.random() < 0.6:
            case = (body, 200)
        elif chosen.random() < 0.5:
            case = chosen.choice(other)
        else:
            name = chosen.choice(names)
            case = b"".join(CASES[name].sent), CASES[name].statuses[0]
        sent += case[0]
        expected.append(case[1])
    return sent, expected


@pytest.mark.parametrize("count", [2, 10, 300])
@pytest.mark.parametrize("seed", range(5))
async def test_pipelined_requests_are_answered_in_order(url: str, count: int, seed: int) -> None:
    """Each request of one write gets its own answer."""
    sent, expected = mixed(count, seed)
    assert statuses(await ask(url, sent, answers=count)) == [*expected, 200]


@pytest.mark.parametrize("seed", range(5))
async def test_answers_do_not_depend_on_how_requests_are_split(url: str, seed: int) -> None:
    """The requests are sent in pieces of various sizes."""
    sent, expected = mixed(30, seed)
    chosen, pieces = random.Random(seed), []
    while sent:
        size = chosen.choice([1, 2, 10, 100, 1000, 5000])
        pieces.append(sent[:size])
        sent = sent[size:]
    assert statuses(await ask(url, *pieces, answers=30)) == [*expected, 200]


@pytest.mark.slow
async def test_pipelined_posts_are_all_counted(url: str) -> None:
    """A thousand pipelined POSTs of one like are each answered and counted."""
    before = await total(url)
    found = await ask(url, post(ONE) * 1000, answers=1000)
    assert all(b'"accepted":1,' in answer for answer in found[:-1])
    assert await total(url) == before + 1000


async def test_requests_after_connection_close_are_not_counted(url: str) -> None:
    """The server reads nothing after a request with `Connection: close`."""
    before = await total(url)
    for last in (post(ONE, CLOSE), post(b"{", CLOSE), post(ONE, CLOSE, target="/v1/%65vents")):
        assert len(await ask(url, last + post(likes(7)) * 3)) == 2
    assert await total(url) == before + 2


@pytest.mark.parametrize("last", ["not HTTP", "bad chunk", "bad field", "a length and chunks"])
async def test_requests_before_invalid_bytes_are_answered(url: str, last: str) -> None:
    """Each request is answered in order. Then the invalid bytes are refused and the connection ends."""
    for first in (post(ONE), request("GET", "/healthz"), post(ONE) + request("GET", "/healthz") + post(ONE)):
        count = first.count(b" HTTP/1.1\r\n")
        found = await ask(url, first + CASES[last].sent[0], answers=count + 1)
        assert statuses(found) == [200] * count + [400]
        assert [b"\r\nconnection: close\r\n" in answer for answer in found[:-1]] == [False] * count + [True]


def counts() -> dict[tuple[str, str], float]:
    """The metrics for events and problems."""
    return {
        (sample.name, str(sample.labels)): sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name.startswith(("live_events", "live_problems")) and not sample.name.endswith("_created")
    }


@pytest.mark.slow
async def test_api_keys_are_checked_before_the_body(valkey_url: str) -> None:
    """API keys are missing, invalid, or do not allow the verb or the board."""
    async with with_keys(valkey_url) as (url, _, keys):
        wrong = [f"nobody.{'x' * 43}", f"all.{'x' * 43}", keys["all"].replace("all.", "posts."), "all", ""]
        sent = [
            post(b"{"), *(post(b"{", bearer(key)) for key in wrong), post(ONE, bearer(keys["admin"])),
            post(ONE, bearer(keys["all"])), post(ONE, bearer(keys["posts"])),
            post(b'{"key":"a","type":"other"}', bearer(keys["posts"])),
            post(b'[{"key":"a","board":"others"},{"key":"a"}]', bearer(keys["posts"])),
            post(b'{"key":"a","type":"other"}', bearer(keys["all"])),
        ]  # fmt: skip
        found = await ask(url, *sent, answers=len(sent))
    assert statuses(found) == [401] * 6 + [403] + [200] * 5 + [200]
    assert [b"board_forbidden" in answer for answer in found[9:12]] == [True, True, False]


@pytest.mark.slow
async def test_a_revoked_api_key_is_refused_on_an_open_connection(valkey_url: str) -> None:
    """The refusal begins within five seconds, although the check of the API key is remembered."""
    async with with_keys(valkey_url) as (url, producers, keys), connected(url) as wire:
        sent = post(ONE, bearer(keys["all"]))
        for _ in range(3):
            await wire.send(sent)
            assert statuses([await wire.answer()]) == [200]
        await producers.revoke("all")

        async def is_refused() -> bool:
            await wire.send(sent)
            return statuses([await wire.answer()]) == [401]

        await eventually(is_refused)


async def test_one_connection_serves_several_producers(valkey_url: str) -> None:
    """A proxy shares connections. The cached result of one head is not used for a head with another API key."""
    async with with_keys(valkey_url) as (url, _, keys), connected(url) as wire:
        length = ("Content-Length", str(len(ONE)))
        for fields in ((), (length,)):  # the API key comes once before and once after the length
            named = [keys["all"], keys["posts"], f"all.{'x' * (len(keys['all']) - 4)}"]
            good, other, bad = (post(ONE, *fields, bearer(key)) for key in named)
            assert len(bad) == len(good)
            for sent, status in [(good, 200), (good, 200), (bad, 401), (good, 200), (other, 200), (bad, 401)] * 2:
                await wire.send(sent)
                assert statuses([await wire.answer()]) == [status]


@pytest.mark.slow
async def test_rates_are_checked_before_the_body(valkey_url: str) -> None:
    """The answer is 429, and says when to come again."""
    async with served(valkey_url, rate=1) as url:
        sent = (post(ONE), post(ONE), post(b"{"), post(ONE, ("Content-Type", "text/plain")))
        found = await ask(url, *sent, answers=4)
    assert statuses(found) == [200, 200, 429, 429, 200]
    assert b"\r\nretry-after: 1\r\n" in found[2]


async def in_turn(url: str, sent: list[bytes]) -> list[bytes]:
    """The answers to requests on one connection, each sent after the previous answer."""
    answers = []
    async with connected(url) as wire:
        for piece in sent:
            await wire.send(piece)
            answers += await wire.answers(piece.count(b" HTTP/1.1\r\n"))
    return answers


async def total(url: str) -> int:
    """The total score of the board."""
    async with httpx.AsyncClient(base_url=url) as client:
        score: int = (await client.get("/v1/boards/posts")).json()["total_score"]
        return score


async def test_trailers_are_ignored(url: str) -> None:
    """A trailer must not change the content type of the body."""
    sent = request("POST", "/v1/events", CHUNKED, body=chunks(ONE)[:-2] + b"Content-Type: application/json\r\n\r\n")
    assert statuses(await ask(url, sent)) == [415, 200]


@pytest.mark.slow
async def test_a_large_body_is_refused(valkey_url: str) -> None:
    """The rate may be checked in the store, and the head may be cached."""
    for rate in (0, 1_000_000):
        async with served(valkey_url, rate=rate, max_body=100) as url:
            large = post(ONE + b" " * 200)
            assert len(str(len(ONE + b" " * 200))) != len(str(len(ONE)))
            sent = [post(ONE), large, post(ONE), large + post(ONE), post(ONE)]
            assert statuses(await in_turn(url, sent)) == [200, 413, 200, 413, 200, 200]
            assert await total(url) == 4


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0, 1000])
async def test_an_unavailable_store_is_reported(own_store: StoreProcess, rate: int) -> None:
    """The answer is 503 with Retry-After, and the connection stays open."""
    async with served(own_store.url, rate=rate, write_deadline=1) as url:
        assert statuses(await ask(url, post(ONE))) == [200, 200]
        own_store.kill()
        found: list[bytes] = []

        async def is_unavailable() -> bool:
            """Return whether the server says that the store is unavailable.

            At first it says that a body may have counted.
            """
            found[:] = await ask(url, post(ONE), post(likes(2)), answers=2)
            return all(b"store_unavailable" in answer for answer in found[:2])

        await eventually(is_unavailable, 60)
        assert statuses(found) == [503, 503, 200]
        assert b"\r\nretry-after: 2\r\n" in found[0]


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [1, 3])
async def test_a_stopping_server_answers_requests_in_progress(own_store: StoreProcess, ahead: int) -> None:
    """The last answer has `connection: close`. Idle connections are closed immediately."""
    settings = fresh_settings(own_store.url)
    server = run_server(settings, [rolling_board()])
    url = await server.__aenter__()
    async with connected(url) as idle, connected(url) as wire:
        for each in (idle, wire):
            await each.send(post(ONE))
            await each.answer()
        with own_store.frozen():
            await wire.send(post(ONE) * ahead)
            # The server has read the earlier requests when it answers this request.
            await ask(url, request("GET", "/healthz"))
            stopping = asyncio.create_task(server.__aexit__(None, None, None))
            assert await idle.rest() == b""
        first, rest = await wire.answer(), await wire.rest()
        await stopping
    answers = [answer for answer in (first + rest).split(b"HTTP/1.1 ") if answer]
    assert all(answer.startswith(b"200 ") and b'"accepted":1,' in answer for answer in answers)
    assert b"\r\nconnection: close\r\n" in answers[-1]
    assert len(answers) == ahead


@pytest.mark.slow
async def test_a_client_that_disconnects_harms_nobody(own_store: StoreProcess) -> None:
    """Complete requests are counted, and incomplete requests are not. No error is counted."""
    whole = post(likes(3))
    cuts = [b"", whole[:20], whole[:-5], whole + whole[:20], post(ONE, ("Expect", "100-continue"))[:-5]]
    before = counts()
    async with run_server(fresh_settings(own_store.url), [rolling_board()]) as url:
        await ask(url, post(ONE))
        for cut in cuts:
            async with connected(url) as wire:
                await wire.send(cut)
        with own_store.frozen():
            async with connected(url) as wire:
                await wire.send(post(likes(4)))
                await ask(url, request("GET", "/healthz"))

        async def is_counted() -> bool:
            return await total(url) == 8

        await eventually(is_counted)
    assert {name: value for name, value in counts().items() if value != before.get(name, 0)}.keys() == {
        ("live_events_accepted_total", "{'board': 'posts'}")
    }
