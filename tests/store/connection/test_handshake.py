"""What each new connection checks.

A replica, a node of a Cluster and a Sentinel are refused at once, with the reason and what to do. The format number of
the store is written once. A server that cannot read the format says what to do.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

import live.store.connection.client
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.process.serve import check_store
from live.settings import Settings
from live.store.board.keys import SystemKeys
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.connection.handshake import FORMAT, StoreFormatError, StoreRoleError, is_login
from live.store.connection.loss import Losses, LossWatch
from tests.harness.boards import rolling_board
from tests.harness.commands import run_command
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.network import free_port
from tests.harness.settings import as_environment, fresh_settings
from tests.harness.store import REDIS_SERVER, StoreProcess, valkey
from tests.harness.waiting import eventually

REASONS = {
    "replica": "the store is a replica of 127.0.0.1:1, which takes no writes: use redis://127.0.0.1:1",
    "cluster": "the store is a node of a Cluster: use redis+cluster://HOST:PORT",
    "sentinel": "this server is a Sentinel, which holds no data: use redis+sentinel://HOST:PORT/NAME",
}


def test_redis_that_wants_a_password_refuses_the_login() -> None:
    """Redis 7 answers HELLO with this error, which redis-py does not raise as an `AuthenticationError`."""
    said = ResponseError("NOAUTH HELLO must be called with the client already authenticated, otherwise …")
    found = StoreUnavailableError(str(said))
    found.__cause__ = said
    assert is_login(found)
    assert not is_login(StoreUnavailableError("LOADING the store is loading its data"))


class Sentinel(StoreProcess):
    """A Sentinel that watches nothing."""

    def __init__(self, binary: str, folder: Path) -> None:
        super().__init__(binary, folder)
        (folder / "sentinel.conf").write_text("")
        self._command = [
            binary, str(folder / "sentinel.conf"), "--sentinel", "--port", "0", "--unixsocket", str(self.path),
        ]  # fmt: skip


def options(kind: str) -> list[str]:
    """Return the options of a replica without a primary, or of a node of a Cluster."""
    if kind == "replica":
        return ["--replicaof", "127.0.0.1 1"]
    ports = ["--port", str(free_port()), "--cluster-port", str(free_port())]
    return ["--cluster-enabled", "yes", "--bind", "127.0.0.1", *ports]


@contextmanager
def running(kind: str, server: str, folder: Path) -> Iterator[StoreProcess]:
    """A real server of a kind."""
    if server == "redis" and REDIS_SERVER is None:
        pytest.skip("redis-server is not installed")
    binary = str(REDIS_SERVER) if server == "redis" else valkey(folder).binary
    store = Sentinel(binary, folder) if kind == "sentinel" else StoreProcess(binary, folder, *options(kind))
    store.start()
    try:
        yield store
    finally:
        store.kill()


async def refuses(kind: str, url: str) -> None:
    """Check that the first access to the store gives the reason at once, without another attempt."""
    settings = fresh_settings(url)
    with capture_logs() as logs:
        try:
            async with asyncio.timeout(60):
                await check_store(settings)
        except SetupError as error:
            message = str(error)
        else:
            message = "none"
    assert REASONS[kind] in message
    assert "waiting for the store" not in [line["event"] for line in logs]


@pytest.mark.parametrize("server", ["valkey", "redis"])
@pytest.mark.parametrize("kind", ["replica", "cluster", "sentinel"])
async def test_a_server_that_can_hold_no_store_is_refused(tmp_path: Path, kind: str, server: str) -> None:
    """Valkey and Redis report in the same way what kind of server they are."""
    with running(kind, server, tmp_path) as store:
        await refuses(kind, store.url)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["serve", "--port", "0"], ["keys", "add", "shop"], ["check"]])
@pytest.mark.parametrize("kind", ["replica", "cluster"])
def test_every_command_gives_the_reason(tmp_path: Path, kind: str, words: list[str]) -> None:
    """The reason is one line, without a traceback."""
    with running(kind, "valkey", tmp_path) as store:
        settings = fresh_settings(store.url, data_dir=tmp_path / "data")
        done = run_command(*words, **as_environment(settings))
        assert done.returncode == 2, done.stdout
        assert REASONS[kind] in done.stderr
        assert "Traceback" not in done.stderr


async def keeps_the_loss_to_itself(primary: StoreProcess, folder: Path) -> None:
    """Let a store come back as a replica that lacks acknowledged events.

    It must be refused, and its lag must not count as a loss.
    """
    settings = fresh_settings(primary.url, data_dir=folder)
    client: Any = connect(primary.url, settings)
    try:
        ledger = Ledger(client, rolling_board(), settings)
        watch = LossWatch(client)
        assert await watch.find() == Losses()
        watch.guard_connections()
        await ledger.state.open()
        # The process now knows of a later acknowledged position than the store has.
        client.high_water.note("posts", ledger.state.epoch, 10)
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")

        async def refused() -> bool:
            try:
                await client.call("", "PING")
            except StoreRoleError:
                return True
            except (StoreUnavailableError, EpochLostError):
                return False
            return False

        await eventually(lambda: _lost_or(client, refused))
        assert (client.high_water.lost, client.high_water.lost_boards) == ("", {})
    finally:
        await client.aclose()


async def _lost_or(client: Any, refused: Any) -> bool:
    return bool(client.high_water.lost or client.high_water.lost_boards) or await refused()


async def test_a_replica_is_not_compared(own_store: StoreProcess, tmp_path: Path) -> None:
    """A replica lags behind, which would look like a loss that an operator has to accept."""
    await keeps_the_loss_to_itself(own_store, tmp_path / "data")


@pytest.mark.mutant
async def test_no_check_of_the_role_is_detected(tmp_path: Path) -> None:
    """The mutant's server waits for ten seconds, and then names another reason."""

    async def trusting(*_connection: object, url: str) -> None:
        pass

    with (
        running("replica", "valkey", tmp_path) as store,
        must_be_caught("the role of the server is not checked"),
        replaced(live.store.connection.client, "require_primary", trusting),
    ):
        await refuses("replica", store.url)


@pytest.mark.mutant
async def test_a_comparison_before_the_check_of_the_role_is_detected(own_store: StoreProcess, tmp_path: Path) -> None:
    """The mutant's server reports a loss, and acknowledges nothing until an operator accepts it."""

    async def trusting(*_connection: object, url: str) -> None:
        pass

    with must_be_caught("a replica looks lost"), replaced(live.store.connection.client, "require_primary", trusting):
        await keeps_the_loss_to_itself(own_store, tmp_path / "data")


@asynccontextmanager
async def stored(url: str, held: object | None) -> AsyncIterator[tuple[Settings, Any]]:
    """Yield settings for a store, and a client.

    The store has the format number `held`, or no number if `held` is `None`.
    """
    settings = fresh_settings(url)
    client: Any = connect(url, settings)
    if held is not None:
        await client.set(SystemKeys(settings.key_prefix).format, str(held))
    yield settings, client
    await client.aclose()


async def stored_number(client: Any, settings: Settings) -> Any:
    """The number in the store."""
    return await client.get(SystemKeys(settings.key_prefix).format)


async def test_a_new_store_gets_a_number_and_an_identity(any_store: str) -> None:
    """A server writes the number and the identity when it starts.

    A command that only inspects the store writes no store key.
    """
    async with stored(any_store, None) as (settings, client):
        await client.servers.shared.call("PING")
        assert await stored_number(client, settings) is None
        await check_store(settings)
        assert await stored_number(client, settings) == b"%d" % FORMAT
        await check_store(settings)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (FORMAT + 1, f"has format {FORMAT + 1}, .* start the version that wrote it, or set another LIVE_KEY_PREFIX"),
        (FORMAT - 1, f"has format {FORMAT - 1}, .* start the version that wrote it, or set another LIVE_KEY_PREFIX"),
        ("hello", "another program uses this key prefix"),
    ],
)
async def test_an_unknown_format_is_refused(any_store: str, held: object, message: str) -> None:
    """No command accesses such a store, nothing in it changes, and a server does not start on it."""
    async with stored(any_store, held) as (settings, client):
        with pytest.raises(StoreFormatError, match=message):
            await client.servers.shared.call("SET", f"{settings.key_prefix}:mine", 1)
        assert await client.exists(f"{settings.key_prefix}:mine") == 0
        assert await stored_number(client, settings) == str(held).encode()
        with pytest.raises(SetupError, match=message):
            await check_store(settings)


@pytest.mark.one_server
async def test_a_store_without_a_number_is_refused(any_store: str) -> None:
    """Its identity shows that a server has used it."""
    async with stored(any_store, None) as (settings, client):
        await client.set(SystemKeys(settings.key_prefix).store, "me")
        client.servers.shared.drop()
        with pytest.raises(StoreFormatError, match="the store has format 0"):
            await client.servers.shared.call("PING")


@pytest.mark.one_server
async def test_the_format_of_another_store_does_not_matter(any_store: str) -> None:
    """A server that expects another store reports that its own is gone."""
    async with stored(any_store, FORMAT - 1) as (_settings, client):
        client.high_water.active = True
        client.high_water.remember_store("another")
        assert await client.servers.shared.call("PING") == b"PONG"
