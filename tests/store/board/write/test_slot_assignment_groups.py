"""The groups of a plan: what it adds to each slot, and who added it."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain.board import Board, Votes
from live.domain.event import Entry, Extra, Likes, make_entry
from live.domain.window import Forever, Periods, Sliding
from live.store.board.state import Clock
from live.store.board.write.slot_assignment import make_plan, voter_digests
from tests.harness.plans import EVENT, HOUR, SERVER, amounts, clock_at, forever, like, plan_on, vote

GROUPED: list[Entry] = [like("a", 1, 9 * HOUR), like("b", 2, 9 * HOUR), like("c", 3)]


def test_a_plan_has_a_group_for_each_slot() -> None:
    """A group has the amounts of its members, and also the deciding events if they order ties."""
    made = plan_on(msgspec.structs.replace(SERVER, ties="first"), GROUPED, 10 * HOUR)
    assert amounts(made) == {9 * HOUR: {"a": 1, "b": 2}, 10 * HOUR: {"c": 3}}
    nine = 9 * HOUR * 1000
    assert [group.marks() for group in made.slots.values()] == [([-1, -2], [nine, nine], []), ([-3], [], [])]


@pytest.mark.parametrize(
    ("operator", "events", "marks"),
    [
        ("incr", [(1, 5), (1, 9), (1, 7)], ([-2], [9000], [])),
        ("incr", [(1, 9), (1, 9), (0, 10)], ([-2], [9000], [])),
        ("incr", [(1, 9), (1, None), (1, None)], ([-1], [9000], [1, -3])),
        ("best", [(3, 9), (3, 5), (2, 1), (3, 7)], ([2], [5000], [])),
        ("best", [(3, None), (3, 5), (3, None)], ([2], [5000], [1, 1])),
        ("best", [(3, 5), (4, None)], ([2], [], [])),
        ("set", [(3, 9), (4, 5), (4, 1)], ([-2], [5000], [])),
        ("set", [(3, 9), (4, None)], ([-2], [], [])),
    ],
)
def test_a_plan_says_when_each_member_reached_its_amount(
    operator: str, events: list[tuple[int, int | None]], marks: object
) -> None:
    """That is the latest event of a sum, the earliest event with the best amount, and the last change of a set amount.

    Only the store knows whether an event without a time comes before one with a time.
    """
    made = plan_on(forever(operator=operator), [like("a", amount, at) for amount, at in events], 10)
    assert made.slots[0].marks() == marks


def test_a_group_has_metadata_votes_and_events() -> None:
    """A group has the metadata of each member and the votes, and the plan has the events of a log."""
    best = forever(operator="best", ties="last")
    entries = [like("a", 3), make_entry("b", 4, extra=Extra(metadata=b"{}"))]
    group = plan_on(best, entries, 0).slots[0]
    assert (group.orders, group.metadata) == ({"a": 1, "b": 2}, {"a": b"", "b": b"{}"})
    contest = forever(votes=Votes(), ties="key")
    (vote_of_ann,) = plan_on(contest, [vote("a", "ann")], 0).slots[0].votes
    assert vote_of_ann == (*voter_digests(b"", "ann", "a"), 1)
    sliding = forever(window=Sliding(60), ties="key")
    assert plan_on(sliding, [like("a", 2), like("b", 1, 5)], 5).events == [(None, 2, "a"), (5000, 1, "b")]


@given(st.lists(st.sampled_from("abcdef"), max_size=20), st.sampled_from(["key", "first", "last"]))
def test_likes_are_planned_like_other_entries(keys: list[str], ties: Any) -> None:
    """A whole batch of likes is added up at once, and a part of a batch one by one. The result is the same."""
    for board in (SERVER, forever(ties=ties), forever(ties=ties, window=Periods(unit="day"))):
        short = plan_on(board, Likes(keys), 10 * HOUR)
        entries = [like(key) for key in [*keys, "z"]]
        long = make_plan(board, entries, range(len(keys)), clock_at(10 * HOUR), None)
        if keys:
            assert plan_on(board, entries[:-1], 10 * HOUR) == short
        assert (amounts(short) if keys else {}, short.till) == (amounts(long), long.till)
        if board.ties != "key" and keys:
            assert short.slots[short.current or 0].orders == long.slots[long.current or 0].orders


times = st.none() | st.integers(-20 * HOUR * 1000, 20 * HOUR * 1000)
batches = st.lists(st.builds(make_entry, st.sampled_from("abc"), st.integers(-5, 5), times), max_size=12)
WINDOWS = [SERVER.window, Periods(unit="day", grace=HOUR), Periods(unit="hour", last=5), Forever(), Sliding(7200)]
BOARDS = [msgspec.structs.replace(board, window=window) for board in (SERVER, EVENT) for window in WINDOWS]


@pytest.mark.slow
@given(batches, st.none() | st.integers(-10, 10), st.none() | st.integers(-(10**8), 10**8), st.sampled_from(BOARDS))
def test_a_batch_is_planned_like_its_single_entries(
    entries: list[Entry], hour: int | None, newest: int | None, board: Board
) -> None:
    """The plan of a batch gives the same refusals and sums as plans of its single entries."""
    by_event = board.clock == "event"
    now = None if hour is None and by_event else (hour or 0) * HOUR
    start = None if now is None else board.window.slot_at(now).start
    clock = Clock(start, (now or 0) * 1000, None if now is None else now * 1000)
    whole = make_plan(board, entries, range(len(entries)), clock, newest)

    slots: dict[int, dict[str, int]] = {}
    refused: dict[int, str] = {}
    tills: list[int] = []
    for index in range(len(entries)):
        alone = make_plan(board, entries, [index], clock, newest)
        if by_event:
            times_ = [time for time in (clock.latest, alone.latest) if time is not None]
            clock = Clock(alone.reached, clock.now, max(times_, default=None))
        refused |= alone.refused
        tills += [] if alone.till is None else [alone.till]
        for slot, group in alone.slots.items():
            for key, amount in group.amounts.items():
                sums = slots.setdefault(slot, {})
                sums[key] = sums.get(key, 0) + amount
    assert (amounts(whole), whole.refused) == (slots, refused)
    assert whole.reached == (clock.newest if by_event else whole.current)
    if entries and not by_event:
        assert whole.till == min(tills, default=None)


def test_a_batch_of_one_producer_costs_only_its_name() -> None:
    """The plan has the name of the producer once, and no sender for each event."""
    made = make_plan(
        SERVER, [like(key) for key in "abac"], range(4), clock_at(0), None, senders=[("ann", 1), ("ann", 3)]
    )
    assert (made.producers, made.senders, [group.parts for group in made.slots.values()]) == (["ann"], [], [{}])


@pytest.mark.parametrize("entries", [Likes(["a", "b", "a", "c"]), [like(key) for key in "abac"]])
def test_a_batch_of_several_producers_says_who_added_what(entries: Sequence[Entry]) -> None:
    """`parts` has what the other producers added. The first producer added the rest.

    Entries of one producer need not be together.
    """
    senders = [("ann", 1), ("bob", 2), ("ann", 1)]
    made = make_plan(SERVER, entries, range(4), clock_at(0), None, senders=senders)
    (group,) = made.slots.values()
    assert made.producers == ["ann", "bob"]
    assert (group.amounts, group.parts) == ({"a": 2, "b": 1, "c": 1}, {1: {"a": 1, "b": 1}})


def test_the_log_of_a_sliding_window_says_who_sent_each_event() -> None:
    """The log also names the senders of plain likes, which are otherwise added up."""
    board, senders = forever(window=Sliding(HOUR)), [("ann", 1), ("bob", 2)]
    for entries in (Likes(["a", "a", "b"]), [like(key) for key in "aab"]):
        made = make_plan(board, entries, range(3), clock_at(0), None, senders=senders)
        pairs = zip(made.events, made.event_senders, strict=True)
        assert [(member, sender) for (_, _, member), sender in pairs] == [("a", 0), ("a", 1), ("b", 1)]
