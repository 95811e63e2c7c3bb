"""From a URL to a client that hides nothing, and to what is unsafe about the store's settings."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

import hiredis
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ClusterDownError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.typing import EncodableT

from live.errors import SetupError, StoreUnavailableError
from live.settings import Settings


class _Packed:
    """Commands packed by hiredis in C: redis-py does so for its blocking client only, and a batch has many words."""

    def pack_command(self, *args: EncodableT) -> list[bytes]:
        """A command as bytes; its first word may name a subcommand too."""
        words = (*str(args[0]).split(), *args[1:])
        return [hiredis.pack_command(words)]  # type: ignore[arg-type] # the stub says a tuple of one


class _TCP(_Packed, Connection):
    """Over TCP."""


class _TLS(_Packed, SSLConnection):
    """Over TLS."""


class _Unix(_Packed, UnixDomainSocketConnection):
    """Over a unix socket."""


_PACKED: Final = {Connection: _TCP, SSLConnection: _TLS, UnixDomainSocketConnection: _Unix}

SCHEMES: Final = ("redis", "rediss", "unix")
_NOT_NOW: Final = (ClusterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_PASSWORDS: Final = (re.compile(r"([?&]password=)[^&#]*"), re.compile(r"(://[^:/?#@]*:).*(?=@)"))


def connect(url: str, settings: Settings) -> Redis:
    """A client with a bounded pool and no retries of its own: the write path owns them (I5).

    Raises:
        SetupError: the URL is not one of a store.
    """
    if url.partition("://")[0] not in SCHEMES:
        raise SetupError(f"the store {redact(url)!r} is not redis://…, rediss://… or unix://…")
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
        pool.connection_class = _PACKED[pool.connection_class]
    except ValueError as error:
        raise SetupError(f"the store {redact(url)!r}: {error}") from None
    return Redis.from_pool(pool)


def redact(url: str) -> str:
    """A store's URL without its password, for messages and logs; it may be no good URL."""
    for password in _PASSWORDS:
        url = password.sub(r"\1***", url)
    return url


@asynccontextmanager
async def store_errors() -> AsyncIterator[None]:
    """Turn every way in which a store can be away into `StoreUnavailableError`.

    A store that answers but can't work now (loading, busy with a script, out of disk or memory, read-only) is away
    too. Any other error answer is a fault of ours and stays what it is. A task that was cancelled meanwhile ends here.
    """
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(str(error) or type(error).__name__) from error
    except ResponseError as error:
        # redis-py takes the code off an answer that it has a class for.
        if not isinstance(error, _NOT_NOW) and not str(error).startswith(("BUSY", "MISCONF", "NOREPLICAS")):
            raise
        raise StoreUnavailableError(str(error)) from error
    finally:
        # redis-py sends through `asyncio.wait_for`, which on Python 3.11 may swallow a cancellation: the task would go
        # on for ever, and the process never stop.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


async def unsafe_settings(client: Redis) -> list[str]:
    """One line for each setting of the store with which an acknowledged event can be lost.

    Raises:
        SetupError: the store may evict keys, which breaks rankings silently (I7).
        StoreUnavailableError: the store does not answer.
    """
    async with store_errors():
        try:
            found = cast("Mapping[str | bytes, str | bytes]", await client.config_get("*"))
        except (RedisError, ConnectionError) as error:
            if isinstance(error, RedisConnectionError | RedisTimeoutError):
                raise
            return [f"the store does not tell its settings ({error}); check appendonly, appendfsync, maxmemory-policy"]
    settings = {_text(name): _text(value) for name, value in found.items()}
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise SetupError(
            f"the store's maxmemory-policy is {policy}: it may drop slots, and rankings would be wrong for ever. "
            "Set it to noeviction."
        )
    lines = []
    if settings.get("appendonly") != "yes":
        lines.append("the store has no append-only file (appendonly no): a crash loses acknowledged events")
    elif settings.get("appendfsync") != "always":
        lines.append(
            f"the store's appendfsync is {settings.get('appendfsync')}, not always: "
            "a power cut loses acknowledged events"
        )
    if settings.get("no-appendfsync-on-rewrite") == "yes":
        lines.append("the store does not fsync during a rewrite (no-appendfsync-on-rewrite yes): set it to no")
    return lines


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
