"""Limits of prefixes: one server has many tenants. A tenant at its limit is refused, and others are not affected."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.domain.board_file import parse_boards
from tests.harness.ingest import make_key
from tests.harness.server import run_server, serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

BODY: Final = 10  # events in each body
RATE: Final = 20

Client = httpx.AsyncClient
Check = Callable[[Client, Client], Awaitable[None]]


@asynccontextmanager
async def two_servers(store: str, limits: str) -> AsyncIterator[tuple[Client, Client]]:
    """Clients of two servers on one store, with the same limits for `acme-*` and `beta-*`."""
    boards = parse_boards("".join(f'[limits."{tenant}-*"]\n{limits}\n' for tenant in ("acme", "beta")))
    settings = fresh_settings(store, anonymous_admin=True, open=True)
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(run_server(settings, boards)) for _ in range(2)]
        one, two = [await stack.enter_async_context(Client(base_url=url, timeout=180)) for url in urls]
        yield one, two


async def make(client: Client, board: str, **choices: Any) -> httpx.Response:
    """Create a board, or replace its choices."""
    return await client.put(f"/v1/boards/{board}", json={"types": [board], **choices})


def is_refusal(response: httpx.Response, status: int, code: str, *parts: str) -> bool:
    """Check that a response refuses with a status, a code, and a detail that contains all `parts`."""
    problem = response.json()
    assert (response.status_code, problem.get("code")) == (status, code), response.text
    assert all(part in problem["detail"] for part in parts), problem["detail"]
    return True


async def boards_hold(one: Client, two: Client) -> None:
    """Let many requests make boards at once. A tenant gets two boards, and another board for each that it deletes."""
    made = await asyncio.gather(*(make((one, two)[number % 2], f"acme-{number}") for number in range(6)))
    assert sorted(response.status_code for response in made) == [201, 201, 409, 409, 409, 409]
    refused = [response for response in made if response.status_code == 409]
    limit = '`boards` of [limits."acme-*"] in the boards file allows 2: delete one first'
    assert all(is_refusal(each, 409, "too_many_boards", "there are 2 boards `acme-*`", limit) for each in refused)
    assert (await make(two, "beta-1")).status_code == 201
    assert (await make(one, "other")).status_code == 201
    held = next(str(number) for number, response in enumerate(made) if response.status_code == 201)
    assert (await make(two, f"acme-{held}", title="Again")).status_code == 200
    assert (await one.delete(f"/v1/boards/acme-{held}")).status_code == 204
    assert (await make(two, "acme-9")).status_code == 201


async def members_hold(one: Client, two: Client) -> None:
    """Check that the boards of a tenant share its limit of members.

    Each board refuses more members than its `max_members`.
    """
    name = '`members` of [limits."acme-*"] in the boards file allows 5 in all'
    assert is_refusal(await make(one, "acme-a"), 409, "too_many_members", name, "set it to 5 or less")
    assert (await make(one, "acme-a", max_members=3)).status_code == 201
    made = await asyncio.gather(*(make((one, two)[n % 2], f"acme-{n}", max_members=2) for n in range(4)))
    assert sorted(response.status_code for response in made) == [201, 409, 409, 409]
    others = "the other boards `acme-*` have 5"
    assert is_refusal(await make(two, "acme-c", max_members=1), 409, "too_many_members", others, "or delete a board")
    raised = await two.patch("/v1/boards/acme-a", json={"max_members": 4})
    assert is_refusal(raised, 409, "too_many_members", "set it to 3 or less")
    assert (await two.patch("/v1/boards/acme-a", json={"title": "A"})).status_code == 200
    assert (await make(two, "beta-a", max_members=5)).status_code == 201
    for board, taken in (("acme-a", 3), ("beta-a", 5)):
        events = [{"key": str(number), "type": board} for number in range(8)]
        answer = (await two.post("/v1/events", json=events)).json()
        assert answer["accepted"] == taken
        assert {rejection["code"] for rejection in answer["rejected"]} == {"board_full"}


async def viewers_hold(one: Client, _: Client) -> None:
    """Check that viewers by socket and stream share the limit over all boards. A viewer that leaves makes room."""
    for board in ("acme-a", "acme-b", "beta-a"):
        assert (await make(one, board)).status_code == 201
    async with AsyncExitStack() as stack:

        async def watch(board: str) -> httpx.Response | None:
            """Watch over a socket. Return the refusal, or None if the server accepts the viewer."""
            url = f"{str(one.base_url).replace('http', 'ws').rstrip('/')}/v1/boards/{board}/live"
            try:
                await stack.enter_async_context(connect(url))
            except InvalidStatus as refused:
                return httpx.Response(refused.response.status_code, content=bytes(refused.response.body))
            return None

        stream = await stack.enter_async_context(one.stream("GET", "/v1/boards/acme-b/stream"))
        assert stream.status_code == 200
        assert [await watch("acme-a"), await watch("acme-b")] == [None, None]
        limit = "allows 3. Close some"
        refused = await watch("acme-a")
        assert refused is not None
        assert is_refusal(refused, 503, "too_many_viewers", "3 viewers watch the boards `acme-*`", limit)
        assert is_refusal(await one.get("/v1/boards/acme-a/stream"), 503, "too_many_viewers", limit)
        assert [await watch("beta-a") for _ in range(3)] == [None] * 3
        await stream.aclose()

        async def is_admitted() -> bool:
            return await watch("acme-a") is None

        await eventually(is_admitted)


async def rates_hold(one: Client, two: Client) -> None:
    """The rate counts over all boards, producers and servers.

    If one tenant is over its rate, events of the other tenant still count.
    """
    for board in ("acme-a", "acme-b", "beta-a"):
        assert (await make(one, board)).status_code == 201

    async def send(client: Client, *boards: str) -> httpx.Response:
        return await client.post("/v1/events", json=[{"key": "a", "board": board} for board in boards])

    started, counted = time.monotonic(), 0
    for number in range(60):
        response = await send((one, two)[number % 2], *[("acme-a", "acme-b")[number // 2 % 2]] * BODY)
        if response.status_code == 429:
            break
        counted += BODY
    # Each server may admit one more body before it learns that the tenant is over its rate.
    most = 2 * RATE + RATE * (time.monotonic() - started) + 2 * BODY
    assert 2 * RATE <= counted <= most
    whom = "all producers of the boards `acme-*` together may send 20 events per second, and 40 in one burst"
    assert is_refusal(response, 429, "rate_exceeded", whom, '(`rate` of [limits."acme-*"] in the boards file)')
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["ratelimit-policy"] == '"events";q=40;qu="events";w=2'
    assert (await send(one, *["beta-a"] * BODY)).status_code == 200
    for _ in range(10):  # server `one` may learn only after some bodies that the tenant is over its rate
        both = await send(one, *["acme-a"] * BODY, "beta-a")
        if both.json()["accepted"] == 1:
            break
    assert {rejection["code"] for rejection in both.json()["rejected"]} == {"board_unavailable"}


CHECKS: Final[dict[str, tuple[str, Check]]] = {
    "boards": ("boards = 2", boards_hold),
    "members": ("members = 5", members_hold),
    "viewers": ("viewers = 3", viewers_hold),
    "rate": (f"rate = {RATE}", rates_hold),
}


@pytest.mark.parametrize("name", CHECKS)
async def test_a_limit_holds_for_one_tenant_alone(valkey_url: str, name: str) -> None:
    """The refusal names the limit, its value and what to do."""
    limits, holds = CHECKS[name]
    async with two_servers(valkey_url, limits) as (one, two):
        await holds(one, two)


async def test_limits_hold_for_boards_that_are_older(valkey_url: str) -> None:
    """A board that was created before the limits accepts only as many members as the limits allow in all.

    Its choices can still be changed.
    """
    settings = fresh_settings(valkey_url, anonymous_admin=True, open=True)
    async with serving(settings, *parse_boards('[[board]]\nid = "posts"')) as client:
        for number in range(2):
            assert (await make(client, f"acme-{number}")).status_code == 201
    limits = parse_boards('[[board]]\nid = "posts"\n[limits."acme-*"]\nboards = 1\nmembers = 2')
    async with run_server(settings, limits) as url, Client(base_url=url, timeout=180) as client:
        events = [{"key": str(number), "board": "acme-0"} for number in range(3)]
        assert (await client.post("/v1/events", json=events)).json()["accepted"] == 2
        assert (await client.patch("/v1/boards/acme-1", json={"title": "B"})).status_code == 200
        assert (await make(client, "acme-2", max_members=1)).status_code == 409
        assert len((await client.get("/v1/boards")).json()["boards"]) == 3


async def test_a_prefix_is_not_told_to_a_stranger(valkey_url: str) -> None:
    """A producer that may not read a tenant's private boards learns only that some boards exceed their rate."""
    limits = parse_boards('[limits."acme-*"]\nrate = 1\n[[board]]\nid = "acme-a"\nvisibility = "private"')
    settings = fresh_settings(valkey_url)
    key = await make_key(settings, "shop")
    async with run_server(settings, limits) as url, Client(base_url=url, timeout=180) as client:

        async def is_refused() -> bool:
            response = await client.post("/v1/events", json={"key": "a"}, headers={"Authorization": f"Bearer {key}"})
            if response.status_code != 429:
                return False
            assert "acme" not in response.text
            return is_refusal(response, 429, "rate_exceeded", "boards that take these events exceed their rate")

        await eventually(is_refused)
