"""The server and every command work in a data directory with any name, such as one with `%`, `#`, `?` or a space."""

import asyncio
import json
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from live.errors import JournalError, SetupError, StoreUnavailableError
from live.journal.database import Database
from live.maintenance.backup import copy_database
from live.store.connection.client import connect
from live.store.connection.embedded import EmbeddedStore
from tests.harness.journal_server import Machine, fill
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

NAMES = ["100%", "a%41", "#1", "why?", "two words", "ü&=+", "[bold]"]


def journal_is_found(folder: Path) -> None:
    """A reader and a backup open the same database as the writer."""
    with (
        Database("sqlite", folder, "live", writes=True) as writer,
        Database("sqlite", folder, "live", writes=False) as reader,
    ):
        assert writer.take_now()
        writer.work(lambda sql: sql.exec_driver_sql("CREATE TABLE mark (x)"))
        try:
            found = reader.work(lambda sql: sql.exec_driver_sql("SELECT count(*) FROM mark").scalar())
        except JournalError as error:
            found = str(error)
        assert found == 0
    copy_database(folder / "journal-live.db", folder / "copy.db", lambda *_: None)
    with closing(sqlite3.connect(folder / "copy.db")) as copy:
        assert copy.execute("SELECT count(*) FROM mark").fetchone() == (0,)


async def store_is_found(folder: Path) -> None:
    """The URL of the embedded store leads to its socket."""
    store = EmbeddedStore(folder)
    await asyncio.to_thread(store.start)
    try:
        client = connect(store.url, fresh_settings(store.url, data_dir=folder))
        try:
            answer = await client.call("", "PING")
        finally:
            await client.aclose()
    except (SetupError, StoreUnavailableError) as error:
        answer = str(error)
    finally:
        await asyncio.to_thread(store.stop)
    assert answer == b"PONG"


@pytest.mark.parametrize("name", NAMES)
def test_the_journal_is_in_the_directory_that_was_named(tmp_path: Path, name: str) -> None:
    """No journal is created elsewhere."""
    (tmp_path / name).mkdir()
    journal_is_found(tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
async def test_the_store_is_in_the_directory_that_was_named(name: str) -> None:
    """The path of a unix socket must be short, so the data directory is not in `tmp_path`."""
    with TemporaryDirectory(prefix="live-") as folder:
        await store_is_found(Path(folder) / name)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_server_and_its_commands_work_anywhere() -> None:
    """A server counts events and shows the past. Commands work while it runs and while it is stopped."""
    with TemporaryDirectory(prefix="l-") as parent:
        folder = Path(parent) / "50%25 #1? [b]"
        folder.mkdir()
        machine = Machine(folder)
        added = machine.run("keys", "add", "shop", "--json", "--verbs", "post,admin")
        assert added.returncode == 0, added.stderr
        machine.key = json.loads(added.stdout)["key"]
        await asyncio.to_thread(machine.server.start)
        try:
            await asyncio.to_thread(fill, machine)
            await machine.drained()
            with machine.client() as client:
                page = client.get("/v1/boards/posts").json()
                past = client.get("/v1/boards/posts", params={"as_of": datetime.now(UTC).isoformat()})
                assert past.json()["records"] == page["records"], past.text

                async def is_ready() -> bool:
                    return bool(client.get("/readyz").json()["journal"] == "ok")

                await eventually(is_ready)  # the report of the journal is up to a few seconds old
            backup = folder / "backup %41"
            for words in (
                ["boards"], ["check"], ["journal"], ["export", "posts"],
                ["backup", str(backup)], ["journal", "--verify", "--data-dir", str(backup)],
            ):  # fmt: skip
                done = await asyncio.to_thread(machine.run, *words)
                assert done.returncode == 0, (words, done.stdout, done.stderr)
            assert machine.server.stop() == 0
            machine.lose()
            for words in (["recover", "--from", "journal"], ["restore", str(backup), "--force"]):
                done = await asyncio.to_thread(machine.run, *words)
                assert done.returncode == 0, (words, done.stdout, done.stderr)
            await asyncio.to_thread(machine.server.start)
            with machine.client() as client:
                assert client.get("/v1/boards/posts").json()["records"] == page["records"]
            assert await asyncio.to_thread(os.listdir, parent) == [folder.name]
        finally:
            machine.server.kill()
