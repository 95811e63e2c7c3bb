"""Tasks that run during a test."""

import asyncio
from contextlib import suppress
from typing import Any


async def stop(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks. If a task has already failed, its error is raised here."""
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
