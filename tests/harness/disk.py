"""A small disk that a test can fill, and a lock that another process holds on a database."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_HOLD: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=180)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""


def may_mount() -> bool:
    """Whether this process may mount a file system."""
    command = ["unshare", "-m", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


class Disk:
    """A file system in memory with little room."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def leave(self, room: int) -> None:
        """Change the size of the disk, so that this number of bytes is free."""
        now = os.statvfs(self.path)
        size = (now.f_blocks - now.f_bfree) * now.f_bsize + room
        command = ["mount", "-o", f"remount,size={size}", str(self.path)]
        subprocess.run(command, check=True)

    def fill(self) -> None:
        """Use up all room."""
        with self._ballast.open("wb") as file:
            while (free := os.statvfs(self.path)).f_bavail:
                with suppress(OSError):  # another process took the room in between
                    os.posix_fallocate(file.fileno(), 0, file.tell() + free.f_bavail * free.f_bsize)
                file.seek(0, os.SEEK_END)

    def clear(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Disk]:
    """A disk that is mounted on a folder."""
    path.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(path)]
    subprocess.run(mount, check=True)
    try:
        yield Disk(path)
    finally:
        unmount = ["umount", "--lazy", str(path)]
        subprocess.run(unmount, check=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let another process begin to write to a SQLite database, and not finish."""
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        try:
            yield
        finally:
            process.kill()
