"""The event loop of production, for tests that use its transports."""

import asyncio
from collections.abc import Iterator

import pytest
import uvloop


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Runs the tests marked `on_uvloop`."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner
