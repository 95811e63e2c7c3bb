"""Recent figures of the processes of this server, for the admin page.

The figures come from the same counters as `/metrics`. They are read every ten seconds, and only until a quarter of an
hour after the last request for the page.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from live.metrics import REGISTRY, ProcessTotals
from live.system.shared_metrics import SharedMetrics

_EVERY: Final = 10.0  # seconds
_KEPT: Final = 60  # samples
_WANTED: Final = 900.0  # seconds for which figures are collected after a request for the page


class Sample(msgspec.Struct, frozen=True):
    """The figures at the time `at` of `time.monotonic`.

    `accepted` and `viewers` are by board, and `rejected` by code. `lag` is the lag of the journal, in seconds.
    """

    at: float
    accepted: Mapping[str, int]
    rejected: Mapping[str, int]
    viewers: Mapping[str, int]
    lag: float


class Activity:
    """The last samples of the counters."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=_KEPT + 1)
        self._until = 0.0
        self._wanted = asyncio.Event()

    async def samples(self) -> list[Sample]:
        """Return the samples, the newest last. The newest is at most `_EVERY` seconds old."""
        self._until = time.monotonic() + _WANTED
        self._wanted.set()
        await self._renew()
        return list(self._samples)

    async def run(self) -> None:
        """Read the counters for `_WANTED` seconds after each request for the page, until cancelled."""
        while True:
            await self._wanted.wait()
            while time.monotonic() < self._until:
                await self._renew()
                await asyncio.sleep(_EVERY)
            self._wanted.clear()
            self._samples.clear()

    async def _renew(self) -> None:
        if not self._samples or time.monotonic() >= self._samples[-1].at + _EVERY:
            self._samples.append(await asyncio.to_thread(_sample))


def collectors() -> tuple[Collector, ProcessTotals]:
    """Return the metrics and the resources of this process, or of all worker processes together."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is None:
        return REGISTRY, ProcessTotals({os.getpid()})
    # The fork server is the parent of all processes, including those that have ended.
    totals = ProcessTotals(SharedMetrics(Path(folder)).processes(), parent=os.getppid())
    return MultiProcessCollector(None), totals  # type: ignore[no-untyped-call]


def _sample() -> Sample:
    at, found = time.monotonic(), dict[str, dict[str, float]]()
    for metric in collectors()[0].collect():
        if metric.name in _LABELS:
            label = _LABELS[metric.name]
            values = found.setdefault(metric.name, {})
            for sample in metric.samples:
                if not sample.name.endswith("_created"):
                    values[sample.labels.get(label, "")] = sample.value
    accepted, rejected, viewers, lag = (found.get(name, {}) for name in _LABELS)
    return Sample(at, _whole(accepted), _whole(rejected), _whole(viewers), lag.get("", 0.0))


def _whole(values: Mapping[str, float]) -> dict[str, int]:
    return {name: int(value) for name, value in values.items()}


_LABELS: Final[Mapping[str, str]] = {
    "live_events_accepted": "board",
    "live_events_rejected": "code",
    "live_viewers": "board",
    "live_journal_lag_seconds": "",
}
