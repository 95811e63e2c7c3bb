"""The one table of metrics: named alike, explained, and each of them fed."""

from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram

from live import metrics

TABLE = {name: value for name, value in vars(metrics).items() if isinstance(value, Counter | Gauge | Histogram)}
SOURCES = [path for path in Path(metrics.__file__).parent.rglob("*.py") if path.name != "metrics.py"]


@pytest.mark.parametrize("name", TABLE)
def test_a_metric_is_named_like_its_variable_and_explained(name: str) -> None:
    """All begin with live_, and say what they count."""
    (family,) = TABLE[name].describe()
    assert family.name.startswith("live_")
    assert family.documentation[0].isupper() or family.documentation[0].isdigit()
    assert not family.documentation.endswith(".")


def test_all_metrics_are_in_one_registry() -> None:
    """What the process-wide registry of the library collects is not ours, and not served."""
    served = {family.name for family in metrics.REGISTRY.collect()}
    assert served == {family.name for metric in TABLE.values() for family in metric.describe()}


@pytest.mark.parametrize("name", TABLE)
def test_every_metric_is_fed(name: str) -> None:
    """A metric that stays at zero for ever would be a lie."""
    assert any(f"{name}." in path.read_text(encoding="utf-8") for path in SOURCES)


@pytest.mark.parametrize("gauge", [metric for metric in TABLE.values() if isinstance(metric, Gauge)])
def test_a_gauge_says_how_workers_are_put_together(gauge: Gauge) -> None:
    """With several processes a gauge is a sum or a maximum of the living ones, not a row for each that ever was."""
    assert gauge._multiprocess_mode in {"livesum", "livemax", "livemin"}


@pytest.mark.parametrize("histogram", [metric for metric in TABLE.values() if isinstance(metric, Histogram)])
def test_the_buckets_of_a_histogram_rise(histogram: Histogram) -> None:
    """Each bucket is wider than the one before, and they end with everything."""
    (family,) = histogram.collect()
    bounds = [float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")]
    assert bounds == sorted(set(bounds))
    assert bounds[-1] == float("inf")


def test_every_metric_of_a_board_is_known_as_one() -> None:
    """Its series go with the board."""
    assert {metric for metric in TABLE.values() if "board" in metric._labelnames} == set(metrics.BY_BOARD)
