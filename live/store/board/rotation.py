"""The rotation task: subtracts slots that have left the window, one bounded step at a time, in every process.

A look at a board tells when its next slot is due, and the task sleeps until then. What may be due sooner, because an
event came that is old or that moves the board's clock, wakes it in the process that added the event. In any case each
process looks again after `rotation_interval`: that process may have died, or the store's clock may have been set.
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
_PAUSE: Final = 1.0  # seconds between two looks at a board that keeps changing, and after one that failed


async def step(rotator: BoardRotator) -> float | None:
    """One measured step; None when there may be more to do now, else seconds until a slot can be due."""
    started = time.perf_counter()
    wait = await rotator.rotate()
    ROTATION_SECONDS.observe(time.perf_counter() - started)
    return wait


async def catch_up(rotator: BoardRotator) -> None:
    """Rotate until nothing is due, for a second at most.

    An event clock jumps with the events; who has just moved it wants to read a board that covers its window.
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
    due = time.perf_counter()  # when there was, or will be, something to do; now, for all we know
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
            # Leave the store at least half of its time, so that writers between two steps are not held up.
            await asyncio.sleep(time.perf_counter() - started)
        else:
            await _rest(rotator, min(wait, interval))


async def _rest(rotator: BoardRotator, seconds: float) -> None:
    """Sleep, but wake for what may be due sooner; after a pause, so that a busy board costs a look a second at most."""
    pause = min(seconds, _PAUSE)
    await asyncio.sleep(pause)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds - pause):
            await rotator.state.sooner.wait()
