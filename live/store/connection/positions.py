"""The highest offset of each board that the processes of a server have seen.

Each process writes a file of its own, mapped into memory, so that other processes read an offset as soon as it is
acknowledged, even if the process that wrote it is frozen or killed. The files are not fsynced: after a crash of the
machine they may hold old offsets, which is harmless because each is a lower bound.
"""

import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

Positions = dict[str, tuple[str, int]]
"""For each board its epoch, and the highest offset in that epoch."""

_ROW: Final = struct.Struct("<q32s64s24x")  # offset, epoch, board: 128 bytes, so that offsets are aligned
_OFFSET: Final = struct.Struct("<q")
_ROWS: Final = 32  # in a new file


class _OwnFile:
    """The rows that this process writes. The file is locked until the process ends, so that others notice the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[str, int] = {}  # of each board, where its row begins
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._map = self._mapped(_ROWS * _ROW.size)
        except OSError:
            os.close(self._file)
            path.unlink()
            raise

    def __contains__(self, board: str) -> bool:
        return board in self._rows

    def raise_offset(self, board: str, offset: int) -> None:
        """Change the offset in the row of a board: eight aligned bytes, which are never read half written."""
        _OFFSET.pack_into(self._map, self._rows[board], offset)

    def write(self, board: str, epoch: str, offset: int) -> None:
        """Write a whole row, while no other process reads.

        Raises:
            OSError: there is no space.
        """
        at = self._rows.get(board, len(self._rows) * _ROW.size)
        if at >= len(self._map):
            small, self._map = self._map, self._mapped(2 * len(self._map))
            small.close()
        _ROW.pack_into(self._map, at, offset, epoch.encode(), board.encode())
        self._rows[board] = at

    def clear(self) -> None:
        """Forget all rows."""
        self._map[:] = bytes(len(self._map))
        self._rows = {}

    def close(self) -> None:
        """Unlock the file."""
        self._map.close()
        os.close(self._file)

    def _mapped(self, size: int) -> mmap.mmap:
        """The file at a size; a write to space that is mapped but not allocated could end the process."""
        os.posix_fallocate(self._file, 0, size)
        return mmap.mmap(self._file, size)


class SharedPositions:
    """What this process and all others that use one data directory and one key prefix have seen."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder / f"positions-{prefix}"
        self._lock_path = folder / f"positions-{prefix}.lock"
        self._own: _OwnFile | None = None
        self._read: dict[Path, bytes] = {}  # what other files held when they were last read
        self.known: Positions = {}
        self.hear(adopt=False)

    def offset_of(self, board: str, epoch: str | None) -> int:
        """The highest offset of a board in an epoch; -1 if none is known."""
        known = self.known.get(board)
        return known[1] if known is not None and known[0] == epoch else -1

    def note(self, board: str, epoch: str, offset: int) -> None:
        """Remember an offset and share it with the other processes.

        Raises:
            OSError: the file can't be written; this process remembers the offset all the same.
        """
        known = self.known.get(board)
        if known is not None and known[0] == epoch and self._own is not None and board in self._own:
            if offset > known[1]:
                self._own.raise_offset(board, offset)
                self.known[board] = (epoch, offset)
            return
        self.known[board] = (epoch, max(offset, self.offset_of(board, epoch)))
        with self._locked():
            self._own_file().write(board, *self.known[board])

    def hear(self, *, adopt: bool = True) -> None:
        """Read what the other processes have written.

        Args:
            adopt: also take over the files of processes that have ended, and delete them.
        """
        if not self._folder.exists():
            return
        with self._locked():
            for path in self._others():
                self._hear_file(path)
                if adopt and _is_abandoned(path):
                    for board, (epoch, offset) in self.known.items():
                        self._own_file().write(board, epoch, offset)
                    path.unlink()
                    self._read.pop(path)

    def forget(self) -> None:
        """Forget all positions, and delete the files of processes that have ended."""
        self.known, self._read = {}, {}
        if not self._folder.exists():
            return
        with self._locked():
            if self._own is not None:
                self._own.clear()
            for path in self._others():
                if _is_abandoned(path):
                    path.unlink()

    def close(self) -> None:
        """Let another process take over the file."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _others(self) -> list[Path]:
        return [path for path in self._folder.iterdir() if self._own is None or path != self._own.path]

    def _hear_file(self, path: Path) -> None:
        """Merge one file; where epochs differ, what this process knows stays."""
        content = path.read_bytes()
        if content == self._read.get(path):
            return
        self._read[path] = content
        for board, epoch, offset in _rows_in(content):
            mine = self.known.setdefault(board, (epoch, offset))
            if mine[0] == epoch and offset > mine[1]:
                self.known[board] = (epoch, offset)

    def _own_file(self) -> _OwnFile:
        if self._own is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._own = _OwnFile(self._folder / secrets.token_hex(8))
        return self._own

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Be the only process that reads or writes whole rows."""
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _rows_in(content: bytes) -> Iterator[tuple[str, str, int]]:
    """The rows of a file; what a crash has damaged is left out, as every row is only a lower bound."""
    whole = len(content) - len(content) % _ROW.size
    for offset, epoch, board in _ROW.iter_unpack(content[:whole]):
        name = board.rstrip(b"\0")
        if name and name.isascii() and epoch.isascii():
            yield name.decode(), epoch.rstrip(b"\0").decode(), offset


def _is_abandoned(path: Path) -> bool:
    """Whether the process that wrote a file has ended."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
