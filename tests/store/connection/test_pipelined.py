"""The connection to the store: replies in order, and lost connections that are reported and opened again."""

import asyncio
import math
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from live.errors import StoreUnavailableError
from live.store.connection.client import Store, connect, may_have_run
from live.store.connection.pipelined import SILENCE, PipelinedConnection, SharedConnection
from tests.harness.certificate import OPENSSL, make_certificate
from tests.harness.proxy import store_proxy
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER, StoreProcess, valkey
from tests.harness.topologies import plain_client
from tests.harness.waiting import eventually

PATIENCE = 0.3

pytestmark = pytest.mark.one_server  # several servers have several connections


@asynccontextmanager
async def connected(url: str, patience: float = 5) -> AsyncIterator[Store]:
    """A client with its connection."""
    client = connect(url, fresh_settings(url, store_timeout=patience))
    try:
        yield client
    finally:
        await client.aclose()


async def outcomes(*calls: asyncio.Task[Any]) -> list[Any]:
    """The results of calls: replies and errors."""
    return list(await asyncio.gather(*calls, return_exceptions=True))


def send(connection: SharedConnection, *words: str | int) -> asyncio.Task[Any]:
    """Begin a call."""
    return asyncio.create_task(connection.call(*words))


def ask(client: Store, *words: str | int) -> asyncio.Task[Any]:
    """Begin a call that raises errors of the store as `StoreUnavailableError`, as callers see them."""
    return asyncio.create_task(client.call("", *words))


async def connections(client: Store) -> int:
    """Return how many connections a store has accepted so far."""
    return int((await client.info("stats"))["total_connections_received"])


async def test_a_thousand_concurrent_calls_get_their_own_replies(any_store: str) -> None:
    """The calls have from one to thousands of bytes, of any value."""
    async with connected(any_store) as client:
        texts = [bytes([number % 256]) * (number * 37 % 5000) + b"%d" % number for number in range(1000)]
        assert await asyncio.gather(*(client.servers.shared.call("ECHO", text) for text in texts)) == texts


async def test_replies_of_every_kind_are_read(any_store: str) -> None:
    """The replies are null, numbers, nested arrays, and a megabyte in pieces."""
    async with connected(any_store) as client:
        call = client.servers.shared.call
        assert await call("EVAL", "return {1, {'a', false}, {}}", 0) == [1, [b"a", None], []]
        assert await call("GET", fresh_settings(any_store).key_prefix) is None
        assert await call("PING") == b"PONG"
        assert await call("ECHO", "€" * 400_000) == ("€" * 400_000).encode()


async def test_an_error_affects_one_call(any_store: str) -> None:
    """Each kind of error raises the same exception as in redis-py. Other calls get their replies."""
    async with connected(any_store) as client:
        connection = client.servers.shared
        names = ["ECHO a", f"EVALSHA {'0' * 40} 0", "ECHO b", "NOSUCH", "ECHO c"]
        a, script, b, command, c = await outcomes(*(send(connection, *name.split()) for name in names))
        assert [a, b, c] == [b"a", b"b", b"c"]
        assert isinstance(script, NoScriptError)
        assert type(command) is ResponseError
        assert "unknown command" in str(command)
        (refused,) = await outcomes(ask(client, "NOSUCH"))
        assert isinstance(refused, StoreUnavailableError)
        assert not may_have_run(refused)


async def test_a_command_that_is_not_allowed(own_store: StoreProcess) -> None:
    """A missing permission has its own exception. With the password in the URL, allowed commands work."""
    async with connected(own_store.url) as admin:
        await admin.acl_setuser("me", enabled=True, passwords=["+p w"], keys=["*"], commands=["+echo", "+client"])
    async with connected(own_store.url.replace("unix://", "unix://me:p%20w@")) as client:
        assert await client.servers.shared.call("ECHO", "a") == b"a"
        with pytest.raises(NoPermissionError):
            await client.servers.shared.call("GET", "a")
    async with connected(own_store.url.replace("unix://", "unix://me:wrong@")) as client:
        with pytest.raises(StoreUnavailableError, match="invalid username-password"):
            await client.call("", "ECHO", "a")


async def test_a_cancelled_call_shifts_no_reply(any_store: str) -> None:
    """The reply of the cancelled call still arrives, and is dropped."""
    async with connected(any_store) as client:
        await client.servers.shared.call("PING")
        calls = [send(client.servers.shared, "ECHO", number) for number in range(200)]
        await asyncio.sleep(0)  # now all calls are sent, and none is answered
        for call in calls[::2]:
            call.cancel()
        got = await outcomes(*calls)
        assert got[1::2] == [b"%d" % number for number in range(1, 200, 2)]
        assert all(isinstance(reply, asyncio.CancelledError) for reply in got[::2])
        assert await client.servers.shared.call("ECHO", "after") == b"after"


async def test_a_lost_connection_fails_all_waiting_calls(own_store: StoreProcess) -> None:
    """Nobody knows whether these calls have run. The next call connects again."""
    async with connected(own_store.url) as client:
        await client.servers.shared.call("PING")
        waiting = [ask(client, *call) for call in (("BLPOP", "none", 0), ("ECHO", 1), ("ECHO", 2))]
        killer: Any = client
        await eventually(lambda: _blocked(client))
        await killer.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for lost in await outcomes(*waiting):
            assert isinstance(lost.__cause__, LostConnectionError)
            assert may_have_run(lost)
        assert await client.servers.shared.call("ECHO", "again") == b"again"


async def _blocked(client: Store) -> bool:
    return int((await client.info("clients"))["blocked_clients"]) == 1


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def sleepy_store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store that sleeps on request."""
    with running(valkey(tmp_path, "--enable-debug-command", "yes")) as store:
        yield store


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a coroutine on each event loop that the server supports."""

    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(scenario)

    return run


async def one_late_reply(store: StoreProcess, folder: Path) -> None:
    """A reply that arrives too late fails its own call. The next call gets its own reply in time."""
    async with (
        store_proxy(store.url, folder) as proxy,
        connected(proxy.url, 1) as client,
        connected(store.url) as other,
    ):
        await client.servers.shared.call("PING")
        before = await connections(other)
        proxy.passing.clear()
        late, some = (
            send(client.servers.shared, "ECHO", "late"),
            asyncio.create_task(client.servers.shared.calls([("ECHO", 1)] * 3)),
        )
        await asyncio.sleep(0.6)
        behind = send(client.servers.shared, "ECHO", "behind")
        assert [type(error) for error in await outcomes(late, some)] == [TimeoutError] * 2
        proxy.passing.set()
        assert await outcomes(behind) == [b"behind"]
        assert await client.servers.shared.calls([("ECHO", 4), ("ECHO", 5)]) == [b"4", b"5"]
        assert await connections(other) == before


async def a_slow_store(store: StoreProcess, _folder: Path) -> None:
    """A command that blocks the store fails only its own call."""
    async with connected(store.url, 1) as client, connected(store.url) as other:
        await client.servers.shared.call("PING")
        before = await connections(other)
        slow = ask(client, "DEBUG", "SLEEP", "1.25")
        await asyncio.sleep(0.95)
        behind = send(client.servers.shared, "ECHO", "behind")
        (error,) = await outcomes(slow)
        assert isinstance(error.__cause__, TimeoutError)
        assert may_have_run(error)
        assert await outcomes(behind) == [b"behind"]
        assert await client.servers.shared.call("ECHO", "after") == b"after"
        assert await connections(other) == before


async def a_finished_call(store: StoreProcess, _folder: Path) -> None:
    """A connection whose calls have all had replies stays open, however long ago the last reply was."""
    async with connected(store.url, 0.5) as client, connected(store.url) as other:
        assert await client.servers.shared.call("ECHO", "a") == b"a"
        before = await connections(other)
        for _ in range(4):
            await asyncio.sleep(0.4)
            assert await client.servers.shared.call("ECHO", "b") == b"b"
        await asyncio.sleep(0.5 * SILENCE + 0.1)
        assert await client.servers.shared.call("ECHO", "c") == b"c"
        assert await connections(other) == before


async def a_busy_process(store: StoreProcess, _folder: Path) -> None:
    """Let replies arrive while this process is busy. It must read them before their calls time out."""
    with plain_client(store.url) as blocking:
        async with connected(store.url, 0.2) as client, connected(store.url) as other:
            await client.servers.shared.call("PING")
            earlier = cast("dict[str, Any]", blocking.info("commandstats"))["cmdstat_ping"]["calls"]
            before = await connections(other)
            calls = [send(client.servers.shared, "PING") for _ in range(5)]
            for _ in range(2):
                await asyncio.sleep(0)  # all calls begin, and then they are sent
            time.sleep(0.2 * (SILENCE + 2))  # noqa: ASYNC251 - it is to block the loop
            while cast("dict[str, Any]", blocking.info("commandstats"))["cmdstat_ping"]["calls"] < earlier + 5:
                time.sleep(0.01)  # noqa: ASYNC251
            assert await outcomes(*calls) == [b"PONG"] * 5
            assert await connections(other) == before


SCENARIOS = [one_late_reply, a_slow_store, a_finished_call, a_busy_process]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_reply_in_time_is_never_lost(
    run: Callable[[Coroutine[Any, Any, None]], None],
    sleepy_store: StoreProcess,
    tmp_path: Path,
    scenario: Callable[[StoreProcess, Path], Coroutine[Any, Any, None]],
) -> None:
    """No reply in time is lost on either event loop, whatever another call waits for."""
    run(scenario(sleepy_store, tmp_path))


class Impatient(PipelinedConnection):
    """A connection that is dropped when a call is late."""

    def _fail(self, kind: type[Exception], reason: str, before: float = math.inf) -> None:
        late = any(call.sent <= before and not call.future.done() for call in self._calls)
        super()._fail(kind, reason, before)
        if late:
            self.abort()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [one_late_reply, a_slow_store], ids=lambda scenario: scenario.__name__)
def test_a_line_that_loses_replies_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    sleepy_store: StoreProcess,
    tmp_path: Path,
    scenario: Callable[[StoreProcess, Path], Coroutine[Any, Any, None]],
) -> None:
    """`test_a_reply_in_time_is_never_lost` fails with a connection that is dropped when a call is late."""
    monkeypatch.setattr("live.store.connection.pipelined.PipelinedConnection", Impatient)
    with pytest.raises(AssertionError), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario(sleepy_store, tmp_path))


async def test_a_frozen_store_fails_calls_in_time(own_store: StoreProcess) -> None:
    """Each call times out by itself. A store that wakes soon replies on the same connection."""
    async with connected(own_store.url, PATIENCE) as client, connected(own_store.url) as other:
        loop = asyncio.get_running_loop()
        await client.servers.shared.call("PING")
        before = await connections(other)
        with own_store.frozen():
            started = loop.time()
            lost = await outcomes(*(ask(client, "ECHO", number) for number in range(50)))
            assert PATIENCE * 0.9 < loop.time() - started < PATIENCE + 1
            assert {type(error.__cause__) for error in lost} == {TimeoutError}
            assert all(may_have_run(error) for error in lost)
        assert await client.servers.shared.call("ECHO", "awake") == b"awake"
        assert await connections(other) == before


@pytest.mark.slow
async def test_a_silent_store_is_disconnected(own_store: StoreProcess) -> None:
    """The connection is dropped, and the next call opens another connection."""
    async with connected(own_store.url, PATIENCE) as client, connected(own_store.url) as other:
        await client.servers.shared.call("PING")
        before = await connections(other)
        dead = client.servers.shared._connection
        assert dead is not None
        with own_store.frozen():
            started = time.monotonic()
            errors = []
            while not dead.ended:
                errors += await outcomes(send(client.servers.shared, "ECHO", "still"))
            assert time.monotonic() - started > SILENCE * PATIENCE * 0.9
            assert {type(error) for error in errors} <= {TimeoutError, LostConnectionError}
            assert str(errors[-1]).startswith("the store owes replies and has sent nothing for ")
        assert await client.servers.shared.call("ECHO", "awake") == b"awake"
        assert await connections(other) == before + 1


async def test_an_empty_pipeline_sends_nothing(any_store: str) -> None:
    """The result is empty, without a call to the store."""
    async with connected(any_store) as client:
        assert await client.servers.shared.calls([]) == []


async def test_concurrent_calls_share_one_connection(own_store: StoreProcess) -> None:
    """A hundred concurrent calls open one connection, and after its loss one more connection."""
    async with connected(own_store.url) as client, connected(own_store.url) as other:
        await other.ping()
        for made in (1, 2):
            before = await connections(other)
            assert len(await asyncio.gather(*(client.servers.shared.call("PING") for _ in range(100)))) == 100
            assert await connections(other) == before + 1, f"connection {made}"
            assert client.servers.shared._connection is not None
            client.servers.shared._connection.abort()


async def test_a_hook_runs_again_on_an_open_connection(any_store: str) -> None:
    """A connection that is not open runs its hooks when it is opened."""
    ran: list[bool] = []

    async def hook(connection: PipelinedConnection, holds: Callable[[str], bool]) -> None:
        ran.append(holds("any"))
        connection.reign = "mine"

    async with connected(any_store) as client:
        shared = client.servers.shared
        await shared.prepare_again(hook)
        assert (ran, shared.reign) == ([], "")
        await shared.call("PING")
        await shared.prepare_again(hook)
        assert (ran, shared.reign) == ([True], "mine")
        shared.drop()
        await shared.prepare_again(hook)
        assert ran == [True]
        assert await shared.call("PING") == b"PONG"
        assert shared.reign == "", "a new connection has the reign of the old one"


async def test_a_line_can_start_before_its_store(own_store: StoreProcess) -> None:
    """Every waiting call fails, and has certainly not run. Each later call tries again."""
    own_store.kill()
    async with connected(own_store.url) as client:
        lost = await outcomes(*(ask(client, "PING") for _ in range(10)))
        assert all(isinstance(error.__cause__, LostConnectionError) for error in lost)
        assert not any(may_have_run(error) for error in lost)
        own_store.start()
        assert await client.servers.shared.call("PING") == b"PONG"


async def test_a_closed_line_leaves_nothing_behind(own_store: StoreProcess) -> None:
    """Calls in progress end, and the store sees the connection close. Closing while connecting works too."""
    async with connected(own_store.url) as other:
        async with connected(own_store.url) as client:
            await client.servers.shared.call("PING")
            call = send(client.servers.shared, "BLPOP", "none", 0)
            await eventually(lambda: _blocked(other))
        (lost,) = await outcomes(call)
        assert isinstance(lost, LostConnectionError)

        async with connected(own_store.url) as client:
            call = send(client.servers.shared, "PING")
            await asyncio.sleep(0)
        (lost,) = await outcomes(call)
        assert lost == b"PONG" or isinstance(lost, asyncio.CancelledError | LostConnectionError)

        async def alone() -> bool:
            return len(await other.client_list()) == 1

        await eventually(alone)


async def test_a_line_that_is_closed_while_it_logs_in_is_closed(tmp_path: Path) -> None:
    """The server accepts the connection and answers nothing.

    redis-py swallows a cancellation in the moment after it has sent a command.
    """
    asked, ended = asyncio.Event(), asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        ended.set()
        writer.close()

    async with await asyncio.start_unix_server(mute, tmp_path / "mute.sock"):
        async with connected(f"unix://{tmp_path / 'mute.sock'}", 10) as client:
            call = send(client.servers.shared, "PING")
            await asked.wait()
        (lost,) = await outcomes(call)
        assert isinstance(lost, LostConnectionError), "the caller was cancelled in place of an error"
        await asyncio.wait([asyncio.create_task(ended.wait())], timeout=5)
        assert ended.is_set()


@pytest.fixture
async def tls_store(tmp_path: Path) -> AsyncIterator[str]:
    """A store that uses TLS only and requires a password; yields its URL."""
    if not OPENSSL or REDIS_SERVER is None:
        pytest.skip("openssl or redis-server is not installed")
    certificate, key = make_certificate(tmp_path)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    options = ["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
               "--tls-auth-clients", "no", "--bind", "127.0.0.1"]  # fmt: skip
    with running(StoreProcess(REDIS_SERVER, tmp_path, *options)) as store:
        async with connected(store.url) as client:
            await client.config_set("requirepass", "secret")
        yield f"rediss://:secret@localhost:{port}/1?ssl_ca_certs={certificate}"


@contextmanager
def running(store: StoreProcess) -> Iterator[StoreProcess]:
    """Run a store while in the context."""
    store.start()
    try:
        yield store
    finally:
        store.kill()


async def test_the_line_supports_tls(tls_store: str) -> None:
    """The connection uses the password and the database of the URL. It refuses an untrusted certificate."""
    async with connected(tls_store) as client:
        echoes = [client.servers.shared.call("ECHO", "x" * size) for size in range(0, 100_000, 5000)]
        assert [len(echo) for echo in await asyncio.gather(*echoes)] == list(range(0, 100_000, 5000))
        assert b"db=1" in await client.servers.shared.call("CLIENT", "INFO")
    async with connected(tls_store.partition("?")[0]) as client:
        with pytest.raises(StoreUnavailableError, match="certificate"):
            await client.call("", "PING")
