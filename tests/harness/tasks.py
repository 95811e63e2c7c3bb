"""Tasks that run beside a test."""

import asyncio
from contextlib import suppress
from typing import Any


async def stop(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks. What one of them raised before is raised here."""
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
