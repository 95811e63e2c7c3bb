"""Drift is found while events arrive and slots leave."""

import asyncio
import random
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import live.maintenance.check
from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.window import Periods, Rolling, Sliding
from live.store.board.pieces import Place, read_piece
from tests.harness.boards import built
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, slot_of
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.waiting import eventually

MANY: Final = [f"m{number}" for number in range(400)]


async def under_load(board: Compared) -> None:
    """Plant drift, and compare while events arrive: exactly the drift is found."""
    chance = random.Random(3)
    await board.add(*dict.fromkeys(MANY, 1000).items())  # the later events can't bring a score to zero
    slot, done = await slot_of(board), asyncio.Event()

    async def write() -> None:
        while not done.is_set():
            events = {chance.choice(MANY): chance.choice([1, 2, -1]) for _ in range(50)}
            await board.add(*events.items())

    writing = asyncio.create_task(write())
    try:
        assert (await board.check()).drifted == 0, "the board drifts before any damage"
        drift = {member: chance.choice([-7, 5]) for member in MANY[::20]}
        for member, amount in drift.items():
            await board.do("HINCRBY", slot, member, amount)
        report = await board.check()
        assert {(difference.kind, difference.key) for difference in report.drift} == {("slot", key) for key in drift}
        await board.begin_again()
        await board.replace()
        assert (await board.check()).drifted == 0
    finally:
        done.set()
        await writing


@pytest.mark.parametrize("drains", [True, False])
async def test_drift_is_found_under_load(valkey_url: str, tmp_path: Path, *, drains: bool) -> None:
    """Each piece is compared at one instant, whether its entries wait in the store or move to SQL meanwhile."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        if not drains:
            await board.stop_draining()
        await under_load(board)


MOVING: Final = [
    built(id="hours", title="hours", window=Rolling(6 * 3600, 3600), clock="event", ties="first"),
    built(id="slide", title="slide", window=Sliding(3 * 3600), clock="event", ties="last"),
    built(id="each", title="each", window=Periods(unit="hour", keep=2), clock="event", operator="best", cap=5),
]


@pytest.mark.parametrize("moving", MOVING, ids=lambda board: board.id)
async def test_rotation_during_a_comparison_is_not_drift(valkey_url: str, tmp_path: Path, moving: Board) -> None:
    """Events open new slots, old slots are subtracted in steps, and drift is still found."""
    chance = random.Random(4)
    async with compared(valkey_url, tmp_path, moving, rotation_step=7) as board:
        done, pace = asyncio.Event(), 500_000  # the most milliseconds between the times of two batches

        async def write() -> None:
            now = 0
            while not done.is_set():
                now += chance.randrange(pace)
                events = [make_entry(chance.choice(MANY[:30]), chance.choice([1, 2, -1]), now) for _ in range(9)]
                await board.ledger.writer.add(events)
                await board.ledger.rotator.rotate()

        writing = asyncio.create_task(write())
        try:
            await eventually(board.offset)
            seen = 0
            for number in range(20):
                report = await board.check()
                assert report.drift == []
                seen += report.compared.get("slot", 0)
                if number >= 4 and seen:
                    break
                if not seen:  # on a busy machine, slots leave the window before they are compared
                    pace = max(1, pace // 2)
            assert seen > 0
            pace = 1  # the next slot then stays in the window
            starts = await board.do("ZRANGE", "slots", -1, -1)
            await board.do("HSET", f"slot:{starts[0].decode()}", "ghost", 2**40)
            report = await board.check()
            assert {drift.key for drift in report.drift} == {"ghost"}
        finally:
            done.set()
            await writing


async def test_a_comparison_with_two_cut_offs_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, the values are from one instant, and the link to the journal is from a later instant."""

    async def careless(state: Any, place: Place, **choices: Any) -> Any:
        piece = await read_piece(state, place, **choices)
        await asyncio.sleep(0.05)
        later = await read_piece(state, place, **choices)
        return msgspec.structs.replace(piece, link=later.link, offset=later.offset)

    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        with must_be_caught("the link is newer"), replaced(live.maintenance.check, "read_piece", careless):
            await under_load(board)
