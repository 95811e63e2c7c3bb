"""Rotation: subtracts slots that have left the window, one bounded step at a time, for all boards of a process.

Each step returns in how many seconds the next slot is due, and the process leaves the board alone until then. An old
event, or an event that moves the board's clock, may make the board due sooner. Then the process that added the event
checks the board soon.

Of several processes, one owns a board. The other processes check the board a little after it is due, in case the owner
does not.
So ownership only saves work: any number of processes may rotate a board at once. When a process ends, or the clock of
the store is set, each process that still runs calls `recheck` to look at its own boards.
"""

import asyncio
import heapq
import math
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from prometheus_client import Gauge

from live.domain.window import EVER, Forever, Sliding
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.metrics import ROTATION_FAILURES, ROTATION_LAG, ROTATION_SECONDS
from live.store.board.requests import DiscardRequest, ExpireEventsRequest, RotatePeriodRequest, RotateRequest
from live.store.board.state import MOST_REPLANS, BoardState

log = structlog.get_logger()

_T = TypeVar("_T", bound=Hashable)

_FEW_SLOTS: Final = 64  # with more slots, a step that may look into all of them moves fewer members
_LEAST_STEP: Final = 8  # members
_CATCH_UP_BUDGET: Final = 1.0
_PAUSE: Final = 1.0  # seconds between two checks of a board that keeps changing, and after a failure
_LONGEST_PAUSE: Final = 3600.0  # seconds between two checks of a board to which nothing happened
FALLBACK: Final = 2.0  # seconds after which a process checks a due board of another process
_AT_ONCE: Final = 64  # steps in flight, so that a thousand due boards do not block the store
ELEMENTS_A_STEP: Final = 500  # elements of deleted store keys that one step removes: 2 ms of the store for a hash
_SPARE: Final = 64  # outdated entries that the heap may have: this many, and one for each item


class Timetable(Generic[_T]):
    """When each item is due, in seconds of the monotonic clock. After an item was taken, set it again.

    It is fast for any number of items, most of which are due much later.
    """

    def __init__(self) -> None:
        self._times: dict[_T, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, _T]] = []
        self._number = 0  # makes entries distinct, and keeps items with the same time in order
        self._changed = asyncio.Event()
        self._sleeps_until = -math.inf

    def __contains__(self, item: _T) -> bool:
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


class BoardRotator:
    """Subtracts old slots, events or periods that have left a board's window."""

    def __init__(self, state: BoardState) -> None:
        self.state = state
        self._leaving = ("", "0")  # the slot that is being subtracted, and the cursor for the next step
        self._discarding = ("", "0")  # the store key that is being deleted, and the cursor for the next step
        self._starts: list[str] = []  # the starts of all slots, as last read, if a sum of zero is a score

    async def rotate(self) -> float | None:
        """Do one bounded step. Return None if more may be due now, else the seconds until the board can be due.

        They are infinite if only an event can make it due.
        """
        state = self.state
        await state.open_to_write()
        window = state.board.window
        for _ in range(MOST_REPLANS):
            if isinstance(window, Forever):
                return None if await self._discard() else float("inf")
            reply = await (self._expire_events(window) if isinstance(window, Sliding) else self._drain())
            match reply:
                case [b"moved", _, cursor]:
                    self._leaving = (self._leaving[0], cursor.decode())
                    return None
                case [b"moved", *_]:
                    return None
                case [b"dropped", old]:
                    await self._discard(old.decode())
                    return None
                case [b"slot", oldest]:
                    self._leaving = (oldest.decode(), "0")
                    return None
                case [b"slots"]:
                    self._starts = [start.decode() for start in await state.call("ZRANGE", state.keys.slots, 0, -1)]
                case [b"idle", wait]:
                    self._leaving = ("", "0")
                    pause = float("inf") if int(wait) < 0 else int(wait) / 1000
                    return None if await self._discard() else pause
                case [b"replan", *_]:
                    pass
                case [b"ruled"]:
                    self._leaving, self._starts, window = ("", "0"), [], state.board.window
                case _:
                    raise AssertionError(f"the store answered {reply!r}")
        raise state.moved_too_often()

    async def _discard(self, name: str = "") -> bool:
        """Delete a piece of a store key that holds nothing of the board any more. Return False if there is none."""
        state, dropped, (current, cursor) = self.state, self.state.keys.dropped, self._discarding
        name = name or current or (await state.call("SRANDMEMBER", dropped) or b"").decode()
        if not name:
            return False
        request = DiscardRequest(ELEMENTS_A_STEP, cursor if name == current else "0")
        reply = await state.run(state.scripts.discard, [dropped, name], request)
        self._discarding = (name, reply[1].decode()) if reply[0] == b"left" else ("", "0")
        return True

    async def _drain(self) -> list[Any]:
        state, (start, cursor) = self.state, self._leaving
        board, keys, clock = state.board, state.keys, state.planned()
        kept = 0 if clock.current is None else board.window.oldest(clock.current)
        if board.window.tables:
            old = (*keys.of_slot(start), *keys.of_dropped(start))
            return await state.run(
                state.scripts.rotate_period,
                [keys.meta, keys.slots, keys.dropped, *old],
                RotatePeriodRequest(
                    epoch=state.epoch or "",
                    ruled=state.ruled,
                    clock=clock,
                    kept=kept,
                    start=int(start) if start else None,
                ),
            )
        names = [*state.table(None).order, keys.meta, keys.slots, keys.slot(start), keys.hidden, state.journal]
        request = RotateRequest(
            epoch=state.epoch or "",
            ruled=state.ruled,
            clock=clock,
            rules=state.board.rules,
            kept=kept,
            start=int(start) if start else None,
            cursor=cursor,
            count=self._step(),
            starts=self._starts,
        )
        others = [keys.slot(other) for other in self._starts if other != start]
        return await state.run(state.scripts.rotate, [*names, *others], request)

    def _step(self) -> int:
        """Return how many members a step moves: if a sum of zero is a score, it may look for each in all slots."""
        step = self.state.settings.rotation_step
        return min(step, max(_LEAST_STEP, step * _FEW_SLOTS // max(_FEW_SLOTS, len(self._starts))))

    async def _expire_events(self, window: Sliding) -> list[Any]:
        state, board, keys = self.state, self.state.board, self.state.keys
        return await state.run(
            state.scripts.expire_events,
            [
                *state.table(None).order,
                keys.meta,
                keys.slots,
                keys.slot(EVER.start),
                keys.log,
                keys.hidden,
                keys.taken,
                state.journal,
            ],
            ExpireEventsRequest(
                epoch=state.epoch or "",
                ruled=state.ruled,
                by_event=board.clock == "event",
                window=window.length * 1000,
                count=state.settings.rotation_step,
                rules=state.board.rules,
                start=EVER.start,
                digits=() if board.sums is None else board.sums.digits,
            ),
        )


async def step(rotator: BoardRotator) -> float | None:
    """Do one step, and measure how long it takes. Return what `BoardRotator.rotate` returns."""
    with ROTATION_SECONDS.time():
        return await rotator.rotate()


async def catch_up(rotator: BoardRotator) -> None:
    """Rotate until nothing is due, for a second at most: who moves an event clock wants to see the new window."""
    deadline = time.monotonic() + _CATCH_UP_BUDGET
    while time.monotonic() < deadline and await step(rotator) is None:
        pass


class _ScheduledBoard(msgspec.Struct, eq=False):
    """The rotation of one board, as a process knows it. Times are in seconds of the monotonic clock."""

    rotator: BoardRotator
    due: float  # when the board was or will be due. Before the first step, this is the time of the start
    lag: Gauge
    checked_at: float = -math.inf  # when the last step ended
    is_busy: bool = False  # whether this process has changed the board since a step found nothing to do


class Rotation:
    """The rotation of all boards of a process."""

    def __init__(self, interval: float, owns: Callable[[str], bool] = lambda _: True) -> None:
        """Rotate the boards that this process `owns` when they are due, and other boards a little later.

        A board that was changed is checked again after `interval` seconds at the latest.
        """
        self._interval = interval
        self._owns = owns
        self._scheduled: dict[BoardRotator, _ScheduledBoard] = {}
        self._timetable: Timetable[_ScheduledBoard] = Timetable()
        self._steps = asyncio.Semaphore(_AT_ONCE)

    def add(self, rotator: BoardRotator) -> None:
        """Rotate a board from now on."""
        lag = ROTATION_LAG.labels(rotator.state.board.id)
        scheduled = self._scheduled[rotator] = _ScheduledBoard(rotator, time.monotonic(), lag)
        rotator.state.on_sooner = partial(self._expect, scheduled)
        self._timetable.set(scheduled, scheduled.due)

    def remove(self, rotator: BoardRotator) -> None:
        """Stop rotating a board, if it is there. A step in flight ends by itself."""
        scheduled = self._scheduled.pop(rotator, None)
        if scheduled is not None:
            self._timetable.remove(scheduled)

    def recheck(self, *, every: bool = False) -> None:
        """Check the boards of this process at once, because they may be due sooner than it expects.

        Without `every`, check only those with an event clock or a sliding window, where any event of another process
        can make something due.
        """
        now = time.monotonic()
        for scheduled in self._scheduled.values():
            board = scheduled.rotator.state.board
            if not every and board.clock == "server" and not isinstance(board.window, Sliding):
                continue
            if scheduled in self._timetable:
                self._timetable.bring_forward(scheduled, now)
            else:
                scheduled.is_busy = True  # a step is in flight: make the next step follow soon

    async def run(self) -> None:
        """Rotate each board when it is due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._steps.acquire()
                tasks.create_task(self._rotate(await self._next()))

    async def _next(self) -> _ScheduledBoard:
        while True:
            scheduled = self._timetable.take()
            if scheduled is None:
                await self._timetable.wait()
            elif (
                scheduled.is_busy
                or self._owns(scheduled.rotator.state.board.id)
                or time.monotonic() >= scheduled.due + FALLBACK
            ):
                return scheduled
            else:
                self._timetable.set(scheduled, scheduled.due + FALLBACK)

    def _expect(self, scheduled: _ScheduledBoard) -> None:
        """Check a board sooner than the last step said, but at most once a second."""
        scheduled.is_busy = True
        self._timetable.bring_forward(scheduled, max(time.monotonic(), scheduled.checked_at + _PAUSE))

    async def _rotate(self, scheduled: _ScheduledBoard) -> None:
        started = time.monotonic()
        was_busy, scheduled.is_busy = scheduled.is_busy, False
        try:
            wait = await step(scheduled.rotator)
        except (StoreUnavailableError, EpochLostError, SetupError) as error:
            ROTATION_FAILURES.inc()
            log.debug("rotation waits", board=scheduled.rotator.state.board.id, reason=str(error))
            scheduled.is_busy, pause = True, _PAUSE
        else:
            now = time.monotonic()
            if wait is None:
                scheduled.due, scheduled.is_busy = min(scheduled.due, started), True
                pause = now - started  # leaves the store half of its time, so that writers are not delayed
            else:
                scheduled.due = now + wait
                longest = self._interval if was_busy else _LONGEST_PAUSE
                # If the board is busy, something happened during the step.
                pause = min(wait, _PAUSE if scheduled.is_busy else longest)
        finally:
            self._steps.release()
        scheduled.checked_at = time.monotonic()
        if scheduled.rotator in self._scheduled:
            scheduled.lag.set(max(0, scheduled.checked_at - scheduled.due))
            self._timetable.set(scheduled, scheduled.checked_at + pause)
