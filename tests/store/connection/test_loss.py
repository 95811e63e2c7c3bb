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
from live.store.connection.loss import LossWatch, _what_is_lost
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop
from tests.harness.waiting import eventually


@pytest.mark.parametrize(
    ("held", "reign", "expected", "known", "lost"),
    [
        (("e", "5", "r"), "", "e", ("e", 5), ""),
        (("e", "4", "r"), "", "e", ("e", 5), "board b (epoch e) went back from offset 5 to 4"),
        (("e", None, "r"), "r", None, ("e", 1), "board b (epoch e) went back from offset 1 to 0"),
        (("e", "4", "q"), "r", "e", ("e", 5), ""),  # the board is not checked since a failover
        (("f", "4", "r"), "r", "f", ("e", 5), ""),
        (("f", "4", "r"), "r", "e", ("e", 5), "board b had epoch e, and the store holds f"),
        ((None, None, None), "", "e", ("", -1), "board b had epoch e, and the store holds none"),
        ((None, None, None), "", None, ("", -1), ""),
    ],
)
def test_a_board_that_went_back_or_has_another_epoch_is_lost(
    held: tuple[str | None, ...], reign: str, expected: str | None, known: tuple[str, int], lost: str
) -> None:
    """Offsets of different epochs are not compared."""
    state = [None if word is None else word.encode() for word in held]
    assert _what_is_lost("b", state, reign, expected, known) == lost


@pytest.mark.one_server
async def test_losses_are_noticed(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process notices the loss of a board with its next connection, and the loss of everything soon."""
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
