"""Keep the data directory private: no other user reads it, writes to it, or holds its lock."""

import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, Final

import structlog

from live.errors import SetupError

log = structlog.get_logger()

LOCK: Final = "lock"
UMASK: Final = 0o077

_OURS: Final = ("valkey.log", "valkey.sock", "appendonlydir", "witness-*", "positions-*")  # files of the server
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


def take_lock(folder: Path, patience: float, in_use: Callable[[], bool]) -> IO[str]:
    """Lock a private directory. The kernel releases the lock when the last process that has inherited it ends.

    Another user may hold the lock, if they opened the file while its permissions allowed that. Replace such a lock. But
    first ask `in_use` whether a server answers in the directory. Its processes may be invisible, as in a container.
    `patience` is how many seconds to wait for an owner that was killed, because its server may still be writing.

    Raises:
        SetupError: another process of this user has locked the directory.
    """
    path = folder / LOCK
    deadline = time.monotonic() + patience
    while True:
        lock = _opened(path)
        held = os.fstat(lock.fileno())
        # If `exposed` is true, another user may have the lock file open.
        exposed = bool(held.st_mode & UMASK) or held.st_uid != os.geteuid()
        if _locked(lock):
            is_there = False
            with suppress(FileNotFoundError):
                is_there = os.path.samestat(held, path.stat())
            if not is_there:  # the lock file was replaced meanwhile
                lock.close()
                continue
            if exposed:  # other users could lock the file later
                new = path.with_suffix(".new")
                new.unlink(missing_ok=True)
                fresh = _opened(new)
                _locked(fresh)
                new.replace(path)
                lock.close()
                lock = fresh
            lock.seek(0)
            lock.truncate()
            lock.write(str(os.getpid()))
            lock.flush()
            return lock
        lock.seek(0)
        owner = lock.read().strip()
        if exposed and not _held_by_us(lock) and not in_use():
            log.warning("another user holds the lock of the data directory; it is replaced", path=str(path))
            path.unlink(missing_ok=True)
            lock.close()
            continue
        lock.close()
        is_running = owner.isdecimal() and Path(f"/proc/{owner}").exists()
        if is_running or time.monotonic() > deadline:
            raise SetupError(
                f"the data directory {folder} is in use by process {owner or 'unknown'}: "
                "stop that process, or choose another --data-dir"
            )
        time.sleep(_PAUSE)


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


def _opened(path: Path) -> IO[str]:
    """Open the lock file.

    If the file is a link or belongs to another user, delete it and make a new one.
    """
    if path.is_symlink() or (path.exists() and path.lstat().st_uid != os.geteuid()):
        path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return open(descriptor, "r+", encoding="ascii")  # noqa: PTH123 - a descriptor, not a path


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held_by_us(lock: IO[str]) -> bool:
    """Tell whether another process of this user has the file open."""
    mine = os.fstat(lock.fileno())
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal() or int(process.name) == os.getpid():
            continue
        try:
            if process.stat().st_uid != os.geteuid():
                continue
            for descriptor in (process / "fd").iterdir():
                if os.path.samestat(mine, descriptor.stat()):
                    return True
        except OSError:  # the process has ended, or closed the file
            continue
    return False
