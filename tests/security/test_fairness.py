"""One client asks for pages and the past, which take long. Other clients wait for few of these requests."""

import asyncio
import time
from typing import Final

import httpx
import pytest

from tests.harness.boards import rolling_board
from tests.harness.nginx import TRUSTED
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.harness.wire import connected, request, statuses

pytestmark = [pytest.mark.slow, pytest.mark.security]

GREEDY, MODEST = "192.0.2.1", "192.0.2.2"
CONNECTIONS: Final = 16


async def stopped(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel the connections of a client."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.alone
async def test_clients_take_turns_at_drawing(valkey_url: str, effort: int) -> None:
    """A client with one connection waits for few pages of a client with many connections, not for a page of each."""
    async with run_server(fresh_settings(valkey_url, trusted_proxies=TRUSTED), [rolling_board()]) as url:
        served = 0

        async def flood(number: int) -> None:
            nonlocal served
            async with connected(url) as wire:
                for page in range(10_000):
                    path = f"/boards/posts?find=k{number}-{page}"
                    await wire.send(request("GET", path, ("X-Forwarded-For", GREEDY)))
                    await wire.answer()
                    served += 1

        async def floods() -> bool:
            return served >= 2 * CONNECTIONS

        tasks = [asyncio.create_task(flood(number)) for number in range(CONNECTIONS)]
        try:
            await eventually(floods)
            async with connected(url) as wire:
                overtaken = []
                for page in range(10 * effort):
                    before = served
                    await wire.send(request("GET", f"/boards/posts?find=m{page}", ("X-Forwarded-For", MODEST)))
                    await wire.answer()
                    overtaken.append(served - before)
        finally:
            await stopped(tasks)
    assert sorted(overtaken)[len(overtaken) // 2] < CONNECTIONS / 2, (
        f"pages of the greedy client before each other page: {overtaken}"
    )


@pytest.mark.alone
async def test_histories_of_one_client_leave_the_past_to_others(valkey_url: str, effort: int) -> None:
    """Forty connections ask for the longest histories. Every reading of another client succeeds."""
    settings = fresh_settings(valkey_url, journal="sqlite", trusted_proxies=TRUSTED, open=True)
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url, timeout=180, headers={"X-Forwarded-For": MODEST}) as client,
    ):
        events = [{"type": "like", "key": f"k{number}"} for number in range(50)]
        assert (await client.post("/v1/events", json=events)).status_code == 200
        refused = answered = 0

        async def flood() -> None:
            nonlocal refused, answered
            async with connected(url) as wire:
                while True:
                    begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 390))
                    path = f"/v1/boards/posts/history?from={begin}&step=1s&key=k1"
                    await wire.send(request("GET", path, ("X-Forwarded-For", GREEDY)))
                    answered += 1
                    refused += statuses([await wire.answer()]) == [503]

        async def is_overloaded() -> bool:
            return refused > 0

        tasks = [asyncio.create_task(flood()) for _ in range(40)]
        try:
            await eventually(is_overloaded, 60)
            before, path = answered, "/v1/boards/posts/records/k1/history?step=6h"
            seen = [(await client.get(path)).status_code for _ in range(20 * effort)]
        finally:
            await stopped(tasks)
        assert seen == [200] * 20 * effort
        assert answered > before, "the flood ended before the other client was done"


async def test_a_request_with_many_parameters_is_refused(valkey_url: str) -> None:
    """Every path refuses the request by the number of its parameters, before it parses them."""
    many = "&".join(f"a{number}=1" for number in range(7000))
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:
        for path in ("/", "/boards/posts", "/v1/boards/posts", "/v1/boards/posts/live", "/metrics", "/none"):
            async with connected(url) as wire:
                await wire.send(request("GET", f"{path}?{many}"))
                answer = await wire.rest()
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert b"at most 128 parameters" in answer
        async with httpx.AsyncClient(base_url=url) as client:
            keys = "&".join(f"key=k{number}" for number in range(100))
            assert (await client.get(f"/v1/items?{keys}")).status_code == 200
