"""The folder in which several processes combine their metrics."""

import fcntl
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from prometheus_client.mmap_dict import MmapedDict

_FOLDER: Final = "live-metrics-"  # the names of folders begin with this
_YOUNG: Final = 60.0  # seconds for which a folder may be so new that its server has not locked it yet
_ENDED: Final = 0  # the part of a file's name that stands for all processes that have ended


class SharedMetrics:
    """The folder in which several processes combine their metrics.

    Each process has files of its own. Every process holds a lock on the folder, and the last process removes the
    folder, however the other processes have ended.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = -1

    @classmethod
    def new(cls) -> "SharedMetrics":
        """Make a folder. Remove the folders of servers that were killed together with all their processes."""
        for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _YOUNG:
                    _remove_unused(path)
        return cls(Path(tempfile.mkdtemp(prefix=_FOLDER)))

    def __enter__(self) -> Self:
        self._held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._held, fcntl.LOCK_SH)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._held)
        with suppress(OSError):
            _remove_unused(self.folder)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep `fold` from running during the `with` block, so that each process counts exactly once."""
        with self._lock(fcntl.LOCK_SH):
            yield

    def processes(self) -> set[int]:
        """Return the ids of the processes whose files `fold` has not added up yet."""
        return {int(path.stem.rpartition("_")[2]) for path in self.folder.glob("*_*.db")} - {_ENDED}

    def fold(self, process: int) -> None:
        """Add the counters of a process that has ended to the sums of all ended processes. Forget its gauges."""
        with self._lock(fcntl.LOCK_EX):
            for path in self.folder.glob(f"*_{process}.db"):
                kind = path.name.partition("_")[0]
                if kind != "gauge":
                    _add(path, self.folder / f"{kind}_{_ENDED}.db")
                path.unlink()

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, kind)
            yield
        finally:
            os.close(lock)


def _add(ended: Path, sums: Path) -> None:
    """Add all values of one file to the values in another file."""
    total = MmapedDict(str(sums))  # type: ignore[no-untyped-call]
    try:
        # A process that was killed at its start may have left an empty file.
        with suppress(struct.error, RuntimeError):
            for key, value, timestamp, _ in MmapedDict.read_all_values_from_file(str(ended)):  # type: ignore[no-untyped-call]
                total.write_value(key, total.read_value(key)[0] + value, timestamp)  # type: ignore[no-untyped-call]
    finally:
        total.close()  # type: ignore[no-untyped-call]


def _remove_unused(folder: Path) -> None:
    """Remove a folder if no process holds it."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(held)
