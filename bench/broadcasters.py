"""Other servers that send one frame per tick to many viewers: the baseline and the peers of `fan-out`."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.nchan import PUBLISH, SUBSCRIBE, find_nchan, nchan_server
from bench.posting import Posting, posting_to
from bench.processes import Server, module_server, program_server
from bench.swarm import Programs

TICK: Final = 0.1  # seconds; the default minimum between two frames of a board
_NODE_PACKAGE: Final = "ws"
_INSTALL_DEADLINE: Final = 60.0


class Broadcaster(msgspec.Struct, frozen=True):
    """A server that sends frames to viewers, and the path that viewers connect to."""

    server: Server
    path: str = "/"


Start = Callable[[int], AbstractContextManager[Broadcaster]]


class Peer(msgspec.Struct, frozen=True):
    """A peer: `start` takes the payload size in bytes, and is None if `needs` is not installed."""

    title: str
    start: Start | None
    needs: str = ""


def find_peers(programs: Programs) -> dict[str, Peer]:
    """Return the baseline first, then the peers."""
    return {
        "floor": Peer("baseline, only write(2)", _program(programs.floor)),
        "nchan": Peer("Nchan, one worker", _nchan(), "nginx with its module nchan"),
        "ws": Peer("ws on Node", _node(), "node, npm or the package ws"),
        "websockets": Peer("websockets.broadcast on uvloop", _module("bench.broadcast")),
        "queues": Peer("Starlette, a queue per client", _module("bench.queues")),
    }


@contextmanager
def started_nchan(program: str, module: str) -> Iterator[Broadcaster]:
    """Run Nchan without a publisher."""
    with nchan_server(program, module) as server:
        yield Broadcaster(server, SUBSCRIBE)


def _nchan() -> Start | None:
    found = find_nchan()
    if found is None:
        return None

    @contextmanager
    def start(size: int) -> Iterator[Broadcaster]:
        with started_nchan(*found) as nchan:
            posting = Posting(path=PUBLISH, bodies=[b"x" * size], rate=1 / TICK)
            with posting_to(nchan.server, posting):
                yield nchan

    return start


def _program(*command: str) -> Start:
    @contextmanager
    def start(size: int) -> Iterator[Broadcaster]:
        with program_server(*command, str(size), str(TICK)) as server:
            yield Broadcaster(server)

    return start


def _module(module: str) -> Start:
    @contextmanager
    def start(size: int) -> Iterator[Broadcaster]:
        with module_server(module, str(size), str(TICK)) as server:
            yield Broadcaster(server)

    return start


def _node() -> Start | None:
    """Find Node. Install its package `ws` into the user's cache, because systems do not ship it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "live-board-bench"
    module = folder / "node_modules" / _NODE_PACKAGE / "wrapper.mjs"
    if not module.exists() and not _install(npm, folder):
        return None
    return _program(node, str(Path(__file__).parent / "ws.mjs"), str(module))


def _install(npm: str, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    options = ("--prefix", folder, "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
    try:
        return not subprocess.run(
            [npm, "install", *options, _NODE_PACKAGE], timeout=_INSTALL_DEADLINE, check=False, capture_output=True
        ).returncode
    except subprocess.TimeoutExpired:
        return False
