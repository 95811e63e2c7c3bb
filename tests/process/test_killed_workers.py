"""Workers that are killed under load: nothing acknowledged is lost or counts twice, and only their viewers notice."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from live.process.supervisor import Supervisor, Worker
from live.process.worker import run_worker
from live.settings import Settings
from live.store.board.write.writer import Added, BoardWriter
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.tasks import stop
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually
from tests.harness.workers import RunningWorkers, running_workers, until_ready

pytestmark = [pytest.mark.slow, pytest.mark.fault, pytest.mark.alone]

FILE: Final = '[[board]]\nid = "posts"\n'
WORKERS: Final = 4
PRODUCERS: Final = 8
VIEWERS: Final = 48  # so many that each worker has some
MEMBERS: Final = 20
BATCH: Final = 5  # events of a request
MOST_EVENTS: Final = 1000  # in the body of a request
LONGEST: Final = 60.0  # seconds; a request that takes longer hangs
LATE: Final = 0.2  # seconds after which a worker that acknowledges too early writes

Event = dict[str, str]


class Producer:
    """Sends events until it is told to stop. A request that gets no answer is sent again, with the same ids."""

    def __init__(self, url: str, name: str) -> None:
        self.acknowledged: list[Event] = []
        self.cut = 0  # how many requests got no answer
        self.is_over = False
        self._url = url
        self._name = name

    async def run(self) -> None:
        """Send events, and return when the last one is acknowledged."""
        numbers = count()
        async with httpx.AsyncClient(base_url=self._url, timeout=LONGEST) as client:
            while not self.is_over:
                events = [self._event(next(numbers)) for _ in range(BATCH)]
                while await send(client, events) is None:
                    self.cut += 1
                self.acknowledged += events

    def _event(self, number: int) -> Event:
        return {"board": "posts", "key": f"k{number % MEMBERS}", "id": f"{self._name}-{number}"}


async def send(client: httpx.AsyncClient, events: Sequence[Event]) -> int | None:
    """Send events. Return how many of them had counted before; None if there is no answer."""
    try:
        response = await client.post("/v1/events", json=events)
    except (httpx.NetworkError, httpx.RemoteProtocolError):
        return None
    except httpx.TimeoutException as error:
        raise AssertionError(f"a request hangs: {error!r}") from error
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["accepted"] + answer["duplicate"] == len(events), answer
    return int(answer["duplicate"])


class Viewer:
    """Watches the board, and connects again after each end of its connection."""

    def __init__(self, url: str) -> None:
        self.model = ModelViewer()
        self.ports: list[int] = []  # the client's port of each connection that has shown the board
        self._url = f"{url.replace('http', 'ws')}/v1/boards/posts/live"

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with suppress(WebSocketException, OSError):
                async with connect(self._url, open_timeout=LONGEST, ping_interval=None, max_queue=None) as connection:
                    self.model.receive(await connection.recv())
                    self.ports.append(connection.local_address[1])
                    async for message in connection:
                        self.model.receive(message)
            await asyncio.sleep(0.05)


async def more(producers: Sequence[Producer]) -> None:
    """Wait until more events of every producer are acknowledged."""
    wanted = [len(producer.acknowledged) + 3 * BATCH for producer in producers]

    async def are_acknowledged() -> bool:
        return all(len(each.acknowledged) >= number for each, number in zip(producers, wanted, strict=True))

    await eventually(are_acknowledged)


async def kill(pid: int, workers: RunningWorkers, viewers: Sequence[Viewer]) -> None:
    """Kill a worker. Another worker takes its place, and only its own viewers are disconnected and come back."""
    holders = workers.holders()
    before = {viewer: len(viewer.ports) for viewer in viewers}
    own = [viewer for viewer in viewers if holders.get(viewer.ports[-1]) == pid]
    assert own, "the worker has no viewer, so its end proves little"
    os.kill(pid, signal.SIGKILL)

    async def is_replaced() -> bool:
        now = workers.pids()
        return pid not in now and len(now) == WORKERS

    async def are_back() -> bool:
        return all(len(viewer.ports) > before[viewer] for viewer in own)

    await eventually(is_replaced)
    await until_ready(workers)
    await eventually(are_back)
    assert all(len(viewer.ports) == before[viewer] for viewer in viewers if viewer not in own), (
        "viewers of other workers were disconnected"
    )


async def all_counted_once(url: str, producers: Sequence[Producer], viewers: Sequence[Viewer]) -> None:
    """Compare what is acknowledged with the board and with what viewers see. What is sent again is a duplicate."""
    events = [event for producer in producers for event in producer.acknowledged]
    async with httpx.AsyncClient(base_url=url, timeout=LONGEST) as client:

        async def page() -> dict[str, Any]:
            found: dict[str, Any] = (await client.get("/v1/boards/posts", params={"limit": MEMBERS})).json()
            return found

        async def has_each_once() -> bool:
            return bool((await page())["total_score"] == len(events))

        await eventually(has_each_once)
        for first in range(0, len(events), MOST_EVENTS):
            piece = events[first : first + MOST_EVENTS]
            assert await send(client, piece) == len(piece), "an event that is sent again counts again"
        shown = await page()
    assert shown["total_score"] == len(events)
    scores = {record["key"]: record["score"] for record in shown["records"]}

    async def have_converged() -> bool:
        return all(
            viewer.model.total_score == len(events)
            and viewer.model.records
            and all(record.score == scores[record.member] for record in viewer.model.records)
            for viewer in viewers
        )

    await eventually(have_converged)


class Load(NamedTuple):
    """The producers and viewers of a server, and the tasks of the producers."""

    producers: list[Producer]
    viewers: list[Viewer]
    producing: list[asyncio.Task[None]]


@asynccontextmanager
async def loaded(workers: RunningWorkers) -> AsyncIterator[Load]:
    """Send events and watch while in the context."""
    producers = [Producer(workers.url, f"p{number}") for number in range(PRODUCERS)]
    viewers = [Viewer(workers.url) for _ in range(VIEWERS)]
    watching = [asyncio.create_task(viewer.run()) for viewer in viewers]
    producing = [asyncio.create_task(producer.run()) for producer in producers]

    async def are_watching() -> bool:
        return all(viewer.ports for viewer in viewers)

    try:
        await eventually(are_watching)
        await more(producers)
        yield Load(producers, viewers, producing)
    finally:
        await stop(*watching, *producing)


async def kills_lose_nothing(workers: RunningWorkers, load: Load) -> None:
    """Kill every worker under load, one after another."""
    for pid in workers.pids():
        await kill(pid, workers, load.viewers)
        await more(load.producers)
    for producer in load.producers:
        producer.is_over = True
    await asyncio.gather(*load.producing)
    assert any(producer.cut for producer in load.producers), "no request was cut, so the kills prove little"
    await all_counted_once(workers.url, load.producers, load.viewers)


@asynccontextmanager
async def running(
    store: str, folder: Path, target: Callable[..., None] = run_worker
) -> AsyncIterator[tuple[RunningWorkers, Load]]:
    """Run four workers under load while in the context."""
    file = folder / "boards.toml"
    file.write_text(FILE, encoding="utf-8")
    async with running_workers(store, WORKERS, target=target, boards=file, open=True) as workers:
        await until_ready(workers)
        async with loaded(workers) as load:
            yield workers, load


async def test_killed_workers_lose_nothing(valkey_url: str, tmp_path: Path) -> None:
    """Each of four workers is killed. What is acknowledged counts once, and viewers of the other workers stay."""
    async with running(valkey_url, tmp_path) as (workers, load):
        await kills_lose_nothing(workers, load)


@pytest.mark.mutant
@pytest.mark.parametrize("left_out", ["_start_again", "_assign"])
async def test_a_parent_that_neglects_a_killed_worker_is_noticed(
    valkey_url: str, tmp_path: Path, left_out: str
) -> None:
    """One mutant starts no worker again. In the other, nobody accepts from the socket of the killed worker."""

    def neglect(*_: object) -> None:
        pass

    async with running(valkey_url, tmp_path) as (workers, load):
        with must_be_caught(f"`{left_out}` does nothing"), replaced(Supervisor, left_out, neglect):
            await kills_lose_nothing(workers, load)


@pytest.mark.mutant
async def test_a_parent_that_ends_the_other_workers_is_noticed(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, the first worker that ends takes the others with it."""
    right = Supervisor._has_ended
    ended: list[Worker] = []

    def end_all(parent: Supervisor, worker: Worker) -> None:
        right(parent, worker)
        ended.append(worker)
        if len(ended) == 1:
            for other in parent._current:
                if other is not None and other.is_ready:
                    other.signal(signal.SIGKILL, "another worker has ended")

    async with running(valkey_url, tmp_path) as (workers, load):
        with must_be_caught("one end takes every worker"), replaced(Supervisor, "_has_ended", end_all):
            await kills_lose_nothing(workers, load)


def hasty_worker(number: int, channel: socket.socket, metrics: str, settings: Settings) -> None:
    """Run a worker that acknowledges events before the store has them."""
    right = BoardWriter.add
    one_by_one = asyncio.Lock()
    adding: set[asyncio.Task[None]] = set()

    async def add(*arguments: Any, **named: Any) -> Added:
        async def add_later() -> None:
            await asyncio.sleep(LATE)
            async with one_by_one:
                await right(*arguments, **named)

        task = asyncio.create_task(add_later())
        adding.add(task)
        task.add_done_callback(adding.discard)
        return Added(1, {}, clock_moved=False)

    with replaced(BoardWriter, "add", add):
        run_worker(number, channel, metrics, settings)


@pytest.mark.mutant
async def test_workers_that_acknowledge_too_early_are_noticed(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, a killed worker takes events with it that are acknowledged and not yet in the store."""
    async with running(valkey_url, tmp_path, hasty_worker) as (workers, load):
        with must_be_caught("events are acknowledged before the store has them"):
            await kills_lose_nothing(workers, load)
