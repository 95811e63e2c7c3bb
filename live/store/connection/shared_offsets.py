"""The highest offset of each board, which the store must still have after a restart, shared by all processes.

Each process writes a file of its own, mapped into memory. So the other processes read an offset as soon as it is
acknowledged, even if the process that acknowledged it is frozen or killed a moment later. An offset that a process kept
in memory for a while would be lost with it, and the others would go on with a store that lacks what was acknowledged.

No process waits for another one, so a process that is frozen or killed at any point holds up nobody:

- A row belongs to one epoch of one board for good. A reader skips a row whose checksum does not match: that row
  is not complete yet.
- The offset of a row only grows, and is written in one step, as eight aligned bytes. So whatever a reader finds there
  was noted, and is a lower bound.
- A file is never deleted, only replaced in one step by a file that has its rows, without those of ended epochs: by its
  own process when it is full, and by the next process to start after its own process has ended.

The files are not fsynced. After a crash of the machine they may hold old offsets. These are lower bounds too,
and so harmless.
"""

import fcntl
import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Collection, Generator
from contextlib import closing
from pathlib import Path
from typing import Final

Positions = dict[str, tuple[str, int]]
"""The epoch of each board, and the highest offset in it."""

_ROW: Final = struct.Struct("=qI4x32s64s16x")  # offset, checksum, epoch, board: 128 bytes, so that offsets are aligned
_OFFSET: Final = "q"  # the format of an offset; a view with this format writes each offset in one step
_ROWS: Final = 32  # free rows in a new file
_NEW: Final = ".new-"  # begins the name of a file until it is complete; other processes ignore such a file


class _OwnFile:
    """The rows that this process writes. Their file is locked until the process ends, so others notice the end."""

    def __init__(self, path: Path, positions: Positions) -> None:
        """Begin the file with some positions. It replaces a file at `path`."""
        new = path.with_name(_NEW + secrets.token_hex(8))
        self.path = path
        self.rows: dict[tuple[str, str], int] = {}  # by board and epoch, the place of the offset in `_offsets`
        self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)  # nobody else can open the file before it has its final name
            size = (2 * len(positions) + _ROWS) * _ROW.size
            os.posix_fallocate(self._file, 0, size)  # a write to space that is only mapped could end the process
            self._map = mmap.mmap(self._file, size)
            self._offsets = memoryview(self._map).cast(_OFFSET)
            for board, (epoch, offset) in positions.items():
                self.write(board, epoch, offset)
            new.rename(path)
        except OSError:
            os.close(self._file)
            new.unlink()
            raise

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another row."""
        return len(self.rows) * _ROW.size == len(self._map)

    def write(self, board: str, epoch: str, offset: int) -> None:
        """Write an offset, not lower than the last one written for this board and epoch."""
        place = self.rows.get((board, epoch))
        if place is not None:
            # `Struct.pack_into` would write zeros first, which stay if the process is killed there.
            self._offsets[place] = offset
            return
        at, name = len(self.rows) * _ROW.size, (epoch.encode(), board.encode())
        _ROW.pack_into(self._map, at, offset, _checksum(*name), *name)
        self.rows[board, epoch] = at // self._offsets.itemsize

    def close(self) -> None:
        """Unlock the file."""
        self._offsets.release()
        self._map.close()
        os.close(self._file)


class SharedOffsets:
    """The highest offsets that any process with this data directory and key prefix has noted."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder / f"positions-{prefix}"
        self._own: _OwnFile | None = None
        self._read: dict[Path, bytes] = {}  # the contents of the other files when they were last read
        self.known: Positions = {}
        self.refresh()

    def offset_of(self, board: str, epoch: str | None) -> int:
        """Return the highest offset of a board in an epoch; -1 if none is known."""
        known = self.known.get(board)
        return known[1] if known is not None and known[0] == epoch else -1

    def note(self, board: str, epoch: str, offset: int) -> None:
        """Remember an offset and share it.

        Raises:
            OSError: there is no space for it. This process remembers the offset all the same.
        """
        known, own = self.offset_of(board, epoch), self._own
        has_row = own is not None and (board, epoch) in own.rows
        if known < offset:
            self.known[board] = (epoch, offset)
        elif has_row:
            return
        if own is None or (own.is_full and not has_row):
            self._begin()
        else:
            own.write(board, *self.known[board])

    def refresh(self) -> None:
        """Read what the other processes have written. Keep the known epoch of a board if the epochs differ."""
        for path in self._others():
            content = path.read_bytes()
            if content == self._read.get(path):
                continue
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

    def forget(self, names: Collection[str] | None = None) -> None:
        """Forget the positions of some boards, or of all, also those that processes which have ended left."""
        self.known = {} if names is None else {name: at for name, at in self.known.items() if name not in names}
        self._read = {}
        for path in self._ended():
            _OwnFile(path, self.known).close()
        if self._own is not None:
            self._begin()

    def close(self) -> None:
        """Close the file of this process, so that another process takes over its rows."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _begin(self) -> None:
        """Begin another file with all that is known: in the place of the own file, or of a process that has ended."""
        old = self._own
        if old is not None:
            self._own = _OwnFile(old.path, self.known)
            old.close()
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(self._ended()) as ended:
            path = next(ended, self._folder / secrets.token_hex(8))
            self.refresh()  # nobody adds to the file of a process that has ended
            self._own = _OwnFile(path, self.known)

    def _others(self) -> list[Path]:
        if not self._folder.exists():
            return []
        own = self._own.path if self._own is not None else None
        return [path for path in self._folder.iterdir() if path != own and not path.name.startswith(_NEW)]

    def _ended(self) -> Generator[Path, None, None]:
        """Yield the files of processes that have ended. Each is locked until you ask for the next one."""
        for path in self._others():
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have replaced the file between the opening and the lock.
                if os.path.samestat(os.fstat(file), path.stat()):
                    yield path
            except BlockingIOError:
                pass  # its process has not ended
            finally:
                os.close(file)


def _checksum(epoch: bytes, board: bytes) -> int:
    return zlib.crc32(epoch + b"\0" + board)
