"""A process notices that the store has lost data."""

import asyncio
from pathlib import Path

import pytest

from live.domain.board import Boards
from live.domain.event import make_entry
from live.errors import StoreUnavailableError
from live.serve import check_store
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.connection.loss import LossWatch
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop
from tests.harness.waiting import eventually


@pytest.mark.one_server
async def test_losses_are_noticed(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of a board with the next connection, and the loss of everything soon."""
    monkeypatch.setattr("live.store.connection.loss.BEAT", 0.05)
    settings = fresh_settings(valkey_url, data_dir=tmp_path)
    await check_store(settings, Boards([rolling_board()]))
    client = connect(valkey_url, settings)
    watch, ledger = LossWatch(client, settings.key_prefix), Ledger(client, rolling_board(), settings)
    watch.guard_connections()
    await ledger.state.open()
    await ledger.writer.add([make_entry("a", 1, None)])
    running = asyncio.create_task(watch.run())
    await client.call("", "DEL", ledger.state.keys.meta)
    client.servers.shared.drop()
    with pytest.raises(StoreUnavailableError, match="lost data"):
        await client.call("", "PING")
    assert client.high_water.lost_boards.keys() == {"posts"}
    assert not client.high_water.lost
    for name in [name async for name in client.names(f"{settings.key_prefix}:*")]:
        await client.call(name, "DEL", name)

    async def is_lost() -> bool:
        return bool(client.high_water.lost)

    await eventually(is_lost, 10)
    await stop(running)
    await client.aclose()
