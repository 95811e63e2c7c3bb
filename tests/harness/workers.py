"""Real workers of a server. Their parent is the test process, so a mutant can replace a part of the parent."""

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from unittest.mock import patch

import httpx

from live.process import supervisor
from live.process.serve import Reloads, bound_sockets, check_store
from live.process.supervisor import Supervisor
from live.process.worker import run_worker
from live.settings import Settings
from live.system.processes import share
from live.system.service_manager import ServiceManager
from live.system.shared_metrics import SharedMetrics
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

Listeners = Callable[[list[socket.socket]], Sequence[socket.socket]]


class RunningWorkers:
    """The workers, the URL at which they serve, and the folder of their metrics."""

    def __init__(self, url: str, folder: Path, parent: Supervisor, forking: int) -> None:
        self.url = url
        self.parent = parent
        self.folder = folder
        self._forking = forking

    @property
    def port(self) -> int:
        """The port of all listening sockets."""
        return int(self.url.rpartition(":")[2])

    def pids(self) -> list[int]:
        """The processes, oldest first."""
        return _children(self._forking)

    def holders(self) -> dict[int, int]:
        """The worker that holds each connection, by the port of the client."""
        inodes = {}
        for pid in self.pids():
            with suppress(OSError):  # the process has just ended, or has just closed a descriptor
                for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        target = str(descriptor.readlink())
                        if target.startswith("socket:["):
                            inodes[target[8:-1]] = pid
        lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
        port = f":{self.port:04X}"
        return {
            int(fields[2].rpartition(":")[2], 16): inodes[fields[9]]
            for fields in lines
            if fields[1].endswith(port) and fields[3] == "01" and fields[9] in inodes
        }

    def held(self) -> Counter[int]:
        """How many connections each worker has accepted and holds."""
        return Counter(self.holders().values())

    async def answer(self, count: int = 40) -> bool:
        """Tell whether the server answers `count` new connections within ten seconds."""

        async def ask() -> bool:
            try:
                async with httpx.AsyncClient(base_url=self.url, timeout=10) as client:
                    return (await client.get("/healthz")).status_code == 200
            except httpx.HTTPError:
                return False

        return all(await asyncio.gather(*(ask() for _ in range(count))))


@asynccontextmanager
async def running_workers(
    store: str,
    workers: int,
    listen: Listeners = lambda listeners: listeners,
    target: object = run_worker,
    **changes: object,
) -> AsyncIterator[RunningWorkers]:
    """Run workers on a free port while in the context.

    `listen` makes the sockets for the parent from those that `live serve` binds. Each worker runs `target`.
    """
    settings: Settings = share(fresh_settings(store, workers=workers, **changes))
    with (
        bound_sockets(settings) as listeners,
        SharedMetrics.new() as metrics,
        fork_server({"PROMETHEUS_MULTIPROC_DIR": str(metrics.folder)}) as forking,
        patch.object(supervisor, "run_worker", target),
    ):
        reloads = Reloads()
        if store:
            await check_store(settings, reloads)
        parent = Supervisor(listen(listeners), metrics, settings, ServiceManager())
        running, reloading = asyncio.create_task(parent.run()), asyncio.create_task(reloads.run(settings))
        try:
            yield RunningWorkers(f"http://127.0.0.1:{listeners[0].getsockname()[1]}", metrics.folder, parent, forking)
        finally:
            reloading.cancel()
            parent.stop()
            await running


async def until_ready(workers: RunningWorkers) -> None:
    """Wait until every worker accepts connections."""

    async def are_ready() -> bool:
        return all(worker is not None and worker.is_ready for worker in workers.parent._current)

    await eventually(are_ready)


@contextmanager
def fork_server(environment: dict[str, str]) -> Iterator[int]:
    """Fork the processes of the context from a fork server with these additional variables. Yield its process id."""
    own = forkserver.ForkServer()
    own.set_forkserver_preload(["live.process.preloaded"])
    with patch.dict(os.environ, environment):
        own.ensure_running()
    try:
        with patch.object(forkserver, "connect_to_new_process", own.connect_to_new_process):
            yield own._forkserver_pid  # type: ignore[attr-defined]
    finally:
        own._stop()  # type: ignore[attr-defined]


def children(server: int) -> list[int]:
    """The workers of a server process, oldest first."""
    return [worker for child in _children(server) if "forkserver" in _command(child) for worker in _children(child)]


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()]


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8")
    except OSError:  # the process has just ended
        return ""


def never_ready(_number: int, _channel: socket.socket, _metrics: str, _settings: Settings) -> None:
    """End at once, as a worker does that can't start."""
    raise SystemExit(3)


def slow_to_start(number: int, channel: socket.socket, metrics: str, settings: Settings) -> None:
    """Start as slowly as on a busy machine."""
    time.sleep(2)
    run_worker(number, channel, metrics, settings)
