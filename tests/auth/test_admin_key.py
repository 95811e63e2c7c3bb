"""The admin API key of a data directory, as whoever starts a server meets it."""

import asyncio
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

from live.auth.admin_key import provide_admin_key
from live.domain.producer import Scope
from live.errors import SetupError
from live.settings import Settings, as_environment
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.settings import fresh_settings

KEY = re.compile(r"^    (admin\.\S+)$", re.MULTILINE)


@contextmanager
def printing(settings: Settings, folder: Path, *flags: str, terminal: bool = False) -> Iterator[str]:
    """What `live serve` has printed once it is up."""
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
    """Wait until the server at a printed address is up: everything is printed by then."""
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
    """A server on a shared store, with a data directory that is not there yet."""
    return fresh_settings(valkey_url, data_dir=tmp_path / "data")


@pytest.mark.slow
def test_the_key_that_is_printed_makes_a_board(settings: Settings, tmp_path: Path) -> None:
    """Both commands work as they are pasted; the key is the same at every start, and only its owner reads it."""
    with printing(settings, tmp_path, "--admin-key") as text:
        (key,) = KEY.findall(text)
        commands = text[text.index("    curl") :]
        pasted = subprocess.run(["/bin/bash", "-ec", commands], capture_output=True, text=True, check=True)
        assert '"board":"mine"' in pasted.stdout
        assert '"accepted":1' in pasted.stdout
    path = settings.data_dir / "admin-key"
    assert path.read_text() == f"{key}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with printing(settings, tmp_path, "--admin-key") as text:
        assert KEY.findall(text) == [key]


@pytest.mark.slow
def test_it_is_printed_on_a_terminal_only(settings: Settings, tmp_path: Path) -> None:
    """Unless it is asked for, or asked not to be: a secret does not belong in a log."""
    with printing(settings, tmp_path) as text:
        assert not KEY.findall(text)
    with printing(settings, tmp_path, "--no-admin-key", terminal=True) as text:
        assert not KEY.findall(text)
    assert not (settings.data_dir / "admin-key").exists()
    with printing(settings, tmp_path, terminal=True) as text:
        assert len(KEY.findall(text)) == 1


async def test_it_is_made_once(settings: Settings) -> None:
    """A revoked one is not made again, and a store that has lost it is given the same."""
    store = connect(settings.store, settings)
    producers = ProducerStore(store, settings.key_prefix)
    key = await provide_admin_key(settings)
    assert key is not None
    assert await provide_admin_key(settings) == key
    await store.line.call("DEL", producers.key)
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


async def test_whoever_has_keys_gets_no_other(settings: Settings) -> None:
    """Also where the only key is another one of the same id."""
    store = connect(settings.store, settings)
    producers = ProducerStore(store, settings.key_prefix)
    await producers.add("admin", Scope(verbs=("admin",)))
    assert await provide_admin_key(settings) is None
    assert not settings.data_dir.exists()
    await store.aclose()


async def test_a_file_that_holds_something_else_is_replaced(settings: Settings) -> None:
    """And a data directory that can't be used is told."""
    settings.data_dir.mkdir()
    (settings.data_dir / "admin-key").write_text("nonsense")
    key = await provide_admin_key(settings)
    assert (settings.data_dir / "admin-key").read_text() == f"{key}\n"
    (settings.data_dir / "admin-key").unlink()
    (settings.data_dir / "admin-key").mkdir()
    with pytest.raises(SetupError, match="can't store the admin API key"):
        await provide_admin_key(settings)


def test_two_servers_that_start_at_once_print_one_key(settings: Settings) -> None:
    """One makes it, and every other finds it."""

    async def at_once() -> set[str | None]:
        return set(
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, provide_admin_key(settings)) for _ in range(4)))
        )

    keys = asyncio.run(at_once())
    assert len(keys) == 1
    assert None not in keys
