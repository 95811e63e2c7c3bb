"""The swarm of viewers and the baseline of `fan-out`: C programs, built on demand."""

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

AT_ONCE: Final = 256  # parallel handshakes in benchmarks that do not measure handshakes
ENOUGH: Final = 0.95  # if a smaller share of the due frames arrived, the server fell behind
_FOLDER: Final = Path(__file__).parent
_SOURCES: Final = {"floor": ("floor.c",), "swarm": ("swarm.c", "viewer.c")}
_SPARE_FILES: Final = 500
_SERVER_FILES: Final = 4_500  # descriptors that a server keeps for other connections and for itself
_T = TypeVar("_T")


class Opened(msgspec.Struct, frozen=True):
    """Connected viewers: their number, and the seconds until the last one was open, with its first frame if awaited."""

    viewers: int
    lost: int
    open_seconds: float
    seconds: float
    refused: int


class Delivery(msgspec.Struct, frozen=True):
    """The frames and bytes that arrived during a measurement.

    Data frames are counted in total, and for the viewer with the fewest.
    `payload_bytes` are bytes of payload, `bytes` all bytes. `cpu` are CPU seconds of the counted processes, in order;
    `swarm_cpu` are those of the swarm.
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
        """Mean payload bytes per frame."""
        return self.payload_bytes / max(1, self.frames)

    @property
    def rate(self) -> float:
        """Frames per second."""
        return self.frames / self.seconds

    def microseconds(self) -> tuple[float, ...]:
        """Return the CPU microseconds per frame, for each counted process."""
        if not self.frames:
            raise BenchError("no frame arrived")
        return tuple(cpu / self.frames * 1e6 for cpu in self.cpu)


class Programs(msgspec.Struct, frozen=True):
    """The paths of the built programs."""

    floor: str
    swarm: str


class Swarm:
    """A running swarm; it watches one server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def connect(self, viewers: int, *, at_once: int = AT_ONCE, first: bool = False) -> Opened:
        """Connect more viewers, and those that `cut` disconnected.

        With `first`, wait until each has received a frame.
        """
        return self._ask(f"connect {viewers} {at_once} {first:d}", Opened)

    def measure(self, seconds: float, counted: Sequence[Server] = ()) -> Delivery:
        """Count what arrives, and the CPU time of the processes."""
        return self._ask(" ".join(map(str, ("measure", seconds, *(server.pid for server in counted)))), Delivery)

    def cut(self) -> None:
        """Reset every connection."""
        self._ask("cut", dict)

    def note(self, file: Path | None) -> None:
        """Record in a file when each viewer received which offset, or stop recording (None)."""
        self._ask(f"note {file or ''}".strip(), dict)

    def _ask(self, command: str, kind: type[_T]) -> _T:
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BenchError("the swarm has ended; see its output above") from None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError("the swarm failed; see its output above")
        return msgspec.json.decode(line, type=kind)


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit; each viewer is one file at either end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def room_for(viewers: int) -> int:
    """Return a number of viewers, reduced to what the limit of open files allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(viewers, soft - _SERVER_FILES)


def need_files(viewers: int) -> None:
    """Check that a process may open so many sockets."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < viewers + _SPARE_FILES:
        raise BenchError(f"{viewers:,} viewers need as many open files; the limit is {soft:,}")


@contextmanager
def built() -> Iterator[Programs | None]:
    """Build the programs for the duration of the context. Yield None if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        yield None
        return
    with TemporaryDirectory(prefix="live-bench-") as folder:
        paths = [str(Path(folder) / name) for name in _SOURCES]
        for path, sources in zip(paths, _SOURCES.values(), strict=True):
            build = [compiler, "-O2", "-o", path, *(str(_FOLDER / name) for name in sources)]
            if subprocess.run(build, check=False).returncode:
                raise BenchError("building a program failed; see the output above")
        yield Programs(*paths)


def not_built(part: str) -> list[Row]:
    """Return the rows of a benchmark without a C compiler."""
    return [Row(work=part, measured="not measured: no C compiler (cc) is installed")]


@contextmanager
def swarming(
    programs: Programs, server: Server, path: str, paths: int = 1, *, deflates: bool = False
) -> Iterator[Swarm]:
    """Run a swarm against a server, on the second core; `%d` in `path` becomes i modulo `paths` for viewer i.

    Viewers that deflate offer permessage-deflate, as browsers do.
    """
    port = server.address.rpartition(":")[2]
    command = [programs.swarm, port, path, str(paths), *(["deflate"] if deflates else [])]
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
    """Pin all threads of a process to one of our cores, by its index."""
    cores = sorted(os.sched_getaffinity(os.getpid()))
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cores[place % len(cores)]})
