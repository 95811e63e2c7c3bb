"""Real workers: the spread of connections, workers that end, and what a parent leaves behind."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from live.process import supervisor
from live.process.supervisor import Supervisor, pause_after
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.harness.workers import RunningWorkers, children, never_ready, running_workers, until_ready


async def spread_once(workers: RunningWorkers, count: int) -> None:
    """Open many connections at once."""
    found = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", workers.port) for _ in range(count)))

    async def all_held() -> bool:
        return workers.held().total() >= count

    async def none_held() -> bool:
        return not workers.held()

    try:
        await eventually(all_held)
        held = workers.held()
    finally:
        for _, writer in found:
            writer.close()
    await eventually(none_held)
    assert max(held.values()) <= 1.3 * held.total() / 4, held


@pytest.mark.slow
async def test_connections_spread_evenly(valkey_url: str, effort: int) -> None:
    """Every worker has a listening socket of its own, so the kernel spreads connections that come at once."""
    async with running_workers(valkey_url, 4, max_connections=80_000) as workers:
        await until_ready(workers)
        for _ in range(3):
            await spread_once(workers, min(4000, 1000 * effort))


@pytest.mark.slow
async def test_no_client_waits_for_a_worker_that_has_ended(valkey_url: str) -> None:
    """Another worker accepts the connections of the ended worker's socket."""
    async with running_workers(valkey_url, 2) as workers:
        await until_ready(workers)
        with patch.object(supervisor, "pause_after", lambda *_args, **_named: 1000.0):
            first, _ = workers.pids()
            os.kill(first, signal.SIGKILL)

            async def has_ended() -> bool:
                return len(workers.pids()) == 1

            await eventually(has_ended)
            assert await workers.answer(), "some connections wait on a socket from which nobody accepts"


@pytest.mark.slow
async def test_a_killed_worker_is_replaced(valkey_url: str, tmp_path: Path) -> None:
    """The log says how the worker ended, and that another worker has started."""
    # The server has its own interpreter, so that the test can read its exit status.
    server = ServerProcess(fresh_settings(valkey_url, workers=2), tmp_path, sys.executable)
    server.start()
    try:
        assert server.process is not None
        pid = server.process.pid

        async def are_two() -> bool:
            return server.log().count('"worker serves"') >= 2

        await eventually(are_two)
        first, second = children(pid)
        os.kill(first, signal.SIGKILL)

        async def is_replaced() -> bool:
            return server.log().count('"worker serves"') == 3

        await eventually(is_replaced)
        assert second in children(pid)
        assert f'"worker {first} ended by itself"' in server.log()
        assert '"status": "signal SIGKILL"' in server.log()
        assert server.log().count('"worker started"') == 3
        assert server.stop() == 0
        assert server.log().count('"worker started"') == 3
        assert server.log().count('"event": "worker ended"') == 2
        assert "Traceback" not in server.log()
    finally:
        server.kill()


@pytest.mark.slow
async def test_a_killed_fork_server_is_replaced(valkey_url: str, tmp_path: Path) -> None:
    """The log reports the killed fork server. The workers go on, and a worker that ends is replaced."""
    server = ServerProcess(fresh_settings(valkey_url, workers=2), tmp_path, sys.executable)
    server.start()
    try:
        assert server.process is not None

        async def until(text: str, count: int) -> None:
            async def is_logged() -> bool:
                return server.log().count(text) == count

            await eventually(is_logged)

        await until('"worker serves"', 2)
        first, _ = children(server.process.pid)
        os.kill(parent_of(first), signal.SIGKILL)
        await until("the fork server has ended by itself, and another one starts", 1)
        assert 'ended by itself"' not in server.log(), "a worker ended with the fork server"
        os.kill(first, signal.SIGKILL)
        await until('"worker serves"', 3)
        assert len(children(server.process.pid)) == 1, "the new fork server has not exactly one worker"
        assert server.stop() == 0
        assert "Traceback" not in server.log()
    finally:
        server.kill()


@pytest.mark.slow
async def test_a_worker_that_is_never_ready_starts_rarely() -> None:
    """The supervisor waits between starts, because frequent starts would use all of the processor."""
    starts: list[float] = []
    ends: list[float] = []

    def noting(times: list[float], right: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            times.append(time.monotonic())
            return right(*arguments)

        return noted

    with (
        patch.object(Supervisor, "_start", noting(starts, Supervisor._start)),
        patch.object(Supervisor, "_has_ended", noting(ends, Supervisor._has_ended)),
    ):
        async with running_workers("", 1, target=never_ready):

            async def have_started() -> bool:
                return len(starts) >= 3

            await eventually(have_started)
    pauses = [start - end for end, start in zip(ends, starts[1:], strict=False)]
    # The pauses are 0.5 s and 1 s, from the time of a loop that may be late.
    assert pauses[0] > 0.25, pauses
    assert pauses[1] > 0.5, pauses


def test_pauses_grow_to_a_limit() -> None:
    """A worker that has served is replaced at once if it is the first to end."""
    assert pause_after(0, has_served=True) == 0
    assert pause_after(1, has_served=True) == 0
    assert [pause_after(count, has_served=False) for count in (1, 2, 3, 4, 100)] == [0.5, 1, 2, 4, 30]
    assert pause_after(2, has_served=True) == pause_after(1, has_served=False)


def parent_of(process: int) -> int:
    """The process that has started this process."""
    return int(Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()[1])


def alive(processes: Sequence[int]) -> bool:
    """Whether any of some processes exists."""
    return any(Path(f"/proc/{process}").exists() for process in processes)


@pytest.mark.slow
async def test_a_killed_parent_leaves_nothing(
    valkey_url: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The workers end, and the last worker removes the folder of the metrics."""
    temporary = tmp_path_factory.mktemp("t")  # a short path: with a long path, the server uses /tmp
    server = ServerProcess(fresh_settings(valkey_url, workers=2), tmp_path)
    server.environment["TMPDIR"] = str(temporary)
    server.start()
    assert server.process is not None
    workers = children(server.process.pid)

    async def serves() -> bool:
        async with httpx.AsyncClient(base_url=server.url, timeout=180) as client:
            return (await client.get("/healthz")).status_code == 200

    await eventually(serves)
    assert list(temporary.glob("live-metrics-*"))
    server.kill()

    async def nothing() -> bool:
        return not list(temporary.iterdir()) and not alive(workers)

    await eventually(nothing)
