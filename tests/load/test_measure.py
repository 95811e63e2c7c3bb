"""The arithmetic of the load test: quantiles, promises, and when each like was seen."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.load.measure import Acknowledged, Promise, Quantiles, Seen, parse_promise, quantiles, seen_after


@pytest.mark.parametrize(
    ("text", "promise"),
    [
        ("p99=250ms", Promise("p99=250ms", "p99", 250)),
        ("p50=1s", Promise("p50=1s", "p50", 1000)),
        ("p90=0.5s", Promise("p90=0.5s", "p90", 500)),
        ("max=0.001ms", Promise("max=0.001ms", "max", 0.001)),
    ],
)
def test_a_promise_is_a_quantile_and_a_time(text: str, promise: Promise) -> None:
    """The time is in milliseconds, as in the report."""
    assert parse_promise(text) == promise


@pytest.mark.parametrize(
    "text", ["", "p99", "p99=", "p98=1s", "250ms", "p99=250", "p99 = 1s", "p99=1s,p50=1s", "P99=1s"]
)
def test_anything_else_is_not_a_promise(text: str) -> None:
    """The message shows the expected form."""
    with pytest.raises(ValueError, match=r"like p99=250ms|is not a duration"):
        parse_promise(text)


def test_quantiles_are_measured_values() -> None:
    """Nothing is interpolated, and the order does not matter; the result is in milliseconds."""
    times = [number / 1000 for number in range(1, 101)]
    random.Random(1).shuffle(times)
    assert quantiles(times) == Quantiles(p50=51, p90=91, p99=100, max=100)
    assert quantiles([0.5]) == Quantiles(500, 500, 500, 500)
    assert quantiles([]) is None


@given(st.lists(st.integers(0, 10_000), min_size=1))
def test_a_quantile_is_not_exceeded_by_more_than_its_share(milliseconds: list[int]) -> None:
    """At most one in a hundred times is above the p99, for example."""
    found = quantiles([value / 1000 for value in milliseconds])
    assert found is not None
    for bound, share in ((found.p50, 50), (found.p90, 10), (found.p99, 1), (found.max, 0)):
        assert bound in milliseconds
        above = sum(value > bound for value in milliseconds)
        assert Fraction(above, len(milliseconds)) <= Fraction(share, 100)


def test_a_like_is_seen_with_the_first_message_at_its_offset_or_beyond() -> None:
    """A message may show several likes. If it arrives before the answer, the wait is 0."""
    viewer = Seen([0, 2, 5], [0.0, 10.0, 20.0])
    likes = [
        Acknowledged(1, 8.0, 9.0),
        Acknowledged(2, 9.0, 9.5),
        Acknowledged(3, 11.0, 12.0),
        Acknowledged(5, 20.0, 21.0),
    ]
    assert seen_after(likes, [viewer]) == [1.0, 0.5, 8.0, 0.0]


def test_a_like_that_was_never_seen_is_omitted() -> None:
    """The report counts viewers that fell behind or saw nothing."""
    likes = [Acknowledged(1, 0.0, 1.0), Acknowledged(9, 0.0, 1.0)]
    assert seen_after(likes, [Seen([1], [3.0]), Seen([], [])]) == [2.0]
    assert seen_after([], [Seen([1], [3.0])]) == []
    assert seen_after(likes, []) == []


def test_very_many_pairs_are_sampled_evenly() -> None:
    """Memory stays bounded, and the sample has every viewer and both early and late likes."""
    likes = [Acknowledged(number, 0.0, number / 1000) for number in range(2000)]
    viewers = [Seen(list(range(2000)), [number / 1000 + viewer for number in range(2000)]) for viewer in range(1000)]
    waits = seen_after(likes, viewers)
    assert 400_000 < len(waits) <= 500_000
    assert {round(wait) for wait in waits} == set(range(1000))
