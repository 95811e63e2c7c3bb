"""The metrics of a process that has ended."""

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from live.system.shared_metrics import SharedMetrics

COUNT = """
from live.metrics import CONNECTIONS, EVENTS_REJECTED
EVENTS_REJECTED.labels("late").inc(3)
CONNECTIONS.labels("1").inc(5)
"""


def test_counters_of_a_dead_process_stay_and_its_gauges_go() -> None:
    """So no sum goes back. An empty file, which no scrape could read, goes too."""
    with SharedMetrics.new() as shared:
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(shared.folder)}
        made = subprocess.Popen([sys.executable, "-c", COUNT], env=environment)
        assert made.wait(60) == 0
        assert shared.processes() == {made.pid}
        empty = shared.folder / f"summary_{made.pid}.db"
        empty.touch()

        shared.forget(made.pid)
        assert shared.processes() == set()
        assert not empty.exists()
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(shared.folder))  # type: ignore[no-untyped-call]
        assert registry.get_sample_value("live_events_rejected_total", {"code": "late"}) == 3
        assert registry.get_sample_value("live_connections", {"worker": "1"}) is None
    assert not Path(shared.folder).exists()
