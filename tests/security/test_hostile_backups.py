"""Backups and data directories that an attacker prepared: no other file is written, and nothing is half restored."""

import asyncio
import secrets
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import live.maintenance.backup
import live.store.connection.high_water
from live.errors import SetupError
from live.journal.database import Database
from live.maintenance.backup import NAME, back_up, check_files, put_back, read_manifest
from live.store.connection.high_water import HighWater
from live.system.files import replacing
from tests.harness.journaled import journaled
from tests.harness.mutation import must_be_caught, replaced

pytestmark = pytest.mark.security

VICTIM: Final = b"precious"


@pytest.fixture
def backup(valkey_url: str, tmp_path: Path) -> Path:
    """A backup of one board."""

    async def make() -> None:
        (tmp_path / "data").mkdir()
        async with journaled(valkey_url, tmp_path / "data") as board:
            drainer = await board.drainer()
            await board.like("a")
            await drainer.sweep()
            await back_up(
                board.client, board.settings, board.databases[0], tmp_path / "backup",
                lambda *_: None,
            )  # fmt: skip

    asyncio.run(make())
    return tmp_path / "backup"


def change(backup: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of a backup."""
    manifest = msgspec.json.decode((backup / NAME).read_bytes())
    edit(manifest)
    (backup / NAME).write_bytes(msgspec.json.encode(manifest))


def refusal(backup: Path) -> str:
    """Return the message with which a backup is refused."""
    with pytest.raises(SetupError) as caught:
        check_files(backup, read_manifest(backup), lambda *_: None)
    return str(caught.value)


def test_a_backup_without_its_journal_is_refused(backup: Path) -> None:
    """If the command accepted the backup, it would set aside today's data and have nothing to restore."""
    check_files(backup, read_manifest(backup), lambda *_: None)
    change(backup, lambda manifest: manifest["files"].clear())
    assert "does not name the journal" in refusal(backup)


@pytest.mark.parametrize(
    "name", ["../other", "/etc/passwd", "", ".", "a\0b", "\x1b[2Jmanifest.json", "manifest.json", "journal-other.db"]
)
def test_a_name_that_no_backup_has_is_refused(backup: Path, name: str) -> None:
    """The message shows the name without control characters that a terminal would obey."""
    change(backup, lambda manifest: manifest["files"].append({"name": name, "size": 0, "sha256": ""}))
    said = refusal(backup)
    assert "no backup contains" in said
    assert "\0" not in said
    assert "\x1b" not in said


def links(path: Path, victim: Path) -> None:
    """Put links to a file at names that a file that is to replace `path` could have."""
    victim.write_bytes(VICTIM)
    for name in (path.with_suffix(".new"), path.with_name(f"{path.name}.new"), path.with_name(f".{path.name}.new")):
        name.symlink_to(victim)


def restore_into(backup: Path, data: Path) -> None:
    """Put the journal of a backup into a data directory that has links."""
    data.mkdir()
    prefix = read_manifest(backup).prefix
    with Database("sqlite", data, prefix, writes=True) as database:
        links(database.path, data / "victim")
        put_back(backup, database)
        with sqlite3.connect(database.path) as connection:
            assert connection.execute("SELECT count(*) FROM segment").fetchone() != (0,)
        assert (data / "victim").read_bytes() == VICTIM


def test_a_journal_is_not_restored_through_a_link(backup: Path, tmp_path: Path) -> None:
    """A link with the name of the new file is not followed."""
    restore_into(backup, tmp_path / "new")


def remember_in(data: Path) -> None:
    """Write facts about a store into a data directory that has links."""
    data.mkdir(exist_ok=True)
    high_water = HighWater(data, "live")
    links(high_water.path, data / "victim")
    high_water.active = True
    high_water.require_keys()
    assert HighWater(data, "live").facts.keys_required
    assert (data / "victim").read_bytes() == VICTIM


def test_facts_are_not_written_through_a_link(tmp_path: Path) -> None:
    """The lock is not opened through a link either."""
    remember_in(tmp_path / "data")
    (tmp_path / "data" / "witness-other.lock").symlink_to(tmp_path / "data" / "victim")
    other = HighWater(tmp_path / "data", "other")
    other.active = True
    with pytest.raises(OSError, match="symbolic link"):
        other.require_keys()


def test_a_file_that_is_not_completed_leaves_nothing(tmp_path: Path) -> None:
    """The old file stays, and the new file is removed."""
    path = tmp_path / "file"
    path.write_bytes(VICTIM)
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"%d" % (1 // 0))
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_bytes() == VICTIM
    with replacing(path) as file:
        file.write(b"new")
    assert [*tmp_path.iterdir()] == [path]
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)


@pytest.mark.mutant
@pytest.mark.parametrize("name", ["put_back", "high_water"])
def test_a_file_with_a_known_name_is_noticed(backup: Path, tmp_path: Path, name: str) -> None:
    """The mutant writes to a file with a known name, so it follows a link that has this name."""

    @contextmanager
    def known(path: Path) -> Any:
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            yield file
        shutil.copyfile(new, path)

    module = live.maintenance.backup if name == "put_back" else live.store.connection.high_water
    with must_be_caught("other users can guess the file's name"), replaced(module, "replacing", known):
        if name == "put_back":
            restore_into(backup, tmp_path / "new")
        else:
            remember_in(tmp_path / "facts")


def test_a_name_that_is_guessed_is_not_followed(tmp_path: Path) -> None:
    """Even if an attacker guesses the name, the server opens nothing through a link."""
    path = tmp_path / "file"
    (tmp_path / "victim").write_bytes(VICTIM)
    with replaced(secrets, "token_hex", lambda _: "guessed"):
        (tmp_path / ".file.guessed.new").symlink_to(tmp_path / "victim")
        with pytest.raises(FileExistsError), replacing(path):
            pass
    assert (tmp_path / "victim").read_bytes() == VICTIM
