"""Clients behind a proxy have separate limits and rates, and can't forge their address."""

from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from live.domain.producer import Scope
from live.process.serve import check_store
from live.settings import Settings
from live.store.connection.client import connect as connect_store
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.nginx import NGINX, TRUSTED, behind_nginx
from tests.harness.server import define, run_server
from tests.harness.settings import fresh_settings

pytestmark = [pytest.mark.security, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]

ONE, OTHER = "127.0.0.2", "127.0.0.3"  # the addresses of two clients
EVENT = {"key": "a"}
PASSING = (  # this proxy passes on the fields that the client sends, and adds none
    ("proxy_set_header X-Forwarded-For   $remote_addr;", ""),
    ("proxy_set_header X-Forwarded-Proto $scheme;", ""),
    ("proxy_set_header X-Forwarded-Host  $http_host;", ""),
)
ADDING = (("X-Forwarded-For   $remote_addr", "X-Forwarded-For   $proxy_add_x_forwarded_for"),)


def client_from(address: str, url: str) -> httpx.AsyncClient:
    """A client that connects from an address."""
    return httpx.AsyncClient(base_url=url, transport=httpx.AsyncHTTPTransport(local_address=address))


async def exhaust(client: httpx.AsyncClient, **headers: str) -> None:
    """Send until the rate is used up."""
    for _ in range(50):
        if (await client.post("/v1/events", json=EVENT, headers=headers)).status_code == 429:
            return
    raise AssertionError("no request was refused because of the rate")


async def is_known(client: httpx.AsyncClient, **headers: str) -> bool:
    """Return whether a request with these fields shares the client's rate.

    On a slow machine, the client regains some of its rate meanwhile.
    """
    for _ in range(BURST):  # a client with its own rate could send so many
        await exhaust(client)
        if (await client.post("/v1/events", json=EVENT, headers=headers)).status_code == 429:
            return True
    return False


SLOW = {"rate": 1}
BURST = 2  # twice the rate


@pytest.mark.parametrize("changes", [(), ADDING], ids=["set", "added"])
async def test_each_client_has_its_own_rate(
    valkey_url: str, tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    """A client above its rate is refused, another client is not. A forged address changes nothing."""
    async with (
        behind_nginx(valkey_url, tmp_path, *changes, **SLOW) as (url, _),
        client_from(ONE, url) as one,
        client_from(OTHER, url) as other,
    ):
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
            for value in ("192.0.2.1", OTHER, "127.0.0.1", "for=192.0.2.1", "192.0.2.1, 127.0.0.1", ","):
                assert await is_known(one, **{name: value}), (name, value)
        assert (await other.post("/v1/events", json=EVENT)).status_code == 200


async def test_a_proxy_without_trust_is_one_client(valkey_url: str, tmp_path: Path) -> None:
    """The server believes only what the operator has configured."""
    async with (
        behind_nginx(valkey_url, tmp_path, **SLOW, trusted_proxies=()) as (url, _),
        client_from(ONE, url) as one,
        client_from(OTHER, url) as other,
    ):
        for _ in range(BURST):
            await exhaust(one)
            if (await other.post("/v1/events", json=EVENT)).status_code == 429:
                return
        pytest.fail("the server believes the proxy")


async def test_an_untrusted_peer_can_not_forge_its_address(valkey_url: str) -> None:
    """The peer's own address counts, whatever its fields say."""
    settings = fresh_settings(valkey_url, trusted_proxies=TRUSTED, open=True, **SLOW)
    async with run_server(settings, [rolling_board()]) as url, client_from(ONE, url) as one:
        for number in range(10):
            for fields in ({"X-Forwarded-For": f"192.0.2.{number}"}, {"Forwarded": f"for=192.0.2.{number}"}):
                assert await is_known(one, **fields), fields


async def test_viewers_are_counted_by_client(valkey_url: str, tmp_path: Path) -> None:
    """WebSockets and streams both count."""
    async with behind_nginx(valkey_url, tmp_path, max_viewers=3) as (url, _):

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
async def test_nobody_is_an_anonymous_admin_through_a_proxy(
    valkey_url: str, tmp_path: Path, changes: tuple[tuple[str, str], ...], trusted: tuple[str, ...]
) -> None:
    """By default, no client is an anonymous admin, even behind a proxy that says nothing about its clients."""
    async with (
        behind_nginx(valkey_url, tmp_path, *changes, trusted_proxies=trusted) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.put("/v1/boards/fresh", json={})).status_code == 401
        fields = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost"}
        assert (await client.put("/v1/boards/fresh", json={}, headers=fields)).status_code == 401


@pytest.mark.parametrize(("trusted", "changes"), [((), ()), (TRUSTED, ()), (TRUSTED, PASSING)])
async def test_an_anonymous_admin_must_connect_directly(
    valkey_url: str, tmp_path: Path, trusted: tuple[str, ...], changes: tuple[tuple[str, str], ...]
) -> None:
    """No client of a local proxy is an anonymous admin if the proxy identifies itself or the operator has named it."""
    settings = {"anonymous_admin": True, "trusted_proxies": trusted}
    async with (
        behind_nginx(valkey_url, tmp_path, *changes, **settings) as (url, server),
        httpx.AsyncClient(base_url=url) as client,
        httpx.AsyncClient(base_url=server) as direct,
    ):
        assert (await client.put("/v1/boards/fresh", json={})).status_code == 401
        assert (await direct.put("/v1/boards/fresh", json={})).status_code == (401 if trusted else 201)


STRANGERS: tuple[dict[str, str], ...] = (
    {},
    {"Host": "board.test"},
    {"Host": "board.test", "Origin": "http://board.test"},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost"},
    {"Host": "localhost"},
)


async def strangers_are_refused(url: str) -> None:
    """Send events with each of the `STRANGERS` fields to a server without API keys, which must refuse them."""
    async with httpx.AsyncClient(base_url=url) as client:
        for fields in STRANGERS:
            refused = await client.post("/v1/events", json=EVENT, headers=fields)
            assert refused.status_code == 401, fields
            assert refused.json()["code"] == "credentials_required"


@pytest.mark.parametrize("changes", [(), ADDING, PASSING], ids=["set", "added", "passing"])
async def test_a_server_without_api_keys_takes_no_events_through_its_proxy(
    valkey_url: str, tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    """The server refuses events even if the proxy says nothing about its clients. With `--open`, it takes them."""
    settings = {"allowed_hosts": ("board.test",), "open": False}
    async with behind_nginx(valkey_url, tmp_path, *changes, **settings) as (url, _):
        await strangers_are_refused(url)
    async with (
        behind_nginx(valkey_url, tmp_path, *changes, **{**settings, "open": True}) as (url, _),
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.post("/v1/events", json=EVENT, headers={"Host": "board.test"})).status_code == 200


async def test_programs_on_this_machine_need_no_api_key(valkey_url: str) -> None:
    """Programs on this machine must request one of the machine's own host names, and use no proxy, trusted or not."""
    settings = fresh_settings(valkey_url, allowed_hosts=("board.test",), trusted_proxies=("192.0.2.1",))
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for fields, status in (
            ({}, 200), ({"Host": "localhost"}, 200), ({"Host": "board.test"}, 401), ({"Via": "1.1 proxy"}, 401),
            ({"X-Forwarded-For": "127.0.0.1"}, 401), ({"Forwarded": "for=127.0.0.1"}, 401), ({"X-Real-IP": "::1"}, 401),
        ):  # fmt: skip
            assert (await client.post("/v1/events", json=EVENT, headers=fields)).status_code == status, fields


@pytest.mark.parametrize("changes", [(), PASSING], ids=["set", "passing"])
async def test_the_host_is_checked_behind_a_proxy(
    valkey_url: str, tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    """The name that the browser requested counts. A page can't override it, even if the proxy passes its fields on."""
    async with (
        behind_nginx(valkey_url, tmp_path, *changes, allowed_hosts=("board.test",)) as (url, _),
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


@pytest.mark.parametrize("setting", [{"trusted_proxies": TRUSTED}, {"allowed_hosts": ("board.test",)}])
async def test_a_server_for_others_without_an_api_key_says_so(valkey_url: str, setting: dict[str, tuple[str]]) -> None:
    """The server starts, and says which events it refuses and how to allow them.

    A server for this machine alone says nothing.
    """

    async def warnings(settings: Settings) -> list[str]:
        with capture_logs() as logs:
            await define(settings, [rolling_board()])
            await check_store(settings)
        return [line["event"] for line in logs if "no producer has an API key" in line["event"]]

    settings = fresh_settings(valkey_url, **setting)
    assert await warnings(fresh_settings(valkey_url)) == []
    (warning,) = await warnings(settings)
    assert "events through a proxy or under the name of another host are refused" in warning
    assert "`live keys add ID`" in warning
    assert "--open" in warning
    assert await warnings(replace(settings, open=True)) == []
    store = connect_store(valkey_url, settings)
    await ProducerStore(store).add("shop", Scope())
    await store.aclose()
    assert await warnings(settings) == []
