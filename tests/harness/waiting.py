"""Waiting for a condition, with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

DEADLINE: Final = 150.0  # a busy machine stalls for seconds
_TEST: Final = 60.0  # seconds; hardly any test takes longer
_MUTANT: Final = 10.0  # a caught mutant usually waits for something that never happens

_mutants: list[None] = []  # one item for each mutant that runs


async def eventually(condition: Callable[[], Awaitable[object]], deadline: float = DEADLINE) -> Any:
    """Wait until a condition returns a true value, and return this value."""
    deadline = min(deadline, _MUTANT) if _mutants else deadline
    end = time.monotonic() + deadline
    pause = 0.001
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < end, f"still {value!r} after {deadline} s"
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.02)


def until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition returns a true value, and return this value, in a test without an event loop."""
    deadline = _MUTANT if _mutants else DEADLINE
    end = time.monotonic() + deadline
    while not (value := condition()):
        assert time.monotonic() < end, f"still {value!r} after {deadline} s"
        time.sleep(0.02)
    return value


async def until_early(unit: Literal["hour", "day"]) -> None:
    """Wait until the present hour or day has more than a minute left, for tests in which no slot or period may end."""
    seconds = {"hour": 3600, "day": 86_400}[unit]
    while time.time() % seconds > seconds - _TEST:  # noqa: ASYNC110 - the clock has no event
        await asyncio.sleep(1)


@contextmanager
def impatient() -> Iterator[None]:
    """Wait less while in the context, because a mutant runs."""
    _mutants.append(None)
    try:
        yield
    finally:
        _mutants.pop()
