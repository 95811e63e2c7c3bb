"""The CloudEvents web hook handshake: senders that name themselves get a rate, and invalid names are not echoed."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from starlette.datastructures import Headers

from live.web.writes.events import handshake
from tests.harness.server import server

pytestmark = pytest.mark.asyncio(loop_scope="module")  # all tests of this file share one server

SENDER = "eventemitter.example.com"
GRANTED = {"webhook-allowed-origin", "webhook-allowed-rate"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server whose producers may send two events per second."""
    async with server(valkey_url, rate=2) as client:
        yield client


async def ask(client: httpx.AsyncClient, *headers: tuple[str, str]) -> httpx.Response:
    """Ask for permission to send; every answer has Allow and no body."""
    response = await client.request("OPTIONS", "/v1/events", headers=list(headers))
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["allow"] == "POST, OPTIONS"
    return response


@pytest.mark.parametrize(
    "origin",
    [SENDER, "EventGrid.azure.net", "localhost", "example.com.", "10.0.0.1", "https://example.com", "a-b.example:8080",
     "http://example.com:1"],
)  # fmt: skip
async def test_a_sender_that_names_itself_may_send(client: httpx.AsyncClient, origin: str) -> None:
    """The name is a DNS name or an origin. The rate is the producer's, in requests per minute."""
    response = await ask(client, ("WebHook-Request-Origin", origin))
    assert response.headers["webhook-allowed-origin"] == origin
    assert response.headers["webhook-allowed-rate"] == "120"


@pytest.mark.parametrize(
    ("requested", "allowed"),
    [("1", "1"), ("120", "120"), ("121", "120"), ("9999999999", "120"), ("0", "120"), ("-1", "120"), ("1.5", "120"),
     ("", "120"), ("many", "120"), ("1" * 5000, "120"), ("*", "120")],
)  # fmt: skip
async def test_the_smaller_rate_is_granted(client: httpx.AsyncClient, requested: str, allowed: str) -> None:
    """The granted rate is the requested rate, but at most the producer's rate. An invalid number is ignored."""
    response = await ask(client, ("WebHook-Request-Origin", SENDER), ("WebHook-Request-Rate", requested))
    assert response.headers["webhook-allowed-rate"] == allowed


@pytest.mark.parametrize(("requested", "allowed"), [(None, "*"), ("120", "120"), ("0", "*")])
async def test_without_a_limit_any_rate_is_granted(requested: str | None, allowed: str) -> None:
    """If the producer has no rate, the requested rate is granted, or an asterisk for no limit."""
    rate = {} if requested is None else {"WebHook-Request-Rate": requested}
    response = handshake(Headers({"WebHook-Request-Origin": SENDER, **rate}), None)
    assert response.headers["webhook-allowed-rate"] == allowed


async def test_a_client_that_does_not_ask_is_granted_nothing(client: httpx.AsyncClient) -> None:
    """The client asks for the methods, or is a browser with a preflight request."""
    page = [("Origin", "https://example.com"), ("Access-Control-Request-Method", "POST")]
    for headers in ([], [("WebHook-Request-Rate", "1")], page):
        response = await ask(client, *headers)
        assert not GRANTED & set(response.headers)
        assert not [name for name in response.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    "origin",
    ["", "*", "a b", "a,b", "example..com", "-a.example", "a_b.example", "<script>", "javascript:alert(1)",
     "https://", "ftp://example.com", "https://example.com/path", "user@example.com", "example.com:port",
     "example.com:123456", "a" * 64, ".".join(["a" * 60] * 5), "\u00e9xample.com", "example.com\t;x=1"],
)  # fmt: skip
async def test_an_invalid_sender_is_not_echoed(client: httpx.AsyncClient, origin: str) -> None:
    """The answer grants nothing and contains no part of the sender's name."""
    response = await client.request(
        "OPTIONS", "/v1/events", headers=[(b"WebHook-Request-Origin", origin.encode("latin-1"))]
    )
    assert (response.status_code, response.headers["allow"]) == (200, "POST, OPTIONS")
    assert not GRANTED & set(response.headers)


async def test_two_senders_are_granted_nothing(client: httpx.AsyncClient) -> None:
    """The server can't know which of the two senders asks."""
    names = [("WebHook-Request-Origin", SENDER), ("WebHook-Request-Origin", "other.example")]
    assert not GRANTED & set((await ask(client, *names)).headers)


@pytest.mark.slow
async def test_a_callback_is_never_called(client: httpx.AsyncClient) -> None:
    """The server answers immediately and does not connect to the given address."""
    calls: list[object] = []
    async with await asyncio.start_server(lambda _reader, writer: calls.append(writer), "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        callback = ("WebHook-Request-Callback", f"http://127.0.0.1:{port}/confirm?key=secret")
        response = await ask(client, ("WebHook-Request-Origin", SENDER), callback)
        await asyncio.sleep(0.3)
    assert response.headers["webhook-allowed-origin"] == SENDER
    assert "secret" not in str(response.headers)
    assert calls == []
