"""Another user of the machine can't read the data directory."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from live.domain.producer import Scope
from live.errors import SetupError
from live.settings import Settings
from live.store.connection.client import connect
from live.store.connection.embedded import EmbeddedStore
from live.store.connection.shared_offsets import SharedOffsets
from live.store.registry.producers import ProducerStore
from live.system.data_directory import make_private
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings

pytestmark = [
    pytest.mark.security,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user"),
]

STRANGER: Final = pwd.getpwnam("nobody").pw_uid

# Tries to open the given paths, and prints the paths that it could open.
READ: Final = """
for path in sys.argv[1:]:
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.open(path, flags)
        except OSError:
            continue
        print(path)
"""


def as_stranger(script: str, *arguments: Path) -> str:
    """Run a script as another user; returns its output."""
    # The script changes the user itself, because another user may not be able to start this interpreter.
    become = f"import os, sys; os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})\n"
    command = [sys.executable, "-c", become + script, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter."""
    made = Path(tempfile.mkdtemp(prefix="live-private-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def all_paths(data: Path) -> list[Path]:
    """The directory, and all files and folders in it."""
    return [data, *data.rglob("*")]


def expose(data: Path) -> None:
    """Open a data directory to everybody, as copies do."""
    for path in all_paths(data):
        path.chmod(0o755 if path.is_dir() else 0o644)


async def add_api_key(settings: Settings, store: EmbeddedStore) -> None:
    """Store the digest of an API key."""
    client = connect(store.url, settings)
    client.high_water.active = True
    client.high_water.require_keys()
    await ProducerStore(client).add("shop", Scope())
    await client.aclose()


async def test_other_users_can_read_nothing(folder: Path) -> None:
    """The umask of the server's process and an earlier open directory make no difference."""
    data = folder / "d"
    settings = fresh_settings("", data_dir=data)
    before = os.umask(0)
    store = EmbeddedStore(data)
    try:
        store.start()
        await add_api_key(settings, store)
        shared = SharedOffsets(data, settings.key_prefix)
        shared.note("posts", "e1", 1)
        shared.close()
        assert len(all_paths(data)) > 5
        assert as_stranger(READ, *all_paths(data)) == ""
        store.stop()
        expose(data)
        assert as_stranger(READ, *all_paths(data)) != ""
        store = EmbeddedStore(data)
        store.start()
        assert as_stranger(READ, *all_paths(data)) == ""
    finally:
        os.umask(before)
        store.stop()


@pytest.mark.parametrize("name", [".", "lock", "valkey.log", "appendonlydir"])
def test_files_of_another_user_are_refused(folder: Path, name: str) -> None:
    """The server does not start, because the other user may have put anything into the files.

    The message says which command helps.
    """
    data = folder / "d"
    (data / "appendonlydir").mkdir(parents=True)
    (data / "valkey.log").touch()
    (data / "lock").touch()
    os.chown(data / name, STRANGER, STRANGER)
    helps = "setpriv --reuid" if name == "." else "chown -R"
    with pytest.raises(SetupError, match=f"belongs to the user with id {STRANGER}.*{helps}"):
        EmbeddedStore(data).start()


def test_a_lock_that_is_a_link_is_refused(folder: Path) -> None:
    """The link may have been put there while everybody could write to the directory."""
    other = folder / "other"
    other.write_text("kept")
    (folder / "d").mkdir()
    (folder / "d" / "lock").symlink_to(other)
    with pytest.raises(SetupError, match="can't use the lock"):
        EmbeddedStore(folder / "d").start()
    assert other.read_text() == "kept"


def test_a_directory_shared_by_all_users_is_refused(folder: Path) -> None:
    """A data directory such as /tmp is refused, and stays open to all users."""
    folder.chmod(0o1777)
    with pytest.raises(SetupError, match="shared by all users"):
        make_private(folder)
    assert folder.stat().st_mode & 0o7777 == 0o1777


def test_unrelated_files_are_not_changed(folder: Path) -> None:
    """The directory is closed to other users, but a file that is not the server's keeps its mode."""
    other = folder / "notes.txt"
    other.touch()
    other.chmod(0o644)
    make_private(folder)
    assert other.stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_server_with_an_external_store_closes_its_directory(folder: Path, valkey_url: str) -> None:
    """Other users can't read the directory, which has a file of facts about the store."""
    settings = fresh_settings(valkey_url, data_dir=folder / "d")
    (folder / "d").mkdir(mode=0o755)
    server = ServerProcess(settings, folder)
    server.start()
    try:
        assert (folder / "d" / f"witness-{settings.key_prefix}.json").exists()
        assert as_stranger(READ, *all_paths(folder / "d")) == ""
    finally:
        server.kill()
