"""A plain count of the entries finds what a wrong fold hides from every other comparison."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import live.journal.state.fold
from live.domain.choices import ClockKind
from live.domain.event import Extra, make_entry
from live.domain.window import Rolling, Sliding
from live.journal.log.entries import Head
from live.journal.state.snapshot import Snapshot
from live.maintenance.check import Report, check_board
from live.maintenance.count import Count, miscounted
from live.maintenance.void import Criteria, Voiding
from tests.harness.boards import built
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, fill
from tests.harness.mutation import replaced

KINDS = {**BOARDS, "zeros": built(id="zeros", title="z", window=Rolling(86_400, 3600), ties="last", zeros=True)}


async def deeply(board: Compared) -> Report:
    """Check the board, and count its entries."""
    epoch = board.ledger.state.epoch or ""
    report, _ = await check_board(board.client, board.settings, board.board, epoch, lambda *_: None, deep=True)
    assert not report.fault, report
    return report


async def is_counted(board: Compared) -> None:
    """The plain count agrees with the fold."""
    await board.is_drained()
    report = await deeply(board)
    assert report.clean, report


@pytest.mark.parametrize("name", KINDS)
async def test_a_right_fold_agrees_with_the_plain_count(valkey_url: str, tmp_path: Path, name: str) -> None:
    """This also holds after the journal has begun again with what the store holds, and after it has changed again."""
    async with compared(valkey_url, tmp_path, KINDS[name]) as board:
        await fill(board)
        await is_counted(board)
        await board.begin_again()
        if board.board.votes is None:
            await board.add(("ann", -7), ("bob", 0), ("new", 3))
            await is_counted(board)


@pytest.mark.parametrize("name", KINDS)
async def test_events_that_were_taken_back_are_not_counted(valkey_url: str, tmp_path: Path, name: str) -> None:
    """The plain count is told which events these are. Those that come later count."""
    async with compared(valkey_url, tmp_path, KINDS[name]) as board:
        await fill(board)
        entries = [make_entry(member, 1, None, None, Extra("new")) for member in ("ann", "ann", "cat")]
        assert not (await board.ledger.writer.add(entries, [("eve", 2), ("bob", 1)])).refused
        await board.is_drained()
        voiding = Voiding(board.client, board.settings, board.databases[0], lambda *_: None)
        (outcome,) = await voiding.void(Criteria(producer="eve"), board.board.id, dry=False)
        assert outcome.events == 2
        await is_counted(board)
        if board.board.votes is None:
            await board.add(("ann", 2), ("bob", 1))
            await is_counted(board)


async def test_records_that_an_earlier_cap_cut_off_are_not_counted(valkey_url: str, tmp_path: Path) -> None:
    """The board has no cap any more, and the records do not come back."""
    async with compared(valkey_url, tmp_path, BOARDS["best"]) as board:
        await fill(board)
        await board.add(("dan", 9), ("eve", 8))
        board.board = msgspec.structs.replace(board.board, cap=None)
        await is_counted(board)


async def test_an_event_ahead_of_the_clock_drops_nothing(valkey_url: str, tmp_path: Path) -> None:
    """It opens a slot, and the window does not move before the clock does."""
    rolling = built(id="posts", title="p", window=Rolling(40, 10))
    async with compared(valkey_url, tmp_path, rolling) as board:
        now = 1000 * (await board.client.time())[0]
        await board.ledger.writer.add([make_entry("ann", 1, now - 20_000), make_entry("bob", 1, now + 50_000)])
        await is_counted(board)


def test_a_slot_that_the_clock_has_left_behind_is_in_neither_count() -> None:
    """The last entry counts nothing, so the newest slot is an older one."""
    rolling, slots = built(id="b", title="b", window=Rolling(7200, 3600)), {0: {"ann": 1}}
    head = Head("hide", 0, "2-0", 10_800_000_000, "", "")  # three hours after 1970
    count = Count(rolling)
    count.slots.update(slots)
    count.add(head, b"")
    assert [*miscounted(rolling, Snapshot(newest=0, time=head.time, slots=slots), count)] == []


@pytest.mark.parametrize("clock", ["server", "event"])
def test_what_has_left_the_window_is_dropped(monkeypatch: pytest.MonkeyPatch, clock: ClockKind) -> None:
    """So a long journal needs no more memory than the window."""
    monkeypatch.setattr("live.maintenance.count._FEW", 1)
    head = Head("hide", 0, "2-0", 100_000_000, "", "")  # a hundred seconds after 1970
    sliding = Count(built(id="a", title="a", window=Sliding(60), clock=clock))
    sliding.events = [(1_000, "ann", 1), (40_000, "bob", 1), (41_000, "cat", 1), (100_000, "dan", 1)]
    sliding.add(head, b"")
    assert [member for _, member, _ in sliding.events] == ["cat", "dan"]
    rolling = Count(built(id="b", title="b", window=Rolling(7200, 3600), clock=clock))
    rolling.slots.update({start: {"ann": 1} for start in (0, 3600, 7200, 10_800)})
    rolling.add(msgspec.structs.replace(head, time=10_800_000_000), b"")
    assert [*rolling.slots] == [3600, 7200, 10_800]


@pytest.mark.mutant
async def test_only_the_plain_count_sees_a_store_that_follows_a_wrong_fold(valkey_url: str, tmp_path: Path) -> None:
    """A swap has written what the fold says."""
    async with compared(valkey_url, tmp_path, BOARDS["key"]) as board:
        await fill(board)
        await board.is_drained()
        module: Any = live.journal.state.fold
        right = module._count

        def wrong(data: Any, group: Any, *rest: Any) -> None:
            right(data, group, *rest)
            if "bob" in group.members:
                data.slots[group.start]["bob"] -= 1

        with replaced(module, "_count", wrong):
            await board.replace()
            assert (await board.check()).clean
            found = await deeply(board)
        (drift,) = found.drift
        assert (drift.kind, drift.key, drift.store, drift.right) == ("counted", "bob", 6, 8)
