"""What a merge moves from one member to another, on each kind of board."""

import pytest

from live.domain.event import make_entry
from live.domain.window import EVER, Sliding
from live.journal.log.entries import content
from live.store.board.batch import LogEvents, SlotDelta
from live.store.board.state import Clock
from live.store.board.write.merging import Move, Value, merged, put_move, read_move
from live.store.board.write.slot_assignment import Plan, begin_plan
from tests.harness.boards import open_ledger
from tests.harness.plans import HOUR, SERVER, forever

BOTH = ("old", "new")


def filled(move: Move, board: object, now: int) -> Plan:
    """The plan of a move at a time in milliseconds."""
    assert isinstance(board, type(SERVER))
    plan = begin_plan(board, Clock(None, now))
    move.fill(board, plan)
    return plan


def test_the_events_that_are_still_in_a_sliding_window_move() -> None:
    """An event as old as the window is left out. The plan is valid until the next event leaves the window."""
    board = forever(window=Sliding(60))
    events = {95_000: -1, 40_000: 1, 40_001: 2, 90_000: 0}
    move = merged(board, BOTH, "why", {}, events=events, metadata={})
    plan = filled(move, board, 100_000)
    times, amounts_ = [40_001, 40_001, 95_000, 95_000], [-2, 2, 1, -1]
    assert plan.batch.events == LogEvents(list(times), amounts_, ["old", "new"] * 2)
    assert (plan.till, plan.batch.producers, plan.batch.reason, move.slots) == (100_001, [":merge"], "why", 1)
    moved = SlotDelta.of(EVER.start, "", {"new": 1, "old": -1})
    moved.orders = [-1, -2]
    assert plan.slots == {EVER.start: moved}
    plan = filled(move, board, 155_000)
    assert (plan.batch.events, plan.slots, plan.till, move.slots) == (None, {}, None, 0)


def test_the_amounts_of_slots_in_the_window_move() -> None:
    """A slot in which the member has nothing is left out. An amount of zero does not change who is first among ties."""
    held = {
        "old": {0: b"1", HOUR: b"", 2 * HOUR: b"4", 3 * HOUR: b"0"},
        "new": dict.fromkeys(range(0, 4 * HOUR, HOUR), b""),
    }
    move = merged(SERVER, BOTH, "", held, events={}, metadata={})
    plan = filled(move, SERVER, 6 * HOUR * 1000)
    assert plan.slots == {
        2 * HOUR: SlotDelta.of(2 * HOUR, "", {"new": 4, "old": -4}),
        3 * HOUR: SlotDelta.of(3 * HOUR, "", {"new": 0, "old": 0}),
    }
    tied = forever(ties="first")
    move = merged(tied, BOTH, "", {"old": {EVER.start: b"0"}, "new": {EVER.start: b""}}, events={}, metadata={})
    assert filled(move, tied, 0).slots[EVER.start].orders == [0, 0]


@pytest.mark.parametrize(
    ("operator", "order", "old", "new", "left"),
    [
        ("best", "desc", b"5", b"3", Value(5, b"o")),
        ("best", "desc", b"3", b"5", Value(5, b"n")),
        ("best", "desc", b"5", b"5", Value(5, b"n")),
        ("best", "asc", b"3", b"5", Value(3, b"o")),
        ("best", "asc", b"5", b"5", Value(5, b"n")),
        ("best", "desc", b"-5", b"", Value(-5, b"o")),
        ("set", "desc", b"5", b"3", Value(3, b"n")),
        ("set", "desc", b"5", b"", Value(5, b"o")),
    ],
)
def test_one_of_two_values_stays_with_its_metadata(
    operator: str, order: str, old: bytes, new: bytes, left: Value
) -> None:
    """The better value stays, or with `set` the value of `new`.

    If `new` had this value before, `new` keeps its place among ties.
    """
    board, start = forever(operator=operator, sort_order=order), EVER.start
    metadata = {"old": {start: b"o"}, "new": {start: b"n"}}
    held = {"old": {start: old}, "new": {start: new}}
    move = merged(board, BOTH, "", held, events={}, metadata=metadata)
    assert move.values == {start: left}
    planned = filled(move, board, 0).slots[start]
    assert (planned.members, planned.amounts) == (["new", "old"], [left.value, int(old)])
    assert planned.orders == [0 if new and int(new) == left.value else -1, 0]
    assert ([content(one) for one in planned.metadata], planned.drops) == ([left.metadata, b""], [2])


async def test_a_dry_move_only_counts_slots(valkey_url: str) -> None:
    """The real move changes as many slots as the dry move has counted.

    In a sliding window, only events of the first member are read.
    """
    board = forever(window=Sliding(3600))
    async with open_ledger(valkey_url, board) as ledger:
        await ledger.writer.add([make_entry("old", 3), make_entry("new", 2), make_entry("old time", 9)])
        for dry, scores in ((True, [9, 3, 2]), (False, [9, 5])):
            move = await put_move(ledger.writer, lambda: read_move(ledger.state, BOTH, "why"), dry=dry)
            assert move.slots == 1
            assert [record.score for record in (await ledger.reader.read(9)).records] == scores
        move = await put_move(ledger.writer, lambda: read_move(ledger.state, BOTH, "why"))
        assert move.slots == 0
        assert (await ledger.reader.read(9)).offset == 2
