"""A PostgreSQL server on a private socket."""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.harness.waiting import DEADLINE

BINARIES: Final = Path(max(glob("/usr/lib/postgresql/*/bin"), default="/nowhere"))  # noqa: PTH207 - sorted by version
_USER: Final = "postgres"  # PostgreSQL refuses to run as root


def has_postgres() -> bool:
    """Return whether PostgreSQL is installed and the tests may run it."""
    return (BINARIES / "postgres").exists() and (os.getuid() != 0 or _exists(_USER))


class Postgres:
    """A server with one database, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        name = _USER if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        self.url = f"postgresql://{name}@/postgres?host={folder}"
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "--no-sync", "-E", "UTF8")

    def start(self, *flags: str) -> None:
        """Start the server and wait until it answers. `flags` change its settings."""
        self.process = subprocess.Popen(
            self._as_user(
                "postgres", "-D", str(self.folder / "data"), "-k", str(self.folder), "-c", "listen_addresses=", *flags
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + DEADLINE
        while subprocess.run(self._as_user("pg_isready", "-q", "-h", str(self.folder)), check=False).returncode != 0:
            assert time.monotonic() < end, "PostgreSQL did not start"
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        assert self.process is not None
        subprocess.run(self._as_user("pg_ctl", "-D", str(self.folder / "data"), "stop", "-m", "immediate"), check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        self.process.wait()

    def _run(self, *words: str) -> None:
        subprocess.run(self._as_user(*words), check=True, stdout=subprocess.DEVNULL, cwd=self.folder)

    def _as_user(self, name: str, *words: str) -> list[str]:
        command = [str(BINARIES / name), *words]
        return (
            ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", *command]
            if os.getuid() == 0
            else command
        )


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A PostgreSQL server in a directory that its system user may read."""
    folder = Path(mkdtemp(prefix="live-pg-"))
    if os.getuid() == 0:
        os.chown(folder, pwd.getpwnam(_USER).pw_uid, pwd.getpwnam(_USER).pw_gid)
    server = Postgres(folder)
    try:
        server.start()
        yield server
        server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
