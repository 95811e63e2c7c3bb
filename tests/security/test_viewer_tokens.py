"""Viewer tokens on real servers: by header, address and cookie, until their last second, and in no log."""

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
from structlog.testing import capture_logs
from websockets.frames import Close, Opcode

from live.errors import TOKEN_EXPIRED
from live.fanout.hub import Hub
from tests.harness.admin import Administrator
from tests.harness.boards import built, rolling_board
from tests.harness.certificate import make_certificate
from tests.harness.ingest import make_key
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.producers import bearer
from tests.harness.raw_socket import HANDSHAKE, RawSocket
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.tokens import SECRET, make_token, token_field
from tests.harness.wire import CLOSE, Wire, connected, request

pytestmark = pytest.mark.security

_PATIENCE: Final = 30.0  # seconds
STAFF: Final = built(id="staff", title="Our staff", source=frozenset({"staff"}), visibility="private")


class Site(NamedTuple):
    """A server with the public board `posts` and the private board `staff`, on which ann is second of three."""

    url: str
    owner: dict[str, str]

    async def post(self, *events: dict[str, Any]) -> None:
        """Post events."""
        async with httpx.AsyncClient(base_url=self.url, headers=self.owner, timeout=_PATIENCE) as client:
            await post(client, *events)


@asynccontextmanager
async def site(store: str, **changes: Any) -> AsyncIterator[Site]:
    """The server."""
    settings = fresh_settings(store, token_secret=SECRET, **changes)
    owner = dict([bearer(await make_key(settings, "owner", verbs=("admin", "post", "read")))])
    async with run_server(settings, [rolling_board(), STAFF]) as url:
        at = Site(url, owner)
        amounts = {"bob": 3, "ann": 2, "cy": 1}
        await at.post(*({"key": member, "type": "staff", "amount": amount} for member, amount in amounts.items()))
        yield at


@asynccontextmanager
async def asking(url: str, target: str, *fields: tuple[str, str]) -> AsyncIterator[Wire]:
    """A connection with one request."""
    async with connected(url) as wire:
        await wire.send(request("GET", target, *fields))
        yield wire


async def test_tokens_open_boards_by_header_address_and_cookie(valkey_url: str) -> None:
    """A page with a token in its address redirects to the address without the token.

    Without a valid token, the board is not found.
    """
    async with site(valkey_url) as at, httpx.AsyncClient(base_url=at.url, timeout=_PATIENCE) as client:
        good, other, old = make_token("st*"), make_token("other"), make_token("staff", ends=-1)
        for path in ("/v1/boards/staff", "/v1/boards/staff/records/ann", "/boards/staff"):
            for _ in range(2):  # the second time, the server remembers the head
                found = await client.get(path, headers=dict([token_field(good)]))
                assert (found.status_code, found.headers["cache-control"]) == (200, "private, no-store"), path
                assert (await client.get(path, headers=dict([token_field(other)]))).status_code == 404
                assert "the viewer token has expired" in (await client.get(path, headers=dict([token_field(old)]))).text
                assert (await client.get(path)).status_code == 404
        assert (await client.get("/v1/boards/staff", params={"token": good})).status_code == 400
        assert (
            await client.post("/v1/events", json={"key": "a"}, headers=dict([token_field(good)]))
        ).status_code == 401

        for board in ("staff", "unknown", "posts"):
            led = await client.get(f"/boards/{board}?lang=en&token={good}&limit=5")
            assert (led.status_code, led.headers["location"]) == (303, f"/boards/{board}?lang=en&limit=5")
            assert led.headers["cache-control"] == "private, no-store"
            assert re.fullmatch(
                rf"live-token-[0-9a-f]{{8}}={good}; HttpOnly; Max-Age=\d+; Path=/; SameSite=lax",
                led.headers["set-cookie"],
            ), led.headers["set-cookie"]
        assert {cookie.name for cookie in client.cookies.jar} == {f"live-token-{led.headers['set-cookie'][11:19]}"}
        assert "Our staff" in (await client.get("/boards/staff")).text
        assert "Our staff" in (await client.get("/")).text
        assert (await client.get("/v1/boards/staff/baseline")).status_code == 200
        client.cookies.clear()
        for bad in (old, "x", "a.b.c", "%00"):
            led = await client.get("/boards/staff", params={"token": bad})
            assert led.status_code == 404
            assert "viewer token" in led.text
            assert "set-cookie" not in led.headers


@pytest.mark.parametrize("kind", ["token", "session"])
async def test_cookies_count_only_with_the_own_origin(valkey_url: str, kind: str) -> None:
    """A page of another origin on the same site sends the cookies too. It may watch, but not as the visitor."""
    friend = "http://friend.localhost"
    async with (
        site(valkey_url, allowed_origins=(friend,)) as at,
        httpx.AsyncClient(base_url=at.url, headers={"Host": "localhost"}, timeout=_PATIENCE) as client,
    ):
        if kind == "token":
            assert (await client.get(f"/boards/staff?token={make_token('staff')}")).status_code == 303
        else:
            secret = at.owner["Authorization"].removeprefix("Bearer ")
            assert (await Administrator(client).sign_in(secret)).status_code == 303
        cookies = "Cookie", "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        routes = [("/live", HANDSHAKE, b"101"), ("/stream", (), b"200"), ("", (CLOSE,), b"200")]
        for path, fields, found in routes:
            for origins, status in ((("http://localhost",), found), ((), found), ((friend,), b"404")):
                sent = (*fields, cookies, *(("Origin", origin) for origin in origins))
                async with asking(at.url, f"/v1/boards/staff{path}", *sent) as wire:
                    head = await wire.reader.readuntil(b"\r\n")
                    assert head.split()[1] == status, (path, origins)
        async with asking(at.url, "/v1/boards/posts/live", *HANDSHAKE, cookies, ("Origin", friend)) as wire:
            assert b" 101 " in await wire.reader.readuntil(b"\r\n")


async def test_a_cookie_over_tls_belongs_to_one_host(valkey_url: str, tmp_path: Path) -> None:
    """Browsers accept a cookie of this name only with `Secure`, without a domain, and for the whole host."""
    certificate = make_certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.path.read_bytes() + certificate.key.read_bytes())
    settings = fresh_settings(valkey_url, token_secret=SECRET, root_path="/live")
    trusted = ssl.create_default_context(cafile=certificate.path)
    async with (
        run_server(settings, [STAFF], certificate=both) as url,
        httpx.AsyncClient(base_url=url, verify=trusted, timeout=_PATIENCE) as client,
    ):
        led = await client.get(f"/live/boards/staff?token={make_token('staff')}")
        assert led.headers["location"] == "/live/boards/staff"
        name, _, rest = led.headers["set-cookie"].partition("=")
        assert name.startswith("__Host-live-token-")
        assert {"Secure", "Path=/", "HttpOnly", "SameSite=lax"} <= set(rest.split("; "))
        assert (await client.get("/live/boards/staff")).status_code == 200


async def test_a_member_of_a_token_is_marked(valkey_url: str) -> None:
    """The page shows the member's place, also if another visitor has just seen the page. `around` needs no `key`."""
    async with site(valkey_url) as at, httpx.AsyncClient(base_url=at.url, timeout=_PATIENCE) as client:
        plain, ann = (dict([token_field(make_token("staff", key=key))]) for key in (None, "ann"))
        for _ in range(2):
            assert 'data-place="ann"' not in (await client.get("/boards/staff", headers=plain)).text
            assert 'data-place="ann"' in (await client.get("/boards/staff", headers=ann)).text
            assert 'data-place="bob"' in (await client.get("/boards/staff?key=bob", headers=ann)).text
        token = make_token("staff", key="ann")
        async with asking(at.url, f"/v1/boards/staff/stream?around=1&token={token}") as wire:
            around = await asyncio.wait_for(wire.reader.readuntil(b'"type":"around"'), _PATIENCE)
            around += await asyncio.wait_for(wire.reader.readuntil(b"\n\n"), _PATIENCE)
        assert b'"key":"ann"' in around


async def close_of(socket: RawSocket) -> bytes:
    """The body of the frame with which a server closes a socket."""
    while True:
        code, body = await socket.receive()
        if code is Opcode.CLOSE:
            return body


async def check_the_end(store: str, patience: float = _PATIENCE) -> None:
    """Let a token expire while a socket and a stream use it. A socket with another token goes on."""
    async with site(store) as at, httpx.AsyncClient(base_url=at.url, timeout=_PATIENCE) as client:
        ends = int(time.time()) + 2
        short, long = make_token("staff", exp=ends), make_token("staff")
        async with (
            asking(at.url, f"/v1/boards/staff/live?token={short}", *HANDSHAKE) as one,
            asking(at.url, f"/v1/boards/staff/live?token={long}", *HANDSHAKE) as two,
            asking(at.url, f"/v1/boards/staff/stream?token={short}", CLOSE) as stream,
        ):
            for wire in (one, two):
                assert b" 101 " in await wire.reader.readuntil(b"\r\n\r\n")
            socket, kept = RawSocket(one), RawSocket(two)
            ending = asyncio.create_task(close_of(socket))
            _, late = await asyncio.wait({ending}, timeout=patience)
            ending.cancel()
            assert not late, "the socket stays open after its token has expired"
            body = await ending
            assert (Close.parse(body).code, Close.parse(body).reason) == (TOKEN_EXPIRED, "token expired")
            assert ends <= time.time()
            assert (await stream.rest()).count(b'"reason":"token expired"') == 1
            await at.post({"key": "new", "board": "staff"})
            async with asyncio.timeout(_PATIENCE):
                while b"new" not in (await kept.receive())[1]:
                    pass
        assert (await client.get("/v1/boards/staff", headers=dict([token_field(short)]))).status_code == 404


async def test_a_connection_ends_when_its_token_does(valkey_url: str) -> None:
    """The close code says that the client may come back with another token."""
    await check_the_end(valkey_url)


@pytest.mark.mutant
async def test_a_hub_that_no_token_ends_is_caught(valkey_url: str) -> None:
    """In the mutant, viewers stay after their token has expired."""
    with must_be_caught("the hub is not told of the expired token"), replaced(Hub, "recheck", lambda *_: None):
        await check_the_end(valkey_url, 4)


async def test_no_token_is_in_a_log_or_a_metric(valkey_url: str) -> None:
    """Good and bad tokens are sent in requests of all kinds."""
    good, bad = make_token("staff"), make_token("staff", secret=SECRET + "x")
    with capture_logs() as logs:
        async with site(valkey_url, metrics="open") as at, httpx.AsyncClient(base_url=at.url) as client:
            seen = ""
            for token in (good, bad):
                for path in ("/boards/staff", "/", "/v1/boards/staff/stream", "/v1/boards/staff/live", "/v1/boards"):
                    async with client.stream("GET", path, params={"token": token, "no": "x"}) as answer:
                        seen += f"{answer.headers} {(await answer.aread()).decode()}"
                answer = await client.get("/boards/staff", params={"token": token, "theme": "dark"})
                seen += answer.text + answer.headers.get("location", "")
            seen += (await client.get("/metrics")).text
    for token in (good, bad):
        assert token not in seen
        assert token not in str(logs)
