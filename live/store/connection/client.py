"""The client of the store, made from a URL, and the errors that its calls raise."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import ResponseError

from live import __version__
from live.domain.urls import check_url, scrubbed, servers_of, shown
from live.errors import SetupError, StoreUnavailableError
from live.settings import Settings
from live.store.board.keys import Keys, SystemKeys
from live.store.connection.handshake import check_format, require_primary
from live.store.connection.high_water import HighWater
from live.store.connection.pipelined import ERRORS, Word, as_unavailable
from live.store.connection.replicated import PrimaryConnection
from live.store.connection.scripts import send_sources
from live.store.connection.topology import Cluster, Dialer, PrimaryPool, Servers, Watched, ours

# Connections for calls that do not share one, such as scans. More would only wait in the store, which has one thread.
CONNECTIONS: Final = 16
_STEP: Final = 1000  # store keys or elements that one step of a walk looks at

SCHEMES: Final = (
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
)  # fmt: skip
_LOGIN: Final = ("username", "password")
_OPTIONS: Final = {  # the options that a URL may have, for each kind of servers
    "": ("db", *_LOGIN),
    "sentinel": ("db", *_LOGIN, "sentinel_username", "sentinel_password"),
    "cluster": _LOGIN,
}
# `CLIENT LIST` names this program. redis-py would read its own version from disk for each connection.
_DRIVER: Final = DriverInfo().add_upstream_driver("live-board", __version__)
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379

_T = TypeVar("_T")


class Store(Redis):
    """redis-py's client, with connections of our own for frequent calls, the key prefix, and the high-water marks."""

    servers: Servers
    high_water: HighWater
    prefix: str
    system: SystemKeys

    def keys_of(self, board: str) -> Keys:
        """Return the store keys of a board."""
        return Keys(self.prefix, board)

    @property
    def has_shards(self) -> bool:
        """Whether store keys are on several servers, so that one server can be away while the others answer."""
        return isinstance(self.servers, Cluster)

    async def call(self, key: str, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Send a command to the server that holds a store key, and await its reply.

        A refusal is an error too: the store is loading, busy, out of memory, read-only, or does not permit the command.
        """
        servers = self.servers
        try:
            try:
                return await (servers.primary(key) or await servers.find(key)).call(*words)
            except ERRORS as error:
                return await servers.send_again((key, words), error)
        except ERRORS as error:
            raise as_unavailable(error) from error

    def write(self, key: str, *words: Word) -> Awaitable[Any]:
        """Send a command as `call` does, and return when `LIVE_WAIT_REPLICAS` replicas hold its effect.

        This call waits for the replicas even if the command finds nothing to change. Use it for everything that the
        server acknowledges to a client. If too few replicas confirm in time, the error is `unknown`.
        """
        if not self.servers.settings.wait_replicas:
            return self.call(key, *words)
        return self._confirmed(PrimaryConnection.write, key, words, replicated=True)

    def read(self, key: str, *words: Word) -> Awaitable[Any]:
        """Send a read-only command as `call` does, to a primary that its replicas have confirmed lately.

        Use it for every answer that clients take for the present state: without confirmation, another server may be the
        primary. The hub asks for confirmations by itself.
        """
        if not self.servers.settings.wait_replicas:
            return self.call(key, *words)
        return self._confirmed(PrimaryConnection.read, key, words)

    async def _confirmed(
        self,
        send: Callable[..., Awaitable[Any]],
        key: str,
        words: tuple[Word, ...],
        *,
        replicated: bool = False,
    ) -> Any:  # noqa: ANN401 - any reply
        servers = self.servers
        try:
            try:
                return await send(servers.primary(key) or await servers.find(key), *words)
            except ERRORS as error:
                return await servers.send_again((key, words), error, replicated=replicated)
        except ERRORS as error:
            raise as_unavailable(error) from error

    async def calls(self, commands: Sequence[tuple[str, tuple[Word, ...]]]) -> list[Any]:
        """Send commands, each to the server that holds its store key, in one packet for each server.

        Replies are in the order of the commands. If one fails, the store may have run the others.
        """
        return required(await self.outcomes(commands))

    async def outcomes(
        self, commands: Sequence[tuple[str, tuple[Word, ...]]], *, replicated: bool = False
    ) -> list[Any]:
        """Send commands as `calls` does, but return errors among the replies.

        So an error of one board does not hide the replies of the other boards. A `ResponseError` is a refusal, and a
        `StoreUnavailableError` stands for a reply that did not come. With `replicated`, return when
        `LIVE_WAIT_REPLICAS` replicas hold what the commands have changed or read.
        """
        try:
            return await self.servers.send(commands, replicated=replicated)
        except StoreUnavailableError as error:  # the check on a new connection failed
            return [error] * len(commands)
        except ERRORS as error:
            return [as_unavailable(error)] * len(commands)

    async def each(self, *words: Word, replicas: bool = False) -> list[tuple[str, Any]]:
        """Send a command to every server that holds store keys, and to their replicas if asked to.

        Return the name of each server (empty for a single server) with its reply or error.
        """
        copies = {}
        try:
            primaries = await self.servers.primaries()
            copies = await self.servers.replicas() if replicas else {}
            connections = primaries | copies
            asked = [connection.call(*words) for connection in connections.values()]
            replies = await asyncio.gather(*asked, return_exceptions=True)
        except ERRORS as error:
            raise as_unavailable(error) from error
        finally:
            for copy in copies.values():
                with suppress(*ERRORS):
                    await copy.close()
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, ERRORS):
                raise reply
        return list(zip(connections, replies, strict=True))

    async def execute_command(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - redis-py's signature
        """Send a command of redis-py's methods. In a Cluster, send it to the server of its first store key."""
        if not isinstance(self.servers, Cluster):
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        options.pop("keys", None)  # an option that only the cache of redis-py uses
        words = (*str(args[0]).split(), *args[1:])
        key = args[3] if str(args[0]).startswith("EVAL") else args[1] if len(args) > 1 else ""
        reply = await self.call(key.decode() if isinstance(key, bytes) else str(key), *words)
        parse = self.response_callbacks.get(args[0])
        return reply if parse is None else parse(reply, **options)

    async def names(self, pattern: str) -> AsyncIterator[str]:
        """Yield the store keys that match a glob, in one walk.

        A store key that exists during the whole walk comes once, unless it moves to another server of a Cluster.
        """
        seen: set[bytes] = set()
        try:
            for server in list((await self.servers.primaries()).values()):
                cursor = b"0"
                while True:
                    cursor, found = await server.call("SCAN", cursor, "MATCH", pattern, "COUNT", _STEP)
                    for name in found:
                        if name not in seen:
                            seen.add(name)
                            yield name.decode()
                    if cursor == b"0":
                        break
        except ERRORS as error:
            raise as_unavailable(error) from error

    async def elements(self, command: str, key: str) -> AsyncIterator[list[bytes]]:
        """Yield the elements of a store key in parts; some may come twice. Values or scores follow their names."""
        cursor = b"0"
        while True:
            cursor, found = await self.call(key, command, key, cursor, "COUNT", _STEP)
            yield found
            if cursor == b"0":
                return

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 - redis-py's signature
        """Close the connections of redis-py, our own connections, and the files of the high-water marks."""
        await self.high_water.close()
        await self.servers.close()
        await super().aclose(close_connection_pool)


def connect(url: str, settings: Settings) -> Store:
    """Return a client with a bounded pool and without retries of its own: the writer retries (I5)."""
    try:
        check_url(url, SCHEMES)
    except ValueError as error:
        raise SetupError(f"the store {shown(url)}: {error}") from None
    place = shown(url)
    if place.startswith("unix") and ":///" not in place:
        raise SetupError(f"the store {place}: the path of a socket begins with /, as in unix:///run/valkey.sock")
    kind = url.partition("://")[0].partition("+")[2]
    options = {name.partition("=")[0] for name in url.partition("?")[2].split("&") if name}
    if unknown := {name for name in options if name not in _OPTIONS[kind] and not name.startswith("ssl_")}:
        known = ", ".join(_OPTIONS[kind])
        raise SetupError(f"the store {place}: options are {known} and ssl_…, not {', '.join(sorted(unknown))}")
    try:
        pool, servers = _servers(url, kind, settings)
    except (ValueError, TypeError) as error:
        raise SetupError(f"the store {place}: {scrubbed(str(error), url)}") from None
    store = cast("Store", Store.from_pool(pool))
    store.prefix, store.system = settings.key_prefix, SystemKeys(settings.key_prefix)
    store.high_water = HighWater(settings.data_dir, settings.key_prefix)
    store.high_water.keeps_seen = not servers.promotes
    store.servers = servers
    check = partial(check_format, names=store.system, high_water=store.high_water)
    servers.on_connect += [check, send_sources]
    return store


def _servers(url: str, kind: str, settings: Settings) -> tuple[ConnectionPool, Servers]:
    timeout = float(settings.store_timeout)
    limits = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": _DRIVER,
    }
    if not kind:
        pool: ConnectionPool = BlockingConnectionPool.from_url(
            url, max_connections=CONNECTIONS, timeout=timeout, **limits
        )
        pool.connection_class = ours(pool.connection_class)
        servers = Servers(pool, settings)
        servers.on_connect.append(partial(require_primary, url=shown(url)))
        return pool, servers
    places = servers_of(url, _SENTINEL_PORT if kind == "sentinel" else _PORT)
    scheme, _, rest = url.partition("://")
    given, _, query = rest.partition("?")
    user, at, _ = given.rpartition("@")
    options = {**parse_url(f"{scheme.partition('+')[0]}://{user}{at}localhost?{query}"), **limits}
    del options["host"]
    origin, _, name = shown(url).removeprefix(f"{scheme}://").partition("/")
    if kind == "cluster":
        if name:
            raise ValueError("a Cluster has no databases, so nothing follows the servers")
        # This pool stays unused: `Store.execute_command` sends redis-py's own calls over the Cluster's connections.
        pool = ConnectionPool(protocol=2)
        return pool, Cluster(places, Dialer(f"{scheme}://{origin}", options), settings)
    if not name or "/" in name:
        raise ValueError("the name of the primary follows the Sentinels, as in redis+sentinel://a,b,c/mymaster")
    login = {key: options.pop(f"sentinel_{key}") for key in _LOGIN if f"sentinel_{key}" in options}
    primary = PrimaryPool(unquote(name), places, Dialer(f"{scheme}://{origin}", options), login)
    return primary, Watched(primary, settings)


@asynccontextmanager
async def store_errors() -> AsyncIterator[None]:
    """Turn the errors of redis-py's own calls into `StoreUnavailableError`. Raise a lost cancellation again."""
    try:
        yield
    except ERRORS as error:
        raise as_unavailable(error) from error
    finally:
        # redis-py sends through `asyncio.wait_for`, which may swallow a cancellation on Python 3.11. The task would
        # never end, and the process would not stop.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


def required(replies: Sequence[_T | Exception]) -> list[_T]:
    """Return the replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise as_unavailable(reply)
    return cast("list[_T]", replies)


def may_have_run(error: Exception) -> bool:
    """Return whether the store may have run a script whose call failed with this error, which may be a timeout.

    It has not run if the store refused it, because no script fails after its first write. Nor has it run if there was
    no connection.
    """
    # A timeout of asyncio has the cancellation as its context. Python 3.11.2 does not set it as the cause too.
    cause = error.__context__ if isinstance(error, TimeoutError) else error.__cause__
    before = None if cause is None else cause.__context__
    if isinstance(cause, ResponseError) or isinstance(before, ConnectionRefusedError | FileNotFoundError):
        return False
    return not str(cause).startswith(("No connection available", "Timeout connecting"))


def is_unanswered(error: StoreUnavailableError) -> bool:
    """Return whether a call failed because a server did not answer. Refusals and wrong data do not count."""
    return isinstance(error.__cause__, ERRORS) and not isinstance(error.__cause__, ResponseError)
