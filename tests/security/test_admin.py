"""Only admin API keys can change boards and records, unless the operator allows changes by local clients."""

import hmac
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from live.domain.board_file import make_board
from live.domain.choices import Choices, Votes
from live.domain.producer import Principal, Scope
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from live.web.admin.routes import PAGES
from tests.harness.admin import Administrator, add_key, administrator
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings
from tests.harness.tokens import SECRET
from tests.harness.waiting import eventually

pytestmark = pytest.mark.security

CONTEST = make_board(
    Choices(id="contest", types=("vote",), window_choice="forever", votes=Votes(per_key=1, registered=True))
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


def two_boards(store: str, **changes: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """A client of a server with two boards and without API keys, on the same machine."""
    return server(store, *BOARDS, **changes)


@pytest.mark.parametrize("open_to_all", [False, True])
async def test_boards_can_not_be_changed_without_an_api_key(valkey_url: str, *, open_to_all: bool) -> None:
    """Clients on the same machine need an API key too. The answer has the command that creates an API key."""
    async with two_boards(valkey_url, open=open_to_all) as client:
        assert (await client.post("/v1/events", json={"key": "a"})).status_code == 200
        assert await statuses(client) == [401] * len(CHANGES)
        refusal = await client.put("/v1/boards/fresh", json={})
        assert refusal.json()["code"] == "credentials_required"
        assert "`live keys add ID --verbs admin`" in refusal.json()["detail"]


@pytest.mark.slow
async def test_an_operator_may_allow_anonymous_changes_from_this_machine(valkey_url: str) -> None:
    """Clients on this machine must use a local host name, and no proxy. Pages of other origins are still refused."""
    allowed = {"anonymous_admin": True, "allowed_hosts": ("board.test",)}
    async with two_boards(valkey_url, **allowed) as client:
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
    """An admin API key alone does not make API keys mandatory.

    Once a producer has an API key, anonymous requests are refused, including changes.
    """
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    store = connect(valkey_url, settings)
    producers = ProducerStore(store)
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
async def test_viewer_processes_change_no_boards(valkey_url: str) -> None:
    """Processes with the role `ingest` have these routes, and viewer processes do not."""
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    for role, serves in {"ingest": True, "viewers": False}.items():
        own = replace(settings, role=role, key_prefix=fresh_settings("").key_prefix)
        async with run_server(own, BOARDS) as url, httpx.AsyncClient(base_url=url) as client:
            found = await statuses(client)
            if serves:
                assert found == [201, 200, 201, 204, 204, 204, 200], role
            else:
                assert set(found) <= {404, 405}, role


# What an administrator of other boards tries on each page: a form, its action, and its other fields.
FORMS: list[tuple[str, str, dict[str, str]]] = [
    ("boards/{board}", "freeze", {}), ("boards/{board}", "delete", {"id": "theirs"}),
    ("new", "create", {"id": "theirs", "types": "a"}),
    *((page, act, {"key": "Zoe"}) for page in ("members", "member") for act in ("hide", "show")),
    ("member", "correct", {"how": "add", "amount": "5", "reason": "x"}),
    ("member", "title", {"title": "x"}), ("member", "untitle", {}),
    ("void", "try", {"producer": "chief", "since": "2020-01-01T00:00:00Z"}),
    ("void", "void", {"producer": "chief", "since": "2020-01-01T00:00:00Z"}),
    ("events", "send", {"key": "Zoe"}),
    ("keys", "add", {"id": "mine"}), ("keys", "preview", {"id": "mine"}), ("keys", "revoke", {"id": "chief"}),
    ("keys", "sign", {"opens": "theirs"}),
]  # fmt: skip
ROUTES: list[tuple[str, str, Any]] = [
    *((method, "/v1/boards/theirs", {"title": "x"}) for method in ("PUT", "PATCH", "DELETE")),
    *((method, "/v1/boards/theirs/records/Zoe", {"hidden": True}) for method in ("PUT", "PATCH", "DELETE")),
    ("PUT", "/v1/items/Zoe", {"title": "x"}), ("DELETE", "/v1/items/Zoe", None), ("PUT", "/v1/items", {"items": []}),
    ("GET", "/v1/keys", None), ("PUT", "/v1/keys/mine", {}), ("DELETE", "/v1/keys/chief", None),
    ("POST", "/v1/tokens", {"boards": ["theirs"]}),
]  # fmt: skip


# The title and a score of the private board. The score is long, because the random token of a form can contain a short
# one by chance.
PRIVATE = ("Of theirs", "123,456,789", "123456789")


async def check_scope(browser: Administrator, limited: str, chief: dict[str, str]) -> None:
    """Try every page, form and route about a private board that the API key does not include."""
    api, before = browser.client, await state_of(browser.client, chief)
    for page in PAGES:
        for query in ("", "?board=theirs&key=Zoe&q=theirs", "?board=theirs&key=Zoe"):
            shown = await browser.get(page.path.format(board="theirs") + query)
            assert shown.status_code in {200, 303, 400, 403, 422}, (page.path, query)
            assert not [text for text in PRIVATE if text in shown.text], (page.path, query)
    for name, act, fields in FORMS:
        path = name.format(board="theirs")
        address = f"/admin/{path} {act}".encode()
        token = hmac.digest(next(iter(api.cookies.values())).encode(), address, "sha256").hex()[:32]
        form = {"board": "theirs", **fields, "act": act, "token": token}
        answer = await browser.send(path + "?key=Zoe" * (path == "member"), form)
        assert answer.status_code in {200, 403, 404, 409, 422}, (name, act)
        assert not [text for text in PRIVATE if text in answer.text], (name, act)
    for method, path, body in ROUTES:
        answer = await api.request(method, path, json=body, headers={"Authorization": f"Bearer {limited}"})
        assert answer.status_code == 403, (method, path)
        assert (await api.request(method, path, json=body)).status_code == 401, (method, path)
    assert 'href="/admin/keys"' not in (await browser.get()).text, "a page that needs all boards is offered"
    assert await state_of(api, chief) == before


async def state_of(api: httpx.AsyncClient, chief: dict[str, str]) -> list[Any]:
    """Return what the owner sees of the board, of titles, of API keys and of the audit log."""
    paths = ("boards/theirs/definition", "boards/theirs/records/Zoe", "items/Zoe", "trail")
    found = [(await api.get(f"/v1/{path}", headers=chief)).json() for path in paths]
    keys = (await api.get("/v1/keys", headers=chief)).json()["keys"]
    return [*found, [(one["id"], one["verbs"], len(one["secrets"])) for one in keys]]


async def test_an_administrator_of_two_boards_can_do_nothing_with_others(valkey_url: str, tmp_path: Path) -> None:
    """Every page, form and route is tried. The test fails if a new page is not tried."""
    acts = {(page.path, act) for page in PAGES for act in page.acts}
    assert acts - {("session/end", "out"), ("session/end", "everywhere")} == {(name, act) for name, act, _ in FORMS}
    settings = fresh_settings(valkey_url, journal="sqlite", data_dir=tmp_path, token_secret=SECRET)
    limited = await add_key(settings, "limited", "posts", "mine", verbs=("admin", "post"))
    chief = await add_key(settings, "chief", verbs=("admin", "post"))
    headers = {"Authorization": f"Bearer {chief}"}
    async with administrator(settings, key=limited) as browser:
        async with httpx.AsyncClient(base_url=browser.client.base_url, headers=headers) as api:
            board = {"title": "Of theirs", "types": ["theirs"], "visibility": "private"}
            assert (await api.put("/v1/boards/theirs", json=board)).status_code == 201
            await api.put("/v1/items/Zoe", json={"title": "The Zoe"})
            await post(api, {"key": "Zoe", "type": "theirs", "amount": 123_456_789})
        await check_scope(browser, limited, headers)
        with must_be_caught("boards of API keys are ignored"), replaced(Principal, "require_board", lambda *_: None):
            await check_scope(browser, limited, headers)
