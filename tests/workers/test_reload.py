"""SIGHUP under load: no request is cut, each viewer is disconnected once, and the metrics stay right."""

import asyncio
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from unittest.mock import patch

import httpx
import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from live.errors import BOARD_DELETED, SHUTTING_DOWN
from live.settings import Duration
from live.workers import supervisor
from tests.harness.waiting import DEADLINE, eventually
from tests.harness.wire import connected, request, statuses
from tests.harness.workers import RunningWorkers, never_ready, running_workers, slow_to_start, until_ready


class Load:
    """Producers that post as fast as they can, and viewers that return when the server says so."""

    def __init__(self, workers: RunningWorkers, viewers: int) -> None:
        self.accepted = 0
        self.closed = [0] * viewers  # the number of disconnections of each viewer
        self.connected = [False] * viewers
        self._workers = workers

    async def produce(self) -> None:
        """Post. An error of the connection fails the test."""
        async with httpx.AsyncClient(base_url=self._workers.url, timeout=180) as client:
            while True:
                try:
                    response = await client.post("/v1/events", json=[{"key": "a"}] * 5)
                except httpx.HTTPError as error:
                    raise AssertionError(f"a POST was cut: {error!r}") from error
                assert response.status_code == 200, response.text
                self.accepted += response.json()["accepted"]

    async def watch(self, number: int) -> None:
        """Watch, and return after each disconnection."""
        address = f"{self._workers.url.replace('http', 'ws')}/v1/boards/posts/live"
        while True:
            pause = 0.0
            try:
                viewer = await connect(address, open_timeout=180)
            except (OSError, InvalidHandshake, ConnectionClosed) as error:
                raise AssertionError(f"a viewer can't connect: {error!r}") from error
            async with viewer:
                self.connected[number] = True
                with suppress(ConnectionClosed):
                    async for message in viewer:
                        pause = msgspec.json.decode(message).get("retry_after", 0.0)
                assert viewer.close_code == SHUTTING_DOWN, viewer.close_code
            self.connected[number] = False
            self.closed[number] += 1
            await asyncio.sleep(pause)


async def reload(workers: RunningWorkers) -> None:
    """Replace all workers, and wait until the old workers have ended."""
    before = set(workers.pids())
    signal.raise_signal(signal.SIGHUP)

    async def are_new() -> bool:
        after = set(workers.pids())
        return len(after) == len(before) and not before & after

    await eventually(are_new)


async def sums(workers: RunningWorkers) -> dict[str, float]:
    """The counters and histograms, as they are now."""
    async with httpx.AsyncClient(base_url=workers.url, timeout=180) as client:
        text = (await client.get("/metrics")).text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    kinds = ("_total", "_count", "_bucket", "_sum")
    return {name: float(value) for name, _, value in lines if name.partition("{")[0].endswith(kinds)}


@pytest.mark.slow
async def test_a_reload_cuts_nothing(valkey_url: str, effort: int) -> None:
    """Every POST is answered, each viewer is disconnected once per reload, and no gauge of a dead worker is left."""
    producers, viewers = min(16, 3 * effort), min(1000, 30 * effort)
    async with running_workers(valkey_url, 2 if effort == 1 else 4, open=True) as workers:
        await until_ready(workers)
        load = Load(workers, viewers)
        tasks = [asyncio.create_task(load.watch(number)) for number in range(viewers)]
        tasks += [asyncio.create_task(load.produce()) for _ in range(producers)]

        async def all_watch() -> bool:
            for task in tasks:
                if task.done():
                    task.result()
            return all(load.connected)

        async def only_current_have_gauges() -> bool:
            gauges = {int(path.stem.rpartition("_")[2]) for path in workers.folder.glob("gauge_*.db")}
            return gauges - {workers._forking} == set(workers.pids())  # the fork server has files too

        try:
            await eventually(all_watch)
            before = await sums(workers)
            for number in range(2 if effort == 1 else 5):
                await reload(workers)
                await eventually(all_watch)
                assert load.closed == [number + 1] * viewers
                await eventually(only_current_have_gauges)
                after = await sums(workers)
                back = {name: (value, after.get(name)) for name, value in before.items() if after.get(name, 0) < value}
                assert not back, "some sums have gone back"
                before = after
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [error for error in ended if not isinstance(error, asyncio.CancelledError)]
        assert not faults, faults

        async def all_counted() -> bool:  # an answer of /metrics may be a second old
            return (await sums(workers))['live_events_accepted_total{board="posts"}'] >= load.accepted

        await eventually(all_counted)


@pytest.mark.slow
async def test_a_reload_that_fails_changes_nothing(valkey_url: str) -> None:
    """New workers that can't start, for example because of the boards file, leave the old workers alone."""
    async with running_workers(valkey_url, 2) as workers:
        await until_ready(workers)
        before = workers.pids()
        right = supervisor.Supervisor._is_ready_in_time
        answers: list[bool] = []

        async def noted(parent: supervisor.Supervisor, worker: supervisor.Worker) -> bool:
            answers.append(await right(parent, worker))
            return answers[-1]

        async def has_failed() -> bool:
            return answers == [False] and workers.pids() == before

        with (
            patch.object(supervisor, "run_worker", never_ready),
            patch.object(supervisor.Supervisor, "_is_ready_in_time", noted),
        ):
            signal.raise_signal(signal.SIGHUP)
            await eventually(has_failed)
        assert await workers.answer()
        await reload(workers)


@pytest.mark.slow
async def test_a_reload_reads_the_limits_again(valkey_url: str, tmp_path: Path) -> None:
    """New workers have the limits that the boards file has now."""
    file = tmp_path / "boards.toml"
    file.write_text('[limits."acme-*"]\nboards = 0\n', encoding="utf-8")
    async with running_workers(valkey_url, 1, boards=file, anonymous_admin=True) as workers:
        await until_ready(workers)

        async def make() -> int:
            async with httpx.AsyncClient(base_url=workers.url, timeout=180) as client:
                return (await client.put("/v1/boards/acme-june", json={})).status_code

        assert await make() == 409
        file.write_text('[limits."acme-*"]\nboards = 1\n', encoding="utf-8")
        assert await make() == 409
        await reload(workers)
        assert await make() == 201


@pytest.mark.slow
async def test_a_board_that_becomes_private_is_hidden_by_the_old_workers(valkey_url: str, tmp_path: Path) -> None:
    """All old workers learn it at once, although idle connections keep each of them alive."""
    file = tmp_path / "boards.toml"
    text = '[[board]]\nid = "june"\n[[board]]\nid = "posts"\n'
    file.write_text(text, encoding="utf-8")
    ask = request("GET", "/v1/boards/june")
    async with (
        running_workers(valkey_url, 2, boards=file, idle_timeout=Duration(600)) as workers,
        AsyncExitStack() as stack,
    ):
        await until_ready(workers)
        idle = [await stack.enter_async_context(connected(workers.url)) for _ in range(8)]
        for wire in idle:
            await wire.send(ask)
            assert statuses([await wire.answer()]) == [200]
        address = f"{workers.url.replace('http', 'ws')}/v1/boards"
        viewers = [
            (board, await stack.enter_async_context(connect(f"{address}/{board}/live")))
            for board in ("june", "posts") * 8
        ]
        file.write_text(text.replace('"june"', '"june"\nvisibility = "private"'), encoding="utf-8")
        signal.raise_signal(signal.SIGHUP)
        async with asyncio.timeout(DEADLINE):
            for _, viewer in viewers:
                await viewer.wait_closed()
        codes = {(board, viewer.close_code) for board, viewer in viewers}
        assert codes == {("june", BOARD_DELETED), ("posts", SHUTTING_DOWN)}
        for wire in idle:  # an old worker answers one more request
            await wire.send(ask)
            assert statuses([await wire.answer()]) == [404]


@pytest.mark.slow
async def test_a_reload_waits_for_slow_workers(valkey_url: str) -> None:
    """The parent waits until the new workers are ready."""
    async with running_workers(valkey_url, 2, target=slow_to_start) as workers:
        await until_ready(workers)
        await reload(workers)
