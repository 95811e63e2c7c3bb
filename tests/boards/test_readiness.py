"""`/readyz` of a server that is not ready: JSON with a status and reasons, whatever the reason is."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from live.boards.readiness import Faults, Readiness
from live.store.board.keys import Keys, SystemKeys
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.mutation import replaced
from tests.harness.server import ServerProcess, serving, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.harness.wire import connected, request

pytestmark = pytest.mark.slow

LOST: Final = "the store lost data of the board, or of all boards. Nothing was counted"


class Here(NamedTuple):
    """A server and its store, which a test may damage."""

    store: StoreProcess
    redis: Any
    prefix: str
    client: httpx.AsyncClient


async def kill(here: Here) -> None:
    """End the store."""
    here.store.kill()


def setting(name: str, value: object) -> Callable[[Here], Awaitable[None]]:
    """Change a setting of the store."""

    async def change(here: Here) -> None:
        await here.redis.config_set(name, value)

    return change


async def replicate(here: Here) -> None:
    """Make the store a replica."""
    await here.redis.replicaof("127.0.0.1", 1)


async def empty(here: Here) -> None:
    """Delete everything in the store."""
    await here.redis.flushall()


async def lose_board(here: Here) -> None:
    """Delete the data of a board."""
    await here.redis.delete(Keys(here.prefix, "posts").meta)


async def damage_definitions(here: Here) -> None:
    """Store an invalid definition."""
    names = SystemKeys(here.prefix)
    await here.redis.hset(names.definitions, mapping={"damaged": "?", ":version": 1000})
    await here.redis.rpush(names.changes, "damaged")


async def upgrade(here: Here) -> None:
    """Write what a newer version of the server writes."""
    await here.redis.set(SystemKeys(here.prefix).format, 99)
    await here.redis.client_kill_filter(_type="normal", skipme=True)


CASES: Final[dict[str, tuple[Callable[[Here], Awaitable[None]], str]]] = {
    "the store is away": (kill, "the store does not answer"),
    "the store's memory is full": (setting("maxmemory", 1), "the store refuses: OOM command not allowed"),
    "the store's replicas are missing": (setting("min-replicas-to-write", 1), "the store refuses: NOREPLICAS"),
    "the store is a replica": (replicate, "the store refuses: READONLY"),
    "the store was emptied": (empty, LOST),
    "the store lost a board": (lose_board, LOST),
    "a definition is damaged": (damage_definitions, "board 'damaged' can't be read"),
    "the store's format is newer": (upgrade, "the store has format 99"),
}


async def not_ready(client: httpx.AsyncClient, reason: str) -> None:
    """Wait until a server is not ready, and check that it says why, as JSON."""

    async def answer() -> httpx.Response | None:
        found = await client.get("/readyz")
        return found if found.status_code != 200 else None

    response = await eventually(answer)
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    assert int(response.headers["retry-after"]) > 0
    found = response.json()
    assert found.keys() == {"status", "reasons"}
    assert found["status"] == "not_ready"
    assert [reason in one for one in found["reasons"]] == [True], found
    head = await client.head("/readyz")
    assert (head.status_code, head.content) == (503, b"")


@pytest.mark.parametrize("kind", CASES)
async def test_a_server_that_is_not_ready_says_why(own_store: StoreProcess, tmp_path: Path, kind: str) -> None:
    """Everybody may see the reason, so it does not have the store's address. The log has the details."""
    damage, reason = CASES[kind]
    settings = fresh_settings(own_store.url, data_dir=tmp_path / "data")
    redis: Any = connect(own_store.url, settings)
    async with serving(settings, rolling_board()) as client:
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        await damage(Here(own_store, redis, settings.key_prefix, client))
        await not_ready(client, reason)
        assert str(own_store.path) not in (await client.get("/readyz")).text
    await redis.aclose()


async def test_a_store_that_is_frozen_is_named(own_store: StoreProcess) -> None:
    """The server waits `store_timeout` for the store. When the store runs again, the server is ready again."""
    async with serving(fresh_settings(own_store.url, store_timeout=0.3), rolling_board()) as client:
        await until_ready(client)
        with own_store.frozen():
            await not_ready(client, "the store does not answer")
        await until_ready(client)


async def test_a_failure_of_the_server_is_a_reason(valkey_url: str) -> None:
    """`/readyz` also reports an unexpected exception, but only the log has its cause."""

    async def fail(_readiness: Readiness) -> Faults:
        raise RuntimeError("a secret")

    with replaced(Readiness, "require", fail):
        async with serving(fresh_settings(valkey_url), rolling_board()) as client:
            response = await client.get("/readyz")
            assert response.status_code == 500
            assert response.json() == {
                "status": "not_ready", "reasons": ["the server failed; its log has the cause"],
            }  # fmt: skip


async def test_a_server_that_stops_is_not_ready(own_store: StoreProcess, tmp_path: Path) -> None:
    """While the server stops, it still answers `/readyz` with "not ready", so a load balancer sends nothing more."""
    settings = fresh_settings(own_store.url, store_timeout=20)
    process = ServerProcess(settings, tmp_path)
    process.start()
    assert process.process is not None
    try:
        async with connected(process.url) as wire, connected(process.url) as other:
            with own_store.frozen():
                await wire.send(request("GET", "/v1/boards/posts") + request("GET", "/readyz"))
                await other.send(request("GET", "/healthz"))
                await other.answer()  # this answer shows that the server has received the earlier requests
                process.process.terminate()
                assert await other.rest() == b""  # the server closes idle connections when it begins to stop
            page, ready = await wire.answers(2)
            assert page.startswith(b"HTTP/1.1 200 ")
            assert ready.startswith(b"HTTP/1.1 503 ")
            assert b'{"status":"not_ready","reasons":["the server is shutting down' in ready
    finally:
        await asyncio.to_thread(process.stop)
