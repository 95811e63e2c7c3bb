"""Waiting for a condition, with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

DEADLINE: Final = 10.0


async def eventually(condition: Callable[[], Awaitable[object]], deadline: float = DEADLINE) -> Any:
    """Wait until a condition returns something true, and return that."""
    end = time.monotonic() + deadline
    pause = 0.001
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < end, f"still {value!r} after {deadline} s"
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.02)
