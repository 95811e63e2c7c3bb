"""The journal in PostgreSQL: the same as in SQLite, also when the server is killed at any time."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from live.errors import SetupError, StoreUnavailableError
from live.journal.database import Database, JournalError
from live.journal.lives import ConflictError
from tests.harness.boards import rolling_board
from tests.harness.journaled import Journaled
from tests.harness.postgres import Postgres, has_postgres, running_postgres
from tests.harness.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of this file."""
    with running_postgres() as server:
        yield server


async def test_every_event_is_in_postgres_once(valkey_url: str, tmp_path: Path, postgres: Postgres) -> None:
    """However often the server is killed between and during commits."""
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


async def test_one_process_writes_at_a_time(tmp_path: Path, postgres: Postgres) -> None:
    """An advisory lock, one for each prefix of store keys."""
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
def test_other_databases_are_refused_with_what_is_allowed(url: str, tmp_path: Path) -> None:
    """Before anything starts."""
    with pytest.raises(SetupError, match="postgresql://"):
        Database(url, tmp_path, "live", writes=True)
