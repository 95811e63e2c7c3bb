"""A timetable: finds what is due next among any number of items, most of which are due much later."""

import asyncio
import heapq
import math
import time
from collections.abc import Hashable
from contextlib import suppress
from typing import Final, Generic, TypeVar

_T = TypeVar("_T", bound=Hashable)

_SPARE: Final = 64  # outdated entries that the heap may have, in addition to one for each item


class Timetable(Generic[_T]):
    """When each item is due, in seconds of the monotonic clock. After an item was taken, set it again."""

    def __init__(self) -> None:
        self._times: dict[_T, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, _T]] = []
        self._number = 0  # makes entries distinct, and keeps items with the same time in order
        self._changed = asyncio.Event()
        self._sleeps_until = -math.inf

    def __contains__(self, item: _T) -> bool:
        """Return whether an item is in the timetable, and not taken."""
        return item in self._times

    def set(self, item: _T, at: float) -> None:
        """Make an item due at a time. Replace the earlier time of the item, if there is one."""
        self._number += 1
        self._times[item] = (at, self._number)
        heapq.heappush(self._heap, (at, self._number, item))
        if len(self._heap) > 2 * len(self._times) + _SPARE:
            self._heap = [(at, number, item) for item, (at, number) in self._times.items()]
            heapq.heapify(self._heap)
        if at < self._sleeps_until:
            self._changed.set()

    def bring_forward(self, item: _T, at: float) -> None:
        """Make an item due at a time, unless it is due earlier or was taken."""
        if item in self._times and at < self._times[item][0]:
            self.set(item, at)

    def remove(self, item: _T) -> None:
        """Forget an item."""
        self._times.pop(item, None)

    def take(self) -> _T | None:
        """Take the first item that is due. Return None if no item is due."""
        while self._heap:
            at, number, item = self._heap[0]
            if self._times.get(item) == (at, number):
                if at > time.monotonic():
                    return None
                del self._times[item]
                heapq.heappop(self._heap)
                return item
            heapq.heappop(self._heap)
        return None

    async def wait(self) -> None:
        """Wait until an item may be due."""
        self._sleeps_until = self._heap[0][0] if self._heap else math.inf
        pause = self._sleeps_until - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(pause) else pause):
                await self._changed.wait()
        self._changed.clear()
        self._sleeps_until = -math.inf
