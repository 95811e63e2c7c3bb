"""The client of a store: valid URLs, errors, and warnings about unsafe settings."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, NoPermissionError, ResponseError  # noqa: A004 - of the library

from live.errors import SetupError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.client import Store, connect, is_unanswered, may_have_run, store_errors
from live.store.connection.durability import _is_away, unsafe_settings
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess, valkey
from tests.harness.waiting import eventually

NO_FILE = "the store has no append-only file (appendonly no): a crash loses acknowledged events"
NOT_ALWAYS = "the store's appendfsync is everysec, not always: a power cut loses acknowledged events"
NOT_ON_REWRITE = (
    "the store does not fsync during a rewrite (no-appendfsync-on-rewrite yes): "
    "a power cut then loses acknowledged events. Set it to no"
)


@pytest.fixture
async def own_client(own_store: StoreProcess) -> AsyncIterator[Store]:
    """A client of a store that the test may reconfigure."""
    client = connect(own_store.url, fresh_settings(own_store.url, store_timeout=0.3))
    yield client
    await client.aclose()


@contextmanager
def running(folder: Path, *options: str) -> Iterator[str]:
    """Run a store with options; yields its URL."""
    store = valkey(folder, *options)
    store.start()
    try:
        yield store.url
    finally:
        store.kill()


async def warnings(url: str) -> list[str]:
    """The warnings about a store's settings."""
    client = connect(url, Settings())
    try:
        return await unsafe_settings(client)
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:abc/0",
        "http://h",
        "h:6379",
        "",
        "redis:/h",
        "redis://[::1",
        "REDIS://h",
        "unix//x",
        "unix://data/x",
        "://h",
        "redis://h?dbb=1",
        "redis://:s3cret",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    """The error has one clear message, which does not quote a part of the URL that may be a secret."""
    with pytest.raises(SetupError, match=r"^the store ") as caught:
        connect(url, Settings())
    assert "s3cret" not in str(caught.value)


def test_the_path_of_a_socket_is_absolute() -> None:
    """It is easy to write two slashes instead of three."""
    with pytest.raises(
        SetupError, match=r"^the store unix://data/x: the path of a socket begins with /, as in unix:///"
    ):
        connect("unix://data/x", Settings())


def test_an_error_tells_whether_a_command_may_have_run() -> None:
    """A command that was refused or had no connection has not run. After a lost reply, the outcome is unknown."""
    cases = [
        (ResponseError("BUSY"), None, False, False),
        (ConnectionError("Error 111"), ConnectionRefusedError(), False, True),
        (ConnectionError("Error 2"), FileNotFoundError(), False, True),
        (ConnectionError("Error 104"), ConnectionResetError(), True, True),
        (ConnectionError("No connection available: it is closed"), None, False, True),
        (TimeoutError("Timeout connecting to server"), None, False, True),
        (TimeoutError("the store did not answer within 2s"), None, True, True),
        (None, None, True, False),
    ]
    for cause, before, may_run, unanswered in cases:
        error = StoreUnavailableError("away")
        error.__cause__ = cause
        if cause is not None:
            cause.__context__ = before
        assert (may_have_run(error), is_unanswered(error)) == (may_run, unanswered), cause


async def test_a_missing_store_is_unavailable(tmp_path: Path) -> None:
    """Without a socket or a reply, callers get `StoreUnavailableError`, and no error of the library."""
    client = connect(f"unix://{tmp_path}/none.sock", Settings())
    with pytest.raises(StoreUnavailableError):
        await client.call("", "PING")
    await client.aclose()


async def test_a_silent_store_is_unavailable(own_store: StoreProcess, own_client: Store) -> None:
    """The store has `store_timeout` to reply."""
    await own_client.call("", "PING")
    with own_store.frozen(), pytest.raises(StoreUnavailableError):
        await own_client.call("", "PING")


@pytest.mark.one_server
async def test_calls_wait_for_a_connection_of_the_pool(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more calls than connections, the calls wait for their turn, and all get a reply."""
    monkeypatch.setattr("live.store.connection.client.CONNECTIONS", 4)
    client = connect(valkey_url, fresh_settings(valkey_url))
    name = fresh_settings(valkey_url).key_prefix
    assert sorted(await asyncio.gather(*(client.incr(name) for _ in range(100)))) == list(range(1, 101))
    connections = await client.client_list()
    assert len(connections) <= 4 + 20  # other clients have few connections
    await client.aclose()


@pytest.mark.parametrize(
    ("spoil", "call", "answer"),
    [
        ("CONFIG SET maxmemory 1", "SET a 1", "when used memory > 'maxmemory'"),
        ("REPLICAOF 127.0.0.1 1", "SET a 1", "read only replica"),
        ("CONFIG SET replica-serve-stale-data no\nREPLICAOF 127.0.0.1 1", "GET a", "MASTER is down"),
        ("CONFIG SET min-replicas-to-write 1", "SET a 1", "NOREPLICAS"),
    ],
    ids=["out of memory", "a replica", "a stale replica", "without replicas"],
)
async def test_a_temporary_error_means_unavailable(own_client: Store, spoil: str, call: str, answer: str) -> None:
    """The store replies with an error that will pass, so callers are told to try again."""
    await own_client.call("", "PING")
    for command in spoil.splitlines():
        await own_client.execute_command(*command.split())
    with pytest.raises(StoreUnavailableError, match=answer):
        await own_client.call("", *call.split())


async def test_a_store_busy_with_a_script_is_unavailable(own_store: StoreProcess, own_client: Store) -> None:
    """The endless script is another client's, so it is no mistake of this server."""
    await own_client.config_set("busy-reply-threshold", 10)
    other = Redis.from_url(own_store.url)
    endless = asyncio.ensure_future(cast("Awaitable[str]", other.eval("while true do end", 0)))

    async def ask() -> str | None:
        try:
            await own_client.call("", "PING")
        except StoreUnavailableError as error:
            return str(error)
        return None

    assert (await eventually(ask)).startswith("BUSY")
    await own_client.script_kill()
    with pytest.raises(ResponseError):
        await endless
    await other.aclose()


@pytest.mark.slow
async def test_a_cancellation_is_never_lost(valkey_url: str) -> None:
    """A cancelled task ends, wherever it is in a call. Otherwise a process under load would not stop."""
    client = connect(valkey_url, fresh_settings(valkey_url))
    over = asyncio.Event()  # ends the task at the end of the test, even if the task ignores its cancellation

    async def ask_for_ever() -> None:
        while not over.is_set():
            async with store_errors():
                await client.ping()

    for number in range(60):
        asking = asyncio.create_task(ask_for_ever())
        await asyncio.sleep(0.005 + number * 0.0003)
        asking.cancel()
        ended, _ = await asyncio.wait({asking}, timeout=5)
        if not ended:
            break
    over.set()
    assert ended
    await client.aclose()


async def test_an_error_reply_means_unavailable(valkey_url: str) -> None:
    """An unexpected error reply, such as a wrong type, becomes `StoreUnavailableError` with the text of the store."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    name = settings.key_prefix
    await client.set(name, "text")
    with pytest.raises(StoreUnavailableError, match="WRONGTYPE"):
        await client.call(name, "HGET", name, "field")
    with pytest.raises(StoreUnavailableError, match="WRONGTYPE"):
        await client.calls([(name, ("GET", name)), (name, ("HGET", name, "field"))])
    text, refusal = await client.outcomes([(name, ("GET", name)), (name, ("HGET", name, "field"))])
    assert text == b"text"
    assert "WRONGTYPE" in str(refusal)
    await client.aclose()


@pytest.mark.one_server
async def test_a_durable_store_has_no_warnings(any_store: str) -> None:
    """The store has an append-only file with appendfsync always, and evicts nothing."""
    assert await warnings(any_store) == []


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (["--appendonly", "no"], [NO_FILE]),
        (["--appendfsync", "everysec"], [NOT_ALWAYS]),
        (["--no-appendfsync-on-rewrite", "yes"], [NOT_ON_REWRITE]),
        (["--appendfsync", "everysec", "--no-appendfsync-on-rewrite", "yes"], [NOT_ALWAYS, NOT_ON_REWRITE]),
    ],
)
async def test_each_unsafe_setting_has_a_warning(tmp_path: Path, options: list[str], lines: list[str]) -> None:
    """Each warning is one line with the setting, its present value, and the risk."""
    with running(tmp_path, *options) as url:
        assert await warnings(url) == lines


async def test_a_store_that_evicts_is_refused(tmp_path: Path) -> None:
    """A slot that is evicted corrupts rankings, so nothing is served (I7)."""
    with running(tmp_path, "--maxmemory-policy", "allkeys-lru") as url, pytest.raises(SetupError) as caught:
        await warnings(url)
    assert "maxmemory-policy is allkeys-lru" in str(caught.value)
    assert "noeviction" in str(caught.value)


async def test_a_store_that_forbids_config_has_a_warning(own_store: StoreProcess, own_client: Store) -> None:
    """Some managed stores forbid CONFIG. The operator is told what to check."""
    await own_client.acl_setuser(
        "me", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"], commands=["-config"]
    )
    (line,) = await warnings(own_store.url.replace("unix://", "unix://me:pw@"))
    assert line.startswith("the store does not show its settings (")
    assert "check appendonly, appendfsync, maxmemory-policy" in line


def test_a_server_that_forbids_a_command_is_not_away() -> None:
    """Such a server answers. A server that is loading its data, or does not answer at all, is away."""
    here = (b"OK", NoPermissionError("no permissions"), ResponseError("unknown command 'CONFIG'"))
    away = (ResponseError("LOADING the dataset"), ConnectionError("lost"), TimeoutError())
    assert [_is_away(reply) for reply in (*here, *away)] == [False] * 3 + [True] * 3


async def test_settings_of_an_unavailable_store_are_an_error(tmp_path: Path) -> None:
    """An unavailable store is not the same as a store that forbids CONFIG."""
    with pytest.raises(StoreUnavailableError):
        await warnings(f"unix://{tmp_path}/none.sock")
