"""Reads that many requests share."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

_T = TypeVar("_T")


class VersionCache(Generic[_T]):
    """The newest read about each owner, made once for each version and shared by all requests."""

    def __init__(self) -> None:
        self._reads: WeakKeyDictionary[Any, tuple[Hashable, asyncio.Task[_T]]] = WeakKeyDictionary()

    async def of(self, owner: object, version: Hashable, read: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of `read` for a version. A failed read is not kept: the next request reads again."""
        last = self._reads.get(owner)
        if last is None or last[0] != version or _has_failed(last[1]):
            last = self._reads[owner] = (version, asyncio.create_task(read()))
        return await asyncio.shield(last[1])  # a canceled request does not cancel the read for the others


def _has_failed(read: asyncio.Task[_T]) -> bool:
    return read.done() and (read.cancelled() or read.exception() is not None)
