"""A server warns of everything in its store and database that can lose acknowledged events."""

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis.asyncio
from sqlalchemy import Connection, text
from structlog.testing import capture_logs

import live.journal.database
import live.store.connection.client
from live.errors import JournalError, SetupError
from live.journal.database import Database, existing_journal, open_journal, unsafe_in_sql
from live.process.serve import check_store
from live.store.connection.client import Store, connect
from live.store.connection.durability import unsafe_settings
from tests.harness.boards import rolling_board
from tests.harness.forked import run_live
from tests.harness.journaled import journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.network import free_port
from tests.harness.postgres import Postgres, has_postgres, running_postgres
from tests.harness.server import define
from tests.harness.settings import as_environment, fresh_settings
from tests.harness.store import REDIS_SERVER, StoreProcess, valkey
from tests.harness.waiting import eventually

REPLICAS = (
    "the store has 1 replica. Replicas copy with a delay: if one takes over, acknowledged events that it does not have "
    "yet are lost, apart from those that are in the journal. Set LIVE_WAIT_REPLICAS to 1 to wait for one of them"
)


async def test_the_settings_of_sqlite_are_read(valkey_url: str, tmp_path: Path) -> None:
    """A connection that does not sync each commit can lose commits."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        assert await board.databases[0].run(unsafe_in_sql) == []

        def careless(connection: Any, record: Any) -> None:
            del record
            connection.execute("PRAGMA synchronous=NORMAL")

        with replaced(live.journal.database, "_write_ahead", careless):
            await board.drainer()
        found = await board.databases[1].run(unsafe_in_sql)
        assert found == ["SQLite has synchronous = 1: a power cut loses what was committed"]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests of this file."""
    with running_postgres() as server:
        yield server


@pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql")
async def test_the_settings_of_postgres_are_read(tmp_path: Path, postgres: Postgres) -> None:
    """Unsafe settings are found whether the server or the connection has them."""

    async def names(url: str) -> list[str]:
        database = open_journal(fresh_settings("", journal=url, data_dir=tmp_path), writes=False)
        assert database is not None
        try:
            found = await database.run(unsafe_in_sql)
        finally:
            await database.aclose()
        return [line.removeprefix("PostgreSQL has ").partition(" = ")[0] for line in found]

    assert await names(postgres.url) == []
    careless = f"{postgres.url}&options=-csynchronous_commit%3Doff"
    assert await names(careless) == [], "a connection uses the synchronous_commit of the URL"
    with replaced(live.journal.database, "_wait_for_disk", lambda *_: None):
        assert await names(careless) == ["synchronous_commit"]
    postgres.kill()
    with pytest.raises(JournalError, match="database fails"):
        await names(postgres.url)
    postgres.start("-c", "fsync=off", "-c", "full_page_writes=off")
    assert await names(postgres.url) == ["fsync", "full_page_writes"]
    postgres.kill()
    postgres.start()


@contextmanager
def with_replica(binary: str, folder: Path) -> Iterator[StoreProcess]:
    """A store that a replica copies."""
    port = str(free_port())
    (folder / "copy").mkdir()
    primary = StoreProcess(binary, folder, "--bind", "127.0.0.1", "--port", port)
    replica = StoreProcess(binary, folder / "copy", "--replicaof", f"127.0.0.1 {port}")
    primary.start()
    replica.start()
    try:
        yield primary
    finally:
        replica.kill()
        primary.kill()


async def replicas_are_named(url: str, folder: Path) -> None:
    """Wait until the replica is connected, and check that a server that starts warns of it."""
    settings = fresh_settings(url, data_dir=folder)
    async with redis.asyncio.Redis.from_url(url) as client:

        async def is_copied() -> bool:
            return bool((await client.info("replication"))["connected_slaves"] == 1)

        await eventually(is_copied)
    with capture_logs() as logs:
        await define(settings, [rolling_board()])
        await check_store(settings)
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [REPLICAS]


@pytest.mark.parametrize("server", ["valkey", "redis"])
async def test_a_replica_is_a_reason_for_a_warning(tmp_path: Path, server: str) -> None:
    """A replica may lack events that were acknowledged."""
    if server == "redis" and REDIS_SERVER is None:
        pytest.skip("redis-server is not installed")
    binary = valkey(tmp_path).binary if server == "valkey" else str(REDIS_SERVER)
    with with_replica(binary, tmp_path) as store:
        await replicas_are_named(store.url, tmp_path / "data")


@pytest.mark.mutant
async def test_a_server_that_ignores_replicas_is_detected(tmp_path: Path) -> None:
    """The mutant does not warn."""
    right = live.store.connection.client.Store.each

    async def alone(client: Store, *words: Any, replicas: bool = False) -> list[tuple[str, Any]]:
        return [("", b"")] if words[0] == "INFO" else await right(client, *words, replicas=replicas)

    with (
        with_replica(valkey(tmp_path).binary, tmp_path) as store,
        must_be_caught("replicas are ignored"),
        replaced(live.store.connection.client.Store, "each", alone),
    ):
        await replicas_are_named(store.url, tmp_path / "data")


async def test_a_store_that_hides_its_replicas_has_a_warning(own_store: StoreProcess) -> None:
    """Managed stores may forbid INFO. Then nobody knows whether there are replicas."""
    async with redis.asyncio.Redis.from_url(own_store.url) as admin:
        await admin.acl_setuser(
            "me", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"], commands=["-info"]
        )
    client = connect(own_store.url.replace("unix://", "unix://me:pw@"), fresh_settings(own_store.url))
    (line,) = await unsafe_settings(client)
    assert line.startswith("the store does not show whether it has replicas (")
    await client.aclose()


def journal_status(settings: Any) -> list[str]:
    """Return the warnings of `live journal --json`. Without `--json`, the command must print the same."""
    environment = {**os.environ, **as_environment(settings)}
    shown, listed = (run_live("journal", *flags, environment=environment).stdout for flags in ([], ["--json"]))
    found: list[str] = json.loads(listed)["warnings"]
    assert [line.removeprefix("Warning: ") for line in shown.splitlines() if "Warning: " in line] == found
    return found


@pytest.mark.slow
async def test_the_command_gives_the_warnings(own_store: StoreProcess, tmp_path: Path) -> None:
    """The command gives the warnings even while the store is away."""
    settings = fresh_settings(own_store.url, journal="sqlite", data_dir=tmp_path / "data")
    with Database("sqlite", settings.data_dir, settings.key_prefix, writes=True) as database:
        assert database.take_now()
    assert await asyncio.to_thread(journal_status, settings) == []
    async with redis.asyncio.Redis.from_url(own_store.url) as client:
        await client.config_set("appendonly", "no")
    (line,) = await asyncio.to_thread(journal_status, settings)
    assert line == "the store has no append-only file (appendonly no): a crash loses acknowledged events"
    own_store.kill()
    (line,) = await asyncio.to_thread(journal_status, settings)
    assert line.startswith("can't read the settings of the store: ")


@pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_command_waits_for_a_writer_that_has_just_ended(
    tmp_path: Path, postgres: Postgres, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a server writes, the command is refused after a moment."""
    url = "sqlite" if kind == "sqlite" else postgres.url
    first, second = (Database(url, tmp_path, "ending", writes=True) for _ in range(2))
    with first, second:
        assert first.take_now()
        with monkeypatch.context() as patch:
            patch.setattr(live.journal.database, "_ENDING", 0.1)
            with pytest.raises(SetupError, match="another process writes to the journal: stop the servers"):
                second.take_for_command()
        monkeypatch.setattr(live.journal.database, "_ENDING", 60)
        ending = threading.Timer(0.2, first.close)
        ending.start()
        second.take_for_command()
        ending.join()


def test_compacting_gives_the_disk_its_space_back(tmp_path: Path) -> None:
    """Afterwards, the files are hardly larger than before the data was added."""
    with Database("sqlite", tmp_path / "data", "live", writes=True) as database:
        assert database.take_now()
        assert database.path.parent.stat().st_mode & 0o777 == 0o700, "other users may read the folder"

        def size() -> int:
            return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

        def fill(connection: Connection) -> None:
            connection.execute(text("CREATE TABLE waste AS SELECT hex(randomblob(5000000)) AS body"))

        empty = size()
        database.work(fill)
        database.work(lambda connection: connection.execute(text("DROP TABLE waste")))
        assert size() > empty + 5_000_000
        database.compact()
        assert size() < empty + 1_000_000


async def test_who_reads_a_journal_can_not_change_it(valkey_url: str, tmp_path: Path) -> None:
    """Reading does not create a missing journal."""
    async with journaled(valkey_url, tmp_path) as board:
        settings = board.settings
        with pytest.raises(SetupError, match="LIVE_JOURNAL is off"):
            existing_journal(msgspec.structs.replace(settings, journal="off"))
        with pytest.raises(SetupError, match=f"there is no journal at {tmp_path}"):
            existing_journal(settings)
        await board.drainer()
        reading = existing_journal(settings, writes=False)
        board.databases.append(reading)
        assert await reading.run(lambda connection: connection.scalar(text("SELECT count(*) FROM about")))
        with pytest.raises(JournalError, match="readonly"):
            await reading.run(lambda connection: connection.execute(text("DELETE FROM about")))


@pytest.mark.parametrize("writes", [True, False])
def test_a_journal_with_another_schema_is_refused(tmp_path: Path, *, writes: bool) -> None:
    """A command that only reads it is refused too. Nothing in the file changes."""
    with Database("sqlite", tmp_path, "live", writes=True) as database:
        assert database.take_now()
        database.work(lambda connection: connection.execute(text("UPDATE about SET value = '5' WHERE name = 'schema'")))
        database.work(lambda connection: connection.execute(text("DROP TABLE period")))
    with Database("sqlite", tmp_path, "live", writes=writes) as database:
        with pytest.raises(SetupError, match=r"holds a journal with schema 5, .*: start the version that wrote it, or"):
            database.work(lambda connection: connection.execute(text("SELECT * FROM life")))
        if writes:
            with pytest.raises(SetupError, match="holds a journal with schema 5"):
                database.take_now()
    with closing(sqlite3.connect(tmp_path / "journal-live.db")) as held:
        assert "period" not in {name for (name,) in held.execute("SELECT name FROM sqlite_master")}
