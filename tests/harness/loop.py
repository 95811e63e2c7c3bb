"""The event loop of asynchronous tests."""

import asyncio
from typing import Any

import pytest
import uvloop


def new_uvloop() -> asyncio.AbstractEventLoop:
    """Create a uvloop that stops when the time of a test ends.

    At that time, pytest-timeout raises an exception in the handler of a signal. On asyncio, the exception ends the
    test. uvloop only reports the exception, so the test would go on.
    """
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_stop_at_timeout)
    return loop


def _stop_at_timeout(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.default_exception_handler(context)
    if isinstance(context.get("exception"), pytest.fail.Exception):
        for task in asyncio.all_tasks(loop):
            task.print_stack()
        loop.stop()  # then running the loop raises RuntimeError, so the test fails
