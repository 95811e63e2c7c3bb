"""Processes share offsets immediately, even those of a killed process. No shared offset is too high."""

import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from live.store.connection.shared_offsets import SharedOffsets
from tests.harness.mutation import must_be_caught, replaced

IMPORTS: Final = """
import sys
from pathlib import Path
from live.store.connection.shared_offsets import SharedOffsets
"""
IN_MEMORY: Final = """
def note(positions, board, epoch, offset):
    positions.known[board] = (epoch, offset)

SharedOffsets.note = note
"""
WRITER: Final = """
positions = SharedOffsets(Path(sys.argv[1]), "live")
for line in sys.stdin:
    positions.note("posts", "e1", int(line))
    print(positions.offset_of("posts", "e1"), flush=True)
"""

# Notes offsets of three boards without end. Each board often gets a new epoch, which no process has had before.
BUSY_WRITER: Final = """
import os
positions = SharedOffsets(Path(sys.argv[1]), "live")
for offset in range(1, 1_000_000):
    positions.note(f"b{offset % 3}", f"e{os.getpid()}-{offset // 9}", offset)
    print(f"b{offset % 3} {offset}", flush=True)
"""

LONG: Final = 200_000
LONG_WRITER: Final = f"""
positions = SharedOffsets(Path(sys.argv[1]), "live")
positions.note("posts", "e1", 1)
print("begun", flush=True)
for offset in range(2, {LONG} + 1):
    positions.note("posts", "e1", offset)
"""
ZERO_FIRST: Final = """
import time
from live.store.connection import shared_offsets

right = shared_offsets._OwnFile.write

def write(file, board, epoch, offset):
    if offset % 100 == 0:
        file._map[:8] = bytes(8)
        time.sleep(0.001)
    right(file, board, epoch, offset)

shared_offsets._OwnFile.write = write
"""


@contextmanager
def shared(folder: Path, count: int = 1) -> Iterator[list[SharedOffsets]]:
    """The positions of several processes, closed at the end."""
    made = [SharedOffsets(folder, "live") for _ in range(count)]
    try:
        yield made
    finally:
        for positions in made:
            positions.close()


def files(folder: Path) -> list[Path]:
    """The files that hold positions."""
    return list((folder / "positions-live").iterdir())


def open_files() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def own_file(positions: SharedOffsets) -> Path:
    """The file that a process writes."""
    assert positions._own is not None
    return positions._own.path


def test_offsets_only_grow_within_an_epoch(tmp_path: Path) -> None:
    """A new epoch begins at its own offset."""
    with shared(tmp_path, 2) as (one, two):
        one.note("posts", "e1", 5)
        two.note("posts", "e1", 9)
        one.refresh()
        assert one.offset_of("posts", "e1") == 9
        one.note("posts", "e1", 7)
        assert one.offset_of("posts", "e1") == 9
        one.note("posts", "e2", 1)
        assert (one.offset_of("posts", "e2"), one.offset_of("posts", "e1"), one.offset_of("b", "e1")) == (1, -1, -1)


def test_a_process_that_starts_later_reads_all_boards(tmp_path: Path) -> None:
    """There may be more boards than a new file has room for. A process deletes the files of ended processes."""
    expected = {f"b{number}": ("e", number) for number in range(500)}
    with shared(tmp_path, 2) as (one, two):
        for board, (epoch, offset) in expected.items():
            (one if offset % 2 else two).note(board, epoch, offset)
    before = set(files(tmp_path))
    for _ in range(3):
        with shared(tmp_path) as (later,):
            assert later.known == expected
            later.note("b7", "e", 7)
            assert set(files(tmp_path)) == before == before | {own_file(later)}


def share_immediately(folder: Path, end: signal.Signals, mistake: str = "") -> None:
    """Note offsets in a process that is then frozen or killed. Another process must know them."""
    command = [sys.executable, "-c", f"{IMPORTS}{mistake}{WRITER}", str(folder)]
    with (
        shared(folder) as (reader,),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer,
    ):
        assert writer.stdin is not None
        assert writer.stdout is not None
        for offset in (1, 2, 300):
            writer.stdin.write(f"{offset}\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == f"{offset}\n"
        os.kill(writer.pid, end)
        reader.refresh()
        assert reader.offset_of("posts", "e1") == 300
        writer.kill()
        writer.wait()
        reader.note("other", "e1", 1)
        assert files(folder) == [own_file(reader)]
        with shared(folder) as (later,):
            assert later.offset_of("posts", "e1") == 300


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
def test_an_offset_is_shared_immediately(tmp_path: Path, end: signal.Signals) -> None:
    """Another process reads the offset, even if the process that wrote it is frozen or killed."""
    share_immediately(tmp_path, end)


@pytest.mark.mutant
def test_offsets_that_a_process_keeps_in_memory_are_detected(tmp_path: Path) -> None:
    """The mutant is killed before it writes what it has acknowledged."""
    with must_be_caught("acknowledged offsets end with the process"):
        share_immediately(tmp_path, signal.SIGKILL, IN_MEMORY)


def take_over_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two processes take over the file of an ended process at the same moment. Only one of them may get it."""
    with shared(folder) as (ended,):
        ended.note("gone", "e1", 7)
        path = own_file(ended)
    with shared(folder, 2) as (one, two):
        open_file, opened = os.open, list[object]()

        def slow(name: object, flags: int, *mode: int) -> int:
            file = open_file(name, flags, *mode)  # type: ignore[arg-type] # any path
            opened.append(name)
            if opened == [path]:
                one.note("posts", "e1", 5)  # after the other process has opened the file, and before it locks it
            return file

        monkeypatch.setattr(os, "open", slow)
        two.note("other", "e1", 1)
        monkeypatch.undo()
        one.note("posts", "e1", 6)
        with shared(folder) as (later,):
            assert later.known == {"gone": ("e1", 7), "posts": ("e1", 6), "other": ("e1", 1)}
        assert own_file(one) == path


def test_only_one_process_takes_a_file_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process would replace the file of a process that lives, and lose what that process has noted."""
    take_over_twice(tmp_path, monkeypatch)


@pytest.mark.mutant
def test_a_file_that_is_taken_over_twice_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant does not check whether the file that it has locked was replaced."""
    with must_be_caught("two processes own a file"), replaced(os.path, "samestat", lambda *_: True):
        take_over_twice(tmp_path, monkeypatch)


def test_only_the_owner_can_read_a_file(tmp_path: Path) -> None:
    """The file names boards and epochs, and nobody else may write offsets into it."""
    with shared(tmp_path) as (one,):
        one.note("posts", "e1", 5)
        assert (own_file(one).stat().st_mode & 0o777, own_file(one).parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_reader_creates_no_file(tmp_path: Path) -> None:
    """A command that only inspects the store leaves the data directory as it is."""
    with shared(tmp_path / "d") as (reader,):
        reader.refresh()
        reader.forget()
    assert not (tmp_path / "d").exists()


def test_a_forgotten_board_does_not_return(tmp_path: Path) -> None:
    """Neither this process's file nor files of ended processes bring a forgotten offset back."""
    with shared(tmp_path, 3) as ended:
        for number, positions in enumerate(ended):
            positions.note(f"gone{number}", "e1", 7)
            positions.note("kept", "e1", number)
    with shared(tmp_path) as (one,):
        one.note("posts", "e1", 5)
        one.forget([f"gone{number}" for number in range(3)])
        one.refresh()
        with shared(tmp_path) as (two,):
            assert one.known == two.known == {"kept": ("e1", 2), "posts": ("e1", 5)}
        one.forget()
        one.refresh()
        assert one.known == {}
        one.note("posts", "e2", 1)
        with shared(tmp_path) as (two,):
            assert two.known == {"posts": ("e2", 1)}


@pytest.mark.parametrize("missing", range(1, 128))
def test_an_incomplete_row_is_skipped(tmp_path: Path, missing: int) -> None:
    """A frozen process may have written any part of the row."""
    with shared(tmp_path, 2) as (one, two):
        one.note("posts", "e1", 1000)
        one.note("posts", "e2", 3)
        rows = own_file(one).read_bytes()[:256]
        torn = tmp_path / "positions-live" / "torn"
        torn.write_bytes(rows[:-missing] + bytes(missing))
        own_file(one).unlink()
        two.refresh()
        is_whole = torn.read_bytes() == rows
        assert two.known["posts"] == (("e2", 3) if is_whole else ("e1", 1000))


def test_ended_epochs_take_no_space(tmp_path: Path) -> None:
    """A board that is deleted and created again and again has a new epoch each time. Old files are closed."""
    with shared(tmp_path, 2) as (one, two):
        one.note("posts", "e0", 0)
        before, rows = open_files(), set()
        for number in range(1, 2000):
            one.note("posts", f"e{number}", number)
            assert one._own is not None
            rows.add(len(one._own.rows))
        assert max(rows) == 34, "rows of ended epochs take more space than a few rows, and two for each board"
        two.refresh()
        one.forget(["other"])
        assert open_files() == before
        assert len(files(tmp_path)) == 1
        assert two.known == {"posts": ("e1999", 1999)}


@pytest.mark.alone
@pytest.mark.fault
def test_a_frozen_process_blocks_nobody(tmp_path: Path) -> None:
    """Wherever the process is frozen, other processes know what it has acknowledged."""
    command = [sys.executable, "-c", IMPORTS + BUSY_WRITER, str(tmp_path)]
    for _ in range(40):
        with (
            shared(tmp_path) as (other,),
            subprocess.Popen(command, stdout=subprocess.PIPE) as writer,
        ):
            assert writer.stdout is not None
            for _ in range(random.randrange(1, 200)):
                acknowledged = writer.stdout.readline()
            os.kill(writer.pid, signal.SIGSTOP)
            began = time.monotonic()
            other.refresh()
            other.note("own", "e1", 1)
            other.forget()
            other.refresh()
            duration = time.monotonic() - began
            writer.kill()
            assert duration < 5
            board, offset = acknowledged.split()
            assert other.known[board.decode()][1] >= int(offset)


def read_while_written(folder: Path, write: str = "") -> None:
    """Read an offset all the time while another process notes higher and higher offsets. It must never go back."""
    command = [sys.executable, "-c", f"{IMPORTS}{write}{LONG_WRITER}", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begun\n"
            (path,) = files(folder)
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                highest = 0
                while highest < LONG:
                    has_ended = writer.poll() is not None
                    for _ in range(1000):
                        offset = int.from_bytes(content[:8], sys.byteorder)
                        assert offset >= highest, "an offset went back"
                        highest = offset
                    assert highest == LONG or not has_ended, "the writer ended too early"
        finally:
            writer.kill()


@pytest.mark.fault
def test_an_offset_is_written_in_one_step(tmp_path: Path) -> None:
    """So a process that is killed while it writes an offset leaves the old offset or the new one."""
    read_while_written(tmp_path)


@pytest.mark.mutant
def test_an_offset_that_is_zero_for_a_moment_is_detected(tmp_path: Path) -> None:
    """`Struct.pack_into` writes zeros first. The mutant does this slowly."""
    with must_be_caught("the offset is zero for a moment"):
        read_while_written(tmp_path, ZERO_FIRST)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 1000, bytes(4096)])
def test_a_damaged_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    """A crash of the machine can damage the files. The server works without them."""
    (tmp_path / "positions-live").mkdir()
    (tmp_path / "positions-live" / "0123").write_bytes(content)
    with shared(tmp_path) as (positions,):
        assert positions.known == {}
        positions.refresh()
        positions.note("posts", "e1", 1)
        assert positions.offset_of("posts", "e1") == 1


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space is allocated before it is mapped: a write to a hole in the file would kill the process.

    The next attempt may succeed.
    """

    def full(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    with shared(tmp_path) as (positions,):
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            with pytest.raises(OSError, match="No space left"):
                positions.note("posts", "e1", 1)
        assert positions.offset_of("posts", "e1") == 1
        assert files(tmp_path) == []
        positions.note("posts", "e1", 2)
        for number in range(33):
            positions.note(f"b{number}", "e1", 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            with pytest.raises(OSError, match="No space left"):  # the file has no room for another row
                positions.note("last", "e1", 1)
        positions.note("last", "e1", 1)
        with shared(tmp_path) as (other,):
            assert (other.offset_of("posts", "e1"), other.offset_of("last", "e1")) == (2, 1)
