"""The admin API key of a data directory: when a server creates it, and where the server prints it."""

import asyncio
import json
import os
import pty
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from live.auth.keys import provide_admin_key
from live.domain.producer import Scope
from live.errors import SetupError
from live.process import serve
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.settings import as_environment, fresh_settings

KEY = re.compile(r"^    (admin\.\S+)$", re.MULTILINE)


@contextmanager
def printing(settings: Settings, folder: Path, *flags: str, terminal: bool = False) -> Iterator[str]:
    """Run `live serve`, and yield what it has printed once it is up."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "live", "serve", *flags],
        env={**os.environ, **as_environment(settings)}, cwd=folder, stdout=theirs, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    printed, end = "", time.monotonic() + 30
    try:
        while not re.search(r"Ctrl-C", printed) or not answers(printed):
            assert time.monotonic() < end, printed
            printed += os.read(ours, 65536).decode()
        os.set_blocking(ours, False)
        with suppress(BlockingIOError):
            printed += os.read(ours, 65536).decode()
        yield printed.replace("\r\n", "\n")
    finally:
        process.terminate()
        process.wait(20)
        os.close(ours)


def answers(printed: str) -> bool:
    """Whether the server at the printed address answers within 20 seconds."""
    url = re.search(r"Live Board is at (http://\S+)", printed)
    assert url is not None
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            return httpx.get(f"{url[1]}healthz").status_code == 200
        except httpx.ConnectError:
            time.sleep(0.05)
    return False


@pytest.fixture
def settings(valkey_url: str, tmp_path: Path) -> Settings:
    """Settings of a server on a shared store, with a data directory that does not exist yet."""
    return fresh_settings(valkey_url, data_dir=tmp_path / "data")


@pytest.mark.slow
def test_the_printed_key_creates_a_board(settings: Settings, tmp_path: Path) -> None:
    """The printed commands work as pasted. Every start prints the same key, and only the owner can read its file."""
    with printing(settings, tmp_path, terminal=True) as text:
        (key,) = KEY.findall(text)
        commands = text[text.index("    curl") :]
        pasted = subprocess.run(["/bin/bash", "-ec", commands], capture_output=True, text=True, check=True)
        assert '"board":"mine"' in pasted.stdout
        assert '"accepted":1' in pasted.stdout
    path = settings.data_dir / "admin-key"
    assert path.read_text() == f"{key}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with printing(settings, tmp_path, terminal=True) as text:
        assert KEY.findall(text) == [key]


@pytest.mark.slow
def test_the_key_is_printed_only_on_a_terminal(settings: Settings, tmp_path: Path) -> None:
    """A secret does not belong in a log, so no flag prints the key there.

    `--no-admin-key` hides the key on a terminal too.
    """
    path = settings.data_dir / "admin-key"
    for flags, terminal in (((), False), (("--no-admin-key",), True)):
        with printing(settings, tmp_path, *flags, terminal=terminal) as text:
            assert not KEY.findall(text)
            assert not path.exists()
    for _ in range(2):
        with printing(settings, tmp_path, "--admin-key") as text:
            assert_named(text, path)
    with printing(settings, tmp_path, terminal=True) as text:
        assert len(KEY.findall(text)) == 1


@pytest.mark.slow
def test_a_store_with_other_keys_gets_the_command(settings: Settings, tmp_path: Path) -> None:
    """The server creates no admin API key, and the command that it names instead does."""

    async def add_other() -> None:
        store = connect(settings.store, settings)
        await ProducerStore(store).add("shop", Scope())
        await store.aclose()

    asyncio.run(add_other())
    with printing(settings, tmp_path, "--admin-key") as text:
        assert not (settings.data_dir / "admin-key").exists()
        (said,) = re.findall(r"^This start made no admin API key, .*`live (.+)`\.$", text, re.MULTILINE)
        words = [sys.executable, "-m", "live", *said.split(), "--json"]
        environment = {**os.environ, **as_environment(settings)}
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["verbs"] == ["admin"]


def assert_named(text: str, path: Path) -> None:
    """Check that the output names the file of the key, and has a command that works without showing the key."""
    assert f"The admin API key of this server is in {path}." in text
    assert path.read_text().strip().partition(".")[2] not in text
    assert not KEY.findall(text)
    commands = text[text.index("    curl") :]
    pasted = subprocess.run(["/bin/bash", "-ec", commands], capture_output=True, text=True, check=True)
    assert '"board":"mine"' in pasted.stdout


@pytest.mark.mutant
def test_printing_the_key_into_a_log_is_caught(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """The mutant takes any output for a terminal."""
    key = asyncio.run(provide_admin_key(settings))
    serve._announce_key(settings, key)
    printed = capsys.readouterr().out
    assert str(key) not in printed
    with must_be_caught("a log shows the key"), replaced(sys.stdout, "isatty", lambda: True):
        serve._announce_key(settings, key)
        assert str(key) not in capsys.readouterr().out


async def test_the_key_is_created_once(settings: Settings) -> None:
    """A revoked key is not created again. A store that has lost the key receives the same key again."""
    store = connect(settings.store, settings)
    producers = ProducerStore(store)
    key = await provide_admin_key(settings)
    assert key is not None
    assert await provide_admin_key(settings) == key
    await store.servers.shared.call("DEL", producers.key)
    assert await provide_admin_key(settings) == key
    record = (await producers.load()).records["admin"]
    assert record.verbs == ("admin",)
    assert key.partition(".")[2] not in str(record)
    await producers.add("shop", Scope())
    assert await provide_admin_key(settings) == key
    await producers.revoke("admin")
    assert await provide_admin_key(settings) is None
    await producers.revoke("shop")
    assert await provide_admin_key(settings) is None
    await store.aclose()


async def test_no_key_is_created_if_any_exists(settings: Settings) -> None:
    """The store already has a key with the id `admin`, which may belong to another data directory."""
    store = connect(settings.store, settings)
    producers = ProducerStore(store)
    await producers.add("admin", Scope(verbs=("admin",)))
    assert await provide_admin_key(settings) is None
    assert not settings.data_dir.exists()
    await store.aclose()


async def test_an_invalid_file_is_replaced(settings: Settings) -> None:
    """A file without a valid key gets a new key. A key that can't be stored in the data directory is an error."""
    settings.data_dir.mkdir()
    (settings.data_dir / "admin-key").write_text("nonsense")
    key = await provide_admin_key(settings)
    assert (settings.data_dir / "admin-key").read_text() == f"{key}\n"
    (settings.data_dir / "admin-key").unlink()
    (settings.data_dir / "admin-key").mkdir()
    with pytest.raises(SetupError, match="can't store the admin API key"):
        await provide_admin_key(settings)


def test_servers_that_start_together_share_a_key(settings: Settings) -> None:
    """One server creates the key, and the other servers find it."""

    async def start_together() -> set[str | None]:
        return set(
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, provide_admin_key(settings)) for _ in range(4)))
        )

    keys = asyncio.run(start_together())
    assert len(keys) == 1
    assert None not in keys
