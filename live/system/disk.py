"""How full the disk of the data directory is."""

import shutil
from pathlib import Path
from typing import Final

_FULL: Final = 0.01  # share of a disk; below this, it counts as full
_ENOUGH: Final = 1024**3  # bytes; a disk with so much room is not full, however large it is
_MIB: Final = 1024**2


def used_of(folder: Path) -> float:
    """Return which share of the disk of a folder is used, from 0 to 1.

    Raises:
        OSError: the folder can't be read.
    """
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
