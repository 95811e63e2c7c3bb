"""The fence after a failover, while connections of several reigns are open."""

import asyncio
from pathlib import Path

import msgspec
import pytest

import live.journal.log.drainer
from live.domain.event import make_entry
from live.errors import StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.board.reign import Unchecked
from live.store.board.state import SCRIPTS
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.journaled import journaled
from tests.harness.mutation import replaced
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE


async def test_a_board_that_is_refused_after_each_check_is_unavailable(sentinel_url: str, tmp_path: Path) -> None:
    """The board is checked under one reign, but scripts run under another. After some attempts, the caller gives up."""
    settings = fresh_settings(sentinel_url, data_dir=tmp_path)
    client = connect(sentinel_url, settings)
    ledger = Ledger(client, rolling_board(), settings)
    try:
        await ledger.writer.add([make_entry("a", 1, None)])
        ledger.state.scripts = msgspec.structs.replace(SCRIPTS, read=SCRIPTS.read.under("another reign"))
        with pytest.raises(StoreUnavailableError, match="waits until it was checked"):
            await asyncio.wait_for(ledger.reader.read(1), DEADLINE)
    finally:
        await client.aclose()


async def test_a_drainer_gives_up_a_board_that_stays_refused(valkey_url: str, tmp_path: Path) -> None:
    """The drainer goes on with other journals, and tries this one again later."""

    async def refuse(*_arguments: object) -> Unchecked:
        return Unchecked(1, "", resending=False)

    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        drainer = await board.drainer()
        await drainer.sweep()
        (name,) = drainer._timelines
        with (
            replaced(live.journal.log.drainer, "confirm", refuse),
            pytest.raises(StoreUnavailableError, match="waits until it was checked"),
        ):
            await asyncio.wait_for(drainer._confirm_one(name), DEADLINE)
