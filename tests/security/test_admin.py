"""Only admin API keys can change boards and records, unless the operator says otherwise and it is safe."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from live.domain.board_file import BoardChoice, VotesChoice, make_board
from live.domain.producer import Scope
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

pytestmark = pytest.mark.security

CONTEST = make_board(
    BoardChoice(id="contest", source=("vote",), window="forever", votes=VotesChoice(per_key=1, registered=True))
)
BOARDS = [rolling_board(), CONTEST]
CHANGES: list[tuple[str, str, Any]] = [
    ("PUT", "/v1/boards/fresh", {}),
    ("PATCH", "/v1/boards/fresh", {"title": "T"}),
    ("PUT", "/v1/boards/contest/records/a", {}),
    ("PATCH", "/v1/boards/posts/records/a", {"hidden": True}),
    ("DELETE", "/v1/boards/contest/records/a", None),
    ("DELETE", "/v1/boards/fresh", None),
    ("GET", "/v1/trail", None),
]
PROXY_FIELDS = [
    {"Forwarded": "for=127.0.0.1"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded-Proto": "http"},
    {"X-Forwarded-Host": "localhost"},
    {"X-Forwarded-Anything": ""},
    {"X-Real-IP": "127.0.0.1"},
    {"Via": "1.1 proxy"},
]


async def statuses(client: httpx.AsyncClient, **headers: str) -> list[int]:
    """The status of each change."""
    return [(await client.request(*change[:2], json=change[2], headers=headers)).status_code for change in CHANGES]


def two_boards(store: str, *, plain: bool = False, **changes: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """A client on the machine of a server without API keys."""
    return server(store, *BOARDS, plain=plain, **changes)


@pytest.mark.parametrize("open_to_all", [False, True])
@pytest.mark.parametrize("plain", [False, True])
async def test_boards_can_not_be_changed_without_an_api_key(valkey_url: str, *, open_to_all: bool, plain: bool) -> None:
    """This includes the same machine. The detail says how to create a key."""
    async with two_boards(valkey_url, plain=plain, open=open_to_all) as client:
        assert (await client.post("/v1/events", json={"key": "a"})).status_code == 200
        assert await statuses(client) == [401] * len(CHANGES)
        refusal = await client.put("/v1/boards/fresh", json={})
        assert refusal.json()["code"] == "credentials_required"
        assert "`live keys add ID --verbs admin`" in refusal.json()["detail"]


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
async def test_an_operator_may_allow_anonymous_changes_from_this_machine(valkey_url: str, *, plain: bool) -> None:
    """They need a local name and no proxy. Pages of other origins are still refused."""
    allowed = {"anonymous_admin": True, "allowed_hosts": ("board.test",)}
    async with two_boards(valkey_url, plain=plain, **allowed) as client:
        await client.post("/v1/events", json={"key": "a"})
        for name in ("localhost", "a.localhost:1", "[::1]", "127.0.0.1"):
            assert (await client.get("/v1/trail", headers={"Host": name})).status_code == 200
        assert await statuses(client, Host="board.test") == [401] * len(CHANGES)
        for fields in PROXY_FIELDS:
            assert await statuses(client, **fields) == [401] * len(CHANGES), fields
        assert await statuses(client, Origin="http://evil.test") == [403] * len(CHANGES)
        assert [status // 100 for status in await statuses(client)] == [2] * len(CHANGES)


@pytest.mark.slow
async def test_only_a_producers_api_key_makes_keys_mandatory_for_posting(valkey_url: str) -> None:
    """An admin key does not. Once a producer has a key, anonymous requests are refused, including changes."""
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    store = connect(valkey_url, settings)
    producers = ProducerStore(store, settings.key_prefix)
    _, secret = await producers.add("boss", Scope(verbs=("admin",)))
    async with run_server(settings, BOARDS) as url, httpx.AsyncClient(base_url=url) as client:
        key = {"Authorization": f"Bearer boss.{secret}"}
        assert (await client.put("/v1/boards/fresh", json={}, headers=key)).status_code == 201
        assert (await client.post("/v1/events", json={"key": "a"})).status_code == 200
        assert (await client.post("/v1/events", json={"key": "a"}, headers=key)).status_code == 403
        assert (await client.get("/v1/trail")).status_code == 200
        await producers.add("shop", Scope())

        async def is_closed() -> bool:
            return (await client.post("/v1/events", json={"key": "a"})).status_code == 401

        await eventually(is_closed)
        assert await statuses(client) == [401] * len(CHANGES)
        assert (await client.get("/v1/trail", headers=key)).status_code == 200
        await producers.revoke("shop")
        assert (await client.post("/v1/events", json={"key": "a"})).status_code == 401
    await store.aclose()


@pytest.mark.slow
async def test_an_operator_chooses_the_role_that_changes_boards(valkey_url: str) -> None:
    """The default is not the public role. A process of another role does not have these routes."""
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    wanted = {"ingest": True, "viewers": False}
    for _ in range(2):
        for role, serves in wanted.items():
            own = replace(settings, role=role, key_prefix=fresh_settings("").key_prefix)
            async with run_server(own, BOARDS) as url, httpx.AsyncClient(base_url=url) as client:
                found = await statuses(client)
                if serves:
                    assert found == [201, 200, 201, 204, 204, 204, 200], role
                else:
                    assert set(found) <= {404, 405}, role
        settings, wanted = replace(settings, admin_roles=("viewers",)), {"ingest": False, "viewers": True}
