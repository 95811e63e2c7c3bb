"""Read a sorted set of another Redis or Valkey server, and change nothing there."""

from collections.abc import AsyncIterator
from typing import Any, Final

from redis.asyncio import Redis

from live.domain.urls import check_url, scrubbed, shown
from live.errors import NotFoundError, SetupError
from live.store.connection.pipelined import ERRORS

_PAGE: Final = 1000  # elements that one reply should have
_TIMEOUT: Final = 10.0  # seconds for one reply


async def read_sorted_set(url: str, key: str) -> AsyncIterator[tuple[int, list[tuple[bytes, bytes]]]]:
    """Yield parts of a sorted set, each with the number of all elements. Some elements may come twice."""
    try:
        check_url(url, ("redis", "rediss", "unix"))
        client = Redis.from_url(url, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT, protocol=2)
    except (ValueError, TypeError) as error:
        raise SetupError(f"the server {shown(url)}: {scrubbed(str(error), url)}") from None
    try:
        async with client:
            kind: Any = await client.type(key)
            if kind != b"zset":
                if kind == b"none":
                    raise NotFoundError(f"{shown(url)} has no key {key!r}")
                raise SetupError(f"{key!r} is not a sorted set but a {kind.decode()}")
            count, cursor = int(await client.zcard(key)), 0
            while True:
                found: Any
                cursor, found = await client.zscan(key, cursor, count=_PAGE, score_cast_func=bytes)
                yield count, found
                if cursor == 0:
                    return
    except ERRORS as error:
        raise SetupError(f"can't read {shown(url)}: {scrubbed(str(error), url)}") from None
    except (AttributeError, IndexError, TypeError, ValueError):  # redis-py can't take the answer apart
        raise SetupError(f"{shown(url)} gives answers that no Redis gives: is it another kind of server?") from None
