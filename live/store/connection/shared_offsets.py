"""The highest offset of each board, which the store must still have after a restart, shared by all processes.

Each process writes a file of its own, mapped into memory, so that other processes read an offset as soon as it is
acknowledged. No process waits for another one, so a process that is frozen or killed at any point holds up nobody:

- A row belongs to one epoch of one board for good. A reader skips a row whose checksum does not match: that row
  is not complete yet.
- The offset of a row only grows, and is written in one step, as eight aligned bytes. So whatever a reader finds there
  was noted, and is a lower bound.
- A process never deletes rows of its file. It replaces the file by a new one, which has only the rows to keep.

The files are not fsynced. After a crash of the machine they may hold old offsets. These are lower bounds too,
and so harmless.
"""

import fcntl
import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Final

Positions = dict[str, tuple[str, int]]
"""The epoch of each board, and the highest offset in it."""

_ROW: Final = struct.Struct("=qI4x32s64s16x")  # offset, checksum, epoch, board: 128 bytes, so that offsets are aligned
_OFFSET: Final = "q"  # the format of an offset; a view with this format writes each offset in one step
_ROWS: Final = 32  # rows in a new file
_NEW: Final = ".new-"  # begins the name of a file until it is locked; other processes ignore such a file
_MOST_TRIES: Final = 100


class _OwnFile:
    """The rows that this process writes. Their file is locked until the process ends, so others notice the end."""

    def __init__(self, folder: Path) -> None:
        name = secrets.token_hex(8)
        self.path, new = folder / name, folder / (_NEW + name)
        self.rows: dict[tuple[str, str], int] = {}  # by board and epoch, where the row begins in the file
        self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)  # nobody else can open the file before it has its final name
            self._allocate(_ROWS * _ROW.size)
            new.rename(self.path)
        except OSError:
            os.close(self._file)
            new.unlink()
            raise

    def write(self, board: str, epoch: str, offset: int) -> None:
        """Write an offset. It must not be lower than the last offset written for this board and epoch.

        Raises:
            OSError: there is no space for another row.
        """
        at = self.rows.get((board, epoch))
        if at is None:
            at = len(self.rows) * _ROW.size
            if at >= len(self._map):
                self._allocate(2 * len(self._map))
            row = (epoch.encode(), board.encode())
            _ROW.pack_into(self._map, at, offset, _checksum(*row), *row)
            self.rows[board, epoch] = at
        else:
            # `Struct.pack_into` would write zeros first, which stay if the process is killed there.
            self._offsets[at // self._offsets.itemsize] = offset

    def close(self) -> None:
        """Unlock the file."""
        self._offsets.release()
        self._map.close()
        os.close(self._file)

    def _allocate(self, size: int) -> None:
        """Allocate and map the file. A write to space that is mapped but not allocated could end the process."""
        os.posix_fallocate(self._file, 0, size)
        self._map = mmap.mmap(self._file, size)
        self._offsets = memoryview(self._map).cast(_OFFSET)


class SharedOffsets:
    """The highest offsets that any process with this data directory and key prefix has seen."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder / f"positions-{prefix}"
        self._own: _OwnFile | None = None
        self._read: dict[Path, bytes] = {}  # the contents of the other files when they were last read
        self.known: Positions = {}
        self.refresh(adopt=False)

    def offset_of(self, board: str, epoch: str | None) -> int:
        """Return the highest offset of a board in an epoch; -1 if none is known."""
        known = self.known.get(board)
        return known[1] if known is not None and known[0] == epoch else -1

    def note(self, board: str, epoch: str, offset: int) -> None:
        """Remember an offset and share it with the other processes.

        Raises:
            OSError: the file can't be written; this process remembers the offset all the same.
        """
        known = self.offset_of(board, epoch)
        own = self._own
        if offset <= known and own is not None and (board, epoch) in own.rows:
            return
        self.known[board] = (epoch, max(offset, known))
        self._own_file().write(board, *self.known[board])

    def refresh(self, *, adopt: bool = True) -> None:
        """Read what the other processes have written.

        Args:
            adopt: also take over the files of processes that have ended, and delete them.

        Raises:
            OSError: the files can't be read.
        """
        for _ in range(_MOST_TRIES):
            try:
                for path in self._others():
                    self._merge_file(path, adopt=adopt)
            except FileNotFoundError:
                continue  # another process took over its rows, perhaps into a file that is not in the list
            else:
                return
        raise OSError(f"the files in {self._folder} keep changing")

    def forget(self, names: Collection[str] | None = None) -> None:
        """Forget the positions of some boards, or of all, and delete the files of processes that have ended."""
        kept = {} if names is None else {name: at for name, at in self.known.items() if name not in names}
        old, self._own = self._own, None
        self.known, self._read = {}, {}
        for name, position in kept.items():
            self.note(name, *position)
        if old is not None:
            old.path.unlink(missing_ok=True)
            old.close()
        for path in self._others():
            if _is_abandoned(path):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file of this process, so that another process takes over its rows."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _others(self) -> list[Path]:
        if not self._folder.exists():
            return []
        own = self._own.path if self._own is not None else None
        return [path for path in self._folder.iterdir() if path != own and not path.name.startswith(_NEW)]

    def _merge_file(self, path: Path, *, adopt: bool) -> None:
        """Merge one file into the known offsets. If the epochs of a board differ, keep the known epoch."""
        # Check this before reading the file: a process that has ended can add nothing afterwards.
        is_abandoned = adopt and _is_abandoned(path)
        content = path.read_bytes()
        if content != self._read.get(path):
            self._read[path] = content
            found = {}  # the last epoch of each board, and its offset; incomplete or damaged rows are left out
            for offset, checksum, epoch, board in _ROW.iter_unpack(content[: len(content) // _ROW.size * _ROW.size]):
                name = (epoch.rstrip(b"\0"), board.rstrip(b"\0"))
                if name[1] and checksum == _checksum(*name):
                    found[name[1].decode()] = (name[0].decode(), offset)
            for board, position in found.items():
                mine = self.known.setdefault(board, position)
                if mine[0] == position[0]:
                    self.known[board] = max(mine, position)
        if is_abandoned:
            for board, (epoch, offset) in self.known.items():
                self._own_file().write(board, epoch, offset)
            path.unlink(missing_ok=True)
            self._read.pop(path, None)

    def _own_file(self) -> _OwnFile:
        """Return the file of this process. Begin one if there is none, or if most rows belong to ended epochs."""
        own = self._own
        if own is None or len(own.rows) > _ROWS + 2 * len(self.known):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            old, own = own, _OwnFile(self._folder)
            self._own = own
            if old is not None:
                for board, position in self.known.items():
                    own.write(board, *position)
                old.path.unlink(missing_ok=True)
                old.close()
        return own


def _checksum(epoch: bytes, board: bytes) -> int:
    return zlib.crc32(epoch + b"\0" + board)


def _is_abandoned(path: Path) -> bool:
    """Return whether the process that wrote a file has ended, or has closed the file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
