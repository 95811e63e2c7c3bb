"""The ticks: channels are refreshed at common instants, the multiples of their interval.

So a viewer gets at most one frame an interval, and the reads of many boards go to the store in one piece.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_MILLI: Final = 1000
_T = TypeVar("_T")


class Schedule(Generic[_T]):
    """What is due when, in milliseconds of the loop's clock; `call` is given what is, and when, once `start` was."""

    def __init__(self, call: Callable[[list[_T], int], None]) -> None:
        self._call = call
        self._due: dict[int, set[_T]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0  # for when the timer is set

    def start(self) -> None:
        """Begin to call."""
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        """Call nobody any more."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def after(self, now: int, interval: int) -> int:
        """The first multiple of an interval that is later than `now`."""
        return (now // interval + 1) * interval

    def now(self) -> int:
        """The time."""
        return int((self._loop or asyncio.get_running_loop()).time() * _MILLI)

    def add(self, time: int, channel: _T) -> None:
        """Something is due at a time, or now where that is past."""
        self._due.setdefault(time, set()).add(channel)
        self._arm()

    def _arm(self) -> None:
        if self._loop is None or not self._due:
            return
        first = min(self._due)
        if self._timer is not None:
            if self._armed <= first:
                return
            self._timer.cancel()
        self._armed = first
        self._timer = self._loop.call_at(first / _MILLI, self._run)

    def _run(self) -> None:
        self._timer = None
        now = self.now() + 1  # a timer may come by less than a millisecond too early
        due: dict[_T, None] = {}
        for time in sorted(time for time in self._due if time <= now):
            due.update(dict.fromkeys(self._due.pop(time)))
        self._call(list(due), now)
        self._arm()
