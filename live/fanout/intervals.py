"""Decides when viewers receive frames, from the intervals of boards and viewers.

Ticks happen at common instants, which are multiples of the intervals. So a viewer receives at most one frame per
interval, and one call to the store reads many boards.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from live.domain.board import Board

_MILLI: Final = 1000
_T = TypeVar("_T")


def interval_of(board: Board, default: float) -> int:
    """Return the minimum time between two frames of a board, in milliseconds. `default` is in seconds."""
    return max(1, round(default * 1000)) if board.conflation is None else board.conflation


def viewer_interval(board: int, wanted: int) -> int:
    """Return the interval of a viewer's frames: the board's interval, doubled until it is at least `wanted`.

    Only a few intervals are possible, so that viewers with similar wishes share their frames.
    """
    while board < wanted:
        board *= 2
    return board


class TickSchedule(Generic[_T]):
    """A timetable of items, in milliseconds of the loop's clock. It calls `call` with the due items and the time."""

    def __init__(self, call: Callable[[list[_T], int], None]) -> None:
        self._call = call
        self._due: dict[int, set[_T]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0  # the time that the timer is set to; on uvloop, the timer itself may not know it

    def __len__(self) -> int:
        """Count the items of the timetable."""
        return sum(map(len, self._due.values()))

    def start(self) -> None:
        """Start the timer."""
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        """Stop the timer."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def after(self, now: int, interval: int) -> int:
        """Return the first multiple of an interval that is later than `now`."""
        return (now // interval + 1) * interval

    def now(self) -> int:
        """Return the current time in milliseconds."""
        return int((self._loop or asyncio.get_running_loop()).time() * _MILLI)

    def add(self, time: int, channel: _T) -> None:
        """Add an item that is due at a time, or now if that time has passed."""
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
        now = self.now() + 1  # a timer can fire up to a millisecond early
        due: dict[_T, None] = {}
        for time in sorted(time for time in self._due if time <= now):
            due.update(dict.fromkeys(self._due.pop(time)))
        self._call(list(due), now)
        self._arm()
