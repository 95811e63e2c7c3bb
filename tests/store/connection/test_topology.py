"""Stores of several servers: their URLs, where commands go, and which servers are refused."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.cluster import NodesManager
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.exceptions import ResponseError

from live.domain.event import make_entry
from live.errors import SetupError, StoreUnavailableError
from live.process.serve import check_store
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.connection import topology
from live.store.connection.client import Store, connect
from live.store.connection.durability import rewrite_log, unsafe_settings
from live.store.connection.loss import Losses, LossWatch
from live.store.connection.notices import Changed, Channels, Missed, listen
from tests.harness.boards import rolling_board
from tests.harness.certificate import OPENSSL, make_certificate
from tests.harness.server import define
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER
from tests.harness.topologies import NAME, ClusterSet, SentinelSet, running
from tests.harness.waiting import eventually

NAMES = [f"board{number}" for number in range(24)]  # so many that each server of a Cluster holds some of them


@pytest.fixture
async def client(several_servers: str) -> AsyncIterator[Store]:
    """A client of each kind of store."""
    client = connect(several_servers, fresh_settings(several_servers))
    yield client
    await client.aclose()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis+sentinel://a,b", "the name of the primary follows the Sentinels"),
        ("redis+sentinel://a,b/", "the name of the primary follows the Sentinels"),
        ("redis+sentinel://a,b/one/two", "the name of the primary follows the Sentinels"),
        ("redis+sentinel:///name", "name the servers"),
        ("redis+cluster://a,", "name the servers"),
        ("redis+cluster://a, b", "name the servers"),
        ("redis+cluster://a/1", "a Cluster has no databases"),
        ("redis+cluster://a?db=1", "options are username, password and ssl_…, not db"),
        ("redis+cluster://a:x", "not a port"),
        ("redis+cluster://a,b:1:2", "IPv6"),
        ("redis+sentinel://a/name?timeout=1", "options are db, username, password, sentinel_username"),
        ("redis+other://a", r"expected redis://… or .*redis\+sentinel://… .*or rediss\+cluster://…"),
        ("unix+cluster:///a", "expected redis://…"),
        ("redis+cluster://:Zx4@cretQ9y@a,b", "percent-encode"),
        ("redis+sentinel://:Zx4cretQ9y,b/name", "not a port"),
    ],
)
def test_an_invalid_url_of_several_servers_is_refused(url: str, reason: str) -> None:
    """The message says what is allowed, and does not quote what may be a secret."""
    with pytest.raises(SetupError, match=reason) as caught:
        connect(url, Settings())
    assert "cretQ9y" not in str(caught.value)


async def test_a_url_gives_names_passwords_and_options() -> None:
    """Percent-encoded text is decoded. Sentinels get their own user name and password only."""
    url = (
        "rediss+sentinel://al%40ice:Zx4%2Fcret@a:1,[::1]:2,c/my%20name?db=3&sentinel_password=Q9y%25&ssl_cert_reqs=none"
    )
    store = connect(url, Settings())
    assert isinstance(store.servers, topology.Watched)
    pool = store.connection_pool
    assert isinstance(pool, topology.PrimaryPool)
    assert pool.service_name == "my name"
    given = pool.connection_kwargs
    assert (given["username"], given["password"], given["db"], given["ssl_cert_reqs"]) == (
        "al@ice", "Zx4/cret", 3, "none",
    )  # fmt: skip
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"], one["username"], one["password"]) for one in asked] == [
        ("a", 1, None, "Q9y%"), ("::1", 2, None, "Q9y%"), ("c", 26379, None, "Q9y%"),
    ]  # fmt: skip
    shown = f"{store!r} {store.servers!r} {pool!r} {pool.sentinel_manager!r}"
    assert [secret for secret in ("al@ice", "Zx4", "Q9y") if secret in shown] == []
    await store.aclose()


def test_the_library_has_what_the_topology_uses() -> None:
    """redis-py does not document all these names as public, so another version may lack them."""
    assert {"startup_nodes", "slots_cache", "nodes_cache"} <= set(NodesManager.__slots__)
    for owner, names in (
        (NodesManager, ("initialize", "move_slot", "get_nodes_by_server_type", "aclose")),
        (Sentinel, ("discover_slaves", "sentinel_masters", "aclose")),
        (SentinelConnectionPool, ("get_master_address", "make_connection")),
    ):
        assert all(callable(getattr(owner, name)) for name in names)
    begun = inspect.signature(NodesManager).parameters
    assert {"startup_nodes", "require_full_coverage", "connection_kwargs"} <= set(begun)


def test_only_some_errors_have_a_command_sent_again() -> None:
    """The errors say that another server has the store key, or that this server is not ready."""
    for text in ("MOVED 3999 127.0.0.1:6381", "READONLY You can't write against a read only replica."):
        assert topology.refusal(ResponseError(text)) == text.partition(" ")[0]
    for other in (ResponseError("WRONGTYPE MOVED"), b"MOVED", None):
        assert topology.refusal(other) == ""


async def commands_reach_their_servers(client: Store, prefix: str) -> None:
    """Single commands, packets, walks and redis-py's methods find the store keys on every server."""
    keys = [f"{prefix}:{{{name}}}" for name in NAMES]
    for key in keys:
        assert await client.call(key, "SET", key, key) == b"OK"
    assert await client.calls([(key, ("GET", key)) for key in keys]) == [key.encode() for key in keys]
    assert sorted([name async for name in client.names(f"{prefix}:*")]) == sorted(keys)
    assert await asyncio.gather(*(client.get(key) for key in keys)) == [key.encode() for key in keys]
    assert await client.ping()
    assert await client.hset(f"{prefix}:hash", mapping={"a": "1", "b": "2"}) == 2
    assert await client.hgetall(f"{prefix}:hash") == {b"a": b"1", b"b": b"2"}
    assert await client.eval("return {KEYS[1], ARGV[1]}", 1, keys[0], "x") == [keys[0].encode(), b"x"]
    replies = await client.outcomes([(key, ("HGET", key, "field")) for key in keys])
    assert all("WRONGTYPE" in str(reply) for reply in replies)


async def test_commands_reach_their_servers(client: Store, several_servers: str) -> None:
    """Each command goes to the server that holds its store key."""
    await commands_reach_their_servers(client, fresh_settings("").key_prefix)
    count = 3 if "cluster" in several_servers else 1
    assert len(await client.each("PING")) == count

    async def answers() -> bool:  # the topology does not yet list servers that have just become replicas
        return [reply for _, reply in await client.each("PING", replicas=True)] == [b"PONG"] * max(3, 2 * count)

    await eventually(answers)


async def test_servers_that_nobody_knows_are_unavailable() -> None:
    """No server in the URL answers."""
    client = connect("redis+cluster://127.0.0.1:1", Settings())
    with pytest.raises(StoreUnavailableError):
        await client.each("PING")
    await client.aclose()


async def test_boards_count_and_announce(several_servers: str, tmp_path: Path) -> None:
    """A server starts, boards on all servers count events, and a listener hears of every board."""
    settings = fresh_settings(several_servers, data_dir=tmp_path)
    await define(settings, [rolling_board(board=name) for name in NAMES])
    await check_store(settings)
    own = connect(several_servers, settings)
    watch = LossWatch(own)
    watch.guard_connections()
    ledgers = [Ledger(own, rolling_board(board=name), settings) for name in NAMES]
    channels = Channels({ledger.state.keys.channel: ledger.state.board.id for ledger in ledgers})
    heard: set[str] = set()
    begun: set[str] = set()

    async def hear() -> None:
        async for notice in listen(own, channels):
            if isinstance(notice, Changed):
                heard.add(notice.board)
            elif isinstance(notice, Missed):
                begun.update(notice.boards)

    async def all_begun() -> bool:
        return begun == set(NAMES)

    hearing = asyncio.create_task(hear())
    await eventually(all_begun)
    for ledger in ledgers:
        await ledger.state.open()
        await ledger.writer.add([make_entry("a", 2, None), make_entry("b", 1, None)])
    pages = [await ledger.reader.read(10) for ledger in ledgers]
    assert [[(record.member, record.score) for record in page.records] for page in pages] == [[("a", 2), ("b", 1)]] * 24

    async def all_heard() -> bool:
        return heard == set(NAMES)

    await eventually(all_heard)
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)
    assert await watch.find() == Losses()
    assert (own.high_water.lost, own.high_water.lost_boards) == ("", {})
    await own.aclose()


async def test_several_servers_rewrite_their_files(client: Store) -> None:
    """Every server rewrites its append-only file."""
    assert await rewrite_log(client) == ""
    assert await unsafe_settings(client) == []


@pytest.mark.parametrize(("replicas", "warning"), [(0, "Set LIVE_WAIT_REPLICAS to 1"), (5, "no write is acknowledged")])
async def test_too_few_awaited_replicas_have_a_warning(several_servers: str, replicas: int, warning: str) -> None:
    """If no replica is awaited, a failover can lose acknowledged events.

    If more replicas are awaited than exist, nothing is acknowledged.
    """
    client = connect(several_servers, fresh_settings(several_servers, wait_replicas=replicas))
    lines = await unsafe_settings(client)
    assert len(lines) == (len(await client.servers.primaries()) if replicas else 1)
    assert all(warning in line for line in lines)
    await client.aclose()


async def test_a_user_without_administration_is_enough(several_servers: str, tmp_path: Path) -> None:
    """Managed services have such users. The server starts, counts events, and says what it could not check."""
    rules = ("ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", "-@admin", "-@dangerous", "-hello")
    admin = connect(several_servers, Settings())
    assert {reply for _, reply in await admin.each(*rules, replicas=True)} == {b"OK"}
    await admin.aclose()
    url = several_servers.replace("://", "://app:pw@")
    settings = fresh_settings(url, data_dir=tmp_path)
    await define(settings, [rolling_board()])
    await check_store(settings)
    client = connect(url, settings)
    ledger = Ledger(client, rolling_board(), settings)
    await ledger.state.open()
    await ledger.writer.add([make_entry("a", 2, None)])
    assert [record.score for record in (await ledger.reader.read(10)).records] == [2]
    lines = await unsafe_settings(client)
    assert any("does not show its settings" in line for line in lines)
    assert any("does not show whether it has replicas" in line for line in lines)
    assert "run BGREWRITEAOF yourself" in await rewrite_log(client)
    await client.aclose()


@pytest.mark.parametrize("kind", [SentinelSet, ClusterSet])
async def test_servers_with_an_untrusted_certificate_are_refused(
    kind: type[SentinelSet | ClusterSet], tmp_path: Path
) -> None:
    """The message says why. With the certificate, every server is reached over TLS, and no server without TLS."""
    if not OPENSSL or REDIS_SERVER is None:
        pytest.skip("openssl or redis-server is not installed")
    servers = kind(REDIS_SERVER, tmp_path / "store", certificate=make_certificate(tmp_path))
    trusting, untrusting = servers.url, servers.url.partition("?")[0]
    async with running(servers):
        settings = fresh_settings(trusting, data_dir=tmp_path / "data")
        await define(settings, [rolling_board()])
        await check_store(settings)
        store = connect(trusting, settings)
        assert {reply for _, reply in await store.each("PING", replicas=True)} == {b"PONG"}
        await store.aclose()
        assert "CERTIFICATE_VERIFY_FAILED" in await refused(untrusting, tmp_path)
        assert "Connection" in await refused(untrusting.replace("rediss", "redis"), tmp_path)


async def test_connections_that_ask_at_once_lose_no_sentinel(sentinel_url: str) -> None:
    """redis-py moves the Sentinel that answers to the beginning of its list."""
    scheme, _, places = sentinel_url.partition("://")
    store = connect(f"{scheme}://127.0.0.1:1,{places}", Settings())  # no server listens on port 1
    pool = store.connection_pool
    assert isinstance(pool, topology.PrimaryPool)
    before = set(pool.sentinel_manager.sentinels)
    found = await asyncio.gather(*(pool.get_master_address() for _ in range(3)))
    assert len(set(found)) == 1
    assert set(pool.sentinel_manager.sentinels) == before
    await store.aclose()


async def refused(url: str, folder: Path) -> str:
    """Start a server; returns the error with which it refuses its store."""
    with pytest.raises(SetupError) as caught:
        async with asyncio.timeout(60):
            await check_store(fresh_settings(url, data_dir=folder))
    return str(caught.value)


async def test_a_wrong_url_is_refused_with_the_right_one(sentinel_url: str, cluster_url: str, tmp_path: Path) -> None:
    """For each kind of server, the message says which URL to use."""
    node = cluster_url.partition("://")[2].partition(",")[0]
    watcher = sentinel_url.partition("://")[2].partition(",")[0]
    for url, right in (
        (f"redis://{node}", f"use redis+cluster://{node}"),
        (f"redis+sentinel://{node}/x", f"use redis+cluster://{node}"),
        (f"redis://{watcher}", f"use redis+sentinel://{watcher}/{NAME}"),
        (f"redis+cluster://{watcher}", f"use redis+sentinel://{watcher}/{NAME}"),
        (f"redis+sentinel://{watcher}/other", f"use redis+sentinel://{watcher}/{NAME}"),
    ):
        assert right in await refused(url, tmp_path)
    sentinels = connect(sentinel_url, Settings())
    assert isinstance(sentinels.servers, topology.Watched)
    (primary,) = [name for name, role in await sentinels.each("ROLE", replicas=True) if role[0] == b"master"] or [""]
    (replica, *_) = await sentinels.servers.replicas()
    fields: Any = await sentinels.connection_pool.get_master_address()  # type: ignore[attr-defined]
    assert primary == ""
    place = f"{fields[0]}:{fields[1]}"
    assert f"use redis://{place}" in await refused(f"redis://{replica}", tmp_path)
    assert f"use redis://{place}" in await refused(f"redis+cluster://{place}", tmp_path)
    assert f"use redis://{place}" in await refused(f"redis+sentinel://{place}/{NAME}", tmp_path)
    await sentinels.aclose()
