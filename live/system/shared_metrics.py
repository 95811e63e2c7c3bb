"""The folder in which several processes combine their metrics."""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from prometheus_client.multiprocess import mark_process_dead

_FOLDER: Final = "live-metrics-"  # the names of folders begin with this
_YOUNG: Final = 60.0  # seconds for which a folder may be so new that its server has not locked it yet


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

    def processes(self) -> set[int]:
        """Return the ids of the processes that have not ended."""
        return {int(path.stem.rpartition("_")[2]) for path in self.folder.glob("gauge_*.db")}

    def forget(self, process: int) -> None:
        """Drop the gauges of a process that has ended. Its counters stay, so that no sum goes back."""
        mark_process_dead(process, str(self.folder))  # type: ignore[no-untyped-call]
        for path in self.folder.glob(f"*_{process}.db"):
            if not path.stat().st_size:  # the process was killed while it made the file
                path.unlink()


def _remove_unused(folder: Path) -> None:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(held)
