"""Plans: which slot each entry goes to, and which entries are refused, by the board's clock."""

import msgspec
import pytest

from live.domain.choices import Votes
from live.domain.event import MAX_SCORE, Entry, Extra, Likes, make_entry
from live.domain.window import EVER, Periods, Sliding
from live.journal.log.entries import content
from live.store.board.batch import Batch, LogEvents, SlotDelta
from live.store.board.state import Clock
from live.store.board.write.slot_assignment import (
    Placement,
    Plan,
    begin_plan,
    make_plan,
    placements_of,
    refused_by_store,
    voter_digests,
)
from tests.harness.clock import datetime_of
from tests.harness.plans import EVENT, HOUR, SERVER, amounts, clock_at, forever, like, plan, plan_on, vote

DAY = 24 * HOUR
NEW_YEAR = 1_767_225_600  # 1 January 2026 00:00 UTC


def test_an_entry_without_a_time_goes_to_the_newest_slot() -> None:
    """On the server's clock, the store gives the time. The plan is valid until the newest slot ends."""
    made = plan([like("a"), like("b", 2)], 10 * HOUR)
    assert made == Plan(
        Batch(rules=SERVER.rules, reached=10 * HOUR), 10 * HOUR, 10 * HOUR * 1000, till=11 * HOUR * 1000,
        slots={10 * HOUR: SlotDelta.of(10 * HOUR, "", {"a": 1, "b": 2})},
    )  # fmt: skip


def test_equal_keys_of_a_slot_are_added_up() -> None:
    """Each member appears once in a slot, in the order of first events."""
    made = plan([like("b", 2), like("a"), like("b", -5), like("a", 0)], 0)
    assert list(amounts(made)[0].items()) == [("b", -3), ("a", 1)]


def test_a_time_chooses_the_slot() -> None:
    """The same member in two slots has two sums. The script checks the latest time."""
    made = plan([like("a", 1, 9 * HOUR), like("a", 2, 10 * HOUR - 1), like("a", 4, 10 * HOUR)], 10 * HOUR)
    assert amounts(made) == {9 * HOUR: {"a": 3}, 10 * HOUR: {"a": 4}}
    assert made.batch.latest == 10 * HOUR * 1000


@pytest.mark.parametrize(("at", "slot"), [(6 * HOUR, 6 * HOUR), (6 * HOUR - 1, None), (7 * HOUR - 1, 6 * HOUR)])
def test_an_entry_before_the_window_is_late(at: int, slot: int | None) -> None:
    """The slot that is exactly a window old still counts (I2). The slot before it has expired (I4)."""
    made = plan([like("a", 1, at)], 10 * HOUR)
    assert amounts(made) == ({} if slot is None else {slot: {"a": 1}})
    assert made.refused == ({0: "late"} if slot is None else {})


def test_an_event_clock_moves_with_the_batch() -> None:
    """An entry is judged by the newest event before it in the batch, and not by later events."""
    entries = [like("a", 1, 0), like("b", 1, 9 * HOUR), like("c", 1, 5 * HOUR), like("d", 1, 4 * HOUR)]
    made = plan(entries, None, by_event=True)
    assert (made.current, made.batch.reached, made.batch.latest) == (None, 9 * HOUR, 9 * HOUR * 1000)
    assert amounts(made) == {0: {"a": 1}, 9 * HOUR: {"b": 1}, 5 * HOUR: {"c": 1}}
    assert made.refused == {3: "late"}


def test_the_servers_clock_is_not_moved_by_events() -> None:
    """A time in the future counts in its slot, and makes nothing late."""
    made = plan([like("a", 1, 20 * HOUR), like("b")], 10 * HOUR)
    assert (made.batch.reached, made.refused) == (10 * HOUR, {})


def test_an_event_clock_requires_times() -> None:
    """Only the entry without a time is refused."""
    assert plan([like("a"), like("b", 1, 0)], None, by_event=True).refused == {0: "time_required"}
    assert plan([like("a")], 9 * HOUR, by_event=True).refused == {0: "time_required"}


def test_a_time_beyond_the_newest_allowed_is_early() -> None:
    """The exact limit is allowed. An early event moves no clock."""
    made = plan([make_entry("a", 1, 5001), make_entry("b", 1, 5000)], 0, by_event=True, newest=5000)
    assert made.refused == {0: "early"}
    assert (made.batch.reached, made.batch.latest, amounts(made)) == (0, 5000, {0: {"b": 1}})


def test_times_before_1970_have_slots() -> None:
    """A log of any age can be replayed."""
    made = make_plan(EVENT, [make_entry("a", 1, -1)], [0], clock_at(None), None)
    assert (amounts(made), made.batch.reached, made.batch.latest) == ({-HOUR: {"a": 1}}, -HOUR, -1)


def test_only_requested_entries_are_planned() -> None:
    """The indexes count all entries of the batch."""
    board = msgspec.structs.replace(EVENT, ties="first")
    made = make_plan(board, [like("a", 1, 0), like("b"), like("c", 1, 0)], [1, 2], clock_at(None), None)
    assert amounts(made) == {0: {"c": 1}}
    assert (made.slots[0].times, made.slots[0].orders) == ([0], [-3])
    assert made.refused == {1: "time_required"}


def test_an_inexact_sum_is_refused() -> None:
    """Amounts that are each allowed may be too large together. A later amount makes no room for an earlier amount."""
    full = {1: "score_out_of_range"}
    assert plan([like("a", MAX_SCORE)], 0).refused == {}
    assert plan([like("a", MAX_SCORE), like("a")], 0).refused == full
    assert plan([like("a", -MAX_SCORE), like("a", -1)], 0).refused == full
    assert plan([like("a", MAX_SCORE), like("a"), like("a", -1), like("b")], 0).refused == full


@pytest.mark.parametrize(
    ("newest", "now", "current"),
    [(None, 10 * HOUR + 5, 10 * HOUR), (9 * HOUR, 10 * HOUR, 10 * HOUR)],
)
def test_the_servers_clock_determines_the_newest_slot(newest: int | None, now: int, current: int) -> None:
    """The newest slot contains the present time."""
    made = begin_plan(SERVER, Clock(newest, now * 1000))
    assert (made.current, made.batch.reached, made.till) == (current, current, (current + HOUR) * 1000)


def test_a_plan_without_slots_stays_valid() -> None:
    """No time of the store can invalidate the plan."""
    for board in (forever(), forever(window=Sliding(60))):
        made = begin_plan(board, Clock(None, 5))
        assert (made.current, made.till) == (EVER.start, None)
    rules = EVENT.rules
    assert begin_plan(EVENT, Clock(None, 7)) == Plan(Batch(rules=rules, by_event=True), None, 7)
    assert begin_plan(EVENT, Clock(0, 7, 99)) == Plan(Batch(rules=rules, by_event=True, reached=0), 0, 99)


def test_an_identity_is_planned_once() -> None:
    """Among equal identities, the first identity that is not refused counts. The plan has the index of its entry."""
    entries = [
        like("a", 1, -DAY, b"1"), like("a", 1, 10 * HOUR, b"1"), like("b", 1, None, b"1"), like("b", 1, None, b"2")
    ]  # fmt: skip
    made = plan(entries, 10 * HOUR)
    assert made.refused == {0: "late", 2: "duplicate"}
    assert made.identities == {b"1": 1, b"2": 3}
    assert (list(made.refused_identities), made.looked_up) == ([b"1"], [])
    assert refused_by_store(SERVER, [b"seen", 1], entries, range(4), made) == dict.fromkeys([0, 1, 2], "duplicate")
    assert refused_by_store(SERVER, [b"seen", 2], entries, range(4), made) == {3: "duplicate"}
    assert refused_by_store(SERVER, [b"seen", 1, 2], entries, [0, 3], made) == {0: "duplicate", 3: "duplicate"}


@pytest.mark.parametrize(
    ("amounts_", "total", "order"),
    [([1], 1, -1), ([1, 1], 2, -2), ([1, 0], 1, -1), ([0, 1], 1, -2), ([0], 0, 0), ([1, -1], 0, -2),
     ([3, -1, 0], 2, -2)],
)  # fmt: skip
def test_a_sum_is_reached_with_its_last_change(amounts_: list[int], total: int, order: int) -> None:
    """The order has the number of the last event that changes the score. An amount of zero changes nothing."""
    made = plan_on(forever(), [like("a", amount) for amount in amounts_], 0)
    group = made.slots[EVER.start]
    assert (group.members, group.amounts, group.orders) == (["a"], [total], [order])


@pytest.mark.parametrize(
    ("operator", "order", "values", "value", "number"),
    [
        ("set", "desc", [5], 5, 1), ("set", "desc", [5, 5], 5, 1), ("set", "desc", [5, 4], 4, -2),
        ("set", "desc", [5, 4, 5], 5, -3), ("set", "desc", [0], 0, 1),
        ("best", "desc", [5], 5, 1), ("best", "desc", [5, 4], 5, 1), ("best", "desc", [5, 6], 6, 2),
        ("best", "desc", [5, 6, 6], 6, 2), ("best", "desc", [-5, 0], 0, 2),
        ("best", "asc", [5, 4], 4, 2), ("best", "asc", [5, 6], 5, 1), ("best", "asc", [5, 5], 5, 1),
    ],
)  # fmt: skip
def test_a_value_is_reached_with_its_event(
    operator: str, order: str, values: list[int], value: int, number: int
) -> None:
    """The number belongs to the event that brings the final value.

    It is negative if an earlier event of the batch replaces such a value in the store.
    """
    made = plan_on(forever(operator=operator, sort_order=order), [like("a", amount) for amount in values], 0)
    assert amounts(made) == {0: {"a": value}}
    assert made.slots[0].orders == [number]


def test_metadata_comes_from_the_deciding_event() -> None:
    """If the deciding event has no metadata, the earlier value's metadata is deleted."""
    entries = [
        make_entry("a", 5, extra=Extra(metadata=b'{"n":1}')), make_entry("a", 7, extra=Extra(metadata=b'{"n":2}')),
        make_entry("a", 6, extra=Extra(metadata=b'{"n":3}')), make_entry("b", 1), make_entry("c", 1, extra=Extra("x")),
    ]  # fmt: skip

    def metadata(operator: str, events: list[Entry]) -> list[bytes]:
        return [content(one) for one in plan_on(forever(operator=operator), events, 0).slots[0].metadata]

    assert metadata("best", entries) == [b'{"n":2}', b"", b""]
    assert metadata("set", entries)[0] == b'{"n":3}'
    again = [make_entry("a", 5, extra=Extra(metadata=b'{"n":%d}' % number)) for number in (1, 2)]
    assert metadata("set", again) == [b'{"n":2}']
    assert metadata("best", again) == [b'{"n":1}']
    assert metadata("incr", entries) == []


def test_a_vote_has_digests_of_its_voter_and_its_pair() -> None:
    """The digests are keyed and have 16 bytes. The script names a refused vote by its number in `voters`."""
    votes = Votes(per_key=1)
    entries = [vote("a", "ann"), vote("b", None), vote("a", "bob", -2)]
    made = make_plan(forever(votes=votes), entries, range(3), clock_at(0), None, b"secret")
    assert made.refused == {1: "actor_required"}
    assert made.voters == [0, 2]

    ann, bob = voter_digests(b"secret", "ann", "a"), voter_digests(b"secret", "bob", "a")
    votes_ = made.slots[0].votes
    assert votes_ is not None
    assert (votes_.changes, votes_.members) == ([1, -2], [0, 0])
    assert [(content(actor), content(pair)) for actor, pair in zip(votes_.actors, votes_.pairs, strict=True)] == [
        ann,
        bob,
    ]
    assert {len(digest) for digest in (*ann, *bob)} == {16}
    assert plan_on(forever(votes=votes), [like("a")], 0).refused == {0: "actor_required"}
    assert plan_on(forever(), [vote("a", "ann")], 0).slots[0].votes is None


def test_the_store_refuses_the_vote_that_it_means() -> None:
    """The script numbers votes slot by slot, and not in the order of the batch."""
    days = forever(votes=Votes(per_key=1), window=Periods(unit="day", grace=HOUR))
    votes = [vote("a", "ann", at=DAY), vote("a", "ann", at=DAY - 1), vote("a", "ann", at=DAY)]
    made = plan_on(days, votes, DAY)
    reply = [b"votes", 2, b"quota_exceeded"]
    assert refused_by_store(days, reply, votes, range(3), made) == {2: "quota_exceeded"}


@pytest.mark.parametrize(
    ("at", "now", "code", "till"),
    [
        *((at, 99, "not_open", 100_000) for at in (None, 150)),
        *((None, now, None, 200_000) for now in (100, 199)),
        *((None, now, "closed", None) for now in (200, 204)),
        *((150, now, None, 205_000) for now in (100, 199, 200, 204)),
        (150, 205, "closed", None), (199, 204, None, 205_000),
        *((99, now, "not_open", None) for now in (98, 99, 100, 150, 204)),
        *((200, now, "closed", None) for now in (199, 200, 204)),
    ],
)  # fmt: skip
def test_a_contest_opens_and_closes_by_the_servers_clock(
    at: int | None, now: int, code: str | None, till: int | None
) -> None:
    """A vote with a time in the hours of voting may arrive five seconds after the end.

    A vote with a time outside is refused, whenever it arrives. The plan is valid until the result would change.
    """
    board = forever(votes=Votes(opens=datetime_of(100_000), closes=datetime_of(200_000)))
    made = plan_on(board, [vote("a", "ann", at=at)], now)
    assert (made.refused, made.till) == ({} if code is None else {0: code}, till)


@pytest.mark.parametrize(("at", "code"), [(99, "not_open"), (100, None), (199, None), (200, "closed")])
def test_a_contest_on_an_event_clock_uses_event_times(at: int, code: str | None) -> None:
    """The plan is valid forever."""
    board = forever(votes=Votes(opens=datetime_of(100_000), closes=datetime_of(200_000)), clock="event")
    for now in (0, 150, 500):
        made = plan_on(board, [vote("a", "ann", at=at)], now)
        assert (made.refused, made.till) == ({} if code is None else {0: code}, None)


def test_a_sliding_window_logs_its_events() -> None:
    """The log has each event with its time, except for an amount of zero. Plain likes of a batch are added up."""
    board = forever(window=Sliding(60))
    made = plan_on(board, [like("a", 2), like("b", 0), like("a", -1, 50), like("c", 1, 100)], 100)
    assert made.batch.events == LogEvents([False, 50_000, 100_000], [2, -1, 1], ["a", "a", "c"])
    assert made.batch.latest == 100_000
    assert plan_on(board, Likes(["a", "b", "a"]), 100).batch.events == LogEvents([False, False], [2, 1], ["a", "b"])
    assert plan_on(forever(), [like("a")], 100).batch.events is None


@pytest.mark.parametrize("clock", ["server", "event"])
def test_a_sliding_window_is_exact_to_the_millisecond(clock: str) -> None:
    """An event as old as the window is late. The plan is valid until its oldest event would be late."""
    board = forever(window=Sliding(60), clock=clock)
    now = Clock(EVER.start, 100_000, 100_000)
    made = make_plan(board, [make_entry("a", 1, 40_000), make_entry("b", 1, 40_001)], range(2), now, None)
    assert (made.refused, made.till) == ({0: "late"}, 100_001)
    made = make_plan(board, [make_entry("a", 1, 90_000), make_entry("b", 1, 70_000)], range(2), now, None)
    assert (made.refused, made.till) == ({}, 130_000)


def test_a_sliding_window_on_event_times_moves_with_the_batch() -> None:
    """Whether an event is late depends on the newest event before it. An early event does not move the window."""
    board = forever(window=Sliding(60), clock="event")
    entries = [like("a", 1, 0), like("b", 1, 60), like("a", 1, 0), like("c", 1, 500)]
    made = make_plan(board, entries, range(4), Clock(None, 0), 100_000)
    assert made.refused == {2: "late", 3: "early"}
    assert (made.batch.reached, made.batch.latest) == (EVER.start, 60_000)


def test_a_period_accepts_events_during_its_grace() -> None:
    """The plan is valid until the exact second when the grace ends. The current period needs no grace."""
    board = forever(window=Periods(unit="day", grace=2 * HOUR))
    yesterday = like("a", 1, NEW_YEAR - 5)
    made = plan_on(board, [yesterday, like("b", 1, NEW_YEAR + 5)], NEW_YEAR + 2 * HOUR - 1)
    assert amounts(made) == {NEW_YEAR - DAY: {"a": 1}, NEW_YEAR: {"b": 1}}
    assert made.till == (NEW_YEAR + 2 * HOUR) * 1000
    assert plan_on(board, [like("b", 1, NEW_YEAR + 5)], NEW_YEAR + HOUR).till == (NEW_YEAR + DAY) * 1000
    assert plan_on(board, [yesterday], NEW_YEAR + 2 * HOUR).refused == {0: "late"}
    assert plan_on(forever(window=Periods(unit="day")), [yesterday], NEW_YEAR).refused == {0: "late"}


def test_an_event_for_a_dropped_period_is_late() -> None:
    """The board has no ranking for a dropped period any more, so the grace does not matter."""
    board = forever(window=Periods(unit="hour", keep=1, grace=DAY))
    made = plan_on(board, [like("a", 1, NEW_YEAR - HOUR), like("b", 1, NEW_YEAR - HOUR - 1)], NEW_YEAR)
    assert (amounts(made), made.refused) == ({NEW_YEAR - HOUR: {"a": 1}}, {1: "late"})


def test_added_up_periods_count_while_they_are_among_the_last() -> None:
    """Periods that are added up have no grace, and need none."""
    board = forever(window=Periods(unit="day", last=3))
    entries = [like("a", 1, NEW_YEAR - 2 * DAY), like("b", 1, NEW_YEAR - 2 * DAY - 1)]
    made = plan_on(board, entries, NEW_YEAR + HOUR)
    assert (amounts(made), made.refused) == ({NEW_YEAR - 2 * DAY: {"a": 1}}, {1: "late"})
    assert made.till == (NEW_YEAR + DAY) * 1000


@pytest.mark.parametrize(
    ("order", "beaten", "best"),
    [("desc", 5, [False, True, False, True]), ("asc", 5, [False, False, False, True]),
     ("asc", 6, [True, False, False, True]), ("desc", 7, [False, False, False, True])],
)  # fmt: skip
def test_a_new_best_beats_the_store_and_the_batch(order: str, beaten: int, best: list[bool]) -> None:
    """An equal amount is no new best. The first amount of a member is its best."""
    board = forever(operator="best", sort_order=order)
    entries = [like("a", 5), like("a", 7), like("a", 7), like("b", 0)]
    made = plan_on(board, entries, 0)
    found = placements_of(board, made, entries, range(4), [b"%d" % beaten, b""])
    assert found == {number: Placement(0, is_best) for number, is_best in enumerate(best)}


def test_elsewhere_an_entry_has_only_its_slot() -> None:
    """On boards without `best`, and if the reply of the store was lost, a placement has only the slot of the entry.

    A refused entry has no placement.
    """
    entries = [like("a", 1, 9 * HOUR), like("a", 1, 0), like("b")]
    made = plan(entries, 10 * HOUR)
    assert placements_of(SERVER, made, entries, range(3), [b"1", b"1"]) == {
        0: Placement(9 * HOUR, None), 2: Placement(10 * HOUR, None)
    }  # fmt: skip
    lost = plan_on(forever(operator="best"), entries[2:], 0)
    assert placements_of(forever(operator="best"), lost, entries[2:], [0], []) == {0: Placement(0, None)}


@pytest.mark.parametrize(("now", "code"), [(DAY + 4, None), (DAY + 5, "late")])
def test_a_vote_arrives_in_the_grace_after_its_period(now: int, code: str | None) -> None:
    """If voting ends with a period, the period takes votes until the grace of the votes is over."""
    votes = Votes(per_key=1, closes=datetime_of(DAY * 1000))
    made = plan_on(forever(votes=votes, window=Periods(unit="day")), [vote("a", "ann", at=DAY - 1)], now)
    assert made.refused == ({} if code is None else {0: code})
    assert code or made.till == (DAY + 5) * 1000  # the script checks the end again
