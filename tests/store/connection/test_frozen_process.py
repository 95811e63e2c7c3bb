"""A frozen process that holds the lock of the facts about a store stops no server."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from live.store.board.keys import Keys
from live.store.connection import high_water
from live.store.connection.high_water import HighWater
from tests.harness.ingest import make_key
from tests.harness.mutation import replaced
from tests.harness.scripts import connected
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

HOLDER = """
import fcntl, sys
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def frozen_holder(lock: Path) -> Iterator[None]:
    """While in the context, freeze a process that holds a lock. Afterwards, the process continues and ends."""
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            holder.send_signal(signal.SIGCONT)


@contextmanager
def counted_tries() -> Iterator[Counter[int]]:
    """Count the attempts to take the lock in each turn of the event loop."""
    tries: Counter[int] = Counter()
    turn = 0
    try_lock = high_water._try_lock

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    def counted(file: int) -> bool:
        if not tries[turn]:
            asyncio.get_running_loop().call_soon(next_turn)
        tries[turn] += 1
        return try_lock(file)

    with replaced(high_water, "_try_lock", counted):
        yield tries


@pytest.mark.fault
async def test_a_frozen_process_stops_no_server(valkey_url: str) -> None:
    """The server acknowledges events and finds a loss. What it learns reaches the file when the process continues."""
    settings = fresh_settings(valkey_url)
    meta = Keys(settings.key_prefix, "posts").meta

    async def status() -> int:
        return (await client.post("/v1/events", json={"key": "a"})).status_code

    async def is_counted() -> bool:
        return await status() == 200

    async def is_refused() -> bool:
        return await status() == 503

    async def is_written() -> bool:
        return "went back from offset" in HighWater(settings.data_dir, settings.key_prefix).loss_of("posts")

    async with serving(settings) as client, connected(valkey_url, settings) as store:
        assert await is_counted()
        lock = settings.data_dir / f"witness-{settings.key_prefix}.lock"
        with frozen_holder(lock), counted_tries() as tries:
            client.headers["Authorization"] = f"Bearer {await make_key(settings, 'shop')}"
            await eventually(is_counted)
            for _ in range(20):
                assert await is_counted()
            await store.call(meta, "HINCRBY", meta, "offset", "-10")
            await eventually(is_refused)
            assert not await is_written()
            assert max(tries.values()) <= len(("keys", "loss", "beat")), "the event loop waits for the lock"
        await eventually(is_written)
        assert await is_refused()
        assert HighWater(settings.data_dir, settings.key_prefix).facts.keys_required
