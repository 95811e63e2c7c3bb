"""Drift is found and repaired while events arrive, slots leave and replies are lost."""

import asyncio
import random
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from redis.exceptions import ConnectionError as LostError

import live.journal.reconcile
from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.window import Periods, Rolling, Sliding
from live.journal.reconcile import Reconciler
from live.store.board.comparison_requests import MendRequest
from live.store.board.mending import MEND, BoardMender, Correction, Value
from live.store.board.pieces import read_piece
from live.store.connection.scripts import Script
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, fill, slot_of
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced
from tests.harness.waiting import eventually

MANY: Final = [f"m{number}" for number in range(400)]


async def under_load(board: Compared, repair: str, script: Script[Any] = MEND) -> None:
    """Plant drift, and compare and repair it while events arrive. Afterwards every event has counted exactly once."""
    board.mend = script
    chance = random.Random(3)
    scores = dict.fromkeys(MANY, 1000)  # so that none becomes zero
    await board.add(*scores.items())
    slot, done = await slot_of(board), asyncio.Event()

    async def write() -> None:
        while not done.is_set():
            events = {chance.choice(MANY): chance.choice([1, 2, -1]) for _ in range(50)}
            await board.add(*events.items())
            for member, amount in events.items():
                scores[member] += amount

    writing = asyncio.create_task(write())
    try:
        assert (await board.reconcile()).drifted == 0, "nothing differs yet"
        drift = {member: chance.choice([-7, 5]) for member in MANY[::20]}
        for member, amount in drift.items():
            await board.do("HINCRBY", slot, member, amount)
        report = await board.reconcile("store" if repair == "store" else "journal")
        assert {(difference.kind, difference.key) for difference in report.drift} == {("slot", key) for key in drift}
        assert report.left == 0
        assert report.repaired == len(drift), "each once"
    finally:
        done.set()
        await writing
    if repair == "journal":
        for member, amount in drift.items():
            scores[member] += amount
        await board.settle_ranking()
    held = await board.do("HGETALL", slot)
    assert {member.decode(): int(value) for member, value in held.items()} == scores
    assert dict(await board.rows()) == scores
    assert await board.is_sound()
    assert (await board.reconcile()).drifted == 0


@pytest.mark.parametrize("repair", ["store", "journal"])
async def test_drift_is_found_and_repaired_under_load(valkey_url: str, tmp_path: Path, repair: str) -> None:
    """Each piece is compared at its own instant, and a repair is an increment."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await under_load(board, repair)


MOVING: Final = [
    Board(id="hours", title="hours", window=Rolling(6 * 3600, 3600), clock="event", ties="first"),
    Board(id="slide", title="slide", window=Sliding(3 * 3600), clock="event", ties="last"),
    Board(id="each", title="each", window=Periods(unit="hour", keep=2), clock="event", operator="best", cap=5),
]


@pytest.mark.parametrize("moving", MOVING, ids=lambda board: board.id)
async def test_rotation_during_a_comparison_is_not_drift(valkey_url: str, tmp_path: Path, moving: Board) -> None:
    """Events open new slots, old ones are subtracted in steps, and drift is still found."""
    chance = random.Random(4)
    async with compared(valkey_url, tmp_path, moving, rotation_step=7) as board:
        done, pace = asyncio.Event(), 500_000  # milliseconds from one batch to the next, at most

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
                report = await board.reconcile()
                assert report.drift == []
                seen += report.compared.get("slot", 0)
                if number >= 4 and seen:
                    break
                if not seen:  # on a busy machine, slots leave before they are compared
                    pace = max(1, pace // 2)
            assert seen > 0
            pace = 1  # so that the slot stays in the window
            starts = await board.do("ZRANGE", "slots", -1, -1)
            await board.do("HSET", f"slot:{starts[0].decode()}", "ghost", 2**40)
            report = await board.reconcile("store")
            assert {drift.key for drift in report.drift} == {"ghost"}
            assert report.left == 0
        finally:
            done.set()
            await writing
        await board.settle_ranking()
        assert (await board.reconcile()).drifted == 0


async def test_a_comparison_with_two_cut_offs_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The values are from one instant, and the entry of the journal from a later one."""

    async def careless(state: Any, key: str, **choices: Any) -> Any:
        piece = await read_piece(state, key, **choices)
        await asyncio.sleep(0.05)
        later = await read_piece(state, key, **choices)
        return msgspec.structs.replace(piece, link=later.link, offset=later.offset)

    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        with must_be_caught("two cut-offs"), replaced(live.journal.reconcile, "read_piece", careless):
            await under_load(board, "store")


async def test_a_repair_that_overwrites_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """It loses events that were counted since its value was read."""
    source = mutated(MEND.source, {"elseif value ~= seen[i] and": "elseif false and"})

    def overwriting(reconciler: Any, place: Any, drifts: Any) -> Any:
        return msgspec.structs.replace(_correction(reconciler, place, drifts), adds_up=False)

    _correction = Reconciler._correction
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        script = compiled(valkey_url, MEND.changed(source))
        with must_be_caught("HSET instead of increments"), replaced(Reconciler, "_correction", overwriting):
            for _ in range(20):  # until an event comes between the comparison and the repair
                await under_load(board, "store", script)


class Forgetful(Script[MendRequest]):
    """A correction whose first reply is lost."""

    lost = False

    async def __call__(self, *arguments: Any) -> list[Any]:
        """Run the script, and lose the reply."""
        reply = await super().__call__(*arguments)
        if not self.lost:
            self.lost = True
            raise LostError("the reply was lost")
        return reply


async def repaired_once(board: Compared, source: str) -> None:
    """Correct a value by 5, and lose the first reply."""
    await fill(board)
    slot, before = await slot_of(board), await board.offset()
    key = f"{board.ledger.state.keys.channel}:{slot}"
    correction = Correction(
        kind="slot", key=key, start=int(slot.partition(":")[2]), suffix="", adds_up=True, compared=before,
        newest=board.ledger.state.clock.newest, values=[Value(b"ann", b"7", b"12")],
    )  # fmt: skip
    mender = BoardMender(board.ledger.state, Forgetful(MEND.name, MendRequest, source))
    assert await mender.mend(correction, teach=False) == 1
    assert await board.do("HGET", slot, "ann") == b"12"
    assert dict(await board.rows())["ann"] == 12
    assert await board.offset() == before + 1
    other = BoardMender(board.ledger.state, MEND.changed(source))
    assert await other.mend(correction, teach=False) == 0, "it was compared before the first correction"
    assert await board.do("HGET", slot, "ann") == b"12"


async def test_a_repair_whose_reply_is_lost_applies_once(valkey_url: str, tmp_path: Path) -> None:
    """No other command repairs the same drift again."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await repaired_once(board, MEND.source)


@pytest.mark.parametrize(
    ("mistake", "right", "wrong"),
    [
        ("a repair without a number", "if sequence == request.sequence then", "if false then"),
        ("a repair of what another one has repaired", "if writer ~= request.writer and", "if false and"),
    ],
)
async def test_a_repair_that_applies_twice_is_detected(
    valkey_url: str, tmp_path: Path, mistake: str, right: str, wrong: str
) -> None:
    """The retry counts again, and so does the second command."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        source = mutated(MEND.source, {right: wrong})
        with must_be_caught(mistake):
            await repaired_once(board, compiled(valkey_url, MEND.changed(source)).source)
