"""What `live serve` prints for people."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from tests.harness.admin import add_key
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings


@pytest.mark.slow
async def test_a_server_for_a_network_says_where_others_reach_it(valkey_url: str, tmp_path: Path) -> None:
    """The address is one of this machine. A machine without a network has none."""
    settings = fresh_settings(valkey_url, host="0.0.0.0", data_dir=tmp_path / "data")  # noqa: S104
    await add_key(settings, "shop", verbs=("post",))  # without an API key, a server for others does not start
    server = ServerProcess(settings, tmp_path)
    await asyncio.to_thread(server.start)
    try:
        found = re.search(r"Other machines reach it at (http://\S+)/\n", server.log())
        if found is None:
            pytest.skip("this machine has no network")
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{found[1]}/healthz")).status_code == 200
    finally:
        await asyncio.to_thread(server.stop)
