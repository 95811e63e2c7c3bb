"""Sets of events that were taken back."""

from hypothesis import given
from hypothesis import strategies as st

from live.journal.log.entries import parse_head
from live.journal.state.taken import NOTHING, SentBetween, Some, Taken

LINKS = [f"{number}-0 {min(number, 3) * 10} w {number}" for number in range(1, 5)]  # the last two have the same time
senders = st.builds(SentBetween, st.sampled_from("ab"), st.integers(0, 40), st.sampled_from(LINKS))
some = st.builds(lambda places: Some(3, tuple(sorted(places))), st.sets(st.integers(0, 2), min_size=1))
takens = st.builds(
    Taken, st.lists(senders, max_size=2, unique=True).map(tuple), st.dictionaries(st.sampled_from(LINKS), some)
)


def events(taken: Taken) -> set[tuple[str, int, str]]:
    """The events that are taken, of all events that could be."""
    heads = [parse_head(f"add 9 {link} {link}") for link in LINKS]
    return {
        (head.link, place, producer)
        for head in heads
        for place in range(3)
        for producer in "ab"
        if taken.takes(head, place, producer)
    }


def of_time(found: set[tuple[str, int, str]], time: int) -> set[tuple[str, int, str]]:
    """The events in entries up to a time."""
    return {event for event in found if int(event[0].split(" ")[1]) <= time}


@given(takens, takens)
def test_the_events_of_several_are_those_of_either(one: Taken, other: Taken) -> None:
    """Taking the same events back again changes nothing."""
    both = Taken.all_of([one, other])
    assert events(both) == events(one) | events(other)
    assert Taken.all_of([both, one]) == both
    assert not both.without(one).without(other)
    assert one.without(NOTHING) == one
    assert bool(both) == bool(one or other)


@given(takens, takens)
def test_what_is_left_and_what_goes_are_the_whole(one: Taken, other: Taken) -> None:
    """A reader that has left some events out needs the rest."""
    left = one.without(other)
    assert events(one) <= events(left) | events(other)
    assert events(left) <= events(one)


@given(takens, takens, st.integers(0, 50))
def test_a_checkpoint_before_all_events_is_a_base(one: Taken, known: Taken, time: int) -> None:
    """A checkpoint has none of the events if they all come later, or if it lacks them already."""
    if not one.reaches(known, time):
        assert of_time(events(one), time) <= events(known)


@given(takens)
def test_nothing_is_taken_before_its_beginning(taken: Taken) -> None:
    """The journal keeps entries from this time on."""
    assert of_time(events(taken), (taken.since or 0) - 1) == set()
    assert bool(taken) == (taken.since is not None)


def test_a_sender_ends_with_an_entry() -> None:
    """Another entry of the same time comes later, and is not among them."""
    taken = Taken((SentBetween("a", 20, LINKS[2]),))
    assert {link for link, _, _ in events(taken)} == {LINKS[1], LINKS[2]}
