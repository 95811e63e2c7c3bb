"""Plans: which slot each entry goes to, and which are refused, given where the clock stands."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.event import MAX_SCORE, Entry, make_entry
from live.store.plan import Plan, make_plan
from tests.support import rolling_board

SERVER = rolling_board("4h", "1h")
EVENT = rolling_board("4h", "1h", clock="event")
HOUR = 3600


def like(key: str, amount: int = 1, at: int | None = None) -> Entry:
    """A like of a key; `at` in seconds."""
    return make_entry(key, amount, None if at is None else at * 1000)


def plan(entries: Sequence[Entry], current: int | None, *, by_event: bool = False, newest: int | None = None) -> Plan:
    """Plan all of some entries; `newest` in milliseconds."""
    return make_plan(EVENT if by_event else SERVER, entries, range(len(entries)), current, newest)


def test_an_entry_without_a_time_goes_to_the_newest_slot() -> None:
    """On the server's clock, now is when the store says it is."""
    made = plan([like("a"), like("b", 2)], 10 * HOUR)
    assert made == Plan(10 * HOUR, 10 * HOUR, None, {10 * HOUR: {"a": 1, "b": 2}}, {})


def test_equal_keys_of_a_slot_are_added_up() -> None:
    """Each key stands once in a slot, in the order in which it came first."""
    made = plan([like("b", 2), like("a"), like("b", -5), like("a", 0)], 0)
    assert list(made.slots[0].items()) == [("b", -3), ("a", 1)]


def test_a_time_chooses_the_slot() -> None:
    """The same key in two slots is two sums; the latest time is kept for the script to judge."""
    made = plan([like("a", 1, 9 * HOUR), like("a", 2, 10 * HOUR - 1), like("a", 4, 10 * HOUR)], 10 * HOUR)
    assert made.slots == {9 * HOUR: {"a": 3}, 10 * HOUR: {"a": 4}}
    assert made.latest == 10 * HOUR * 1000


@pytest.mark.parametrize(("at", "slot"), [(6 * HOUR, 6 * HOUR), (6 * HOUR - 1, None), (7 * HOUR - 1, 6 * HOUR)])
def test_what_has_left_the_window_is_late(at: int, slot: int | None) -> None:
    """The slot that is exactly a window old still counts (I2); the one before has gone (I4)."""
    made = plan([like("a", 1, at)], 10 * HOUR)
    assert made.slots == ({} if slot is None else {slot: {"a": 1}})
    assert made.refused == ({0: "late"} if slot is None else {})


def test_an_event_clock_moves_with_the_batch() -> None:
    """What comes after a newer event is judged by it; what came before is not."""
    entries = [like("a", 1, 0), like("b", 1, 9 * HOUR), like("c", 1, 5 * HOUR), like("d", 1, 4 * HOUR)]
    made = plan(entries, None, by_event=True)
    assert (made.current, made.reached) == (None, 9 * HOUR)
    assert made.slots == {0: {"a": 1}, 9 * HOUR: {"b": 1}, 5 * HOUR: {"c": 1}}
    assert made.refused == {3: "late"}


def test_the_servers_clock_is_not_moved_by_events() -> None:
    """A time in the future lands in its slot, and makes nothing late."""
    made = plan([like("a", 1, 20 * HOUR), like("b")], 10 * HOUR)
    assert (made.reached, made.refused) == (10 * HOUR, {})


def test_an_event_clock_wants_times() -> None:
    """An entry without one is refused for itself."""
    assert plan([like("a"), like("b", 1, 0)], None, by_event=True).refused == {0: "time_required"}


def test_a_time_beyond_the_newest_allowed_is_early() -> None:
    """The very millisecond that is allowed passes; an early one moves no clock."""
    made = plan([make_entry("a", 1, 5001), make_entry("b", 1, 5000)], 0, by_event=True, newest=5000)
    assert made.refused == {0: "early"}
    assert (made.reached, made.latest, made.slots) == (0, 5000, {0: {"b": 1}})


def test_times_before_1970_have_slots() -> None:
    """A log of any age can be replayed."""
    made = make_plan(EVENT, [make_entry("a", 1, -1)], [0], None, None)
    assert made.slots == {-HOUR: {"a": 1}}


def test_only_the_entries_asked_for_are_planned() -> None:
    """Indexes are those of the whole batch."""
    made = make_plan(EVENT, [like("a", 1, 0), like("b"), like("c", 1, 0)], [1, 2], None, None)
    assert made.slots == {0: {"c": 1}}
    assert made.refused == {1: "time_required"}


def test_a_sum_out_of_range_is_too_large() -> None:
    """Amounts that each fit may not fit together; what cancels out does."""
    assert not plan([like("a", MAX_SCORE)], 0).too_large
    assert plan([like("a", MAX_SCORE), like("a")], 0).too_large
    assert plan([like("a", -MAX_SCORE), like("a", -1)], 0).too_large
    assert not plan([like("a", MAX_SCORE), like("a"), like("a", -1)], 0).too_large


def test_the_script_takes_a_plan_as_groups() -> None:
    """For each slot its start, how many keys, then the keys and their amounts."""
    made = plan([like("a", 1, 9 * HOUR), like("b", 2, 9 * HOUR), like("c", 3)], 10 * HOUR)
    assert made.groups() == [9 * HOUR, 2, "a", "b", 1, 2, 10 * HOUR, 1, "c", 3]


times = st.none() | st.integers(-20 * HOUR * 1000, 20 * HOUR * 1000)
batches = st.lists(st.builds(make_entry, st.sampled_from("abc"), st.integers(-5, 5), times), max_size=12)


@given(batches, st.none() | st.integers(-10, 10), st.none() | st.integers(-(10**8), 10**8), st.booleans())
def test_a_batch_is_planned_as_its_entries_one_by_one(
    entries: list[Entry], hour: int | None, newest: int | None, by_event: object
) -> None:
    """A batch gets the answers that its entries would get one after another, and the same sums."""
    board = EVENT if by_event else SERVER
    current = (None if by_event else 0) if hour is None else hour * HOUR
    whole = make_plan(board, entries, range(len(entries)), current, newest)

    reached = current
    slots: dict[int, dict[str, int]] = {}
    refused: dict[int, str] = {}
    for index in range(len(entries)):
        alone = make_plan(board, entries, [index], reached, newest)
        reached = alone.reached
        refused |= alone.refused
        for start, amounts in alone.slots.items():
            for key, amount in amounts.items():
                sums = slots.setdefault(start, {})
                sums[key] = sums.get(key, 0) + amount
    assert (whole.slots, whole.refused, whole.reached) == (slots, refused, reached)
