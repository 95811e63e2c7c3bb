"""The loop that serves in production, for tests that go down to its transports."""

import asyncio
from collections.abc import Iterator

import pytest
import uvloop


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Runs what is `on_uvloop`."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner
