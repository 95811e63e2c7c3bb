"""The journal in PostgreSQL: the same as in SQLite, even if the server is killed at any time."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import psycopg
import pytest
from sqlalchemy import select

import live.journal.database
import live.journal.log.drainer
from live.errors import JournalError, JournalLoginError, SetupError, StoreUnavailableError
from live.journal.database import Database
from live.journal.log.timelines import ConflictError, add_segments
from live.journal.schema import LIFE
from live.maintenance.draining import draining
from live.maintenance.erase import Erasing
from tests.harness.boards import rolling_board
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.postgres import Postgres, has_postgres, running_postgres
from tests.harness.proxy import Proxy
from tests.harness.server import define
from tests.harness.timeline import past_is_exact
from tests.harness.waiting import eventually
from tests.maintenance.test_erase import CONTEST, EVE, contents_in_sql, digests_of, vote_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests of this file."""
    with running_postgres() as server:
        yield server


async def test_every_event_is_in_postgres_once(valkey_url: str, tmp_path: Path, postgres: Postgres) -> None:
    """The server is killed several times, and sweeps fail until it runs again."""
    board = Journaled(valkey_url, tmp_path, rolling_board(ties="first"), postgres.url)
    drainer = await board.drainer()
    for number in range(12):
        await board.like("a", f"b{number % 3}")
        if number % 3 == 2:
            postgres.kill()
            with pytest.raises(StoreUnavailableError):
                await drainer.sweep()
            postgres.start()
        with suppress(JournalError, ConflictError):
            await drainer.sweep()
    await drainer.sweep()
    assert await board.rows_in_sql() == await board.rows()
    assert await board.waiting() == 0
    for database in board.databases:
        await database.aclose()
    await board.client.aclose()


async def test_an_actor_is_erased_from_postgres(valkey_url: str, tmp_path: Path, postgres: Postgres) -> None:
    """Every segment loses the actor's events, and keeps the events of other actors."""
    board = Journaled(valkey_url, tmp_path, CONTEST, postgres.url, journal=postgres.url)
    await define(board.settings, [CONTEST])
    drainer = await board.drainer()
    for actor in (EVE, "joe"):
        await board.ledger.writer.add([vote_of("a", actor)], [("shop", 1)])
    await drainer.sweep()
    database = board.databases[0]
    async with draining(board.client, board.settings) as (journal, mover):
        work = Erasing(board.client, board.settings, journal, mover)
        (erased,), _ = await work.erase(EVE, [], take_back=True)
    assert (erased.votes, erased.entries) == (1, 1)
    assert not (await board.contents()).digests & digests_of(board, EVE)
    found = b"".join(contents_in_sql(database))
    assert not [digest for digest in digests_of(board, EVE) if digest in found]
    assert await board.rows_in_sql() == await board.rows() == [("a", 1)]
    await database.aclose()
    await board.client.aclose()


async def test_one_process_writes_at_a_time(tmp_path: Path, postgres: Postgres) -> None:
    """Each prefix of store keys has an advisory lock."""
    first, second = (Database(postgres.url, tmp_path, "lock", writes=True) for _ in range(2))
    other = Database(postgres.url, tmp_path, "other", writes=True)
    assert await first.take()
    assert not await second.take()
    assert await other.take()
    await first.aclose()
    await eventually(second.take)
    for database in (second, other):
        await database.aclose()


@pytest.mark.parametrize("url", ["postgres", "mysql://x/y", "sqlite:///x", "redis://x"])
def test_other_databases_are_refused(url: str, tmp_path: Path) -> None:
    """The message names the allowed databases, before anything starts."""
    with pytest.raises(SetupError, match="postgresql://"):
        Database(url, tmp_path, "live", writes=True)


async def test_a_wrong_login_is_no_outage(tmp_path: Path, postgres: Postgres) -> None:
    """A wrong login has its own error, which does not show the password. `postgres://` is like `postgresql://`."""
    url = postgres.url.replace("postgresql", "postgres")
    database = Database(url, tmp_path, "live", writes=False)
    assert await database.run(lambda sql: sql.scalar(select(1))) == 1
    await database.aclose()
    database = Database(re.sub("//[^@/]*@", "//nobody:guess@", url), tmp_path, "live", writes=False)
    with pytest.raises(JournalLoginError) as refused:
        await database.run(lambda sql: sql.scalar(select(1)))
    assert "guess" not in str(refused.value)
    await database.aclose()


async def crash_after_commits(store: str, folder: Path, postgres: Postgres, rounds: int) -> None:
    """Crash the server right after it has committed. By default, this database does not wait for the disk."""
    async with journaled(store, folder, url=postgres.url) as board:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("ALTER DATABASE postgres SET synchronous_commit = off")
        try:
            drainer = await board.drainer()
            for _ in range(rounds):
                await board.like("a", "b")
                await drainer.sweep()
                await asyncio.to_thread(postgres.kill)
                await asyncio.to_thread(postgres.start)
                with suppress(JournalError):  # the first use shows the pool that it has lost its connection
                    await board.rows_in_sql()
                await board.must_agree()
        finally:
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                connection.execute("ALTER DATABASE postgres RESET synchronous_commit")


@pytest.mark.fault
async def test_a_commit_is_on_disk_before_its_entries_are_trimmed(
    valkey_url: str, tmp_path: Path, postgres: Postgres, effort: int
) -> None:
    """The commit does not depend on the default of `synchronous_commit` in the database."""
    await crash_after_commits(valkey_url, tmp_path, postgres, 2 * effort)


@pytest.mark.fault
@pytest.mark.mutant
async def test_a_commit_that_does_not_wait_for_the_disk_is_lost(
    valkey_url: str, tmp_path: Path, postgres: Postgres
) -> None:
    """In the mutant, PostgreSQL writes the commit only a moment after its reply."""
    with (
        must_be_caught("synchronous_commit = off"),
        replaced(live.journal.database, "_wait_for_disk", lambda *_: None),
    ):
        await crash_after_commits(valkey_url, tmp_path, postgres, 3)


class CommitProxy(Proxy):
    """A proxy in front of PostgreSQL. When a fault is due, it ends the connection before or after a `COMMIT`."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.due = ""  # says whether the connection ends `before` or `after` the server executes the commit
        self.faults = 0
        self._swallow = False

    async def request(self, data: bytes) -> bytes | None:
        if self.due and b"COMMIT" in data:
            self.faults += 1
            self._swallow = self.due == "after"
            if self.due == "before":
                self.due = ""
                return None
            self.due = ""
        return data

    async def answer(self, data: bytes) -> bytes | None:
        if self._swallow:
            self._swallow = False
            return None
        return data


@asynccontextmanager
async def commit_proxy(postgres: Postgres) -> AsyncIterator[tuple[CommitProxy, str]]:
    """Yield a proxy in front of the database, and the URL that reaches the database through the proxy."""
    name = ".s.PGSQL.5432"
    with TemporaryDirectory(prefix="live-pg-") as folder:
        proxy = CommitProxy(f"unix://{postgres.folder / name}")
        server = await asyncio.start_unix_server(proxy.serve, str(Path(folder) / name))
        try:
            yield proxy, postgres.url.replace(str(postgres.folder), folder)
        finally:
            server.close()
            await proxy.end()


async def lose_commits(
    store: str, folder: Path, postgres: Postgres, chance: random.Random, rounds: int, *, kill: bool = False
) -> None:
    """Lose the connection at a `COMMIT`, before or after it is executed. With `kill`, kill the server too."""
    async with commit_proxy(postgres) as (proxy, url), journaled(store, folder, url=url) as board:
        await board.like("a")
        drainer = await board.drainer()
        await drainer.sweep()
        for number in range(rounds):
            await board.like("a", f"b{number % 3}")
            proxy.due = chance.choice(["before", "after"])
            with suppress(JournalError):
                await drainer.drain(["posts"])  # this writes in a single transaction
            if kill:
                await asyncio.to_thread(postgres.kill)
                await asyncio.to_thread(postgres.start)
            await drainer.sweep()
            await board.must_agree()
        assert proxy.faults == rounds
        assert await board.begun_again() == 0


@pytest.mark.fault
async def test_a_connection_lost_at_a_commit_changes_nothing(
    valkey_url: str, tmp_path: Path, postgres: Postgres, chance: random.Random, effort: int
) -> None:
    """Nobody knows whether the commit succeeded, so the drainer reads the position of SQL again."""
    await lose_commits(valkey_url, tmp_path, postgres, chance, 5 * effort)


@pytest.mark.fault
async def test_a_server_killed_at_a_commit_changes_nothing(
    valkey_url: str, tmp_path: Path, postgres: Postgres, chance: random.Random, effort: int
) -> None:
    """PostgreSQL may have to recover from its log."""
    await lose_commits(valkey_url, tmp_path, postgres, chance, 3 * effort, kill=True)


@pytest.mark.fault
@pytest.mark.mutant
async def test_a_blind_retry_is_detected(
    valkey_url: str, tmp_path: Path, postgres: Postgres, chance: random.Random
) -> None:
    """The mutant repeats the insertion without checking how far SQL is."""
    right = Database.run

    async def blind(database: Database, work: Any, *given: Any) -> Any:
        try:
            return await right(database, work, *given)
        except JournalError:
            return await right(database, work, *given)

    def unchecked(connection: Any, pieces: Any) -> None:
        for piece in pieces:
            row = connection.execute(select(LIFE).where(LIFE.c.id == piece.timeline.id)).mappings().one()
            timeline = msgspec.structs.replace(piece.timeline, drained=row["drained"], link=row["link"])
            add_segments(connection, [msgspec.structs.replace(piece, timeline=timeline)])

    with (
        must_be_caught("a blind retry adds entries twice without UNIQUE"),
        replaced(Database, "run", blind),
        replaced(live.journal.log.drainer, "add_segments", unchecked),
    ):
        await lose_commits(valkey_url, tmp_path, postgres, chance, 8)


async def test_postgres_tells_the_past(valkey_url: str, tmp_path: Path, postgres: Postgres) -> None:
    """PostgreSQL gives the same past as SQLite."""
    await past_is_exact(valkey_url, tmp_path, "rolling", 7, postgres.url)
