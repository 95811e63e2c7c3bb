"""The security headers that every answer has, and what no answer reveals."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.errors import ProblemError
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings, make_client

pytestmark = pytest.mark.asyncio(loop_scope="module")  # all tests of this file share one server

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server."""
    async with server(valkey_url, max_body=1000) as client:
        await client.post("/v1/events", json={"key": "a"})
        yield client


async def raw(client: httpx.AsyncClient, request: bytes) -> bytes:
    """Send raw bytes; returns what arrives until the answer is complete or the server ends it."""
    address = urlsplit(str(client.base_url))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(request)
    answer = b""
    async with asyncio.timeout(60):
        while not answer.endswith((b"}", b"</html>", b"0\r\n\r\n")) and (piece := await reader.read(65536)):
            answer += piece
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/boards/posts", 200),
        ("GET", "/boards/nope", 404),
        ("GET", "/nothing", 404),
        ("POST", "/", 405),
        ("GET", "/v1/boards", 200),
        ("GET", "/v1/boards/posts", 200),
        ("HEAD", "/v1/boards/posts", 200),
        ("GET", "/v1/boards/posts/records/a", 200),
        ("GET", "/v1/boards/posts/records/b", 404),
        ("GET", "/v1/boards/posts?limit=0", 400),
        ("GET", "/v1/boards/posts/records/a?around=101", 400),
        ("GET", "/v1/boards/posts/records/a?around=-1", 400),
        ("GET", "/v1/boards/posts/live", 426),
        ("POST", "/v1/events", 403),
        ("DELETE", "/v1/events", 405),
        ("GET", "/v1/nothing", 404),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 200),
    ],
)
async def test_every_answer_has_the_security_headers_once(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    """Successes and errors have the headers, on pages and in answers to programs.

    No answer names the server, sets a cookie or allows other origins.
    """
    response = await client.request(method, path, headers={"Origin": "https://evil.example"})
    assert response.status_code == status
    for name, value in SECURITY.items():
        assert response.headers.get_list(name) == [value]
    assert "server" not in response.headers
    assert "set-cookie" not in response.headers
    assert not [name for name in response.headers if name.startswith("access-control-")]


async def test_an_answer_without_a_body_has_the_security_headers(client: httpx.AsyncClient) -> None:
    """The answers are a 304 of a board and a 304 of a record."""
    for path in ("/v1/boards/posts", "/v1/boards/posts/records/a"):
        tag = (await client.get(path)).headers["etag"]
        response = await client.get(path, headers={"If-None-Match": tag})
        assert (response.status_code, response.content) == (304, b"")
        assert SECURITY.items() <= dict(response.headers).items()


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/", {"GET", "HEAD"}),
        ("DELETE", "/boards/posts", {"GET", "HEAD"}),
        ("PUT", "/v1/boards", {"GET", "HEAD"}),
        ("POST", "/v1/boards/posts", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
        ("POST", "/v1/boards/posts/records/a", {"DELETE", "GET", "HEAD", "PATCH", "PUT"}),
        ("POST", "/v1/boards/posts/live", {"GET", "HEAD"}),
        ("GET", "/v1/events", {"POST"}),
        ("GET", "/v1/events?x=1", {"POST"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
    ],
)
async def test_a_405_lists_the_allowed_methods(
    client: httpx.AsyncClient, method: str, path: str, allowed: set[str]
) -> None:
    """The header `Allow` lists the methods. The body is a page, or a problem document on paths for programs."""
    response = await client.request(method, path)
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == allowed
    if path.startswith(("/v1/", "/healthz")):
        assert response.json()["code"] == "method_not_allowed"
        assert response.headers["content-type"] == "application/problem+json"
    else:
        assert response.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "path", ["/v1/boards/", "/v1/boards/posts/", "/boards/posts/", "//evil.example", "/v1//boards"]
)
async def test_there_are_no_redirects(client: httpx.AsyncClient, path: str) -> None:
    """No answer contains a host from the request."""
    answer = await raw(client, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"location:" not in answer.lower()
    assert b"evil.example" not in answer


@pytest.mark.parametrize("way", ["..", "%2e%2e", "..%2f", "%2e%2e%2f..", "....//", "..%5c", "%00", "board.css/..%2f.."])
async def test_only_static_files_are_served(client: httpx.AsyncClient, way: str) -> None:
    """No path leads out of the folder of the static files."""
    home = (await client.get("/")).text
    folder = home.split('href="/static/')[1].split("/")[0]
    for file in ("live/settings.py", "templates/base.html", "pyproject.toml", ""):
        answer = await raw(client, f"GET /static/{folder}/{way}/{file} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert answer.split(b" ")[1] in {b"400", b"404"}


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header: 1\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"POST /v1/events HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
    ],
)
async def test_invalid_http_is_refused(client: httpx.AsyncClient, request_: bytes) -> None:
    """Requests that two servers could read differently never reach a route; the next request is served."""
    assert (await raw(client, request_)).startswith(b"HTTP/1.1 400 ")
    assert (await client.get("/healthz")).status_code == 200


async def test_a_refusal_reveals_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The address of the store and the cause of an error are only in the log."""
    hidden = tmp_path_factory.mktemp("secret-place")
    settings = fresh_settings(f"unix://{hidden}/none.sock", write_deadline=0.05, store_timeout=0.2)
    async with run_server(settings, None) as url, httpx.AsyncClient(base_url=url) as client:
        for response in (
            await client.post("/v1/events", json={"key": "a"}),
            await client.get("/v1/boards/posts"),
            await client.get("/v1/boards/posts/records/a"),
            await client.get("/boards/posts"),
            await client.get("/readyz"),
        ):
            assert response.status_code == 503
            assert response.headers["retry-after"] == "2"
            assert "secret-place" not in response.text + str(response.headers)
            assert "Traceback" not in response.text


@pytest.mark.parametrize(
    ("host", "origin"),
    [("a.example", "https://a.example"), ("a.example:8000", "http://a.example:8000"), ("[::1]:8000", "http://[::1]:8000"),
     ("a.example", "https://friend.example")],
)  # fmt: skip
async def test_own_and_allowed_origins_pass(host: str, origin: str) -> None:
    """A proxy may end TLS, so the origin of the requested host passes with either scheme.

    Origins in the setting `allowed_origins` pass too.
    """
    make_client(origin=origin, host=host).require_origin(["https://friend.example"])


@pytest.mark.parametrize(
    "origin",
    ["null", "", "a.example", "https://", "https://b.example", "https://a.example.evil", "https://evil.a.example",
     "https://a.example:444", "https://a.example@evil.example", "https://evil.example/a.example", "ftp://a.example",
     "https://A.EXAMPLE.", "https://[", "http://friend.example", "https://friend.example:443", "https://friend.example/",
     "https://evil.example#a.example", "HTTPS://a.example ", "file://a.example", "https://a.example, https://b.example"],
)  # fmt: skip
async def test_any_other_origin_is_refused(origin: str) -> None:
    """The refused origin may contain the server's own origin, or be invalid."""
    with pytest.raises(ProblemError, match="origin_forbidden"):
        make_client(origin=origin, host="a.example").require_origin(["https://friend.example"])


async def test_a_client_without_an_origin_passes() -> None:
    """A request without an origin passes, because it does not come from a page."""
    make_client(host="a.example").require_origin()


@pytest.mark.slow
async def test_only_live_routes_accept_websockets(client: httpx.AsyncClient) -> None:
    """Other routes answer a request for a WebSocket like any other request."""
    base = str(client.base_url).replace("http", "ws").rstrip("/") + "/"
    for path in ("v1/events", "v1/boards", "v1/boards/posts", "", "metrics"):
        with pytest.raises(InvalidStatus) as refused:
            await connect(base + path)
        assert refused.value.response.status_code in {200, 405}
