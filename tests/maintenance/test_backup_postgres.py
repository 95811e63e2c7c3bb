"""A backup of a journal in PostgreSQL is complete, and can be restored into PostgreSQL and into SQLite."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import typer
from sqlalchemy import text

import live.maintenance.backup
from live.cli.backup import restore
from live.errors import JournalError, SetupError
from live.journal.database import Database
from live.maintenance.backup import back_up, copy_from_server, put_back
from live.maintenance.journal import status
from tests.harness.journaled import Journaled, backed_up, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.postgres import Postgres, has_postgres, running_postgres
from tests.harness.store import StoreProcess
from tests.maintenance.test_backup import rows_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql"),
]
_NUMBERS: Final = count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests of this file."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def url(postgres: Postgres) -> str:
    """The URL of a new database."""
    return new_database(postgres)


def test_a_database_that_no_server_has_used_is_named(tmp_path: Path, url: str) -> None:
    """The message is a sentence, and not the name of the first table that is missing."""
    with (
        Database(url, tmp_path, "board", writes=False) as database,
        pytest.raises(JournalError, match="no server has used this journal yet: database board"),
    ):
        database.work(status)


def new_database(postgres: Postgres) -> str:
    """Create a database. Return its URL."""
    name = f"board{next(_NUMBERS)}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres.url.replace("/postgres?", f"/{name}?")


async def back_up_while_drained(board: Journaled, folder: Path) -> None:
    """Back up while more likes reach SQL after each table is copied. The backup has those from before."""
    drainer, loop = await board.drainer(), asyncio.get_running_loop()
    await board.like("a", "b")
    tables = 0

    async def count_more() -> None:
        await board.like("a")
        await drainer.sweep()

    def show(*_: int) -> None:
        nonlocal tables
        tables += 1
        asyncio.run_coroutine_threadsafe(count_more(), loop).result(10)

    def copy(source: Database, target: Database, _: Any) -> None:
        copy_from_server(source, target, show)

    refused = ""
    with replaced(live.maintenance.backup, "copy_from_server", copy):
        try:
            await backed_up(board, folder, url=board.url)
        except (SetupError, JournalError) as error:
            refused = str(error)
    assert not refused
    assert tables >= 3  # at least the tables of databases, timelines and segments
    assert rows_in(board, folder) == [("a", 1), ("b", 1)]
    assert await board.rows() == [("a", 1 + tables), ("b", 1)]


async def test_a_backup_has_what_postgres_has_at_one_instant(valkey_url: str, tmp_path: Path, url: str) -> None:
    """The backup has nothing of other key prefixes."""
    async with journaled(valkey_url, tmp_path, url=url) as other, journaled(valkey_url, tmp_path, url=url) as board:
        await other.like("x")
        await (await other.drainer()).sweep()
        await back_up_while_drained(board, tmp_path / "backup")


@pytest.mark.mutant
async def test_a_copy_of_several_instants_is_detected(valkey_url: str, tmp_path: Path, url: str) -> None:
    """By default, each statement in PostgreSQL sees what was committed before it, not one common instant."""
    async with journaled(valkey_url, tmp_path, url=url) as board:
        with must_be_caught("two instants"), replaced(live.maintenance.backup, "text", lambda _: text("SELECT 1")):
            await back_up_while_drained(board, tmp_path / "backup")


def restore_into(folder: Path, backup: Path, board: Journaled, store: str, journal: str) -> None:
    """Run `live restore` with a new data directory, its own store and a journal."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIVE_KEY_PREFIX", board.settings.key_prefix)
        patch.setenv("LIVE_JOURNAL", journal)
        restore(directory=backup, force=False, store=store, data_dir=folder, as_json=True)


async def test_a_backup_is_restored_into_postgres_and_sqlite(
    valkey_url: str, own_store: StoreProcess, tmp_path: Path, postgres: Postgres, url: str
) -> None:
    """Each restored board has a new epoch. Its journal goes on, and the new database numbers the rows."""
    async with journaled(valkey_url, tmp_path, url=url) as board:
        await board.like("a", "a", "b")
        await (await board.drainer()).sweep()
        await backed_up(board, tmp_path / "backup", url=url)
    epochs = {board.ledger.state.epoch}
    for number, journal in enumerate([new_database(postgres), new_database(postgres), "sqlite"]):
        folder = tmp_path / str(number)
        await asyncio.to_thread(restore_into, folder, tmp_path / "backup", board, own_store.url, journal)
        prefix = board.settings.key_prefix
        async with journaled(own_store.url, folder, url=journal, key_prefix=prefix) as again:
            assert await again.rows() == [("a", 2), ("b", 1)]
            assert again.ledger.state.epoch not in epochs
            epochs.add(again.ledger.state.epoch)
            again.counted = 3
            drainer = await again.drainer()
            await again.like("b", "b")
            await drainer.sweep()
            await again.must_agree()
            await again.client.flushall()


async def test_a_database_with_a_journal_is_not_replaced(
    valkey_url: str, own_store: StoreProcess, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A database with rows of another key prefix is not replaced either."""
    async with journaled(valkey_url, tmp_path, url=url) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        await backed_up(board, tmp_path / "backup", url=url)
        with pytest.raises(typer.Exit):
            await asyncio.to_thread(
                restore_into, tmp_path / "new", tmp_path / "backup", board, own_store.url, url
            )  # fmt: skip
        assert "holds a journal" in capsys.readouterr().err
        await board.must_agree()


async def test_a_damaged_backup_changes_nothing(
    valkey_url: str, own_store: StoreProcess, tmp_path: Path, postgres: Postgres, url: str
) -> None:
    """The command refuses a backup with a wrong checksum. If rows can't be copied, the database does not change."""
    async with journaled(valkey_url, tmp_path, url=url) as board:
        await board.like("a")
        await (await board.drainer()).sweep()
        backup = tmp_path / "backup"
        await backed_up(board, backup, url=url)
    new = new_database(postgres)
    path = next(backup.glob("journal-*.db"))
    with closing(sqlite3.connect(path)) as copy:
        copy.execute("UPDATE segment SET entries = 'x'")
        copy.commit()
    with pytest.raises(typer.Exit):
        await asyncio.to_thread(restore_into, tmp_path / "new", backup, board, own_store.url, new)
    with Database(new, tmp_path, board.settings.key_prefix, writes=True) as database:
        assert database.lock_now()
        with pytest.raises(JournalError):
            put_back(backup, database)
    with psycopg.connect(new) as connection:
        assert connection.execute("SELECT to_regclass('life')").fetchone() == (None,)


async def test_a_database_without_a_journal_is_not_backed_up(valkey_url: str, tmp_path: Path, url: str) -> None:
    """The message names the database, and not its user."""
    async with journaled(valkey_url, tmp_path, url=url) as board:
        with (
            Database(url, tmp_path, board.settings.key_prefix, writes=False) as source,
            pytest.raises(JournalError, match="no server has used this journal yet: database board") as refused,
        ):
            await back_up(board.client, board.settings, source, tmp_path / "backup", lambda *_: None)
        assert "postgres@" not in str(refused.value)
        assert list((tmp_path / "backup").iterdir()) == []
