"""What leaves the window while a Cluster moves the slot of its board key by key: no script fails after its first write.

During such a move, a server refuses commands on store keys that do not exist, because they may be on the other server
already. A script begins only if all its store keys exist. It must not ask for a store key that it has emptied.
"""

import time

import pytest
from redis.crc import key_slot

from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.window import Rolling, Sliding
from live.errors import StoreUnavailableError
from live.store.board.journal_stream import begin_journal
from live.store.board.ledger import Ledger
from live.store.connection.client import Store, connect
from tests.harness.boards import built
from tests.harness.invariants import drifted
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

BOARDS = [
    built(id="moved-slots", title="m", window=Rolling(1, 1), ties="first", ranks="dense"),
    built(id="moved-slide", title="m", window=Sliding(1), ties="first", ranks="dense"),
]


async def moving(client: Store, key: str, ledger: Ledger) -> str:
    """Do a step of rotation while the server believes that it moves the slot away. Returns why it failed."""
    number = key_slot(key.encode())
    nodes: str = (await client.call(key, "CLUSTER", "NODES")).decode()
    other = next(node.split()[0] for node in nodes.splitlines() if node.split()[2] == "master")
    await client.call(key, "CLUSTER", "SETSLOT", number, "MIGRATING", other)
    try:
        await ledger.rotator.rotate()
    except StoreUnavailableError as error:
        return str(error)
    finally:
        await client.call(key, "CLUSTER", "SETSLOT", number, "STABLE")
    return ""


@pytest.mark.parametrize("board", BOARDS, ids=["slots", "sliding"])
async def test_what_leaves_while_a_slot_moves_is_subtracted(cluster_url: str, board: Board) -> None:
    """All store keys of the board exist before the move, and the last records leave."""
    settings = fresh_settings(cluster_url)
    client = connect(cluster_url, settings)
    try:
        ledger = Ledger(client, board, settings)
        await ledger.writer.add([make_entry("a", 2), make_entry("a", -1), make_entry("b", 1), make_entry("hidden", 1)])
        await ledger.moderation.hide("hidden", hidden=True)
        keys, epoch = ledger.state.keys, ledger.state.epoch or ""
        await begin_journal(client, keys, epoch)
        last = time.time()
        (slot,) = [name async for name in client.names(keys.slot_pattern)]
        used = [*keys.table().order, keys.meta, keys.slots, slot, keys.hidden, keys.journal(epoch)]
        used += [keys.log, keys.taken] if isinstance(board.window, Sliding) else []
        assert await client.call(keys.meta, "EXISTS", *used) == len(used)

        async def due() -> bool:
            return time.time() > last + 2.1

        await eventually(due)
        if isinstance(board.window, Rolling):
            await ledger.rotator.rotate()  # the next step then begins with the slot that leaves
        failed = await moving(client, keys.meta, ledger)
        assert not failed
        assert await client.call(keys.meta, "EXISTS", keys.ranking, keys.table().levels, keys.slots, slot) == 0
        assert await drifted(client, keys) == []
    finally:
        await client.aclose()
