"""What a board does while its clock stands still, because the clock of the store was set back."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest

from live.domain.board import Board
from live.domain.choices import Votes
from live.domain.event import Extra, make_entry
from live.domain.window import Forever, Periods
from live.store.board.ledger import Ledger
from live.store.board.requests import SCRIPTS
from live.store.connection.client import connect
from tests.harness.boards import built
from tests.harness.clock import set_clock, with_clock
from tests.harness.mutation import compiled, must_be_caught, mutated
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

pytestmark = pytest.mark.one_server

NOON = 4_000_017_600  # the start of an hour
HOUR = 3600


@asynccontextmanager
async def set_back(store: str, board: Board, *wrong: str) -> AsyncIterator[Callable[[], Ledger]]:
    """Count an event at noon, change the board an hour later, and set the clock back. Yield a maker of processes.

    The scripts that are `wrong` follow the clock of the store.
    """
    settings = fresh_settings(store)
    client = connect(store, settings)
    parts = {name: getattr(SCRIPTS, name) for name in wrong}
    changed = {
        name: compiled(store, part.changed(mutated(part.source, {"if held and held > micros then": "if false then"})))
        for name, part in parts.items()
    }
    scripts = msgspec.structs.replace(SCRIPTS, **changed)

    def process() -> Ledger:
        return Ledger(client, board, settings, with_clock(scripts, settings))

    try:
        await set_clock(client, settings, NOON * 1000)
        await process().writer.add([make_entry("a", 1, None, None, Extra("ann"))])
        await set_clock(client, settings, (NOON + HOUR + 5) * 1000)
        await process().moderation.hide("b", hidden=True)
        await set_clock(client, settings, (NOON + 10) * 1000)
        yield process
    finally:
        await client.aclose()


async def refuses_votes(store: str, *wrong: str) -> None:
    """Vote over a process that has not seen the end of voting."""
    closes = datetime.fromtimestamp(NOON + HOUR, UTC)
    votes = Votes(per_actor=9, closes=closes)
    async with set_back(store, built(id="cup", title="cup", window=Forever(), votes=votes), *wrong) as process:
        vote = make_entry("a", 1, None, None, Extra("bob"))
        assert (await process().writer.add([vote])).refused == {0: "closed"}


async def test_voting_that_has_ended_stays_closed(valkey_url: str) -> None:
    """The end of voting goes by the clock of the board."""
    await refuses_votes(valkey_url)


async def stays_in_its_period(store: str, *wrong: str) -> None:
    """Send events, and read, over processes that have not seen the newest period."""
    async with set_back(store, built(id="hours", title="hours", window=Periods(unit="hour")), *wrong) as process:
        now = (NOON + 10) * 1000
        late, early = make_entry("c", 1, now), make_entry("d", 1, now + HOUR * 1000 + 60_000)
        added = await process().writer.add([make_entry("b", 1), make_entry("c", 1), late, early])
        assert added.refused == {2: "late", 3: "early"}
        page = await process().reader.read(9)
        assert (page.slot, [record.member for record in page.records]) == (NOON + HOUR, ["c"])
        before = await process().reader.read(9, period=NOON)
        assert [record.member for record in before.records] == ["a"]


async def test_a_period_goes_on(valkey_url: str) -> None:
    """Events without a time, and readers, stay in the newest period of the board."""
    await stays_in_its_period(valkey_url)


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", [("open", "add"), ("open", "read")], ids=["add", "read"])
async def test_a_script_that_follows_the_clock_of_the_store_is_detected(
    volatile_store: StoreProcess, wrong: Sequence[str]
) -> None:
    """Voting is open again, or a reader sees the last period."""
    with must_be_caught("a script follows the clock of the store"):
        await refuses_votes(volatile_store.url, *wrong)
        await stays_in_its_period(volatile_store.url, *wrong)
