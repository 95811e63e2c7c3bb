"""When viewers saw the acknowledged likes."""

import pytest

from live.load.latencies import Acknowledged, Seen, times_to_seen


def likes(*times: tuple[int, float, float]) -> list[Acknowledged]:
    """Likes by offset, with the times when each was due and acknowledged."""
    return [Acknowledged(offset, due, due, at) for offset, due, at in times]


def test_a_like_is_seen_with_the_first_message_at_its_offset_or_beyond() -> None:
    """A message may show several likes. The time counts from the moment when the like was due."""
    viewer = Seen([0, 2, 5], [0.0, 10.0, 20.0])
    found = times_to_seen(likes((1, 8, 9), (2, 9, 9.5), (3, 11, 12), (5, 20, 21)), [viewer])
    assert found == [2.0, 1.0, 9.0, 0.0]


def test_the_time_since_the_acknowledgement_is_zero_if_the_message_came_first() -> None:
    """With `since_due=False`, a benchmark measures the fan-out alone."""
    viewer = Seen([0, 2, 5], [0.0, 10.0, 20.0])
    found = times_to_seen(likes((1, 8, 9), (2, 9, 9.5), (5, 20, 21)), [viewer], since_due=False)
    assert found == [1.0, 0.5, 0.0]


def test_a_like_that_was_never_seen_is_omitted() -> None:
    """A viewer that fell behind or saw nothing adds no time for the likes that it missed."""
    given = likes((1, 1, 1), (9, 1, 1))
    assert times_to_seen(given, [Seen([1], [3.0]), Seen([], [])]) == [2.0]
    assert times_to_seen([], [Seen([1], [3.0])]) == []
    assert times_to_seen(given, []) == []


@pytest.mark.slow
def test_very_many_pairs_are_sampled_evenly() -> None:
    """Memory stays bounded, and the sample has every viewer and both early and late likes."""
    given = likes(*((number, number / 1000, number / 1000) for number in range(2000)))
    viewers = [Seen(list(range(2000)), [number / 1000 + viewer for number in range(2000)]) for viewer in range(1000)]
    times = times_to_seen(given, viewers)
    assert 150_000 < len(times) <= 200_000
    assert {round(time) for time in times} == set(range(1000))
