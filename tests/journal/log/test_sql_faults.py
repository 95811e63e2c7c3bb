"""SQL that is full or locked: events still count, nothing is dropped, and SQL receives everything afterwards."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import live.journal.database
from live.errors import JournalBehindError, JournalError
from live.journal.database import Database
from live.journal.log.drainer import Drainer
from live.journal.log.timelines import begin_again
from tests.harness.disk import locked, may_mount, small_disk
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced

pytestmark = pytest.mark.fault

needs_mount = pytest.mark.skipif(not may_mount(), reason="needs the right to mount a file system")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only briefly for a lock."""
    monkeypatch.setattr(live.journal.database, "_BUSY", 0.05)


@contextmanager
def dropping() -> Iterator[None]:
    """The mutant: the drainer treats a failed commit as a successful one, and trims the entries."""
    right = Database.run

    async def wrong(database: Database, work: Any, *given: Any) -> Any:
        try:
            return await right(database, work, *given)
        except JournalError:
            if work is begin_again:  # the drainer needs its result
                raise
            return None

    with replaced(Database, "run", wrong):
        yield


async def fails(drainer: Drainer) -> bool:
    """Drain; returns whether the database refused something."""
    try:
        await drainer.sweep()
    except JournalError:
        return True
    return False


async def survive_locks(board: Journaled, chance: random.Random, rounds: int) -> None:
    """Count while another process locks the database, and drain afterwards."""
    await board.like("a")
    drainer = await board.drainer()
    await drainer.sweep()
    for _ in range(rounds):
        with locked(board.databases[0].path):
            for _ in range(chance.randint(1, 5)):
                await board.like("a", f"k{chance.randrange(9)}")
                await fails(drainer)
            rows = await board.rows()
            assert sum(score for _, score in rows) == board.counted, "an event did not count while SQL failed"
        await drainer.sweep()
        await board.must_agree()
    assert await board.begun_again() == 0


async def test_a_locked_database_delays_entries(
    valkey_url: str, tmp_path: Path, chance: random.Random, effort: int
) -> None:
    """The lock belongs to another process, such as an operator's shell with an open transaction."""
    async with journaled(valkey_url, tmp_path) as board:
        await survive_locks(board, chance, 3 * effort)


@pytest.mark.mutant
async def test_dropping_entries_while_sql_is_locked_is_detected(
    valkey_url: str, tmp_path: Path, chance: random.Random
) -> None:
    """A drainer that continues after a failed commit loses entries."""
    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("an entry is dropped when SQL is locked"), dropping():
            await survive_locks(board, chance, 1)


_BATCHES = 52  # about 50 KB each; together they are more than the disk and the backlog can hold


async def survive_a_full_disk(board: Journaled, folder: Path, chance: random.Random, rounds: int) -> None:
    """Count members with long names until SQL and the backlog are full; then make room again."""
    with small_disk(folder, "3m") as disk:
        drainer = await board.drainer()
        for _ in range(rounds):
            disk.leave(3 << 20)
            refused = failed = batches = 0
            while not refused:
                batches += 1
                assert batches <= _BATCHES, "no event was refused, so entries are dropped"
                try:
                    await board.like(*(chance.randbytes(100).hex() for _ in range(500)))
                except JournalBehindError:
                    refused += 1
                failed += await fails(drainer)
            assert failed, "no commit failed on the full disk"
            assert await board.total() == board.counted, "a refused event has counted"
            disk.leave(64 << 20)
            await drainer.sweep()
            await board.like("after")
            await drainer.sweep()
            await board.must_agree()
        assert await board.begun_again() == 0
        for database in board.databases:
            await database.aclose()
        board.databases.clear()


async def test_a_database_that_went_back_receives_everything_again(valkey_url: str, tmp_path: Path) -> None:
    """A restored copy lacks entries that the store no longer holds, and no new entry reveals that."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a", "b")
        await (await board.drainer()).sweep()
        path = board.databases[0].path
        await board.databases.pop().aclose()
        copy = path.read_bytes()
        await board.like("a", "c")
        await (await board.drainer()).sweep()
        await board.databases.pop().aclose()
        path.write_bytes(copy)

        drainer = await board.drainer()
        for _ in range(2):
            await drainer.sweep()
        await board.must_agree()
        assert await board.begun_again() == 1


@needs_mount
async def test_a_full_disk_delays_entries(valkey_url: str, tmp_path: Path, chance: random.Random, effort: int) -> None:
    """Beyond the backlog, events are refused, and the store does not grow."""
    async with journaled(valkey_url, tmp_path / "disk", journal_backlog=400_000) as board:
        await survive_a_full_disk(board, tmp_path / "disk", chance, min(effort, 4))  # each round makes the board larger


@needs_mount
@pytest.mark.mutant
async def test_dropping_entries_while_sql_is_full_is_detected(
    valkey_url: str, tmp_path: Path, chance: random.Random
) -> None:
    """The mutant's journal ends where the disk was full."""
    async with journaled(valkey_url, tmp_path / "disk", journal_backlog=400_000) as board:
        with must_be_caught("an entry is dropped when SQL is full"), dropping():
            await survive_a_full_disk(board, tmp_path / "disk", chance, 1)
