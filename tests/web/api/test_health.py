"""Health and readiness."""

import asyncio
import re
import resource
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from live import __version__
from live.errors import EpochLostError
from live.store.board.keys import Keys
from live.store.connection.client import connect
from live.store.connection.pipelined import SharedConnection
from live.system.version import commit
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess, valkey
from tests.harness.waiting import eventually
from tests.harness.watching import served

pytestmark = pytest.mark.slow


async def test_health_is_about_the_process_and_readiness_about_the_store(own_store: StoreProcess) -> None:
    """Without a store the process is healthy but not ready; when the store is back, it is ready."""
    settings = fresh_settings(own_store.url)
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        own_store.kill()
        unavailable = await client.get("/readyz")
        assert (unavailable.status_code, unavailable.headers["retry-after"]) == (503, "2")
        assert (await client.get("/healthz")).json() == {"status": "ok", "version": __version__, "commit": commit()}
        text = (await client.get("/metrics")).text
        assert f'live_build_info{{commit="{commit()}",version="{__version__}"}} 1.0' in text
        assert float(re.findall(r"^process_resident_memory_bytes (.+)$", text, re.MULTILINE)[0]) > 1e7
        own_store.start()
        await until_ready(client)


@pytest.mark.slow
async def test_a_lost_board_is_not_ready(own_store: StoreProcess) -> None:
    """A board whose data the store has lost is not taken for an empty board: no event counts, and the page is stale."""
    settings = fresh_settings(own_store.url)
    store: Any = connect(own_store.url, settings)
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        await post(client, {"key": "a"})
        await store.flushall()

        is_ready, counted, page = (
            await client.get("/readyz"),
            await client.post("/v1/events", json={"key": "a"}),
            await client.get("/boards/posts"),
        )
        assert [answer.status_code for answer in (is_ready, counted, page)] == [503, 503, 503]
        assert counted.json()["code"] == "epoch_lost"
        assert "Stale" in page.text
        assert await store.exists(Keys(settings.key_prefix, "posts").meta) == 0
    await store.aclose()


@pytest.mark.slow
async def test_a_loss_without_a_board_is_no_deleted_board(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A route that reads all boards says that data is lost, even if the error names no board."""

    async def lost(*_: object) -> None:
        raise EpochLostError("the store was emptied")

    async with served(valkey_url) as here:
        await here.post({"key": "a"})
        monkeypatch.setattr(type(here.live), "over_boards", lost)
        answer = await here.client.get("/v1/records/a")
        assert (answer.status_code, answer.json()["code"]) == (503, "epoch_lost")


@pytest.mark.parametrize(
    "setting", ["maxmemory 1", "min-replicas-to-write 1"], ids=["memory is full", "replicas are missing"]
)
async def test_a_store_that_can_not_write_is_not_ready(own_store: StoreProcess, setting: str) -> None:
    """Reads are still answered, but a load balancer must send producers elsewhere."""
    store: Any = connect(own_store.url, fresh_settings(own_store.url))
    name, value = setting.split()
    async with (
        run_server(fresh_settings(own_store.url), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/readyz")).status_code == 200
        await store.config_set(name, value)
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/v1/boards/posts")).status_code == 200
        await store.config_set(name, 0)
        assert (await client.get("/readyz")).status_code == 200
    await store.aclose()


async def test_a_replica_is_not_ready(own_store: StoreProcess) -> None:
    """A server on a replica shows boards, but accepts no events."""
    store: Any = connect(own_store.url, fresh_settings(own_store.url))
    async with (
        run_server(fresh_settings(own_store.url), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/readyz")).status_code == 200
        await store.replicaof("127.0.0.1", 1)
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/v1/boards/posts")).status_code == 200
    await store.aclose()


def noting(calls: Callable[..., Awaitable[Any]], sent: list[int]) -> Callable[..., Awaitable[Any]]:
    """Wrap the calls of a connection: note how many commands are in a packet that begins with `SET`."""

    async def noted(connection: SharedConnection, commands: Sequence[tuple[Any, ...]]) -> Any:
        if commands[0][0] == "SET":
            sent.append(len(commands))
        return await calls(connection, commands)

    return noted


async def test_readiness_is_cheap(own_store: StoreProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many boards, a check makes few calls.

    Requests at the same time share one check, and every board has its turn.
    """
    boards = [rolling_board(board=f"b{number}") for number in range(100)]
    settings = fresh_settings(own_store.url)
    store: Any = connect(own_store.url, settings)

    async def calls() -> int:
        stats = await store.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("set", "hget", "evalsha"))

    async with run_server(settings, boards) as url, httpx.AsyncClient(base_url=url) as client:
        for _ in range(8):
            assert (await client.get("/readyz")).status_code == 200
        before = await calls()
        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(50)))
        assert {answer.status_code for answer in answers} == {200}
        assert await calls() - before < 50 * 10  # with a read of every board for each check, there would be 5,000 calls
        sent: list[int] = []
        monkeypatch.setattr(SharedConnection, "calls", noting(SharedConnection.calls, sent))
        assert (await client.get("/readyz")).status_code == 200
        assert sent in ([18], [6]), (
            "the check does not send one packet with a write, the time, and the epochs of 16 boards, or of the last 4"
        )
        monkeypatch.undo()
        await store.delete(Keys(settings.key_prefix, "b77").meta)
        for _ in range(7):
            ready = await client.get("/readyz")
        assert ready.status_code == 200
        (reason,) = ready.json()["reasons"]  # the process has checked board b77 by now
        assert "board b77 takes no events" in reason
    await store.aclose()


@pytest.mark.slow
async def test_a_full_disk_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that keeps running without disk space refuses writes; with space again, the server is ready."""
    # A limit on the file size takes the place of a full disk. With `restore_signals`, the store would receive SIGXFSZ
    # and end.
    monkeypatch.setattr(subprocess, "Popen", partial(subprocess.Popen, restore_signals=False))
    disk = valkey(tmp_path, "--appendfsync", "everysec")
    disk.start()
    assert disk.process is not None

    def limit(size: int) -> None:
        assert disk.process is not None
        resource.prlimit(disk.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    async def is_ready(client: httpx.AsyncClient, status: int) -> bool:
        return (await client.get("/readyz")).status_code == status

    try:
        async with (
            run_server(fresh_settings(disk.url, write_deadline=1), [rolling_board()]) as url,
            httpx.AsyncClient(base_url=url) as client,
        ):
            assert await is_ready(client, 200)
            await post(client, {"key": "a"})
            limit(1)
            await eventually(lambda: is_ready(client, 503))
            assert (await client.post("/v1/events", json={"key": "a"})).status_code == 503
            assert (await client.get("/v1/boards/posts")).status_code == 200
            limit(resource.RLIM_INFINITY)
            await eventually(lambda: is_ready(client, 200))
            await post(client, {"key": "a"})
    finally:
        disk.kill()
