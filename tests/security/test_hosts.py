"""Requests for foreign hosts, on every route: HTTP, event streams, and WebSockets."""

import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from httpx import URL, InvalidURL

from live.http.networks import is_own_name
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.wire import CLOSE, connected, statuses

pytestmark = [pytest.mark.security, pytest.mark.asyncio(loop_scope="module")]

EVENT = b'{"key":"a"}'
UPGRADE = (
    ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
)  # fmt: skip
WAYS = {
    "post": ("POST /v1/events", (("Content-Type", "application/json"), ("Content-Length", "11")), EVENT, 200),
    "put": ("PUT /v1/boards/mine", (("Content-Type", "application/json"), ("Content-Length", "2")), b"{}", 201),
    "page": ("GET /", (), b"", 200),
    "board": ("GET /v1/boards/posts", (), b"", 200),
    "metrics": ("GET /metrics", (), b"", 200),
    "stream": ("HEAD /v1/boards/posts/stream", (), b"", 200),
    "viewer": ("GET /v1/boards/posts/live", UPGRADE, b"", 101),
    "no route": ("GET /nowhere", UPGRADE, b"", 403),
}
HOSTS = {
    "none": ((), 400),
    "two": (("localhost", "localhost"), 400),
    "two different": (("localhost", "rebind.test"), 400),
    "empty": (("",), 400),
    "userinfo": (("localhost@rebind.test",), 400),
    "userinfo of ours": (("rebind.test@localhost",), 400),
    "list": (("localhost, rebind.test",), 400),
    "space": (("rebind.test localhost",), 400),
    "path": (("localhost/",), 400),
    "url": (("http://localhost",), 400),
    "no name": ((":8000",), 400),
    "no port": (("localhost:",), 400),
    "high port": (("localhost:99999",), 400),
    "two ports": (("localhost:80:80",), 400),
    "bare IPv6": (("::1",), 400),
    "half IPv6": (("[::1",), 400),
    "IPv6 with a zone": (("[fe80::1%25lo]",), 400),
    "rebound": (("rebind.test",), 421),
    "rebound, with our port": (("rebind.test:8000",), 421),
    "rebound, with a dot": (("rebind.test.",), 421),
    "like ours": (("localhost.rebind.test",), 421),
    "like an address": (("127.0.0.1.rebind.test",), 421),
    "short address": (("127.1",), 421),
    "any address": (("0.0.0.0",), 421),  # noqa: S104 - the value of a Host header
    "any IPv6 address": (("[::]",), 421),
    "another address": (("192.0.2.1",), 421),
    "localhost": (("LOCALHOST:1",), 200),
    "localhost with a dot": (("localhost.:8000",), 200),
    "below localhost": (("a.localhost",), 200),
    "address": (("127.0.0.1:8000",), 200),
    "another loopback": (("127.255.0.3",), 200),
    "IPv6": (("[::1]:8000",), 200),
    "wrapped address": (("[::ffff:127.0.0.1]",), 200),
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def url(valkey_url: str) -> AsyncIterator[str]:
    """A server without API keys."""
    settings = fresh_settings(valkey_url, allowed_hosts=(), anonymous_admin=True)
    async with run_server(settings, [rolling_board()]) as url:
        yield url


async def ask(url: str, way: str, hosts: tuple[str, ...], *fields: tuple[str, str], target: str = "") -> int:
    """Return the status of a request with these `Host` fields."""
    line, own, body, _ = WAYS[way]
    method, _, path = line.partition(" ")
    named = [("Host", host) for host in hosts]
    close = () if own is UPGRADE else (CLOSE,)
    lines = [
        f"{method} {target or path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in (*named, *own, *fields, *close)),
    ]
    async with connected(url) as wire:
        await wire.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        head = await wire.reader.readuntil(b"\r\n\r\n")
    return statuses([head])[0]


@pytest.mark.parametrize("name", HOSTS)
async def test_only_loopback_names_are_answered(url: str, name: str) -> None:
    """On every route, a malformed host gets 400, and a name that is not a loopback name gets 421."""
    hosts, status = HOSTS[name]
    for way in WAYS if status != 200 else ("page", "stream"):
        assert await ask(url, way, hosts) == (status if status != 200 else WAYS[way][3]), way


async def test_pages_of_other_origins_can_not_write_anonymously(url: str) -> None:
    """Browsers send the origin of a page. Without an API key, only the server's own pages may write."""
    for origin in (
        "http://evil.test",
        "null",
        "http://localhost:1",
        "http://rebind.test",
        "http://localhost.evil.test",
    ):
        for way in ("post", "put"):
            assert await ask(url, way, ("localhost",), ("Origin", origin)) == 403, (way, origin)
    for own in ("http://localhost", "https://localhost"):
        assert await ask(url, "post", ("localhost",), ("Origin", own)) == 200


async def test_two_origins_are_refused(url: str) -> None:
    """The order of the origins does not matter."""
    twice = (("Origin", "http://localhost"), ("Origin", "http://evil.test"))
    assert await ask(url, "post", ("localhost",), *twice) == 403
    assert await ask(url, "post", ("localhost",), *twice[::-1]) == 403


@pytest.mark.slow
async def test_the_host_of_an_absolute_target_counts(valkey_url: str) -> None:
    """The target replaces the `Host` field (RFC 9112, section 3.2.2). Browsers send no such target to a server."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:
        for way in ("post", "page", "viewer"):
            path = WAYS[way][0].partition(" ")[2]
            good = WAYS[way][3]
            for host in ("localhost", "rebind.test"):
                assert await ask(url, way, (host,), target=f"http://localhost{path}") == good
                assert await ask(url, way, (host,), target=f"http://rebind.test{path}") == 421
                assert await ask(url, way, (host,), target=f"http://u@localhost{path}") == 400
            assert await ask(url, way, ("localhost",) * 2, target=f"http://localhost{path}") == 400
            assert await ask(url, way, (), target=f"http://localhost{path}") == 400


HEADS = [
    "Host : localhost", "Host\t: localhost", " Host: localhost", "\tHost: localhost", "Host: rebind.test\r\n localhost",
    "Host: rebind.test\r\n\tlocalhost", "Host\r\n: localhost", "Host localhost", "Host: localhost\r\nhost: localhost",
    "Host: localhost\r\nHOST: rebind.test", "Host: rebind.test\rHost: localhost", "Host: rebind.test\nHost: localhost",
    "Host: localhost\x00", "Host: localhost\x0b", "X-Host: localhost", ":authority: localhost", "Host;: localhost",
]  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
async def test_malformed_fields_do_not_become_a_host(url: str, head: str) -> None:
    """The answer is 400 or 421, although a lenient parser would read a host from these fields."""
    async with connected(url) as wire:
        await wire.send(f"GET /v1/boards HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n".encode("latin-1"))
        answer = await wire.rest()
    assert statuses([answer])[0] in {400, 421}


PIECES = [
    "localhost", "LOCALHOST", "127.0.0.1", "127.1", "[::1]", "::1", "::ffff:", "0x7f.1", "017700000001", "2130706433",
    "rebind.test", ".", ":", "80", "@", "/", "\\", "%", "%2e", "%00", "#", "?", "&", ";", ",", " ", "\t", "[", "]", "*",
    "-", "_", "a", "\xa0", "\xad", "\xe9", "\x7f", "'", '"', "<", "(", "$",
]  # fmt: skip


async def test_no_accepted_host_means_another_to_a_browser(url: str, effort: int) -> None:
    """The hosts are random combinations of valid and invalid pieces.

    A URL parser also reads each accepted host as a loopback name or address.
    """
    chosen, accepted = random.Random(4), 0
    for _ in range(300 * effort):
        host = "".join(chosen.choices(PIECES, k=chosen.randint(1, 5)))
        status = await ask(url, "metrics", (host,))
        assert status in {200, 400, 421}, host
        if status == 200:
            accepted += 1
            try:
                name = URL(f"http://{host.strip()}/").host
            except InvalidURL:
                pytest.fail(f"{host!r} is not a host for a URL parser")
            assert is_own_name(name.lower().removesuffix(".")), host
    assert accepted
