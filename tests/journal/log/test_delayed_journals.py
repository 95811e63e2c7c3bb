"""A journal that the drainer can't read or trim delays only itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from live.domain.event import make_entry
from live.store.board.ledger import Ledger
from live.store.connection.client import Store
from tests.harness.boards import rolling_board
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.waiting import eventually

pytestmark = pytest.mark.fault


async def one_journal_fails(board: Journaled) -> None:
    """Let the store refuse to read one journal for a while. The other journal must go on."""
    other = Ledger(board.client, rolling_board(board="other"), board.settings)
    await board.like("a")
    await other.writer.add([make_entry("a", 1, None, None)])
    stream, aside = other.state.journal, f"{other.state.journal}:aside"
    await board.client.rename(stream, aside)
    await board.client.set(stream, "not a stream")
    drainer = await board.drainer()
    running = asyncio.create_task(drainer.run())

    async def drained() -> bool:
        return not await board.waiting()

    async def is_delayed() -> bool:
        return [name for name, _ in drainer._health.delayed] == ["other"]

    async def goes_on() -> bool:
        return not drainer._health.delayed and not await board.client.xlen(stream)

    try:
        await eventually(is_delayed)
        for _ in range(3):
            await board.like("b")
            await eventually(drained)
        assert drainer.writes
        assert drainer._health.delayed
        await board.client.delete(stream)
        await board.client.rename(aside, stream)
        await eventually(goes_on)
        await board.must_agree()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_journal_that_cant_be_read_delays_only_itself(valkey_url: str, tmp_path: Path) -> None:
    """When the store can be read again, the journal goes on by itself."""
    async with journaled(valkey_url, tmp_path) as board:
        await one_journal_fails(board)


async def test_a_journal_that_fails_between_two_sweeps_is_delayed(valkey_url: str, tmp_path: Path) -> None:
    """Without a delay, each notice would make the drainer read the journal again."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.like("a")
        drainer = await board.drainer()
        await drainer.sweep()
        stream = board.ledger.state.journal
        await board.client.delete(stream)
        await board.client.set(stream, "not a stream")
        await drainer.drain(["posts"])
        assert [name for name, _ in drainer._health.delayed] == ["posts"]


@pytest.mark.mutant
async def test_a_journal_that_delays_all_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, one failed command fails all commands of its packet."""
    outcomes = Store.outcomes

    async def first_error(self: Store, commands: Any, **named: Any) -> list[Any]:
        replies = await outcomes(self, commands, **named)
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        return errors[:1] * len(replies) if errors else replies

    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("one failed command fails all journals"), replaced(Store, "outcomes", first_error):
            await one_journal_fails(board)
