"""Requests that hide in the bodies of other requests, and clients that ask for HTTP/2; directly and through nginx."""

import asyncio
import http.client
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from live.domain.producer import Scope
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.nginx import NGINX, nginx
from tests.harness.producers import bearer, with_keys
from tests.harness.raw_socket import HANDSHAKE
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.wire import ask, chunks, connected, post, request, statuses

pytestmark = [pytest.mark.slow, pytest.mark.security]

ONE: Final = b'{"key":"a"}'
HEALTH: Final = request("GET", "/healthz")
UPGRADES: Final = {
    "h2c": (("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")),
    "foo": (("Connection", "upgrade"), ("Upgrade", "foo")),
    "websocket": HANDSHAKE,
}  # fmt: skip
JAVA: Final = """
import java.net.URI;
import java.net.http.*;

class Client {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int i = 0; i < 3; i++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{\\"key\\":\\"a\\"}")).build();
            System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).statusCode());
        }
    }
}
"""


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "DELETE"])
async def test_the_body_of_an_upgrade_is_not_a_request(valkey_url: str, method: str, upgrade: str) -> None:
    """Each request has one answer, whatever its body contains. The connection goes on with the next request."""
    hidden = request("GET", "/v1/boards/posts") * 2
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:
        for target in ("/v1/events", "/v1/boards/posts", "/v1/boards/posts/live"):
            whole = request(method, target, ("Content-Length", str(len(hidden))), *UPGRADES[upgrade], body=hidden)
            parts = request(method, target, ("Transfer-Encoding", "chunked"), *UPGRADES[upgrade], body=chunks(hidden))
            for sent in (whole, parts):
                found = await ask(url, sent + HEALTH, answers=2)
                assert statuses(found)[0] in {400, 401, 403, 405, 415, 422, 426, 200}
                assert statuses(found)[1:] == [200, 200]
                assert b'"records"' not in found[1]


@asynccontextmanager
async def forwarding_upgrades(store: str, folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Run a server behind nginx in the usual configuration for WebSocket, which forwards any upgrade.

    Yield the URL of nginx, and an API key.
    """
    usual = (
        ('    ~*^websocket$ websocket;\n    default       "";', "    default $http_upgrade;"),
        ('    websocket upgrade;\n    default   "";', "    default upgrade;\n    '' '';"),
    )
    settings = fresh_settings(store, trusted_proxies=("127.0.0.1",))
    client = connect(store, settings)
    producers = ProducerStore(client)
    async with run_server(settings, [rolling_board()]) as url:
        _, secret = await producers.add("root", Scope(verbs=("post", "admin")))
        with nginx(url, folder, *usual) as outside:
            yield outside, f"root.{secret}"
    await client.aclose()


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_nobody_can_use_the_api_key_of_another_behind_nginx(valkey_url: str, tmp_path: Path, effort: int) -> None:
    """The body of a stranger's request is not joined with the next request on the connection from nginx."""
    beginning = b"DELETE /v1/boards/mine HTTP/1.1\r\nHost: localhost\r\nX-Ignored: "
    length = ("Content-Length", str(len(beginning)))
    async with (
        forwarding_upgrades(valkey_url, tmp_path) as (url, key),
        httpx.AsyncClient(base_url=url, headers=[bearer(key)]) as admin,
    ):
        await until_known(admin)
        for upgrade in ("h2c", "foo") * 10 * effort:
            async with connected(url) as stranger:
                await stranger.send(request("POST", "/v1/nothing", length, *UPGRADES[upgrade], body=beginning))
                assert statuses([await stranger.answer()]) == [404]
            assert (await admin.get("/v1/boards/mine")).json()["board"] == "mine"
            assert (await admin.get("/healthz")).json()["status"] == "ok"


async def until_known(admin: httpx.AsyncClient) -> None:
    """Create a board as soon as the API key is known to the server."""
    for _ in range(100):
        if (await admin.put("/v1/boards/mine", json={})).status_code == 201:
            return
        await asyncio.sleep(0.1)
    pytest.fail("the server never learned of the API key")


async def test_a_cached_head_does_not_lend_its_api_key(valkey_url: str) -> None:
    """A head without an API key is refused, even after it was hidden in the body of a request with an API key."""
    async with with_keys(valkey_url) as (url, _, keys):
        bare, keyed = post(ONE), post(ONE, bearer(keys["all"]))
        carriers = [post(bare, bearer(keys["all"])), post(bare), post(b" " * 10 + bare, ("X", "y"))]
        for carrier in carriers:
            sent = carrier + keyed
            known = [200 if bearer(keys["all"])[1].encode() in carrier else 401, 200]
            known[0] = 400 if known[0] == 200 else known[0]
            for cut in (*range(0, len(sent), 7), len(sent)):
                async with connected(url) as wire:
                    await wire.send(*(piece for piece in (sent[:cut], sent[cut:]) if piece))
                    assert statuses(await wire.answers(2)) == known
                    await wire.send(bare)
                    assert statuses([await wire.answer()]) == [401]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_asking_for_http2_is_served(valkey_url: str) -> None:
    """The first request of `curl` asks for HTTP/2. One connection answers both requests."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:
        told = await output(
            "curl", "--http2", "-s", "-w", "%{http_code} %{num_connects}\n", "-o", "/dev/null", "-o", "/dev/null",
            "-d", '{"key":"a"}', "-H", "Content-Type: application/json", f"{url}/v1/events", f"{url}/v1/events",
        )  # fmt: skip
    assert told.split() == ["200", "1", "200", "0"]


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
async def test_the_client_of_the_jdk_is_served(valkey_url: str, tmp_path: Path) -> None:
    """The client asks for HTTP/2 in the first request of every connection."""
    source = tmp_path / "Client.java"
    source.write_text(JAVA, encoding="utf-8")
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:
        assert (await output("java", str(source), f"{url}/v1/events")).split() == ["200", "200", "200"]


async def output(*command: str) -> str:
    """The output of a command."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


BAD_TARGETS: Final = (
    "/v1/boards/%ff%fe/live", "/v1/boards/%00/live", "/v1/boards//live", "/v1/boards/posts/live?limit=%ff",
    "/v1/boards/posts/live?limit=1&limit=2", "/v1/boards/posts/live?%zz", "/v1/boards/../live", "//[::1/live",
    "http://[bad/v1/boards/posts/live", "/v1/boards/posts/live?offset=-1", "/v1/boards/posts/live?" + "x" * 5000,
)  # fmt: skip
TWICE: Final = (
    ("Host", "localhost"), ("Origin", "http://localhost"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"), ("Upgrade", "websocket"), ("Connection", "Upgrade"),
)  # fmt: skip
# The lines that the log may have: lines about the server itself, and a line about a page that may not watch.
LOGGED: Final = ('"event": "the server', "a process may open", "a page may not watch")


def test_a_bad_handshake_is_answered_and_not_logged(valkey_url: str, tmp_path: Path) -> None:
    """Invalid targets and repeated fields each get an answer. The log has only the lines of `LOGGED`."""
    server = ServerProcess(fresh_settings(valkey_url), tmp_path)
    server.start()

    async def send_all() -> None:
        for target in BAD_TARGETS:
            async with connected(server.url) as wire:
                await wire.send(request("GET", target, *HANDSHAKE))
                head = await wire.reader.readuntil(b"\r\n\r\n")
                assert statuses([head])[0] in {101, 400, 404}, target
        for field in TWICE:
            async with connected(server.url) as wire:
                await wire.send(request("GET", "/v1/boards/posts/live", *HANDSHAKE, field, field))
                head = await wire.reader.readuntil(b"\r\n\r\n")
                assert statuses([head])[0] in {101, 400, 403, 426}, field

    asyncio.run(send_all())
    assert server.stop() == 0
    lines = server.log().partition("Live Board is at")[2].splitlines()[1:]
    assert [line for line in lines if not any(event in line for event in LOGGED)] == []


@pytest.mark.parametrize("path", ["/v1/events", "/v1/%65vents", "/v1/nothing", "/v1/boards/posts"])
def test_the_final_answer_to_a_large_body_arrives(valkey_url: str, tmp_path: Path, path: str, effort: int) -> None:
    """A client that sends six megabytes with `Connection: close` reads the refusal, not a reset."""
    server = ServerProcess(fresh_settings(valkey_url), tmp_path)
    server.start()
    address, codes = urlsplit(server.url), []
    for _ in range(15 * effort):
        client = http.client.HTTPConnection(address.netloc, timeout=20)
        fields = {"Content-Type": "application/json", "Connection": "close"}
        client.request("POST", path, b" " * 6 * 1024 * 1024, fields)
        codes.append(client.getresponse().status)
        client.close()
    assert server.stop() == 0
    assert set(codes) <= {404, 405, 413}, codes
