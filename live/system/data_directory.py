"""Keep the data directory private, and let one server use it."""

import fcntl
import os
import stat
import time
from itertools import chain
from pathlib import Path
from typing import IO, Final

import structlog

from live.errors import SetupError

log = structlog.get_logger()

LOCK: Final = "lock"
UMASK: Final = 0o077

_OURS: Final = (LOCK, "valkey.log", "valkey.sock", "appendonlydir", "witness-*", "positions-*")  # files of the server
_PAUSE: Final = 0.05


def make_private(folder: Path) -> None:
    """Create a data directory, or make an existing directory private to its owner.

    Make the files of the server in it private too. Other files stay as they are.

    Raises:
        SetupError: the directory can't be used, or another user owns it or a file of the server in it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close(folder)
        for path in chain.from_iterable(map(folder.glob, _OURS)):
            _close(path)
            if path.is_dir() and not path.is_symlink():
                for inner in path.iterdir():
                    _close(inner)
    except OSError as error:
        raise SetupError(f"can't use the data directory {folder}: {error.strerror}") from None


def take_lock(folder: Path, patience: float) -> IO[str]:
    """Lock a private directory. The kernel releases the lock when the last process that has inherited it ends.

    `patience` is how many seconds to wait for an owner that was killed, because its server may still be writing.

    Raises:
        SetupError: another process has locked the directory, or the file is a link.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SetupError(f"can't use the lock in the data directory {folder}: {error.strerror}") from None
    lock = open(descriptor, "r+", encoding="ascii")  # noqa: PTH123, SIM115 - a descriptor, which the caller closes
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip()
        else:
            lock.seek(0)
            lock.truncate()
            lock.write(str(os.getpid()))
            lock.flush()
            return lock
        is_running = owner.isdecimal() and Path(f"/proc/{owner}").exists()
        if is_running or time.monotonic() > deadline:
            lock.close()
            raise SetupError(
                f"the data directory {folder} is in use by process {owner or 'unknown'}: "
                "stop that process, or choose another --data-dir"
            )
        time.sleep(_PAUSE)


def is_locked(folder: Path) -> bool:
    """Return whether a server uses a data directory."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock, or it can't be read
        return False
    return False


def _close(path: Path) -> None:
    """Take away the permissions of other users for a file or directory."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return
    if status.st_uid != os.geteuid():
        raise SetupError(
            f"{path} belongs to the user with id {status.st_uid}, and this process runs as {os.geteuid()}: "
            f"run it as that user, give the directory to this user (chown -R {os.geteuid()}), or choose another "
            "--data-dir"
        )
    if status.st_mode & stat.S_ISVTX:
        raise SetupError(f"the directory {path} is shared by all users: choose one of its own with --data-dir")
    if status.st_mode & UMASK:
        path.chmod(stat.S_IMODE(status.st_mode) & ~UMASK)
        log.warning("removed the permissions of other users of this machine", path=str(path))
