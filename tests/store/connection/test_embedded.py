"""The embedded store: durable, kept running, with one owner at a time."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from live.errors import SetupError
from live.store.connection import embedded
from live.store.connection.embedded import EmbeddedStore, available_memory, find_binary
from tests.harness.waiting import DEADLINE


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def answers(client: redis.Redis) -> bool:
    """Whether the server runs."""
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


def test_the_store_is_durable_and_private(tmp_path: Path) -> None:
    """The store syncs its append-only file before each reply, evicts nothing, and only its owner can use its socket."""
    store = EmbeddedStore(tmp_path / "d")
    store.start()
    client = redis.Redis.from_url(store.url)
    try:
        settings = client.config_get("*")
        assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "always")
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["port"] == "0"
        assert (tmp_path / "d" / "valkey.sock").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "d").stat().st_mode & 0o077 == 0
    finally:
        client.close()
        store.stop()


def test_data_is_kept_after_a_restart(tmp_path: Path) -> None:
    """The data is there after a stop and a start. A stop leaves no process."""
    store = EmbeddedStore(tmp_path / "d")
    store.start()
    client = redis.Redis.from_url(store.url)
    client.set("a", "1")
    pid = store.pid
    store.stop()
    assert not Path(f"/proc/{pid}").exists()

    again = EmbeddedStore(tmp_path / "d")
    again.start()
    assert client.get("a") == b"1"
    client.close()
    again.stop()


@pytest.mark.fault
def test_a_killed_store_is_restarted(tmp_path: Path) -> None:
    """The store still has everything that it had acknowledged."""
    store = EmbeddedStore(tmp_path / "d")
    store.start()
    client = redis.Redis.from_url(store.url)
    client.set("a", "1")
    assert store.pid is not None
    os.kill(store.pid, signal.SIGKILL)
    until(lambda: not answers(client))
    until(lambda: answers(client))

    assert client.get("a") == b"1"
    client.close()
    store.stop()


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    """A directory in use is refused immediately, with the PID of the process that uses it."""
    store = EmbeddedStore(tmp_path / "d")
    store.start()
    try:
        with pytest.raises(SetupError, match=f"in use by process {os.getpid()}"):
            EmbeddedStore(tmp_path / "d").start()
    finally:
        store.stop()


@pytest.mark.fault
def test_the_store_of_a_killed_owner_ends(tmp_path: Path) -> None:
    """`kill -9` of the owner ends its store too. The next owner waits until the store has ended, and finds the data."""
    script = (
        "import sys, time, redis; from pathlib import Path; from live.store.connection.embedded import EmbeddedStore\n"
        "store = EmbeddedStore(Path(sys.argv[1])); store.start()\n"
        "redis.Redis.from_url(store.url).set('a', '1'); print(store.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "d")], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()

    store = EmbeddedStore(tmp_path / "d")
    store.start()
    client = redis.Redis.from_url(store.url)
    assert client.get("a") == b"1"
    assert store.pid != pid
    client.close()
    store.stop()


def test_damaged_data_is_reported_immediately(tmp_path: Path) -> None:
    """A store that can't load its data ends, and the start fails with the store's message."""
    store = EmbeddedStore(tmp_path / "d")
    store.start()
    client = redis.Redis.from_url(store.url)
    for number in range(200):
        client.set(f"k{number}", "v" * 50)
    client.close()
    store.stop()
    log = next((tmp_path / "d" / "appendonlydir").glob("*.incr.aof"))
    data = log.read_bytes()
    log.write_bytes(data[: len(data) // 2] + b"garbage!" + data[len(data) // 2 :])

    started = time.monotonic()
    with pytest.raises(SetupError, match=r"(?s)did not start.*Bad file format.*live recover --from journal"):
        EmbeddedStore(tmp_path / "d").start()
    assert time.monotonic() - started < DEADLINE


def test_only_the_end_of_the_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log may be large, and a store that could not be started may have no log."""
    monkeypatch.setattr(embedded, "_LAST_WORDS", 12)
    store = EmbeddedStore(tmp_path)
    assert "No such file" in store.last_lines(1)[0]
    (tmp_path / "valkey.log").write_text("first\nsecond\nthird\n")
    assert (store.last_lines(1), store.last_lines(9)) == (["third"], ["econd", "third"])


def test_a_path_that_is_too_long_is_reported(tmp_path: Path) -> None:
    """The kernel's limit on socket paths gives a clear message, not an error number."""
    with pytest.raises(SetupError, match="choose a shorter --data-dir"):
        EmbeddedStore(tmp_path / ("d" * 120)).start()


def test_an_unusable_directory_is_reported(tmp_path: Path) -> None:
    """There is a file where the directory should be."""
    (tmp_path / "file").write_text("")

    with pytest.raises(SetupError, match="can't use the data directory"):
        EmbeddedStore(tmp_path / "file").start()


def test_memory_is_limited(tmp_path: Path) -> None:
    """The limit is the configured memory, or half of the available memory.

    A full store refuses writes, and evicts nothing.
    """
    for asked, given in ((32 * 1024**2, 32 * 1024**2), (0, available_memory() // 2)):
        store = EmbeddedStore(tmp_path / "d", asked)
        store.start()
        client = redis.Redis.from_url(store.url)
        try:
            assert client.config_get("maxmemory") == {"maxmemory": str(given)}
        finally:
            client.close()
            store.stop()


GROUPS = [
    ("0::/a/b", {"a/memory.max": "3000000", "a/b/memory.max": "max"}, 3_000_000),
    ("0::/a/b", {"a/memory.max": "3000000", "a/b/memory.max": "2000000"}, 2_000_000),
    ("0::/", {"memory.max": "5000000"}, 5_000_000),
    ("0::/docker/1", {}, 8_192_000),
    ("0::/docker/1", {"memory.max": "4000000"}, 4_000_000),
    ("0::/a:b", {"a:b/memory.max": "3000000"}, 3_000_000),
    ("4:memory:/a\n3:cpu:/", {"memory/a/memory.limit_in_bytes": "1000000"}, 1_000_000),
    ("4:memory:/", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 8_192_000),
]


@pytest.mark.parametrize(("line", "files", "expected"), GROUPS)
def test_the_memory_of_the_container_is_respected(
    tmp_path: Path, line: str, files: dict[str, str], expected: int
) -> None:
    """The result is the smallest of the machine's memory and the limits of the process's cgroups, in both versions."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:        8000 kB\nMemFree:  1 kB\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text(line + "\n")
    for name, content in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert available_memory(tmp_path / "proc", tmp_path / "groups") == expected


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_another_program_can_be_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's program has precedence over a program on the PATH. Without any program, the error gives advice."""
    found = shutil.which("redis-server")
    assert found is not None
    assert "valkey" in str(find_binary())

    def missing(_name: str) -> None:
        raise ImportError

    monkeypatch.setattr(embedded, "import_module", missing)
    (tmp_path / "valkey-server").symlink_to(found)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(found).parent}")
    assert find_binary() == tmp_path / "valkey-server"
    monkeypatch.setenv("PATH", str(Path(found).parent))
    assert find_binary() == Path(found)
    store = EmbeddedStore(tmp_path / "d")
    store.start()
    try:
        assert "redis_mode" in redis.Redis.from_url(store.url).info("server")
        assert Path(f"/proc/{store.pid}/exe").resolve() == Path(found).resolve()
    finally:
        store.stop()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupError, match="install Valkey or Redis"):
        find_binary()
