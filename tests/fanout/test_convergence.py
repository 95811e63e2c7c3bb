"""A viewer that only applies messages holds the server's top, whatever fails between store, process and viewer."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from live.domain.ranking import Record
from live.fanout import hub
from live.metrics import REGISTRY
from live.store.connection.client import connect as connect_store
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.proxy import StoreProxy, store_proxy
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.fault

HEALED: Final = 5.0  # seconds within which the hub recovers from a lost notice
FAST: Final[dict[str, Any]] = {"conflation_interval": 0.02, "store_timeout": 1}


class Shown(msgspec.Struct):
    """The part of a page that a viewer also holds."""

    offset: int
    rank_count: int
    records: list[Record]


class Follower:
    """A viewer that connects to a random server whenever its connection ends, and never reads a page."""

    def __init__(self, servers: list[str], size: int, chance: random.Random) -> None:
        self.size = size
        self.model = ModelViewer()
        self.recovered = self.syncs_after = 0
        self.reading = asyncio.Event()
        self.reading.set()
        self.task = asyncio.create_task(self._follow(servers, chance))
        self._socket: ClientConnection | None = None

    async def _follow(self, servers: list[str], chance: random.Random) -> None:
        while True:
            model = self.model
            position = f"&epoch={model.epoch}&offset={model.offset}" if model.epoch else ""
            address = f"{chance.choice(servers).replace('http', 'ws')}/v1/boards/posts/live?limit={self.size}{position}"
            with suppress(ConnectionClosed, InvalidStatus, OSError):
                async with connect(address, compression=None) as socket:
                    self._socket = socket
                    await self._apply(socket, returns=bool(position))
            await asyncio.sleep(0.02)

    async def _apply(self, socket: ClientConnection, *, returns: bool) -> None:
        async for message in socket:
            before = self.model.syncs + self.model.updates
            self.model.receive(message)
            if returns and self.model.syncs + self.model.updates > before:
                self.recovered += self.model.recovered
                self.syncs_after += not self.model.recovered
                returns = False
            await self.reading.wait()

    def drop(self) -> None:
        """Abort the connection."""
        if self._socket is not None:
            self._socket.transport.abort()

    async def leave(self) -> None:
        """Stop. Raises the error of a message that did not follow from the message before."""
        await stop(self.task)


@asynccontextmanager
async def servers_on(*stores: str, window: str = "24h", slot: str = "1h") -> AsyncIterator[list[str]]:
    """A server for each address of one store, all with the same board."""
    settings = fresh_settings(stores[0], **FAST)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                run_server(msgspec.structs.replace(settings, store=store), [rolling_board(window, slot)])
            )
            for store in stores
        ]


async def agree(client: httpx.AsyncClient, followers: list[Follower], patience: float = 10) -> None:
    """Wait until every follower has the board's offset, and compare what it holds."""

    async def same() -> bool:
        for follower in followers:
            assert not follower.task.done(), follower.task
            response = await client.get(f"/v1/boards/posts?limit={follower.size}")
            if response.status_code != httpx.codes.OK:
                return False
            page = msgspec.json.decode(response.content, type=Shown)
            if follower.model.offset != page.offset:
                return False
            assert follower.model.records == page.records
            assert follower.model.rank_count == page.rank_count
        return True

    async with asyncio.timeout(patience):
        await eventually(same)


async def like(client: httpx.AsyncClient, chance: random.Random) -> None:
    """Post a few positive and negative likes of few members."""
    events = [{"key": f"k{chance.randrange(9)}", "amount": chance.randint(-2, 3)} for _ in range(chance.randint(1, 5))]
    with suppress(httpx.HTTPError):
        await client.post("/v1/events", json=events)


@pytest.mark.one_server
@pytest.mark.parametrize("seed", range(3))
async def test_viewers_converge_through_random_faults(valkey_url: str, tmp_path: Path, seed: int) -> None:
    """The faults are notices that are cut off, dropped or delayed, slow viewers and reconnects, on a rotating board."""
    chance = random.Random(seed)
    async with (
        store_proxy(valkey_url, tmp_path) as proxy,
        servers_on(proxy.url, valkey_url, window="3s", slot="1s") as servers,
        httpx.AsyncClient(base_url=servers[1], timeout=5) as client,
    ):
        followers = [Follower(servers, size, chance) for size in (1, 2, 3, 5, 8, 50)]
        for _ in range(120):
            await like(client, chance)
            act(chance, proxy, chance.choice(followers))
            await asyncio.sleep(chance.choice([0, 0.01, 0.05]))
        proxy.dropping, proxy.delay = False, 0
        for follower in followers:
            follower.reading.set()
        await like(client, chance)
        await agree(client, followers)
        for follower in followers:
            await follower.leave()
        assert sum(follower.recovered for follower in followers) > 0
        assert sum(follower.syncs_after for follower in followers) > 0


def act(chance: random.Random, proxy: StoreProxy, follower: Follower) -> None:
    """Start or end a fault."""
    fault = chance.random()
    if fault < 0.15:
        follower.drop()
    elif fault < 0.3:
        follower.reading.clear()
    elif fault < 0.55:
        follower.reading.set()
    elif fault < 0.6:
        proxy.cut()
    elif fault < 0.7:
        proxy.dropping = not proxy.dropping
    elif fault < 0.75:
        proxy.delay = chance.choice([0, 0, 0.05])


async def expect_recovery(valkey_url: str, folder: Path) -> None:
    """Lose a notice, and send no other notice: the viewer must still receive the change in time."""
    async with (
        store_proxy(valkey_url, folder) as proxy,
        servers_on(proxy.url, valkey_url) as servers,
        httpx.AsyncClient(base_url=servers[1]) as client,
    ):
        await post(client, {"key": "a"})
        follower = Follower(servers[:1], 5, random.Random(1))
        await agree(client, [follower])
        await eventually(at_rest)
        proxy.dropping = True
        await post(client, {"key": "b", "amount": 5})
        lost = time.monotonic()
        await asyncio.wait_for(_reached(follower, 2), HEALED)
        assert proxy.dropped
        assert time.monotonic() - lost < HEALED
        await follower.leave()


async def at_rest() -> bool:
    """Return whether no board was read during five intervals, so that no earlier notice can cause the next read."""
    before = REGISTRY.get_sample_value("live_tick_seconds_count")
    await asyncio.sleep(0.1)
    return REGISTRY.get_sample_value("live_tick_seconds_count") == before


async def _reached(follower: Follower, offset: int) -> None:
    async def there() -> bool:
        return follower.model.offset >= offset

    await eventually(there)


@pytest.mark.one_server
async def test_a_lost_notice_is_recovered(valkey_url: str, tmp_path: Path) -> None:
    """The connection has no error, so only the periodic check finds the new offset."""
    await expect_recovery(valkey_url, tmp_path)


@pytest.mark.one_server
async def test_without_the_periodic_check_it_is_not_recovered(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant has no periodic check, and the test above notices it."""

    async def check_nothing(*_: object) -> None:
        """Do nothing."""

    monkeypatch.setattr(hub.Hub, "_check_positions", check_nothing)
    monkeypatch.setattr("tests.fanout.test_convergence.HEALED", 3.0)
    with pytest.raises(TimeoutError):
        await expect_recovery(valkey_url, tmp_path)


async def test_a_killed_subscriber_misses_nothing(valkey_url: str) -> None:
    """The store disconnects subscribers that are too slow. A server that has subscribed again reads what it missed."""
    async with servers_on(valkey_url) as servers, httpx.AsyncClient(base_url=servers[0]) as client:
        store = connect_store(valkey_url, fresh_settings(valkey_url))
        follower = Follower(servers, 5, random.Random(1))
        for number in range(10):
            await store.each("CLIENT", "KILL", "TYPE", "pubsub")
            await post(client, {"key": f"k{number}"})
        await agree(client, [follower])
        await follower.leave()
        await store.aclose()


async def test_viewers_survive_a_pause_and_a_restart_of_the_store(own_store: StoreProcess) -> None:
    """Viewers stay connected. They learn that the board is stale, and later receive every change that they missed."""
    async with servers_on(own_store.url) as servers, httpx.AsyncClient(base_url=servers[0], timeout=10) as client:
        await post(client, {"key": "a"})
        follower = Follower(servers, 5, random.Random(1))
        await agree(client, [follower])
        with own_store.frozen():

            async def is_stale() -> bool:
                return follower.model.stale

            await eventually(is_stale)
        await post(client, {"key": "b"})
        await agree(client, [follower])
        own_store.kill()
        own_store.start()

        async def counted() -> bool:
            return (await client.post("/v1/events", json={"key": "c"})).status_code == httpx.codes.OK

        await eventually(counted)
        await agree(client, [follower])
        assert not follower.model.stale
        await follower.leave()
