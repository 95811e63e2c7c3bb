"""A server promises no more than the settings of its store and database give."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

import live.journal.database
from live.domain.board import Boards
from live.journal.database import Database, open_journal
from live.journal.promise import Loss, promise, read_promise
from live.serve import check_store
from live.settings import as_environment
from live.store.connection.client import connect
from live.store.connection.durability import StoreDurability, durability_of
from tests.harness.boards import rolling_board
from tests.harness.journaled import journaled
from tests.harness.mutation import replaced
from tests.harness.postgres import Postgres, has_postgres, running_postgres
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

SAFE: Final = StoreDurability(survives_crash=True, survives_power_cut=True)
SYNCED_LATER: Final = StoreDurability(survives_crash=True, survives_power_cut=False)
NOT_LOGGED: Final = StoreDurability(survives_crash=False, survives_power_cut=False)


@pytest.mark.parametrize(
    ("journal", "ack", "store", "doubts", "losses"),
    [
        ("sqlite", False, SAFE, [], ("nothing", "nothing", "lag")),
        ("sqlite", True, SAFE, [], ("nothing", "nothing", "nothing")),
        ("off", False, SAFE, None, ("nothing", "nothing", "everything")),
        ("sqlite", True, SAFE, ["fsync = off"], ("nothing", "nothing", "unsynced")),
        ("sqlite", True, SAFE, None, ("nothing", "nothing", "unknown")),
        ("sqlite", False, SYNCED_LATER, [], ("nothing", "lag", "lag")),
        ("sqlite", True, SYNCED_LATER, [], ("nothing", "nothing", "nothing")),
        ("sqlite", False, NOT_LOGGED, ["x"], ("unsynced", "unsynced", "unsynced")),
        ("sqlite", False, StoreDurability(), [], ("unknown", "unknown", "lag")),
        ("off", False, StoreDurability(), None, ("everything", "everything", "everything")),
    ],
)
def test_the_promise_follows_from_the_settings(
    *, journal: str, ack: bool, store: StoreDurability, doubts: list[str] | None, losses: tuple[Loss, ...]
) -> None:
    """After a crash, after a power cut, and when the data of the store is gone."""
    settings = fresh_settings("redis://x", journal=journal, journal_ack=ack)
    found = promise(settings, store, doubts)
    assert (found.crash, found.power_cut, found.store_lost) == losses


async def test_the_settings_of_the_store_are_read(own_store: StoreProcess) -> None:
    """As they are now."""
    client = connect(own_store.url, fresh_settings(own_store.url))
    assert await durability_of(client) == SAFE
    await client.config_set("appendfsync", "everysec")
    assert await durability_of(client) == SYNCED_LATER
    await client.config_set("appendfsync", "always")
    await client.config_set("no-appendfsync-on-rewrite", "yes")
    assert await durability_of(client) == SYNCED_LATER
    await client.config_set("appendonly", "no")
    assert await durability_of(client) == NOT_LOGGED
    await client.aclose()
    nowhere = connect("unix:///nowhere/store.sock", fresh_settings("unix:///nowhere/store.sock"))
    assert await durability_of(nowhere) == StoreDurability()
    await nowhere.aclose()


async def test_the_settings_of_sqlite_are_read(valkey_url: str, tmp_path: Path) -> None:
    """A connection that does not sync each commit is no reason for a promise."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        assert (await read_promise(board.client, board.settings, board.databases[0])).doubts == []

        def careless(connection: Any, record: Any) -> None:
            del record
            connection.execute("PRAGMA synchronous=NORMAL")

        with replaced(live.journal.database, "_write_ahead", careless):
            await board.drainer()
        found = await read_promise(board.client, board.settings, board.databases[1])
        assert found.store_lost == "unsynced"
        assert found.doubts == ["SQLite has synchronous = 1: a power cut loses what was committed"]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of this file."""
    with running_postgres() as server:
        yield server


@pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql")
async def test_the_settings_of_postgres_are_read(valkey_url: str, tmp_path: Path, postgres: Postgres) -> None:
    """Those of the server, and those of the connection."""

    async def losses(url: str) -> tuple[Loss, int]:
        settings = fresh_settings(valkey_url, journal=url, data_dir=tmp_path, journal_ack=True)
        client, database = connect(valkey_url, settings), open_journal(settings, writes=False)
        assert database is not None
        found = await read_promise(client, settings, database)
        await database.aclose()
        await client.aclose()
        return found.store_lost, len(found.doubts)

    assert await losses(postgres.url) == ("nothing", 0)
    careless = f"{postgres.url}&options=-csynchronous_commit%3Doff"
    assert await losses(careless) == ("nothing", 0), "each connection sets it"
    with replaced(live.journal.database, "_wait_for_disk", lambda *_: None):
        assert await losses(careless) == ("unsynced", 1)
    postgres.kill()
    assert await losses(postgres.url) == ("unknown", 0)
    postgres.start("-c", "fsync=off", "-c", "full_page_writes=off")
    assert await losses(postgres.url) == ("unsynced", 2)
    postgres.kill()
    postgres.start()


async def test_a_server_logs_its_promise_when_it_starts(valkey_url: str, tmp_path: Path) -> None:
    """In words, and a warning for each setting of the database that makes it less."""
    settings = fresh_settings(valkey_url, journal="sqlite", data_dir=tmp_path)
    with capture_logs() as logs:
        await check_store(settings, Boards([rolling_board()]))
    (line,) = [line for line in logs if line["event"] == "what is lost at most of acknowledged events"]
    assert line["log_level"] == "info"
    assert line["after_a_power_cut"] == "nothing"
    assert line["without_the_data_of_the_store"] == "what is not in SQL yet, usually less than a second"


@pytest.mark.slow
async def test_the_command_states_the_promise(valkey_url: str, tmp_path: Path) -> None:
    """`live journal status`, for people and for programs."""
    settings = fresh_settings(valkey_url, journal="sqlite", data_dir=tmp_path)
    with Database("sqlite", tmp_path, settings.key_prefix, writes=True) as database:
        assert database.take_now()
    command = [sys.executable, "-m", "live", "journal", "status", "--json"]
    environment = {**os.environ, **as_environment(settings)}
    ended = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, check=True)
    found = json.loads(ended.stdout)["promise"]
    assert found == {"crash": "nothing", "power_cut": "nothing", "store_lost": "lag", "doubts": []}
