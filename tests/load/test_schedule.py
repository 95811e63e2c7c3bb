"""When the requests of a load test are due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.load.options import Schedule

RATES = st.floats(0.5, 5000)
SECONDS = st.floats(0.5, 60)


def schedule(first: float, last: float, seconds: float, batch: int = 1) -> Schedule:
    """Make a schedule."""
    return Schedule(first_rate=first, last_rate=last, seconds=seconds, batch=batch)


def test_a_constant_rate_is_even() -> None:
    """Each request carries a batch of likes."""
    assert list(schedule(4, 4, 1).share(0, 1)) == pytest.approx([0, 0.25, 0.5, 0.75])
    assert list(schedule(40, 40, 1, batch=10).share(0, 1)) == pytest.approx([0, 0.25, 0.5, 0.75])
    assert schedule(40, 40, 1, batch=10).likes == 40


def test_a_ramp_sends_half_of_its_requests_in_the_last_part() -> None:
    """From zero, the number of requests grows with the square of the time."""
    dues = list(schedule(0, 100, 10).share(0, 1))
    assert len(dues) == 500
    assert sum(due < 10 / 2**0.5 for due in dues) == pytest.approx(250, abs=1)


@given(RATES, RATES, SECONDS, st.integers(1, 4))
def test_requests_are_due_in_order_and_in_time(first: float, last: float, seconds: float, batch: int) -> None:
    """Whatever the first and the last rate are, there are as many requests as the rate says."""
    plan = schedule(first, last, seconds, batch)
    dues = [plan.due(number) for number in range(min(plan.requests, 300))]
    assert dues == sorted(dues)
    assert plan.due(plan.requests - 1) <= seconds * (1 + 1e-6)
    for number, due in enumerate(dues):
        assert plan.likes_between(0, due) == pytest.approx(number * batch, rel=1e-5, abs=1e-4)


@given(RATES, RATES, st.floats(0.5, 2), st.integers(1, 5))
def test_processes_share_every_request(first: float, last: float, seconds: float, processes: int) -> None:
    """Together, the processes send what a single process would send."""
    plan = schedule(min(first, 200), min(last, 200), seconds)
    shares = [list(plan.share(number, processes)) for number in range(processes)]
    assert sorted(due for share in shares for due in share) == list(plan.share(0, 1))
