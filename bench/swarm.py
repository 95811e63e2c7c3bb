"""The swarm of viewers and the floor of fan-out: C programs of ours, built when they are needed."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import msgspec

from bench.processes import BenchError, Server, stop
from bench.table import Row

AT_ONCE: Final = 256  # handshakes under way where nothing depends on their pace
ENOUGH: Final = 0.95  # of the frames that are due; a server that delivers less has fallen behind
_FOLDER: Final = Path(__file__).parent
_SOURCES: Final = {"floor": ("floor.c",), "swarm": ("swarm.c", "viewer.c")}
_SPARE_FILES: Final = 500
_T = TypeVar("_T")


class Opened(msgspec.Struct, frozen=True):
    """Viewers that have connected: how many there are, and seconds until the last was open and had what was awaited."""

    viewers: int
    lost: int
    open_seconds: float
    seconds: float
    refused: int


class Delivery(msgspec.Struct, frozen=True):
    """What came in a measure: data frames in all and at the viewer that had least; bytes of their payload, and of all.

    `cpu` are CPU seconds of the processes that were counted, in their order; `swarm_cpu` are the swarm's own.
    """

    viewers: int
    lost: int
    seconds: float
    frames: int
    least: int
    payload_bytes: int
    bytes: int
    pings: int
    closes: int
    swarm_cpu: float
    cpu: tuple[float, ...]

    @property
    def payload(self) -> float:
        """Mean bytes of a frame's payload."""
        return self.payload_bytes / max(1, self.frames)

    @property
    def rate(self) -> float:
        """Frames a second."""
        return self.frames / self.seconds

    def microseconds(self) -> tuple[float, ...]:
        """CPU of each counted process for each frame."""
        if not self.frames:
            raise BenchError("no frame came")
        return tuple(cpu / self.frames * 1e6 for cpu in self.cpu)


class Programs(msgspec.Struct, frozen=True):
    """Where the built programs are."""

    floor: str
    swarm: str


class Swarm:
    """A swarm that runs; it watches one server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def connect(self, viewers: int, *, at_once: int = AT_ONCE, first: bool = False) -> Opened:
        """Connect further viewers, and those that were cut; with `first`, wait until each has had a frame."""
        return self._ask(f"connect {viewers} {at_once} {first:d}", Opened)

    def measure(self, seconds: float, counted: Sequence[Server] = ()) -> Delivery:
        """Count what comes, and what CPU time it costs the processes."""
        return self._ask(" ".join(map(str, ("measure", seconds, *(server.pid for server in counted)))), Delivery)

    def cut(self) -> None:
        """Reset every connection."""
        self._ask("cut", dict)

    def note(self, file: Path | None) -> None:
        """Write to a file which offset came when to whom, or (None) no longer."""
        self._ask(f"note {file or ''}".strip(), dict)

    def _ask(self, command: str, kind: type[_T]) -> _T:
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BenchError("the swarm has ended; what it said is above") from None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError("the swarm failed; what it said is above")
        return msgspec.json.decode(line, type=kind)


def raise_file_limit() -> None:
    """Let us and what we start have as many open files as the system lets us; a viewer is one at either end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def need_files(viewers: int) -> None:
    """See that there may be so many sockets in a process.

    Raises:
        BenchError: there may not.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < viewers + _SPARE_FILES:
        raise BenchError(f"{viewers:,} viewers need as many open files; the system lets a process have {soft:,}")


@contextmanager
def built() -> Iterator[Programs | None]:
    """The programs, while in the context; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        yield None
        return
    with TemporaryDirectory(prefix="live-bench-") as folder:
        paths = [str(Path(folder) / name) for name in _SOURCES]
        for path, sources in zip(paths, _SOURCES.values(), strict=True):
            build = [compiler, "-O2", "-o", path, *(str(_FOLDER / name) for name in sources)]
            if subprocess.run(build, check=False).returncode:
                raise BenchError("a program could not be built; what was said is above")
        yield Programs(*paths)


def not_built(part: str) -> list[Row]:
    """What a part says when there is no C compiler."""
    return [Row(work=part, measured="not measured: there is no C compiler (cc)")]


@contextmanager
def swarming(programs: Programs, server: Server, path: str, paths: int = 1) -> Iterator[Swarm]:
    """A swarm for a server, on the second core; viewer i has i modulo `paths` in place of `%d` in its path."""
    port = server.address.rpartition(":")[2]
    command = [programs.swarm, port, path, str(paths)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        pin(process.pid, 1)
        yield Swarm(process)
    finally:
        stop(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def pin(pid: int, place: int) -> None:
    """Keep a process, with the threads that it has and will have, on the core that is at this place among ours."""
    cores = sorted(os.sched_getaffinity(os.getpid()))
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cores[place % len(cores)]})
