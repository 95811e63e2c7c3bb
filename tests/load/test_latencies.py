"""Quantiles and objectives of the load test."""

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from live.load.latencies import Objective, parse_objective, quantiles


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("p99=250ms", Objective("p99=250ms", "seen", "p99", 250)),
        ("seen:p50=1s", Objective("seen:p50=1s", "seen", "p50", 1000)),
        ("acknowledged:p99.9=0.5s", Objective("acknowledged:p99.9=0.5s", "acknowledged", "p999", 500)),
        ("max=0.001ms", Objective("max=0.001ms", "seen", "max", 0.001)),
    ],
)
def test_an_objective_is_a_quantile_and_a_time(text: str, objective: Objective) -> None:
    """The parsed time is in milliseconds, whatever the unit in the text."""
    assert parse_objective(text) == objective


@pytest.mark.parametrize(
    "text", ["", "p99", "p99=", "p98=1s", "250ms", "p99=250", "p99 = 1s", "p99=1s,p50=1s", "P99=1s", "sent:p99=1s"]
)
def test_anything_else_is_not_an_objective(text: str) -> None:
    """The message shows the expected form."""
    with pytest.raises(ValueError, match=r"like acknowledged:p99=50ms|is not a duration"):
        parse_objective(text)


@pytest.mark.slow
@given(st.lists(st.integers(1, 10_000_000), min_size=1, max_size=200))
def test_quantiles_are_within_a_thousandth_of_the_measured_values(microseconds: list[int]) -> None:
    """The largest latency is exact. The histogram in the report has all latencies."""
    found = quantiles(value / 1e6 for value in microseconds)
    ordered = sorted(microseconds)
    assert found is not None
    assert found.count == len(ordered)
    assert found.max == pytest.approx(ordered[-1] / 1000, abs=0.001)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        rank = min(len(ordered) - 1, max(0, int(len(ordered) * share + 0.5) - 1))
        assert getattr(found, name) == pytest.approx(ordered[rank] / 1000, rel=0.002, abs=0.002)
    assert HdrHistogram.decode(found.histogram).get_total_count() == len(ordered)


def test_no_times_have_no_quantiles() -> None:
    """The quantile is `None`, not zero."""
    assert quantiles([]) is None


def test_an_objective_is_met_by_every_kind_of_viewer() -> None:
    """Without measurements, the objective is missed."""
    objective = parse_objective("p99=1s")
    fast, slow = quantiles([0.5]), quantiles([1.5])
    assert fast is not None
    assert slow is not None
    assert objective.is_met([fast, fast])
    assert not objective.is_met([fast, slow])
    assert not objective.is_met([])
