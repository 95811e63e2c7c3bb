"""Starts the processes under test, and reads how much CPU time each has used."""

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import redis

from bench.plans import Plan
from live.settings import load_settings
from live.store.connection.embedded import EmbeddedStore
from tests.harness.settings import as_environment

ROOT: Final = Path(__file__).parent.parent
_START_DEADLINE: Final = 60.0
_STOP_DEADLINE: Final = 10.0
# These limits are raised: all readers connect from one address, and one benchmark likes very many boards at once.
_LIMITS: Final = {"LIVE_MAX_BOARDS": "20000", "LIVE_MAX_BODY": "1000000", "LIVE_READ_RATE": "10000000"}
_ADDRESS: Final = re.compile(r"http://([0-9.]+:[0-9]+)/")


class BenchError(Exception):
    """The run did not do the work that it should have measured, so there is no figure."""


class Server(msgspec.Struct, frozen=True):
    """A running server: `address` is host:port, or the path of a unix socket."""

    pid: int
    address: str


def cpu_seconds(pid: int) -> float:
    """Return the user and system CPU time of a process, including threads that have ended.

    It comes from the kernel's clock of the process (`clock_getcpuclockid`): the figure of `/proc/<pid>/stat`, but in
    nanoseconds instead of ticks of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


def descendants_of(server: Server) -> list[Server]:
    """Return the processes that a server has started, directly or through its fork server."""
    lists = Path(f"/proc/{server.pid}/task").glob("*/children")
    found = [Server(int(pid), "") for tasks in lists for pid in tasks.read_text(encoding="ascii").split()]
    return found + [one for child in found for one in descendants_of(child)]


@contextmanager
def running_store() -> Iterator[Server]:
    """Run an empty embedded store of `live serve`, with its settings (append-only, `appendfsync always`).

    Rewrites of the append-only file are off: they come at random, and would be charged to whatever is measured then.
    """
    with TemporaryDirectory(prefix="live-bench-", ignore_cleanup_errors=True) as folder:
        store = EmbeddedStore(Path(folder))
        try:
            store.start()
            path = store.url.removeprefix("unix://")
            with redis.Redis(unix_socket_path=path) as client:
                client.config_set("auto-aof-rewrite-percentage", 0)
            if store.pid is None:
                raise BenchError("the store has no process")
            yield Server(store.pid, path)
        finally:
            store.stop()


def data_of(store: Server) -> Path:
    """Return the data directory of the servers on a store."""
    return Path(store.address).parent / "server"


@contextmanager
def live_server(store: Server, boards: Path | None = None, journal: str = "sqlite") -> Iterator[Server]:
    """Run `live serve` with one process and default settings on a store. `boards` is the boards file.

    `journal` is the setting `LIVE_JOURNAL`. The server's data directory lies next to the store's files, so it does not
    outlive the store.
    """
    data_dir = data_of(store)
    settings = load_settings(
        {}, store=f"unix://{store.address}", port=0, boards=boards, data_dir=data_dir, journal=journal
    )
    environment = as_environment(settings) | _LIMITS
    with module_server("live", "serve", environment=environment) as server:
        yield server


def add_api_key(store: Server, name: str = "bench") -> str:
    """Create an API key as `live keys add` does, for events and boards, with a rate that no run reaches."""
    rights = ("--verbs", "post,admin", "--types", "*")
    options = (*rights, "--rate", "10000000", "--burst", "10000000", "--json", "--store", f"unix://{store.address}")
    process = start_module("live", "keys", "add", name, *options, stdout=subprocess.PIPE)
    output, _ = process.communicate(timeout=_START_DEADLINE)
    if process.returncode:
        raise BenchError("creating an API key failed; see the output above")
    return str(msgspec.json.decode(output)["key"])


@contextmanager
def idle_server() -> Iterator[Server]:
    """Run the endpoint that does nothing."""
    with module_server("bench.floors") as server:
        yield server


@contextmanager
def module_server(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a module until the context ends; it prints its address when it listens."""
    with program_server(sys.executable, "-m", module, *arguments, environment=environment) as server:
        yield server


@contextmanager
def program_server(*command: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a program until the context ends; it prints its address when it listens."""
    with TemporaryDirectory(prefix="live-bench-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = _start(command, environment, stdout=output, stderr=output)
        try:
            yield Server(process.pid, _await_address(process, log))
        finally:
            stop(process)


def start_module(
    module: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    **pipes: object,
) -> subprocess.Popen[bytes]:
    """Start a Python module as a process. Of the settings (`LIVE_…`), its environment has only the given ones."""
    return _start((sys.executable, "-m", module, *arguments), environment, **pipes)


def measure_command(*arguments: str) -> tuple[bytes, resource.struct_rusage]:
    """Run a command of `live` to its end. Return its output, and what it used."""
    process = start_module("live", *arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    with process.stdout as output:
        told = output.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError(f"`live {arguments[0]}` failed; see its output above: {told[:300]!r}")
    return told, used


def _start(
    command: Sequence[str], environment: Mapping[str, str] | None = None, **pipes: object
) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LIVE_")}
    return subprocess.Popen(command, cwd=ROOT, env={**inherited, **(environment or {})}, **pipes)  # type: ignore[call-overload, no-any-return]


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it after a timeout."""
    process.terminate()
    try:
        process.wait(_STOP_DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_DEADLINE
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        if found := _ADDRESS.search(text):
            return found[1]
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"a server did not start:\n{text}")
        time.sleep(0.02)


def drive(
    plan: Plan,
    counted: Mapping[str, Server],
    steady: Mapping[str, float] | None = None,
    settle: Callable[[], object] | None = None,
) -> dict[str, float]:
    """Carry out a plan in a driver process. Return the CPU seconds that each counted server used.

    The time is measured from the moment when the driver is connected and warm, until the last answer is complete and
    `settle` has returned. `settle` waits for work that goes on after an answer. `steady` is the CPU time that servers
    use per second without the plan. It is subtracted.
    """
    process = start_module("bench.driver", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stdout is not None  # noqa: S101
    try:
        _command(process, msgspec.json.encode(plan), b"ready\n")
        if settle is not None:
            settle()  # this also settles the work of the warm-up
        before = {name: cpu_seconds(server.pid) for name, server in counted.items()}
        started = time.perf_counter()
        _command(process, b"go", b"done\n")
        if settle is not None:
            settle()
        used = {name: cpu_seconds(server.pid) - before[name] for name, server in counted.items()}
        elapsed = time.perf_counter() - started
        return {name: seconds - (steady or {}).get(name, 0) * elapsed for name, seconds in used.items()}
    finally:
        process.stdin.close()
        stop(process)
        process.stdout.close()


def microseconds(
    plan: Plan,
    counted: Mapping[str, Server],
    steady: Mapping[str, float] | None = None,
    settle: Callable[[], object] | None = None,
) -> dict[str, float]:
    """Carry out a plan as `drive` does. Return the microseconds of CPU per event, by counted server."""
    events = plan.load.requests * plan.content.events
    return {name: seconds / events * 1e6 for name, seconds in drive(plan, counted, steady, settle).items()}


def used_memory(store: Server) -> int:
    """Return the bytes that a store has allocated."""
    with redis.Redis(unix_socket_path=store.address) as client:
        return int(client.info("memory")["used_memory"])


def _command(process: subprocess.Popen[bytes], line: bytes, answer: bytes) -> None:
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    if process.stdout.readline() != answer:
        raise BenchError("the driver failed; see its output above")
