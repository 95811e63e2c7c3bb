"""`max_members`: a full board refuses new members, and still counts events for existing members."""

import asyncio
from collections import Counter
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from live.domain.board import Board
from live.domain.choices import Votes
from live.domain.event import Extra, make_entry
from live.domain.window import Forever, Periods, Rolling, Sliding, Window
from live.errors import ProblemError
from tests.harness.boards import built, open_ledger

HOUR: Final = 3600
T0: Final = 1000 * HOUR * 1000
FULL: Final = "board_full"
WINDOWS: Final[dict[str, Window]] = {
    "forever": Forever(),
    "rolling": Rolling(24 * HOUR, HOUR),
    "sliding": Sliding(24 * HOUR),
    "hours": Periods(unit="hour", keep=3, grace=HOUR),
    "last": Periods(unit="hour", last=5),
}


def board_of(window: Window, most: int, ties: str = "key", **choices: object) -> Board:
    """A board with a limit of members."""
    return built(id="b", title="b", window=window, clock="event", ties=ties, max_members=most, **choices)


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("ties", ["key", "first"])
async def test_a_full_board_refuses_only_new_members(valkey_url: str, name: str, ties: str) -> None:
    """Events for existing members in the same batch count, in order."""
    async with open_ledger(valkey_url, board_of(WINDOWS[name], 3, ties)) as ledger:
        entries = [make_entry(member, 1, T0) for member in ("a", "b", "a", "c", "d", "e", "b", "d")]
        assert (await ledger.writer.add(entries)).refused == {4: FULL, 5: FULL, 7: FULL}
        assert (await ledger.writer.add([make_entry(member, 2, T0) for member in "abcf"])).refused == {3: FULL}
        page = await ledger.reader.read(10)
        assert {record.member: record.score for record in page.records} == {"a": 4, "b": 4, "c": 3}
        # The score becomes zero, so its record is deleted, and a new member has room.
        await ledger.writer.add([make_entry("a", -4, T0)])
        assert (await ledger.writer.add([make_entry("g", 1, T0), make_entry("h", 1, T0)])).refused == {1: FULL}


async def test_every_slot_is_bounded(valkey_url: str) -> None:
    """Members whose amounts add up to zero still take room in their slot."""
    async with open_ledger(valkey_url, board_of(WINDOWS["rolling"], 3)) as ledger:
        later = T0 + HOUR * 1000
        await ledger.writer.add([make_entry(member, 1, T0) for member in "abc"])
        assert (await ledger.writer.add([make_entry(member, 1, later) for member in "axb"])).refused == {1: FULL}
        await ledger.writer.add([make_entry(member, -1, later + HOUR * 1000) for member in "abc"])
        for number in range(4):
            await ledger.writer.add([make_entry(f"n{number}", 1, T0), make_entry(f"n{number}", -1, later)])
        assert await ledger.state.client.hlen(ledger.state.keys.slot(T0 // 1000)) <= 6


async def test_each_period_has_its_own_limit(valkey_url: str) -> None:
    """In one batch, a full period refuses a member that the next period accepts."""
    async with open_ledger(valkey_url, board_of(WINDOWS["hours"], 2)) as ledger:
        await ledger.writer.add([make_entry(member, 1, T0) for member in "ab"])
        later = T0 + HOUR * 1000
        added = await ledger.writer.add([make_entry("c", 1, later), make_entry("c", 1, T0), make_entry("a", 1, T0)])
        assert added.refused == {1: FULL}


async def test_voters_and_registered_members_are_bounded_too(valkey_url: str) -> None:
    """Each voter takes two fields in the store, and there are ten fields for each member that the board may have."""
    board = board_of(Forever(), 2, votes=Votes(per_actor=5))
    async with open_ledger(valkey_url, board) as ledger:
        votes = [make_entry("a", 1, T0, None, Extra(f"actor {number}")) for number in range(12)]
        assert (await ledger.writer.add(votes)).refused == {10: FULL, 11: FULL}
        assert (await ledger.writer.add([make_entry("a", 1, T0, None, Extra("actor 1"))])).refused == {}
        assert (await ledger.writer.add([make_entry("a", -2, T0, None, Extra("actor 1"))])).refused == {}
        assert (await ledger.writer.add(votes[10:])).refused == {1: FULL}
    async with open_ledger(valkey_url, board_of(Forever(), 2, votes=Votes(registered=True))) as ledger:
        assert [await ledger.moderation.enter(member, b"{}") for member in "ab"] == [True, True]
        assert not await ledger.moderation.enter("a", b'{"x":1}')
        with pytest.raises(ProblemError, match="too_many_members"):
            await ledger.moderation.enter("c", b"{}")
        await ledger.moderation.withdraw("a")
        assert await ledger.moderation.enter("c", b"{}")


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 4),
    st.lists(st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(1, 3)), min_size=1), max_size=6),
)
def test_the_first_members_are_accepted(valkey_url: str, most: int, batches: list[list[tuple[str, int]]]) -> None:
    """However events are divided into batches, a board without a window counts the first members up to the limit."""
    asyncio.run(_first_come(valkey_url, most, batches))


async def _first_come(store: str, most: int, batches: list[list[tuple[str, int]]]) -> None:
    held = Counter[str]()
    async with open_ledger(store, board_of(Forever(), most)) as ledger:
        for batch in batches:
            expected = {}
            for index, (member, amount) in enumerate(batch):
                if member in held or len(held) < most:
                    held[member] += amount
                else:
                    expected[index] = FULL
            assert (
                await ledger.writer.add([make_entry(member, amount, T0) for member, amount in batch])
            ).refused == expected
        page = await ledger.reader.read(10)
        assert {record.member: record.score for record in page.records} == held
