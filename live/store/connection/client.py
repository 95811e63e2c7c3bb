"""The client of the store, made from a URL, and the errors that its calls raise."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from live.domain.urls import check_url, scrubbed, shown
from live.errors import SetupError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.handshake import check_format, require_primary
from live.store.connection.high_water import HighWater
from live.store.connection.pipelined import OurConnection, SharedConnection, Word, reason_of
from live.store.connection.scripts import send_sources

_OURS: Final[dict[type[AbstractConnection], type[AbstractConnection]]] = {
    kind: type(f"Our{kind.__name__}", (OurConnection, kind), {})
    for kind in (Connection, SSLConnection, UnixDomainSocketConnection)
}
_STEP: Final = 1000  # store keys or elements that one step of a walk looks at

SCHEMES: Final = ("redis", "rediss", "unix")
_OPTIONS: Final = ("db", "username", "password")
_ERRORS: Final = (RedisError, OSError, TimeoutError)  # what calls of redis-py and of our connection raise


class Store(Redis):
    """redis-py's client, with a connection of our own for frequent calls, and the high-water marks."""

    shared: SharedConnection
    high_water: HighWater

    async def call(self, key: str, *words: Word) -> Any:  # noqa: ANN401 - any reply
        """Send a command to the server that holds a store key, and await its reply.

        Raises:
            StoreUnavailableError: no reply came, or the store refuses (it is loading, busy, out of memory, read-only,
                or does not permit the command). `may_have_run` tells whether the store may have run it.
        """
        del key  # one server holds all
        try:
            return await self.shared.call(*words)
        except _ERRORS as error:
            raise _unavailable(error) from error

    async def calls(self, commands: Sequence[tuple[str, tuple[Word, ...]]]) -> list[Any]:
        """Send commands, each to the server that holds its store key, in one packet for each server.

        Replies are in the order of the commands.

        Raises:
            StoreUnavailableError: as `call`, if the store refuses a command. It has run the other commands.
        """
        replies = await self.outcomes(commands)
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise _unavailable(reply) from reply
        return replies

    async def outcomes(self, commands: Sequence[tuple[str, tuple[Word, ...]]]) -> list[Any]:
        """Send commands as `calls`, and return refusals of the store among the replies, as `ResponseError`."""
        try:
            return await self.shared.calls([words for _, words in commands])
        except _ERRORS as error:
            raise _unavailable(error) from error

    async def names(self, pattern: str) -> AsyncIterator[str]:
        """Yield the store keys that match a glob, in one walk. One that exists all the time comes once."""
        seen: set[bytes] = set()
        cursor = b"0"
        while True:
            cursor, found = await self.call("", "SCAN", cursor, "MATCH", pattern, "COUNT", _STEP)
            for name in found:
                if name not in seen:
                    seen.add(name)
                    yield name.decode()
            if cursor == b"0":
                return

    async def elements(self, command: str, key: str) -> AsyncIterator[list[bytes]]:
        """Yield the elements of a store key in parts. Some may come twice. In a hash, fields and values alternate."""
        cursor = b"0"
        while True:
            cursor, found = await self.call(key, command, key, cursor, "COUNT", _STEP)
            yield found
            if cursor == b"0":
                return

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 - redis-py's signature
        """Close the shared connection and the files of the high-water marks as well."""
        await self.high_water.close()
        await self.shared.close()
        await super().aclose(close_connection_pool)


def connect(url: str, settings: Settings) -> Store:
    """Return a client with a bounded pool and without retries of its own: the writer retries (I5).

    Raises:
        SetupError: the URL is not valid, or the file of the high-water marks in the data directory cannot be read.
    """
    try:
        check_url(url, SCHEMES)
    except ValueError as error:
        raise SetupError(f"the store {shown(url)}: {error}") from None
    if shown(url).startswith("unix://") and not shown(url).startswith("unix:///"):
        raise SetupError(f"the store {shown(url)}: the path of a socket begins with /, as in unix:///run/valkey.sock")
    options = {name.partition("=")[0] for name in url.partition("?")[2].split("&") if name}
    if unknown := {name for name in options if name not in _OPTIONS and not name.startswith("ssl_")}:
        known = ", ".join(_OPTIONS)
        raise SetupError(f"the store {shown(url)}: options are {known} and ssl_…, not {', '.join(sorted(unknown))}")
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=settings.store_connections,
            timeout=float(settings.store_timeout),
            socket_timeout=float(settings.store_timeout),
            socket_connect_timeout=float(settings.store_timeout),
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        pool.connection_class = _OURS[pool.connection_class]
    except (ValueError, TypeError) as error:
        raise SetupError(f"the store {shown(url)}: {scrubbed(str(error), url)}") from None
    store = cast("Store", Store.from_pool(pool))
    store.high_water = HighWater(settings.data_dir, settings.key_prefix)
    store.shared = SharedConnection(pool, settings.store_timeout)
    check = partial(check_format, prefix=settings.key_prefix, high_water=store.high_water)
    store.shared.on_connect += [require_primary, check, send_sources]
    return store


@asynccontextmanager
async def store_errors() -> AsyncIterator[None]:
    """Turn the errors of redis-py's own calls into `StoreUnavailableError`. A cancelled task ends here."""
    try:
        yield
    except _ERRORS as error:
        raise _unavailable(error) from error
    finally:
        # redis-py sends through `asyncio.wait_for`, which may swallow a cancellation on Python 3.11. The task would
        # never end, and the process would not stop.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


def _unavailable(error: Exception) -> StoreUnavailableError:
    reason = reason_of(error)
    public = f"the store refuses: {reason}" if isinstance(error, ResponseError) else "the store does not answer"
    return StoreUnavailableError(reason, public=public)


def may_have_run(error: Exception) -> bool:
    """Return whether the store may have run a script whose call failed with this error, or with a timeout.

    It has not run if the store refused it, because no script fails after its first write. Nor has it run if there was
    no connection.
    """
    cause = error.__cause__
    before = None if cause is None else cause.__context__
    if isinstance(cause, ResponseError) or isinstance(before, ConnectionRefusedError | FileNotFoundError):
        return False
    return not str(cause).startswith(("No connection available", "Timeout connecting"))
