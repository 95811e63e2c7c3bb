"""Who is who behind a proxy: limits and rates of one client are not another's, and nobody makes up an address."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.harness.boards import rolling_board
from tests.harness.nginx import NGINX, TRUSTED, nginx
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = [pytest.mark.security, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]

ONE, OTHER = "127.0.0.2", "127.0.0.3"  # addresses of clients
EVENT = {"key": "a"}
PASSING = (  # a proxy that tells nothing of the client, and leaves in what the client tells
    ("proxy_set_header X-Forwarded-For   $remote_addr;", ""),
    ("proxy_set_header X-Forwarded-Proto $scheme;", ""),
    ("proxy_set_header X-Forwarded-Host  $http_host;", ""),
    ('proxy_set_header Forwarded         "";', ""),
)
ADDING = (("X-Forwarded-For   $remote_addr", "X-Forwarded-For   $proxy_add_x_forwarded_for"),)


def client_from(address: str, url: str) -> httpx.AsyncClient:
    """A client that connects from an address."""
    return httpx.AsyncClient(base_url=url, transport=httpx.AsyncHTTPTransport(local_address=address))


@asynccontextmanager
async def proxied(
    store: str, folder: Path, *changes: tuple[str, str], **settings: Any
) -> AsyncIterator[tuple[str, str]]:
    """The address of nginx, and that of the server behind it, which trusts it."""
    made = fresh_settings(store, **{"trusted_proxies": TRUSTED, **settings})
    async with run_server(made, [rolling_board()]) as server:
        with nginx(server, folder, *changes) as url:
            yield url, server


async def exhaust(client: httpx.AsyncClient, **headers: str) -> None:
    """Send until the rate is used up."""
    for _ in range(50):
        if (await client.post("/v1/events", json=EVENT, headers=headers)).status_code == 429:
            return
    raise AssertionError("there is no end to it")


SLOW = {"rate": 1, "burst": 5}


@pytest.mark.parametrize("changes", [(), ADDING], ids=["set", "added"])
async def test_each_client_has_its_own_rate(
    valkey_url: str, tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    """One that has sent too much is refused, another is not; a made-up address helps neither."""
    async with (
        proxied(valkey_url, tmp_path, *changes, **SLOW) as (url, _),
        client_from(ONE, url) as one,
        client_from(OTHER, url) as other,
    ):
        await exhaust(one)
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
            for value in ("192.0.2.1", OTHER, "127.0.0.1", "for=192.0.2.1", "192.0.2.1, 127.0.0.1", ","):
                assert (await one.post("/v1/events", json=EVENT, headers={name: value})).status_code == 429
        assert (await other.post("/v1/events", json=EVENT)).status_code == 200


async def test_without_trust_a_proxy_is_one_client(valkey_url: str, tmp_path: Path) -> None:
    """Nothing is believed that the operator has not said: this is what the setting is for."""
    async with (
        proxied(valkey_url, tmp_path, **SLOW, trusted_proxies=()) as (url, _),
        client_from(ONE, url) as one,
        client_from(OTHER, url) as other,
    ):
        await exhaust(one)
        assert (await other.post("/v1/events", json=EVENT)).status_code == 429


async def test_an_untrusted_peer_makes_up_no_address(valkey_url: str) -> None:
    """Straight to the server, its own address counts, whatever it says."""
    settings = fresh_settings(valkey_url, trusted_proxies=TRUSTED, **SLOW)
    async with run_server(settings, [rolling_board()]) as url, client_from(ONE, url) as one:
        await exhaust(one)
        for number in range(10):
            for fields in ({"X-Forwarded-For": f"192.0.2.{number}"}, {"Forwarded": f"for=192.0.2.{number}"}):
                assert (await one.post("/v1/events", json=EVENT, headers=fields)).status_code == 429


async def test_viewers_are_counted_by_client(valkey_url: str, tmp_path: Path) -> None:
    """On WebSocket and on the stream."""
    async with proxied(valkey_url, tmp_path, max_address_viewers=1) as (url, _):

        def watch(address: str) -> connect:
            return connect(f"{url.replace('http', 'ws')}/v1/boards/posts/live", local_addr=(address, 0))

        async with watch(ONE) as first, watch(OTHER) as second:
            assert isinstance(first, ClientConnection)
            assert await second.recv()
            with pytest.raises(InvalidStatus) as refused:
                await watch(ONE)
            assert refused.value.response.status_code == 503
            async with client_from(OTHER, url) as client:
                assert (await client.get("/v1/boards/posts/stream")).json()["code"] == "too_many_viewers"
            async with client_from("127.0.0.4", url) as client:
                assert (await client.head("/v1/boards/posts/stream")).status_code == 200


@pytest.mark.parametrize("changes", [(), ADDING, PASSING], ids=["set", "added", "passing"])
@pytest.mark.parametrize("trusted", [TRUSTED, ()])
async def test_nobody_is_admin_through_a_proxy(
    valkey_url: str, tmp_path: Path, changes: tuple[tuple[str, str], ...], trusted: tuple[str, ...]
) -> None:
    """By default not even through one that says nothing of its clients."""
    async with (
        proxied(valkey_url, tmp_path, *changes, trusted_proxies=trusted) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.put("/v1/boards/fresh", json={})).status_code == 401
        fields = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost"}
        assert (await client.put("/v1/boards/fresh", json={}, headers=fields)).status_code == 401


@pytest.mark.parametrize(("trusted", "changes"), [((), ()), (TRUSTED, ()), (TRUSTED, PASSING)])
async def test_an_operator_allows_it_to_programs_only(
    valkey_url: str, tmp_path: Path, trusted: tuple[str, ...], changes: tuple[tuple[str, str], ...]
) -> None:
    """Not to whoever asks a proxy on this machine: it tells that it is one, or the operator has said so."""
    settings = {"anonymous_admin": True, "trusted_proxies": trusted}
    async with (
        proxied(valkey_url, tmp_path, *changes, **settings) as (url, server),
        httpx.AsyncClient(base_url=url) as client,
        httpx.AsyncClient(base_url=server) as direct,
    ):
        assert (await client.put("/v1/boards/fresh", json={})).status_code == 401
        assert (await direct.put("/v1/boards/fresh", json={})).status_code == (401 if trusted else 201)


@pytest.mark.parametrize("changes", [(), PASSING], ids=["set", "passing"])
async def test_the_host_is_judged_behind_a_proxy_too(
    valkey_url: str, tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    """The name that the browser asked for. A page can't write another into a field, even if the proxy passes it on."""
    async with (
        proxied(valkey_url, tmp_path, *changes, allowed_hosts=("board.test",)) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        for host, status in (("board.test", 200), ("rebind.test", 421), ("board.test.rebind.test", 421)):
            assert (await client.post("/v1/events", json=EVENT, headers={"Host": host})).status_code == status
            same = {"Host": host, "Origin": f"http://{host}"}
            assert (await client.post("/v1/events", json=EVENT, headers=same)).status_code == status
        for fields in ({"X-Forwarded-Host": "board.test"}, {"Forwarded": "host=board.test"}):
            refused = await client.post("/v1/events", json=EVENT, headers={"Host": "rebind.test", **fields})
            assert refused.status_code == 421
        foreign = {"Host": "board.test", "Origin": "http://rebind.test"}
        assert (await client.post("/v1/events", json=EVENT, headers=foreign)).status_code == 403


async def test_a_proxy_that_leaves_one_field_to_the_client_is_told(valkey_url: str, tmp_path: Path) -> None:
    """Which of two fields is the proxy's can't be known; so neither is believed."""
    leaving = (('proxy_set_header Forwarded         "";', ""),)
    async with (
        proxied(valkey_url, tmp_path, *leaving) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        refused = await client.get("/v1/boards", headers={"Forwarded": "for=192.0.2.1"})
        assert (refused.status_code, refused.json()["code"]) == (400, "forwarded_invalid")
