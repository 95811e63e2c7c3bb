"""The table of metrics: consistent names, descriptions, and values."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram

from live import metrics
from live.metrics import ProcessTotals

TABLE = {name: value for name, value in vars(metrics).items() if isinstance(value, Counter | Gauge | Histogram)}
SOURCES = [path for path in Path(metrics.__file__).parent.rglob("*.py") if path != Path(metrics.__file__)]


def test_a_metric_has_a_name_and_a_description() -> None:
    """The name begins with `live_`. The description begins with a capital or a digit, and has no full stop."""
    for name, metric in TABLE.items():
        (family,) = metric.describe()
        assert family.name.startswith("live_"), name
        assert family.documentation[0].isupper() or family.documentation[0].isdigit(), name
        assert not family.documentation.endswith("."), name


def test_all_metrics_are_in_one_registry() -> None:
    """Metrics of the library's default registry are not served."""
    served = {family.name for family in metrics.REGISTRY.collect()}
    assert served == {family.name for metric in TABLE.values() for family in metric.describe()}


def test_every_metric_is_updated() -> None:
    """The code uses every metric, because a metric that stays at zero would mislead."""
    sources = [path.read_text(encoding="utf-8") for path in SOURCES]
    assert [name for name in TABLE if not any(f"{name}." in source for source in sources)] == []


@pytest.mark.parametrize("gauge", [metric for metric in TABLE.values() if isinstance(metric, Gauge)])
def test_a_gauge_defines_how_workers_are_combined(gauge: Gauge) -> None:
    """The gauge of a server is the sum, the maximum or the minimum over its running workers."""
    assert gauge._multiprocess_mode in {"livesum", "livemax", "livemin"}


@pytest.mark.parametrize("histogram", [metric for metric in TABLE.values() if isinstance(metric, Histogram)])
def test_the_buckets_of_a_histogram_increase(histogram: Histogram) -> None:
    """Each bound is greater than the one before it, and the last bound is infinity."""
    bounds = histogram._upper_bounds
    assert bounds == sorted(set(bounds))
    assert bounds[-1] == float("inf")


def test_every_metric_of_a_board_is_removed_with_it() -> None:
    """`BY_BOARD` contains all metrics with a board label."""
    assert {metric for metric in TABLE.values() if "board" in metric._labelnames} == set(metrics.BY_BOARD)


def test_the_cpu_time_of_a_process_still_counts_after_its_end() -> None:
    """When a reload replaces a worker, the counter does not go back."""

    def cpu(processes: set[int]) -> float:
        metrics = {metric.name: metric for metric in ProcessTotals(processes, parent=os.getpid()).collect()}
        return metrics["process_cpu_seconds"].samples[0].value

    with subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass\ninput()"], stdin=subprocess.PIPE
    ) as child:
        mine = {os.getpid()}
        deadline = time.monotonic() + 60
        while (both := cpu(mine | {child.pid})) < cpu(mine) + 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.communicate(b"\n")
    assert cpu(mine) >= both
