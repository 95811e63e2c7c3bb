"""The fold reads from the journal what only the scripts can know."""

import pytest

from live.domain.event import make_entry
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.folded import Folded
from tests.harness.ledger_machine import simulated_scripts
from tests.harness.mutation import Mutant, must_be_caught
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

NOON = 4_000_000_000
UNTOLD = Mutant("rotate", "if board.journal and #granted > 0 then", "if false then")


async def rotation_gives_tags(store: str, mutant: Mutant | None) -> None:
    """Amounts cancel out until the first slot expires; then the members get new places among ties."""
    settings = fresh_settings(store, journal="sqlite")
    clock = f"{settings.key_prefix}:time"
    client = connect(store, settings)
    board = rolling_board("40s", "10s", ties="first")
    ledger = Ledger(client, board, settings, simulated_scripts(store, clock, mutant))

    async def at(seconds: int, *likes: tuple[str, int]) -> None:
        await client.delete(clock)
        await client.rpush(clock, str(NOON + seconds), "250000")
        if likes:
            await ledger.writer.add([make_entry(key, amount, None, None) for key, amount in likes])

    try:
        await at(0, ("a", -1), ("b", -1))
        await at(10, ("b", 1), ("a", 1))
        await at(50)
        while await ledger.rotator.rotate() is None:
            pass
        folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
        await folded.read()
        page = await ledger.reader.read(10)
        assert sorted(record.key for record in page.records) == ["a", "b"]
        assert folded.ranking(board, (NOON + 50) * 1000) == [(record.key, record.score) for record in page.records]
        tags = folded.tags(board, None)
        assert {offset for offset, _ in tags.values()} == {page.offset}, "rotation gave them"
    finally:
        await client.aclose()


async def test_tags_from_rotation_are_in_the_journal(valkey_url: str) -> None:
    """The script finds the members in any order."""
    await rotation_gives_tags(valkey_url, None)


@pytest.mark.mutant
async def test_missing_tags_are_detected(volatile_store: StoreProcess) -> None:
    """Without them, the order of ties is lost, because the fold knows only the events."""
    with must_be_caught("a tag of rotation is missing in the journal"):
        await rotation_gives_tags(volatile_store.url, UNTOLD)
