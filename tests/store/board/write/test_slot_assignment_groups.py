"""The groups of a plan: what it adds to each slot, and who added it."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain.board import Board
from live.domain.choices import Votes
from live.domain.event import Entry, Extra, Likes, make_entry
from live.domain.window import Forever, Periods, Sliding
from live.journal.log.entries import content
from live.store.board.batch import BatchVotes, LogEvents, SlotDelta, SlotEvents
from live.store.board.state import Clock
from live.store.board.write.slot_assignment import make_plan, voter_digests
from live.store.connection.scripts import text
from tests.harness.boards import changed
from tests.harness.plans import EVENT, HOUR, SERVER, amounts, clock_at, forever, like, plan_on, vote

GROUPED: list[Entry] = [like("a", 1, 9 * HOUR), like("b", 2, 9 * HOUR), like("c", 3)]


def marks(group: SlotDelta) -> object:
    """The events with which the members of a group reached their amounts."""
    return group.orders, group.times, group.arrivals


def test_a_plan_has_a_group_for_each_slot() -> None:
    """A group has the amounts of its members, and also the deciding events if they order ties."""
    made = plan_on(msgspec.structs.replace(SERVER, ties="first"), GROUPED, 10 * HOUR)
    assert amounts(made) == {9 * HOUR: {"a": 1, "b": 2}, 10 * HOUR: {"c": 3}}
    nine = 9 * HOUR * 1000
    assert [marks(group) for group in made.slots.values()] == [([-1, -2], [nine, nine], {}), ([-3], [], {})]


@pytest.mark.parametrize(
    ("operator", "events", "expected"),
    [
        ("incr", [(1, 5), (1, 9), (1, 7)], ([-2], [9000], {})),
        ("incr", [(1, 9), (1, 9), (0, 10)], ([-2], [9000], {})),
        ("incr", [(1, 9), (1, None), (1, None)], ([-1], [9000], {1: -3})),
        ("best", [(3, 9), (3, 5), (2, 1), (3, 7)], ([2], [5000], {})),
        ("best", [(3, None), (3, 5), (3, None)], ([2], [5000], {1: 1})),
        ("best", [(3, 5), (4, None)], ([2], [False], {})),
        ("set", [(3, 9), (4, 5), (4, 1)], ([-2], [5000], {})),
        ("set", [(3, 9), (4, None)], ([-2], [False], {})),
    ],
)
def test_a_plan_says_when_each_member_reached_its_amount(
    operator: str, events: list[tuple[int, int | None]], expected: object
) -> None:
    """That is the latest event of a sum, the earliest event with the best amount, and the last change of a set amount.

    Only the store knows whether an event without a time comes before one with a time.
    """
    made = plan_on(forever(operator=operator), [like("a", amount, at) for amount, at in events], 10)
    assert marks(made.slots[0]) == expected


def test_a_group_has_metadata_votes_and_events() -> None:
    """A group has the metadata of each member and the votes, and the plan has the events of a log."""
    best = forever(operator="best", ties="last")
    entries = [like("a", 3), make_entry("b", 4, extra=Extra(metadata=b"{}"))]
    group = plan_on(best, entries, 0).slots[0]
    assert (group.orders, [content(one) for one in group.metadata]) == ([1, 2], [b"", b"{}"])
    contest = forever(votes=Votes(), ties="key")
    actor, pair = voter_digests(b"", "ann", "a")
    votes = plan_on(contest, [vote("a", "ann")], 0).slots[0].votes
    assert votes == BatchVotes([text(actor)], [text(pair)], [1], [0])
    sliding = forever(window=Sliding(60), ties="key")
    events = plan_on(sliding, [like("a", 2), like("b", 1, 5)], 5).batch.events
    assert events == LogEvents([False, 5000], [2, 1], ["a", "b"])


@given(st.lists(st.sampled_from("abcdef"), max_size=20), st.sampled_from(["key", "first", "last"]))
def test_likes_are_planned_like_other_entries(keys: list[str], ties: Any) -> None:
    """A whole batch of likes is added up at once, and a part of a batch one by one. The result is the same."""
    for board in (SERVER, forever(ties=ties), forever(ties=ties, window=Periods(unit="day"))):
        short = plan_on(board, Likes(keys), 10 * HOUR)
        entries = [like(member) for member in [*keys, "z"]]
        long = make_plan(board, entries, range(len(keys)), clock_at(10 * HOUR), None)
        if keys:
            assert plan_on(board, entries[:-1], 10 * HOUR) == short
        assert (amounts(short) if keys else {}, short.till) == (amounts(long), long.till)
        if board.ties != "key" and keys:
            assert short.slots[short.current or 0].orders == long.slots[long.current or 0].orders


@given(
    st.sampled_from(["incr", "set", "best"]),
    st.lists(st.tuples(st.integers(-1, 2), st.none() | st.integers(0, 3)), min_size=1, max_size=8),
)
def test_marks_are_those_of_the_events_that_count(operator: str, events: list[tuple[int, int | None]]) -> None:
    """Find the events that count in the whole list: the latest change of a sum, and the earliest best amount."""
    made = plan_on(forever(operator=operator), [like("a", amount, at) for amount, at in events], 10)
    group, numbered = made.slots[0], list(enumerate(events, 1))
    sign, choose = 1, min
    match operator:
        case "incr":
            total, sign, choose = sum(amount for amount, _ in events), -1, max
            counting = [(number, at) for number, (amount, at) in numbered if amount]
        case "best":
            total = max(amount for amount, _ in events)
            counting = [(number, at) for number, (amount, at) in numbered if amount == total]
        case _:
            total = events[-1][0]
            first = max([number for number, (amount, _) in numbered if amount != total], default=0) + 1
            counting, sign = [(first, events[first - 1][1])], 1 if first == 1 else -1
    timed, arrived = [(at, n) for n, at in counting if at is not None], [n for n, at in counting if at is None]
    time, number = choose(timed) if timed else (None, choose(arrived, default=0))
    assert (group.amounts, group.orders) == ([total], [sign * number])
    assert (group.times or [False]) == [False if time is None else time * 1000]
    assert group.arrivals == ({1: sign * choose(arrived)} if timed and arrived else {})


times = st.none() | st.integers(-20 * HOUR * 1000, 20 * HOUR * 1000)
batches = st.lists(st.builds(make_entry, st.sampled_from("abc"), st.integers(-5, 5), times), max_size=12)
WINDOWS = [SERVER.window, Periods(unit="day", grace=HOUR), Periods(unit="hour", last=5), Forever(), Sliding(7200)]
BOARDS = [changed(board, window=window) for board in (SERVER, EVENT) for window in WINDOWS]


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
            times_ = [time for time in (clock.latest, alone.batch.latest) if time is not None]
            clock = Clock(alone.batch.reached, clock.now, max(times_, default=None))
        refused |= alone.refused
        tills += [] if alone.till is None else [alone.till]
        for slot, group in alone.slots.items():
            for member, amount in zip(group.members, group.amounts, strict=True):
                sums = slots.setdefault(slot, {})
                sums[member] = sums.get(member, 0) + amount
    assert (amounts(whole), whole.refused) == (slots, refused)
    assert whole.batch.reached == (clock.newest if by_event else whole.current)
    if entries and not by_event:
        assert whole.till == min(tills, default=None)


def test_a_batch_of_one_producer_costs_only_its_name() -> None:
    """The plan has the name of the producer once, and no sender for each event."""
    made = make_plan(
        SERVER, [like(member) for member in "abac"], range(4), clock_at(0), None, senders=[("ann", 1), ("ann", 3)]
    )
    (group,) = made.slots.values()
    assert (made.batch.producers, made.senders) == (["ann"], [])
    assert group.events == SlotEvents(ones=True)


@pytest.mark.parametrize("entries", [Likes(["a", "b", "a", "c"]), [like(member) for member in "abac"]])
def test_a_batch_of_several_producers_says_who_added_what(entries: Sequence[Entry]) -> None:
    """Each event has the index of its producer. Entries of one producer need not be together."""
    senders = [("ann", 1), ("bob", 2), ("ann", 1)]
    made = make_plan(SERVER, entries, range(4), clock_at(0), None, senders=senders)
    (group,) = made.slots.values()
    assert made.batch.producers == ["ann", "bob"]
    assert (group.members, group.amounts) == (["a", "b", "c"], [2, 1, 1])
    assert group.events == SlotEvents(members=[0, 1, 0, 2], producers=[0, 1, 1, 0])


def test_the_log_of_a_sliding_window_says_who_sent_each_event() -> None:
    """The log also names the senders of plain likes, which are otherwise added up."""
    board, senders = forever(window=Sliding(HOUR)), [("ann", 1), ("bob", 2)]
    for entries in (Likes(["a", "a", "b"]), [like(member) for member in "aab"]):
        made = make_plan(board, entries, range(3), clock_at(0), None, senders=senders)
        assert made.batch.events == LogEvents([False] * 3, [1] * 3, ["a", "a", "b"])
        assert [group.events for group in made.slots.values()] == [SlotEvents(producers=[0, 1, 1])]


def test_a_time_of_the_only_event_is_told_once() -> None:
    """Where time breaks ties, the script needs it in the group. Elsewhere it is the newest time of the batch."""
    for ties, times in (("first", [[9000], []]), ("key", [[], []])):
        made = [plan_on(forever(ties=ties), [like("a", 2, at, b"1" * 16)], 10) for at in (9, None)]
        assert [plan.batch.latest for plan in made] == [9000, None]
        assert [plan.slots[0].times for plan in made] == times
        assert [plan.slots[0].events for plan in made] == [None, None]


def test_times_of_events_are_told_as_short_numbers() -> None:
    """They say how long before the newest time of the batch each event was, and nothing if all had that time."""
    for ats, times in (([9, 5], [0, 4000]), ([None, 5], [None, 0]), ([9, 9], [])):
        board, entries = forever(ties="key"), [like(member, 1, at) for member, at in zip("ab", ats, strict=True)]
        (group,) = plan_on(board, entries, 10).slots.values()
        assert (group.times, (group.events or SlotEvents()).times) == ([], times)
    (group,) = plan_on(forever(ties="first"), [like("a", 1, 9), like("b", 1, 5)], 10).slots.values()
    assert (group.times, group.events) == ([9000, 5000], None)
