"""Power cuts: data that the store and SQL have not synced is lost, but nothing that was acknowledged."""

import asyncio
import os
import random
import subprocess
from pathlib import Path

import pytest

from live.journal.database import Database
from tests.harness.boards import rolling_board
from tests.harness.draining import drainer_process
from tests.harness.journaled import Journaled
from tests.harness.mutation import must_be_caught
from tests.harness.shims import Power, has_compiler
from tests.harness.store import valkey
from tests.harness.waiting import eventually

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.skipif(not has_compiler(), reason="needs a C compiler"),
]


async def power_cuts(
    folder: Path, chance: random.Random, rounds: int, *, appendfsync: str = "always", synchronous: str = ""
) -> None:
    """Count and drain, cut the power of the store and the drainer at the same time, and check what is left."""
    root = folder / "machine"
    (root / "store").mkdir(parents=True)
    power = Power(root, folder)
    store = valkey(root / "store", "--appendfsync", appendfsync)
    store.environment = power.environment
    store.start()
    board = Journaled(store.url, root / "data", rolling_board(ties="first"), write_deadline=20)
    environment = {**os.environ, **power.environment}
    drainer = await asyncio.to_thread(drainer_process, board.settings, synchronous, environment)
    await board.like("first")

    async def begun() -> bool:
        return power.has_synced(b"first")

    try:
        await eventually(begun)
        for _ in range(rounds):
            liking = asyncio.create_task(_like(board, chance.uniform(0.3, 1.0), chance))
            await asyncio.sleep(chance.uniform(0.1, 0.5))
            store.kill()
            _end(drainer)
            power.lose()
            await asyncio.to_thread(store.start)
            drainer = await asyncio.to_thread(drainer_process, board.settings, synchronous, environment)
            await liking

            async def drained() -> bool:
                return await board.waiting() == 0

            await eventually(drained)
            with Database("sqlite", root / "data", board.settings.key_prefix, writes=False) as database:
                board.databases = [database]
                await board.must_agree()
                assert await board.begun_again() == 0
    finally:
        _end(drainer)
        store.kill()
        await board.client.aclose()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def _like(board: Journaled, seconds: float, chance: random.Random) -> None:
    """Count batches of likes, one after another.

    The ledger sends a batch again, with the same number, if its answer is lost.
    """
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await board.like(*(f"k{chance.randrange(50)}" for _ in range(chance.randint(1, 20))))


async def test_a_power_cut_loses_nothing_acknowledged(tmp_path: Path, chance: random.Random, effort: int) -> None:
    """Both the store and SQL still have every acknowledged event."""
    await power_cuts(tmp_path, chance, 3 * effort)


@pytest.mark.mutant
async def test_a_database_that_syncs_later_is_detected(tmp_path: Path, chance: random.Random) -> None:
    """The mutant's drainer trims entries that a power cut then removes from the write-ahead log."""
    with must_be_caught("synchronous=NORMAL"):
        await power_cuts(tmp_path, chance, 3, synchronous="NORMAL")


@pytest.mark.mutant
async def test_a_store_that_syncs_later_is_detected(tmp_path: Path, chance: random.Random) -> None:
    """The mutant's store loses up to a second of events."""
    with must_be_caught("appendfsync everysec"):
        await power_cuts(tmp_path, chance, 3, appendfsync="everysec")
