"""The demo: of all processes, one generates the likes."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually


async def test_one_of_all_workers_generates_likes(valkey_url: str, tmp_path: Path) -> None:
    """Of three workers and a second server; when that worker is killed, another one takes over."""
    settings = fresh_settings(valkey_url, workers=3, demo=True)
    servers = [ServerProcess(settings, tmp_path) for _ in range(2)]
    store: Any = connect(valkey_url, settings)
    keys = Keys(settings.key_prefix, "posts")

    async def counted(least: int) -> bool:
        return int(await store.hget(keys.meta, "offset") or 0) >= least

    async def writers() -> list[bytes]:
        return list(await store.hkeys(keys.writers))

    try:
        for server in servers:
            server.start()
        await eventually(lambda: counted(15), 30)
        (first,) = await writers()
        for server in servers:
            assert server.process is not None
            for worker in children(server.process.pid):
                if len(await writers()) == 1:
                    os.kill(worker, signal.SIGKILL)
                    await asyncio.sleep(0.1)
        before = int(await store.hget(keys.meta, "offset"))
        await eventually(lambda: counted(before + 15), 30)
        found = await writers()
        assert first in found
        assert len(found) == 2
    finally:
        for server in servers:
            server.stop()
        await store.aclose()


def children(process: int) -> list[int]:
    """The worker processes of a server."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    return [int(child) for child in found if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8")]
