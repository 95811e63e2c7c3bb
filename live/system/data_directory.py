"""The data directory: it is private, one server uses it, and its disk has room."""

import fcntl
import os
import shutil
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

_PRIVATE: Final = Path("/var/lib/private")  # systemd keeps the directories of dynamic users in it
_OURS: Final = (LOCK, "valkey.log", "valkey.sock", "appendonlydir", "witness-*", "positions-*")  # files of the server
_PAUSE: Final = 0.05
_FULL: Final = 0.01  # share of a disk; below this, it counts as full
_ENOUGH: Final = 1024**3  # bytes; a disk with so much room is not full, however large it is
_MIB: Final = 1024**2


def make_private(folder: Path) -> None:
    """Create a data directory, or make an existing one and the files of the server in it private to its owner."""
    require_owner(folder)
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


def require_owner(folder: Path) -> None:
    """Refuse to use the directory of another user as root. Otherwise a server of this user would find files of root."""
    if os.geteuid() != 0 or not folder.exists() or (status := folder.stat()).st_uid == 0:
        return
    user = f"setpriv --reuid={status.st_uid} --regid={status.st_gid} --clear-groups"
    if (real := folder.resolve()).parent == _PRIVATE:  # only units of systemd can enter it
        unit = f"-p DynamicUser=yes -p User={real.name} -p StateDirectory={real.name}"
        given = f"-p EnvironmentFile=-/etc/{real.name}.env -E LIVE_DATA_DIR={folder.absolute()}"
        user = f"systemd-run --pipe --wait --quiet --collect {unit} {given}"
    raise SetupError(
        f"the data directory {folder} belongs to the user with id {status.st_uid}, who can't use files that root makes "
        f"there: put `{user}` before the command"
    )


def take_lock(folder: Path, patience: float) -> IO[str]:
    """Lock a private directory. The kernel releases the lock when the last process that has inherited it ends.

    `patience` is how many seconds to wait for an owner that was killed, because its server may still be writing.
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


def used_of(folder: Path) -> float:
    """Return which share of the disk of a folder is used, from 0 to 1."""
    disk = shutil.disk_usage(folder)
    return 1 - disk.free / max(1, disk.total)


def disk_fault(folder: Path) -> str:
    """Return a sentence if the disk of the data directory is full; otherwise an empty text."""
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return ""  # there is no such folder yet, or another check says what is wrong with it
    if disk.free >= min(disk.total * _FULL, _ENOUGH):
        return ""
    return f"the disk of the data directory is full: {disk.free // _MIB:,} of {disk.total // _MIB:,} MiB are free"


def _close(path: Path) -> None:
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
