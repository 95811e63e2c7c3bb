"""For someone who may not read a private board, it does not exist: every answer is the same as for an unknown board.

The requests come from the contract itself, so a new route is tested as soon as it is documented.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import httpx
import msgspec
import pytest

from live.auth.sessions import SignedIn
from live.boards.registry import BoardRegistry
from live.domain.reader import ALL_BOARDS, SERVER, Gated, Reader
from live.fanout.hub import Hub
from live.store.connection.client import Store
from live.web.api.fast import FastReads
from live.web.app import make_app
from live.web.contract.documents import openapi_document
from live.web.parts import Live
from tests.harness import wire
from tests.harness.admin import Administrator
from tests.harness.boards import built, rolling_board
from tests.harness.ingest import make_key
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.producers import bearer
from tests.harness.raw_socket import HANDSHAKE
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.tokens import SECRET, make_token, token_field
from tests.harness.waiting import eventually
from tests.harness.wire import CLOSE, connected, request

pytestmark = pytest.mark.security

PRIVATE: Final = "board-that-is-secret"
UNKNOWN: Final = "board-that-is-no-one"
_AT_ONCE: Final = 60
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_VALUES: Final = (
    "1", "5", "0", "x", "", "true", "24h", "1s", "30s", "current", "previous", "2026-11-24", "wall", "auto", "en",
    "transparent", "a", "2026-11-24T00:00:00Z", "100", "WyJwYXN0Iiw1XQ", "e1:3",
)  # fmt: skip
_FIELDS: Final[Sequence[tuple[tuple[str, str], ...]]] = (
    (), (), (),
    (("If-None-Match", "*"),),
    (("If-None-Match", '"abc:1"'),),
    (("Accept-Encoding", "gzip"),),
    (("Origin", "https://friend.example"),),
    (("Origin", "http://localhost"),),
    (("Accept", "application/json"), ("Origin", "http://localhost"), ("Sec-Fetch-Site", "same-origin")),
    (("Last-Event-ID", "abc:1"),),
    (("Cookie", "live-theme=dark; live-lang=zh-Hans"), ("Accept-Language", "zh")),
    (("Access-Control-Request-Method", "GET"), ("Origin", "https://friend.example")),
    (("Content-Type", "application/x-www-form-urlencoded"),),
)  # fmt: skip
_BODIES: Final = (b"", b"{}", b'{"title":"x"}', b'{"hidden":true}', b"key=a", b'[{"key":"a"}]')


class Site(NamedTuple):
    """A server with a private board.

    `strangers` has, by name, header fields of clients that may not read the board, and `owners` the owner's fields.
    """

    url: str
    strangers: dict[str, tuple[tuple[str, str], ...]]
    owners: tuple[tuple[str, str], tuple[str, str]]

    @property
    def owner(self) -> tuple[str, str]:
        """Return the header field with the API key of the owner."""
        return self.owners[0]


@asynccontextmanager
async def site(store: str, **changes: Any) -> AsyncIterator[Site]:
    """A server with a public and a private board that have events."""
    settings = fresh_settings(
        store, allowed_origins=("https://friend.example",), journal="sqlite", open=True,
        token_secret=SECRET, **changes,
    )  # fmt: skip
    keys = {
        "post": await make_key(settings, "shop", verbs=("post",), boards=("posts",)),
        "read": await make_key(settings, "other", verbs=("read",), boards=("posts", "board-that-*x")),
        "admin": await make_key(settings, "tenant", verbs=("admin", "post"), boards=("posts", "board-of-*")),
    }
    owner = await make_key(settings, "owner", verbs=("admin", "post", "read"))
    secret = built(id=PRIVATE, title="Salaries", source=frozenset({"secret"}), like_button=True, visibility="private")
    strangers: dict[str, tuple[tuple[str, str], ...]] = {name: (bearer(key),) for name, key in keys.items()}
    strangers |= {
        "nobody": (),
        "revoked": (bearer("owner.wrong"),),
        "basic": (("Authorization", "Basic b3duZXI6eA=="),),
        "token": (token_field(make_token("posts", "board-that-*x")),),
        "expired": (token_field(make_token(PRIVATE, ends=-1)),),
    }
    async with run_server(settings, [rolling_board(), secret]) as url:
        async with httpx.AsyncClient(base_url=url, headers=dict([bearer(owner)])) as client:
            await post(client, {"key": "a", "type": "secret"}, {"key": "b", "board": PRIVATE}, {"key": "a"})
        # The function `request` sends this host name too.
        strangers["session"] = (await session_of(url, keys["admin"], Host="localhost"),)
        yield Site(url, strangers, (bearer(owner), await session_of(url, owner)))


async def session_of(url: str, key: str, **headers: str) -> tuple[str, str]:
    """The header field of a browser that is signed in to the admin page."""
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await Administrator(client).sign_in(key, **headers)).status_code == 303
        return "Cookie", "; ".join(f"{name}={value}" for name, value in client.cookies.items())


class Asked(NamedTuple):
    """A request with `{board}` where the id of a board belongs."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    body: bytes = b""

    def bytes_for(self, board: str) -> bytes:
        """Return the bytes of the request, with the id of a board in place of `{board}`."""
        body = self.body.replace(b"{board}", board.encode())
        length = (("Content-Length", str(len(body))),) if body else ()
        fields = [(name, value.replace("{board}", f"{board}{len(body)}")) for name, value in self.fields]
        close = () if HANDSHAKE[0] in self.fields else (CLOSE,)
        return request(self.method, self.target.replace("{board}", board), *fields, *length, *close, body=body)


def routes() -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each documented path of a board, as an address with `{board}`, and the parameters that it may have."""
    for path, operations in openapi_document()["paths"].items():
        if "{board}" in path:
            names = {each["name"] for one in operations.values() for each in one["parameters"] if each["in"] == "query"}
            yield path.replace("{key}", "a"), sorted(names)


def every_request() -> Iterator[Asked]:
    """Yield each route with each method, and the other requests that name a board."""
    for path, _ in routes():
        for method in _METHODS:
            body = b"key=a" if path.endswith("/likes") else b"{}" if method in {"PUT", "PATCH"} else b""
            kind = (("Content-Type", "application/json"),) if body else ()
            yield Asked(method, path, kind, body)
        if path.endswith("/live"):
            yield Asked("GET", path, HANDSHAKE)
            yield Asked("GET", path + "?limit=5&epoch=abc&offset=1", HANDSHAKE)
    for pair in ("posts,{board}", "{board},posts", "{board},{board}", "%7Bboard%7D", "{board}%2C"):
        yield Asked("GET", f"/boards/{pair}", ())
        yield Asked("GET", f"/embed/{pair}", ())
    for body in (
        b'{"key":"a","board":"{board}"}', b'[{"key":"a","board":"{board}"},{"key":"b"}]',
        b'[{"key":"a","type":"secret"},{"key":"b","board":"{board}","amount":99999999999}]',
    ):  # fmt: skip
        yield Asked("POST", "/v1/events", (("Content-Type", "application/json"),), body)
        yield Asked("POST", "/v1/events", (("Content-Type", "application/json"), ("Idempotency-Key", "{board}")), body)


def random_request(chance: random.Random, known: Sequence[tuple[str, Sequence[str]]]) -> Asked:
    """Draw a request: mostly a valid one."""
    path, names = chance.choice(known)
    if chance.random() < 0.1:
        path = path.replace(
            "{board}", chance.choice(("{board},posts", "posts,{board}", "{board}.", "%2e{board}", "{board}/"))
        )
    if chance.random() < 0.1:
        path = path.replace("/a", chance.choice(("/%C3%A9", "/a%2Fslots", "/.", "/" + "k" * 300)))
    pairs = [
        f"{chance.choice(names)}={chance.choice(_VALUES)}" for _ in range(chance.choice((0, 0, 1, 1, 2, 3))) if names
    ]
    method = "GET" if chance.random() < 0.7 else chance.choice(_METHODS)
    body = chance.choice(_BODIES) if method in {"POST", "PUT", "PATCH"} else b""
    is_socket = path.endswith("/live") and method == "GET" and chance.random() < 0.7
    fields = HANDSHAKE if is_socket else chance.choice(_FIELDS)
    return Asked(method, path + ("?" + "&".join(pairs) if pairs else ""), fields, body)


async def answer(url: str, sent: bytes, board: str) -> bytes:
    """Return everything that a server answers, without the id of the board and the offset of the public board.

    The offset of the public board is higher for the second of two requests that are not counted in one batch, and can
    have one digit more.
    """
    async with connected(url) as connection:
        await connection.send(sent)
        try:
            text = await connection.rest()
        except TimeoutError:
            text = b"no end: somebody watches"
    text = text.replace(board.encode(), b"{board}")
    if offset := re.search(rb'(?<="posts":)[0-9]+', text):
        text = text.replace(b'"posts":' + offset[0], b'"posts":0')
        text = re.sub(rb"(?<=content-length: )[0-9]+", lambda length: b"%d" % (int(length[0]) - len(offset[0])), text)
    return text


async def differing(at: Site, asked: Sequence[tuple[Asked, str]]) -> list[tuple[str, Asked, bytes, bytes]]:
    """Ask about both boards. Return the requests that are answered differently."""
    found: list[tuple[str, Asked, bytes, bytes]] = []
    turns = asyncio.Semaphore(_AT_ONCE)

    async def compare(one: Asked, who: str) -> None:
        mine = one._replace(fields=(*one.fields, *at.strangers[who]))
        async with turns:
            private, unknown = await asyncio.gather(
                *(answer(at.url, mine.bytes_for(board), board) for board in (PRIVATE, UNKNOWN))
            )
        if private != unknown:
            found.append((who, mine, private, unknown))

    async with asyncio.TaskGroup() as tasks:
        for one, who in asked:
            tasks.create_task(compare(one, who))
    return found


async def check_every_route(store: str, ending: str = "") -> None:
    """Send every request of `every_request` as each stranger."""
    async with site(store) as at:
        every = [one for one in every_request() if one.target.endswith(ending)]
        assert await differing(at, [(one, who) for one in every for who in at.strangers]) == []


async def check_random_requests(store: str, count: int, seed: int) -> None:
    """Send random requests as random strangers."""
    chance, known = random.Random(seed), list(routes())
    async with site(store) as at:
        names = sorted(at.strangers)
        asked = [(random_request(chance, known), chance.choice(names)) for _ in range(count)]
        assert await differing(at, asked) == []


async def test_every_route_answers_as_for_an_unknown_board(valkey_url: str) -> None:
    """No byte differs, whether a request has no API key, a revoked API key, or an API key for other boards."""
    await check_every_route(valkey_url)


async def test_random_requests_are_answered_as_for_an_unknown_board(
    valkey_url: str, pytestconfig: pytest.Config
) -> None:
    """No byte differs, on the fast path and through the application."""
    count = 250 * pytestconfig.option.effort
    await check_random_requests(valkey_url, count, pytestconfig.option.seed)


async def check_store_calls(store: str) -> None:
    """Check that requests for both boards ask the same of the store.

    A stranger with an API key sends the requests, and the application answers them.
    """
    asked: ContextVar[list[str] | None] = ContextVar("asked", default=None)
    seen: dict[str, list[str]] = {}

    def noting(name: str, right: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if (words := asked.get()) is not None:
                words.append(name)
            return right(*arguments, **named)

        return call

    async def ask(_: BoardRegistry) -> None:  # the real function runs once for all requests within a tenth of a second
        words = asked.get()
        assert words is not None
        words.append("ask")

    def counted(*arguments: Any) -> Any:
        app = make_app(*arguments)

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                asked.set(seen.setdefault(f"{scope['method']} {scope['path']}", []))
            await app(scope, receive, send)

        return serve

    with ExitStack() as stack:
        for name in ("call", "calls", "_confirmed", "outcomes"):
            stack.enter_context(patch.object(Store, name, noting(name, getattr(Store, name))))
        stack.enter_context(patch.object(BoardRegistry, "ask", ask))
        stack.enter_context(patch("tests.harness.server.make_app", counted))
        async with site(store) as at:
            for one in every_request():
                if HANDSHAKE[0] not in one.fields:
                    for board in (PRIVATE, UNKNOWN):
                        await answer(
                            at.url, one._replace(fields=(*one.fields, *at.strangers["read"])).bytes_for(board), board
                        )
    of_private = {path.replace(PRIVATE, UNKNOWN): words for path, words in seen.items() if PRIVATE in path}
    assert len(of_private) > 50
    assert {path: seen[path] for path in of_private} == of_private


async def test_a_private_board_costs_as_many_store_calls_as_an_unknown_one(valkey_url: str) -> None:
    """Requests for both boards make the same store calls.

    Otherwise, the time of a response would tell that the board exists.
    """
    await check_store_calls(valkey_url)


@pytest.mark.mutant
async def test_a_gate_behind_the_store_is_caught(valkey_url: str) -> None:
    """The mutant looks up the board before the rights of the reader."""

    async def wrong(live: Live, board: str, reader: Reader) -> Any:
        if live.registry.ledgers.find(board, SERVER) is not None:
            await live.client.call("x", "TIME")
        return await right(live, board, reader)

    right = Live.ledger
    with must_be_caught("a private board costs another store call"), replaced(Live, "ledger", wrong):
        await check_store_calls(valkey_url)


async def test_the_owner_reads_everything(valkey_url: str) -> None:
    """The same requests show the board to its readers. So the comparison with an unknown board proves something."""
    async with site(valkey_url) as at:
        for owner in at.owners:
            await check_owner(at.url, owner)


async def check_owner(url: str, owner: tuple[str, str]) -> None:
    """Read everything, with an API key or signed in to the admin page."""
    async with httpx.AsyncClient(base_url=url, headers=dict([owner]), timeout=180) as client:
        seen = 0
        for path, _ in routes():
            if path.endswith(("/live", "/stream", "/likes")):
                continue
            one = await client.get(path.replace("{board}", PRIVATE))
            if one.status_code == 200:
                seen += 1
                assert one.headers["cache-control"] == "private, no-store", path
                assert {"Authorization", "Cookie"} <= set(one.headers["vary"].split(", ")), path
        assert seen >= 11
        listed = (await client.get("/v1/boards")).json()["boards"]
        assert [(board["board"], board["visibility"]) for board in listed] == [
            ("posts", "public"),
            (PRIVATE, "private"),
        ]
        assert {one["board"] for one in (await client.get("/v1/records/a")).json()["records"]} == {"posts", PRIVATE}
        assert PRIVATE in (await client.get("/")).text
        if owner[0] == "Authorization":
            assert f'board="{PRIVATE}"' in (await client.get("/metrics")).text


async def test_no_list_names_a_private_board(valkey_url: str) -> None:
    """The lists, the index, readiness, contracts, metrics and the audit log do not name the board."""
    paths = [
        "/",
        "/?q=secret",
        "/v1/boards",
        "/v1/records/a",
        "/metrics",
        "/readyz",
        "/openapi.json",
        "/docs",
        "/v1/trail",
    ]
    async with site(valkey_url) as at, httpx.AsyncClient(base_url=at.url, timeout=180) as client:
        for path in paths:
            # If the server caches this answer, only the owner may receive it again.
            await client.get(path, headers=dict([at.owner]))
            for who, fields in at.strangers.items():
                one = await client.get(path, headers=dict(fields))
                assert PRIVATE not in one.text.replace("q=secret", ""), (path, who)
                assert "Salaries" not in one.text, (path, who)
        assert (await client.get("/metrics")).status_code == 401
        shown = await client.get("/v1/boards")
        assert shown.headers["vary"].startswith("Authorization, Cookie")


@pytest.mark.mutant
async def test_a_route_without_the_gate_is_caught(valkey_url: str) -> None:
    """In the mutant, one route reads with the rights of the server, and so shows the board."""

    async def open_to_all(live: Live, board: str, _reader: Reader) -> Any:
        found = live.registry.ledgers.find(board, SERVER)
        if found is None:
            raise _reader.refusal()
        return found

    with must_be_caught("a route does not check the reader"), replaced(Live, "ledger", open_to_all):
        await check_every_route(valkey_url)


@pytest.mark.mutant
async def test_a_session_that_opens_all_boards_is_caught(valkey_url: str) -> None:
    """In the mutant, everybody who is signed in sees everything."""

    async def wrong(*_: object) -> Reader:
        return Reader(ALL_BOARDS)

    with must_be_caught("an administrator of some boards sees all boards"), replaced(SignedIn, "_read", wrong):
        await check_every_route(valkey_url, "/baseline")


@pytest.mark.mutant
async def test_a_fast_path_without_the_gate_is_caught(valkey_url: str) -> None:
    """The mutant gives the fast path its own ledgers, which are open to all."""

    class Open(Gated[Any]):
        def __init__(self, ledgers: Gated[Any]) -> None:
            self._ledgers = ledgers

        def find(self, board: str, _reader: Reader) -> Any:
            return self._ledgers.find(board, SERVER)

    right = FastReads.__init__

    def wrong(fast: FastReads, live: Live) -> None:
        right(fast, live)
        fast._ledgers = Open(live.registry.ledgers)

    with must_be_caught("the fast path does not check the reader"), replaced(FastReads, "__init__", wrong):
        await check_random_requests(valkey_url, 500, 0)


@pytest.mark.mutant
async def test_sockets_without_the_gate_are_caught(valkey_url: str) -> None:
    """In the mutant, the hub lets everybody in."""
    right = Hub.find

    def wrong(hub: Hub, board: str, subscription: Any) -> Any:
        return right(hub, board, msgspec.structs.replace(subscription, reader=SERVER))

    with must_be_caught("sockets check no reader"), replaced(Hub, "find", wrong), patch.object(wire, "_WAIT", 2.0):
        await check_every_route(valkey_url, "/live")


async def test_a_post_names_only_boards_that_its_key_may_read(valkey_url: str) -> None:
    """An API key that only posts feeds a private board, and learns nothing of it.

    An API key that also reads learns all.
    """
    settings = fresh_settings(valkey_url)
    boards = [
        rolling_board(),
        built(id="a-part", title="a", visibility="private"),
        built(id="a-sum", title="s", source=frozenset(), union={"posts": 1, "a-part": 1}, visibility="private"),
    ]
    posts: list[dict[str, Any]] = [
        {"verbs": ("post",)},
        {"verbs": ("post", "read")},
        {"verbs": ("post",), "boards": ("posts",)},
    ]
    keys = [await make_key(settings, f"key{number}", **scope) for number, scope in enumerate(posts)]
    async with run_server(settings, boards) as url, httpx.AsyncClient(base_url=url, timeout=180) as client:
        found = []
        for key in keys:
            headers = dict([bearer(key)])
            plain = (await client.post("/v1/events", json={"key": "x"}, headers=headers)).json()
            named = (await client.post("/v1/events", json={"key": "x", "board": "a-part"}, headers=headers)).json()
            found.append((sorted(plain["offsets"]), sorted(named["offsets"]), named["accepted"], named["rejected"]))
        assert found[0][0] == ["posts"]
        assert found[1][0] == ["a-part", "a-sum", "posts"]
        assert found[2][0] == ["posts"]
        assert found[0][1:3] == ([], 1)
        assert found[1][1:3] == (["a-part", "a-sum"], 1)
        assert [one["code"] for one in found[2][3]] == ["board_unknown"]
        assert all("board" not in one for one in found[2][3])


async def test_a_key_reads_the_metrics_while_the_store_is_away(own_store: StoreProcess) -> None:
    """Nothing else is open then, and other clients learn nothing."""
    settings = fresh_settings(own_store.url, metrics="key", write_deadline=1, store_timeout=1)
    reader, wrong = (bearer(key) for key in (await make_key(settings, "reader", verbs=("read", "post")), "reader.x"))
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url, timeout=180) as client:
        with own_store.frozen():

            async def is_away() -> bool:
                """Whether the API key is no longer known, for which it would be 403."""
                answer = await client.put("/v1/boards/x", json={}, headers=dict([reader]))
                return answer.status_code == 503

            await eventually(is_away)
            statuses = [
                (await client.get("/metrics", headers=dict(fields))).status_code for fields in ([reader], [wrong], [])
            ]
            assert statuses == [200, 401, 401]


async def test_only_keys_read_the_metrics_of_a_server_with_private_boards(valkey_url: str) -> None:
    """By default, the metrics then need an API key with the right to read. It sees only the boards that it may read."""
    private = built(id=PRIVATE, title="Salaries", visibility="private")
    for metrics, boards, statuses in (
        ("auto", [rolling_board()], (200, 200, 200)),
        ("auto", [rolling_board(), private], (401, 200, 403)),
        ("open", [rolling_board(), private], (200, 200, 200)),
        ("key", [rolling_board()], (401, 200, 403)),
        ("off", [rolling_board()], (404, 404, 404)),
    ):
        settings = fresh_settings(valkey_url, metrics=metrics)
        reader = bearer(await make_key(settings, "reader", verbs=("read",), boards=("posts",)))
        poster = bearer(await make_key(settings, "poster"))
        async with run_server(settings, boards) as url, httpx.AsyncClient(base_url=url, timeout=180) as client:
            answers = [await client.get("/metrics", headers=dict(fields)) for fields in ((), (reader,), (poster,))]
            assert tuple(one.status_code for one in answers) == statuses, (metrics, boards)
            refused = [one for one in answers if one.status_code != 200]
            assert all(one.headers["content-type"] == "application/problem+json" for one in refused), (metrics, boards)
            assert all("API key" in one.text for one in refused if one.status_code != 404)
            if metrics != "open":
                assert not any(PRIVATE in one.text for one in answers)
