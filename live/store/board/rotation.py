"""The rotation task: subtracts slots that have left the window, one bounded step at a time, in every process.

Each step returns when the next slot is due, and the task sleeps until then. An event that is old, or that moves the
board's clock, may make something due sooner: it wakes the task in the process that added the event. Each process also
checks again after `rotation_interval`, because that process may have stopped, or the store's clock may have been set.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import structlog

from live.errors import EpochLostError, StoreUnavailableError
from live.metrics import ROTATION_FAILURES, ROTATION_LAG, ROTATION_SECONDS
from live.store.board.rotator import BoardRotator

log = structlog.get_logger()

_CATCH_UP_BUDGET: Final = 1.0
_PAUSE: Final = 1.0  # seconds between two checks of a board that keeps changing, and after a failure


async def step(rotator: BoardRotator) -> float | None:
    """Do one step and measure it. Returns as `BoardRotator.rotate`."""
    started = time.perf_counter()
    wait = await rotator.rotate()
    ROTATION_SECONDS.observe(time.perf_counter() - started)
    return wait


async def catch_up(rotator: BoardRotator) -> None:
    """Rotate until nothing is due, for a second at most.

    An event clock jumps with the events. A client that has moved it wants to read a board that covers its window.
    """
    deadline = time.monotonic() + _CATCH_UP_BUDGET
    while time.monotonic() < deadline and await step(rotator) is None:
        pass


async def rotate_forever(rotators: Iterable[BoardRotator], interval: float) -> None:
    """Rotate every board whenever one of its slots is due, until cancelled; look at least every `interval` seconds."""
    async with asyncio.TaskGroup() as tasks:
        for rotator in rotators:
            tasks.create_task(_rotate_board(rotator, interval))


async def _rotate_board(rotator: BoardRotator, interval: float) -> None:
    lag = ROTATION_LAG.labels(rotator.state.board.id)
    due = time.perf_counter()  # when there was, or will be, something to do; now, until a step says otherwise
    while True:
        started = time.perf_counter()
        rotator.state.sooner.clear()
        try:
            wait = await step(rotator)
            due = min(due, started) if wait is None else time.perf_counter() + wait
        except (StoreUnavailableError, EpochLostError) as error:
            ROTATION_FAILURES.inc()
            log.debug("rotation waits", board=rotator.state.board.id, reason=str(error))
            wait = _PAUSE
        lag.set(max(0, time.perf_counter() - due))
        if wait is None:
            # Leave the store at least half of its time, so that writers are not delayed between two steps.
            await asyncio.sleep(time.perf_counter() - started)
        else:
            await _rest(rotator, min(wait, interval))


async def _rest(rotator: BoardRotator, seconds: float) -> None:
    """Sleep, but wake for what may be due sooner. The pause limits a busy board to one check a second."""
    pause = min(seconds, _PAUSE)
    await asyncio.sleep(pause)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds - pause):
            await rotator.state.sooner.wait()
