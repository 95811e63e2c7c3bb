"""Limits over all workers, and what the metrics show of the workers."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.harness.waiting import eventually
from tests.harness.workers import running_workers, until_ready


async def admit_as_many(store: str, **changes: Any) -> None:
    """Let many viewers come to two workers. Together the workers admit the ten viewers that the limit allows."""
    async with running_workers(store, 2, **changes) as workers, AsyncExitStack() as watching:
        await until_ready(workers)
        address = f"{workers.url.replace('http', 'ws')}/v1/boards/posts/live"

        async def watch() -> bool:
            try:
                await watching.enter_async_context(connect(address, open_timeout=180))
            except InvalidStatus:
                return False
            return True

        admitted = sum(await asyncio.gather(*(watch() for _ in range(60))))
        assert admitted == 10


async def read_as_much(store: str) -> None:
    """Read over many connections to two workers. Together they admit the burst, and what the rate adds meanwhile."""
    async with running_workers(store, 2, read_rate=20) as workers:
        await until_ready(workers)
        started = time.monotonic()

        async def read() -> bool:
            async with httpx.AsyncClient(base_url=workers.url, timeout=180) as client:
                return (await client.get("/v1/boards/posts")).status_code == 200

        admitted = sum(await asyncio.gather(*(read() for _ in range(200))))
        assert 40 <= admitted <= 40 + 20 * (time.monotonic() - started) + 2


@pytest.mark.slow
async def test_limits_hold_over_all_workers(valkey_url: str, tmp_path: Path) -> None:
    """Ten viewers are admitted in all, not ten by each worker.

    Limits of a prefix and read rates hold in the same way.
    """
    await admit_as_many(valkey_url, max_viewers=20)  # all come from one address, which may have half
    boards = tmp_path / "boards.toml"
    boards.write_text('[[board]]\nid = "posts"\n[limits."pos*"]\nviewers = 10\n', encoding="utf-8")
    await admit_as_many(valkey_url, boards=boards)
    await read_as_much(valkey_url)


@pytest.mark.slow
async def test_the_metrics_show_the_spread(valkey_url: str) -> None:
    """Each worker has a series with the number of its connections."""
    async with running_workers(valkey_url, 2) as workers:
        await until_ready(workers)
        opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", workers.port) for _ in range(50)))

        async def are_shown() -> bool:
            async with httpx.AsyncClient(base_url=workers.url, timeout=180) as client:
                lines = (await client.get("/metrics")).text.splitlines()
            shown = {number: f'live_connections{{worker="{number}"}} ' for number in (1, 2)}
            counts = [
                float(line.rpartition(" ")[2]) for line in lines for name in shown.values() if line.startswith(name)
            ]
            return len(counts) == 2 and all(counts) and sum(counts) >= 50

        await eventually(are_shown)
        for _, writer in opened:
            writer.close()
