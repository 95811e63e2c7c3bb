"""Which timeline of a board shows a time."""

import pytest

from live.journal.log.timelines import Timeline
from live.journal.past.coverage import Coverage, since_of, timeline_at
from live.journal.past.queries import NoPastError

FIRST, SECOND = Timeline(1, "b", "e"), Timeline(2, "b", "f")
REACHES = [Coverage(SECOND, 100, 120, 120), Coverage(FIRST, 10, 10, 10)]


@pytest.mark.parametrize(
    ("at", "found"),
    [(9, None), (10, FIRST), (99, FIRST), (100, 120), (119, 120), (120, SECOND), (150, SECOND)],
)
def test_a_time_is_shown_or_refused_with_the_next_one_that_is(at: int, found: Timeline | int | None) -> None:
    """Before the board began, no timeline is found. A time whose entries are missing or were deleted is refused."""
    if isinstance(found, int):
        with pytest.raises(NoPastError) as refused:
            timeline_at(REACHES, at)
        assert refused.value.since == found
    else:
        assert timeline_at(REACHES, at) == found


def test_the_first_covered_time_is_that_of_the_oldest_entry() -> None:
    """A board without entries covers no time."""
    assert (since_of(REACHES), since_of([])) == (10, None)
