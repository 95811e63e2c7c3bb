"""Questions about the past: one client delays only itself, and a client that has left delays nobody."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

import live.journal.past.pool
from live.domain.event import rfc3339
from live.domain.window import Forever, Periods
from live.errors import ProblemError
from live.journal.database import identity
from live.journal.past.pool import Past
from live.journal.past.worker import run_limited
from live.settings import Settings
from live.system.processes import CHILDREN
from live.system.resources import PAST_AT_ONCE, Turns
from live.web.api import history, sources
from tests.harness.boards import built
from tests.harness.long_readings import SLOW, make_journal, sleep_a_while, sleep_on
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.harness.wire import connected, request

GREEDY, MODEST = "192.0.2.1", "192.0.2.2"
FOREVER = built(id="all", title="all", source=frozenset({"like"}), window=Forever(), operator="incr", ties="key")


def begun(folder: Path) -> int:
    """Return how many queries of `sleep_on` have begun."""
    path = folder / "begun"
    return len(path.read_text()) if path.exists() else 0


@asynccontextmanager
async def reading(folder: Path) -> AsyncIterator[Past]:
    """A reader of the past, for a data directory with an empty journal."""
    make_journal(folder)
    past = Past(Settings(data_dir=folder), Turns(PAST_AT_ONCE, 32))
    try:
        yield past
    finally:
        processes = [] if past._pool is None else list(past._pool._processes.values())
        for process in processes:
            process.kill()  # after a failure, queries may go on, and the test run would wait for them
        await past.aclose()


async def started(folder: Path, queries: int = 1) -> None:
    """Wait until some queries of `sleep_on` have begun."""

    async def have_begun() -> bool:
        return begun(folder) >= queries

    await eventually(have_begun, 60)


async def quick(past: Past, client: str) -> None:
    """Ask for something that takes no time."""
    assert await past.run(client, identity)


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel queries."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.slow
async def test_a_long_reading_delays_no_other_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client uses one process at a time, however many queries it sends."""
    order: list[str] = []

    def note(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        order.append(error.code if isinstance(error, ProblemError) else "answered")

    async with reading(tmp_path) as past:
        await asyncio.gather(quick(past, "first"), quick(past, "second"))  # this starts the processes, which takes long
        monkeypatch.setattr(live.journal.past.pool, "run_limited", partial(run_limited, longest=SLOW))
        greedy = [asyncio.create_task(past.run(GREEDY, sleep_on)) for _ in range(40)]
        await started(tmp_path)
        modest = asyncio.create_task(quick(past, MODEST))
        for task in (*greedy, modest):
            task.add_done_callback(note)
        await asyncio.wait([modest])
        await ended(greedy)
    assert modest.exception() is None, "the reading of another client is refused"
    before = order[: order.index("answered")]
    assert set(before) <= {"overloaded"}, "a long reading of one client delays the reading of another one"
    assert len(before) == len(greedy) - 1 - 16, "one client fills more or less than half of the queue"


@pytest.mark.slow
async def test_the_readings_of_a_client_that_leaves_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings that wait never begin, and the running reading stops."""
    async with reading(tmp_path) as past:
        await asyncio.gather(quick(past, "first"), quick(past, "second"))  # this starts the processes, which takes long
        monkeypatch.setattr(live.journal.past.pool, "run_limited", partial(run_limited, longest=60))
        gone = [asyncio.create_task(past.run(GREEDY, sleep_on)) for _ in range(5)]
        await started(tmp_path)
        later = asyncio.create_task(past.run(MODEST, sleep_a_while))
        await started(tmp_path, 2)
        await ended(gone)
        again = asyncio.create_task(quick(past, GREEDY))
        await asyncio.wait([again, later], return_when="FIRST_COMPLETED")
        is_first = again.done()
        await ended([again, later])
    assert is_first, "the reading of a client that has left goes on"
    assert begun(tmp_path) == 2, "readings of a client that has left begin"


# Requests that can take long. ASGI serves the first two, and the fast path serves the archived period.
DOORS: Final = {
    "history": (history, "read_history", "/v1/boards/all/history?key=a"),
    "page": (sources, "read_ranking", "/boards/all?as_of={now}"),
    "archived period": (sources, "read_period", "/v1/boards/days?period=2020-01-01"),
}
DAYS = built(
    id="days",
    title="days",
    source=frozenset({"like"}),
    window=Periods(unit="day", keep=1),
    operator="incr",
    ties="key",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
async def test_a_request_ends_when_its_client_disconnects(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A client closes its connection during a long reading, and can read again. The reading could take a minute."""
    module, work, path = DOORS[name]
    settings = fresh_settings(valkey_url, journal="sqlite")
    async with (
        run_server(settings, [FOREVER, DAYS]) as url,
        httpx.AsyncClient(base_url=url, timeout=180) as client,
    ):
        assert (await client.post("/v1/events", json={"type": "like", "key": "a"})).status_code == 200

        async def has_a_past() -> bool:
            return (await client.get("/v1/boards/all/history?key=a")).status_code == 200

        await eventually(has_a_past)  # waits until SQL has the board's definition
        monkeypatch.setattr(module, work, sleep_on)
        monkeypatch.setattr(live.journal.past.pool, "run_limited", partial(run_limited, longest=60))
        async with connected(url) as wire:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            await wire.send(request("GET", path.format(now=now)))
            await started(settings.data_dir)
        monkeypatch.undo()
        answer = await client.get("/v1/boards/all/history?key=a")
        assert answer.status_code == 200, answer.text
        assert begun(settings.data_dir) == 1


@pytest.mark.slow
async def test_a_long_history_of_a_large_board_is_refused(valkey_url: str) -> None:
    """The response says how many steps are allowed, and a request with this number of steps is answered."""
    async with (
        run_server(fresh_settings(valkey_url, journal="sqlite"), [FOREVER]) as url,
        httpx.AsyncClient(base_url=url, timeout=180) as client,
    ):
        for first in range(0, 30_000, 1000):
            events = [{"type": "like", "key": f"k{number}"} for number in range(first, first + 1000)]
            assert (await client.post("/v1/events", json=events)).status_code == 200
        end = round(time.time() * 1000)
        span = {"key": "k1", "from": rfc3339(end - 390_000), "to": rfc3339(end)}
        answer = await client.get("/v1/boards/all/history", params={**span, "step": "1s"})
        assert (answer.status_code, answer.json()["code"]) == (400, "past_too_large"), answer.text
        found = re.search(r"has ([\d,]+) members: .* at most (\d+) steps", answer.json()["detail"])
        assert found is not None, answer.text
        members, steps = int(found[1].replace(",", "")), int(found[2])
        assert (members <= 30_000, steps) == (True, 10_000_000 // members)
        answer = await client.get("/v1/boards/all/history", params={**span, "step": "39s"})
        assert answer.status_code == 200, answer.text


async def read_and_leave(folder: Path) -> None:
    """Begin a long reading, and end while it goes on."""
    make_journal(folder)
    past = Past(Settings(data_dir=folder), Turns(PAST_AT_ONCE, 32))
    reading = asyncio.create_task(past.run(GREEDY, sleep_on))
    await started(folder)
    await past.aclose()
    reading.cancel()


def be_a_worker(folder: Path) -> None:
    """Run `read_and_leave` in a process that another process has started, as a server starts its workers."""
    asyncio.run(read_and_leave(folder))


@pytest.mark.slow
def test_a_worker_that_reads_the_past_ends(tmp_path: Path) -> None:
    """The worker first ends its own processes.

    Otherwise it would stop the thread that ends them, and wait for them forever.
    """
    worker = CHILDREN.Process(target=be_a_worker, args=(tmp_path,))
    worker.start()
    worker.join(60)
    has_ended = worker.exitcode == 0
    worker.kill()
    worker.join()
    assert has_ended, "the worker waits for its own processes"
