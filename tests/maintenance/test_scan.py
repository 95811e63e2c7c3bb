"""A database that is damaged, deleted or replaced is noticed, named and not trusted, while the server runs."""

import asyncio
import os
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from sqlalchemy import Connection, func, select

import live.journal.log.entries
from live.errors import JournalBrokenError, JournalError
from live.journal.database import Database
from live.journal.log.reader import contents_of
from live.journal.log.timelines import open_timelines
from live.journal.schema import METADATA, SEGMENT
from live.maintenance import journal
from live.maintenance.journal import verify
from live.settings import Settings
from tests.harness.boards import rolling_board
from tests.harness.forked import run_live
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.postgres import Postgres, has_postgres, running_postgres
from tests.harness.server import run_server
from tests.harness.settings import as_environment, fresh_settings
from tests.harness.waiting import DEADLINE, eventually

with_postgres = pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql")


async def test_rows_are_read_in_small_pieces(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece has few rows or few bytes, but at least one row. All rows are read."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for _ in range(5):
            await board.like("a")
            await drainer.sweep()

        def pieces() -> list[int]:
            tables = [table for table in METADATA.sorted_tables if table is not SEGMENT]
            found: list[int] = []

            def noted(_connection: Any, _table: Any, after: Any, last: Any, _place: str) -> list[Any]:
                found.append(last[0] - (0 if after is None else after[0]))  # the rows have consecutive numbers
                return []

            with replaced(journal, "_faults", noted):
                assert not list(journal.row_faults(board.databases[0], without=tables))
            return found

        sizes = await board.databases[0].run(lambda sql: sql.scalars(select(func.length(SEGMENT.c.data))).all())
        found = [await asyncio.to_thread(pieces)]
        monkeypatch.setattr(journal, "_ROWS", 2)
        found.append(await asyncio.to_thread(pieces))
        monkeypatch.setattr(journal, "_ROWS", 9)
        for most in (sum(sizes[:2]), 1):
            monkeypatch.setattr(journal, "_BYTES", most)
            found.append(await asyncio.to_thread(pieces))
        assert (found[0], found[1], found[3]) == ([5], [2, 2, 1], [1] * 5)
        assert (found[2][0], sum(found[2])) == (2, 5)


class Watched:
    """A server with a journal, and what the server says of the journal."""

    def __init__(self, settings: Settings, client: httpx.AsyncClient) -> None:
        self.settings = settings
        self.client = client
        self.path = settings.data_dir / f"journal-{settings.key_prefix}.db"

    async def count(self) -> int:
        """Count a like; returns the status of the response."""
        return (await self.client.post("/v1/events", json={"key": "a"})).status_code

    async def reasons(self) -> str:
        """Why the journal is degraded; empty if it is not."""
        found = (await self.client.get("/readyz")).json()
        return "; ".join(found["reasons"])

    async def is_kept(self) -> bool:
        """Whether SQL has an entry."""
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as sql:
                entries = sql.execute("SELECT count(*) FROM segment").fetchone()[0]
        except sqlite3.OperationalError:  # the server has not made the file or its tables yet
            return False
        return bool(entries) and not await self.reasons()

    async def says(self, *words: str, deadline: float = DEADLINE) -> None:
        """Wait until the journal is degraded, and the reason contains the given words."""

        async def is_said() -> bool:
            reasons = await self.reasons()
            return all(word in reasons for word in words)

        await eventually(is_said, deadline)


@asynccontextmanager
async def watched(store: str, folder: Path, **changes: Any) -> AsyncIterator[Watched]:
    """A server that has moved an entry to SQL."""
    settings = fresh_settings(store, **{"journal": "sqlite", "data_dir": folder, **changes})
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url, timeout=180) as client,
    ):
        found = Watched(settings, client)

        # The first commit may take longer than the write deadline of a test, so the event is sent again.
        async def counts() -> bool:
            return await found.count() == 200

        await eventually(counts)
        if settings.journal == "sqlite":
            await eventually(found.is_kept)
        yield found


def deleted(path: Path) -> None:
    """Delete a file."""
    path.unlink()


def swapped(path: Path) -> None:
    """Put a copy in place of a file."""
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.rename(path)


async def refuses_to_write(
    store: str, folder: Path, spoil: Callable[[Path], None], ending: str, deadline: float
) -> None:
    """A server whose file is gone says so, and acknowledges nothing."""
    async with watched(store, folder, journal_ack=True, write_deadline=0.5) as server:
        path = server.path.with_name(f"{server.path.stem}{ending}")
        spoil(path)
        await server.says(str(path), "while this server writes to it", deadline=deadline)
        assert await server.count() == 503
        assert (await server.client.get("/readyz")).json()["status"] == "ready"


@pytest.mark.parametrize("ending", [".db", ".db-wal", ".lock"])
@pytest.mark.parametrize("spoil", [deleted, swapped])
async def test_a_file_that_is_gone_keeps_nothing(
    valkey_url: str, tmp_path: Path, spoil: Callable[[Path], None], ending: str
) -> None:
    """Even an idle server notices that one of its SQLite files was deleted or replaced.

    Otherwise, the next commits of the server would be lost.
    """
    await refuses_to_write(valkey_url, tmp_path, spoil, ending, DEADLINE)


@pytest.mark.mutant
async def test_commits_to_a_file_that_is_gone_are_detected(valkey_url: str, tmp_path: Path) -> None:
    """SQLite itself does not notice that its file is gone."""
    with must_be_caught("nobody notices that the file is gone"), replaced(Database, "_require_files", lambda _: None):
        await refuses_to_write(valkey_url, tmp_path, deleted, ".db", 2)


async def keeps_entries_in_the_store(board: Journaled) -> None:
    """Delete the file right after a commit. The entries of the commit must stay in the store."""
    await board.like("a")
    drainer = await board.drainer()
    await drainer.sweep()
    await board.like("b")
    path = board.databases[0].path
    right, calls = Database._require_files, 0

    def late(database: Database) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first call comes before the commit, the second call after it
            path.unlink()
        right(database)

    with replaced(Database, "_require_files", late), suppress(JournalBrokenError):
        await drainer.drain(["posts"])
    assert (calls, await board.waiting()) == (2, 1)


async def test_a_commit_to_a_file_that_goes_meanwhile_is_not_trusted(valkey_url: str, tmp_path: Path) -> None:
    """The drainer checks its files again after each commit."""
    async with journaled(valkey_url, tmp_path) as board:
        await keeps_entries_in_the_store(board)


def flipped(path: Path, place: int) -> None:
    """Change a byte of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x55]))


async def filled(board: Journaled) -> Path:
    """Fill a database with several segments, close it, and return its file."""
    drainer = await board.drainer()
    for number in range(6):
        await board.like(*(f"member {number} {other}" for other in range(20)))
        await drainer.sweep()
    await drainer._definitions.follow()
    database = board.databases.pop()
    await database.aclose()
    with closing(sqlite3.connect(database.path)) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return database.path


def held(board: Journaled, folder: Path) -> object:
    """Everything that a recovery would read."""
    prefix = board.settings.key_prefix

    def read(sql: Connection) -> object:
        timelines = open_timelines(sql)
        return timelines, [contents_of(sql, timeline).slots for timeline in timelines]

    with Database("sqlite", folder, prefix, writes=False) as database:
        return database.work(read)


async def test_verify_finds_every_damage(valkey_url: str, tmp_path: Path, chance: random.Random, effort: int) -> None:
    """Bytes change at random places. Either `verify` finds the damage, or a recovery reads the same as before."""
    async with journaled(valkey_url, tmp_path) as board:
        path = await filled(board)
        right, found = held(board, tmp_path), 0
        with Database("sqlite", tmp_path, board.settings.key_prefix, writes=False) as database:
            assert verify(database, lambda *_: None).sound
        whole = path.read_bytes()
        for place in chance.sample(range(len(whole)), 100 * effort):
            flipped(path, place)
            with Database("sqlite", tmp_path, board.settings.key_prefix, writes=False) as database:
                if verify(database, lambda *_: None).sound:
                    assert held(board, tmp_path) == right, place
                else:
                    found += 1
            path.write_bytes(whole)
        assert found


async def test_verify_reads_what_is_left(valkey_url: str, tmp_path: Path) -> None:
    """The command names the damaged segment, counts the entries of the other segments, and exits with 1."""
    async with journaled(valkey_url, tmp_path) as board:
        path = await filled(board)
        spoil_a_segment(path)
        environment = {**os.environ, **as_environment(board.settings)}
        done = await asyncio.to_thread(run_live, "journal", "--verify", environment=environment)
        assert done.returncode == 1, done.stderr
        assert "DAMAGED; " in done.stdout
        assert "a checksum does not match" in done.stdout
        with path.open("r+b") as file:
            file.write(b"not a database")
        done = await asyncio.to_thread(run_live, "journal", "--verify", environment=environment)
        assert done.returncode == 1, done.stderr
        assert done.stdout.replace("\n", "") == f"DAMAGED: the journal is damaged: {path}: file is not a database"


def spoil_a_segment(path: Path) -> None:
    """Make the checksum of a segment wrong."""
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("UPDATE segment SET crc = crc + 1 WHERE id = (SELECT min(id) FROM segment)")
        sql.commit()


async def is_found_by_verify(board: Journaled, folder: Path) -> None:
    """Check that `verify` finds a segment with a wrong checksum."""
    spoil_a_segment(await filled(board))
    with Database("sqlite", folder, board.settings.key_prefix, writes=False) as database:
        (verdict,) = verify(database, lambda *_: None).boards
    assert len(verdict.faults) == 1


async def test_verify_compares_checksums(valkey_url: str, tmp_path: Path) -> None:
    """A segment with a wrong checksum is a fault of its board."""
    async with journaled(valkey_url, tmp_path) as board:
        await is_found_by_verify(board, tmp_path)


@pytest.mark.mutant
async def test_a_segment_whose_checksum_is_not_compared_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant reads a segment without comparing its checksum."""

    def trusting(_crc: int, data: bytes) -> bytes:
        return zstandard.decompress(data)

    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("no checksum"), replaced(live.journal.log.entries, "decompress", trusting):
            await is_found_by_verify(board, tmp_path)


async def test_damaged_rows_are_not_used(valkey_url: str, tmp_path: Path) -> None:
    """A server refuses the past that needs them, and events still count."""
    async with watched(valkey_url, tmp_path) as server:
        spoil_a_segment(server.path)
        past = await server.client.get("/v1/boards/posts", params={"as_of": datetime.now(UTC).isoformat()})
        assert past.status_code == 503
        assert await server.count() == 200


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests of this file."""
    with running_postgres() as server:
        yield server


@with_postgres
async def test_damage_in_postgres_is_noticed(valkey_url: str, tmp_path: Path, postgres: Postgres) -> None:
    """A row's checksum shows the damage, or PostgreSQL's error names the block of a damaged page."""
    async with journaled(valkey_url, tmp_path, url=postgres.url, journal=postgres.url) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()
        database = board.databases[0]
        assert verify(database, lambda *_: None).sound
        await database.run(lambda sql: sql.exec_driver_sql("UPDATE checkpoint SET crc = crc + 1"))
        await database.run(lambda sql: sql.exec_driver_sql("UPDATE segment SET crc = crc + 1"))
        found = verify(database, lambda *_: None)
        assert len(found.boards[0].faults) == 1
        faults = [fault for _, fault in journal.row_faults(database)]
        assert faults == [
            f"the journal is damaged: {database.place}: the checksum of segment 1, of board posts, is wrong"
        ]
        assert str(postgres.folder) in database.place

        file = await database.run(lambda sql: sql.exec_driver_sql("SELECT pg_relation_filepath('segment')").scalar())
        await database.run(lambda sql: sql.exec_driver_sql("CHECKPOINT"))
        postgres.kill()
        with (postgres.folder / "data" / str(file)).open("r+b") as relation:
            relation.write(b"\xff" * 24)
        postgres.start()
        with suppress(JournalError):  # the first use shows the pool that it has lost its connection
            await database.run(lambda sql: sql.exec_driver_sql("SELECT 1"))
        found = verify(database, lambda *_: None)
        assert not found.sound
        reasons = [fault for _, fault in journal.row_faults(database)]
        assert any("invalid page in block 0" in reason for reason in reasons), reasons
