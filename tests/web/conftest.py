"""Fixtures of the tests of the routes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.harness.both_paths import FRIEND, Both, both_servers


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=[(), (FRIEND,)], ids=["own", "friend"])
async def both(request: pytest.FixtureRequest, valkey_url: str) -> AsyncIterator[Both]:
    """Yield `Both` servers: in the first run without an allowed origin, in the second run with an allowed origin."""
    async with both_servers(valkey_url, allowed_origins=request.param) as servers:
        yield servers
