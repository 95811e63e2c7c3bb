"""All metrics, which Prometheus reads at /metrics."""

import warnings
from collections.abc import Collection, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

REGISTRY: Final = CollectorRegistry()

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SIZES: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 3000)

EVENTS_ACCEPTED: Final = Counter(
    "live_events_accepted", "Events counted and synced to disk, by board", ["board"], registry=REGISTRY
)
EVENTS_REJECTED: Final = Counter(
    "live_events_rejected", "Events refused one by one, by refusal code", ["code"], registry=REGISTRY
)
EVENTS_DUPLICATE: Final = Counter(
    "live_events_duplicate", "Events not counted again because their identity was known", registry=REGISTRY
)
PROBLEMS_ANSWERED: Final = Counter(
    "live_problems", "Requests refused as a whole, by problem code", ["code"], registry=REGISTRY
)
DROPPED_CONNECTIONS: Final = Counter(
    "live_dropped_connections",
    "HTTP connections closed by the server: slow to send, responses unread, or lingering after the last response",
    ["reason"],
    registry=REGISTRY,
)
COMMIT_EVENTS: Final = Histogram("live_commit_events", "Events per script call", buckets=_SIZES, registry=REGISTRY)
COMMIT_SECONDS: Final = Histogram(
    "live_commit_seconds", "Duration of a script call, including the sync to disk", buckets=_SECONDS, registry=REGISTRY
)
ROTATION_SECONDS: Final = Histogram(
    "live_rotation_step_seconds", "Duration of a rotation step", buckets=_SECONDS, registry=REGISTRY
)
ROTATION_FAILURES: Final = Counter(
    "live_rotation_failures", "Rotation steps that the store did not answer", registry=REGISTRY
)
VIEWERS: Final = Gauge(
    "live_viewers", "Viewers of this process, by board", ["board"], registry=REGISTRY, multiprocess_mode="livesum"
)
BYTES_SENT: Final = Counter("live_bytes_sent", "Bytes of messages sent to viewers", registry=REGISTRY)
CONFLATED: Final = Counter(
    "live_conflated", "Changes that viewers received combined with an earlier one", registry=REGISTRY
)
RECOVERIES: Final = Counter(
    "live_recoveries",
    "Viewers that reconnected with a position, by whether they received exactly the changes they missed",
    ["recovered"],
    registry=REGISTRY,
)
TICK_SECONDS: Final = Histogram(
    "live_tick_seconds", "Duration of one tick of a board: read, encode, send", buckets=_SECONDS, registry=REGISTRY
)
SEND_LAG_SECONDS: Final = Histogram(
    "live_send_lag_seconds",
    "Time from the notice of a change until it was sent to all viewers",
    buckets=_SECONDS,
    registry=REGISTRY,
)
ROTATION_LAG: Final = Gauge(
    "live_rotation_lag_seconds",
    "How long the oldest data outside the window has been waiting to be subtracted",
    ["board"],
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
RANGE_LEFT: Final = Gauge(
    "live_score_range_left",
    "Share of the exact range, from 1 to 0, that the widest value of the last batch leaves",
    ["board"],
    registry=REGISTRY,
    multiprocess_mode="livemin",
)
FRAMES_SENT: Final = Counter("live_frames_sent", "Messages sent to viewers, by type", ["type"], registry=REGISTRY)
SLOW_VIEWERS: Final = Counter(
    "live_slow_viewers", "Viewers disconnected because they read too slowly", registry=REGISTRY
)
STORE_STALE: Final = Gauge(
    "live_store_stale", "1 while the store is unreachable", registry=REGISTRY, multiprocess_mode="livemax"
)
JOURNAL_ENTRIES: Final = Counter("live_journal_entries", "Entries of journals moved to SQL", registry=REGISTRY)
JOURNAL_GAPS: Final = Counter(
    "live_journal_gaps", "Gaps found in journals, after which a journal began again", registry=REGISTRY
)
JOURNAL_COMMIT_SECONDS: Final = Histogram(
    "live_journal_commit_seconds", "Duration of a transaction of the drainer", buckets=_SECONDS, registry=REGISTRY
)
JOURNAL_LAG: Final = Gauge(
    "live_journal_lag_seconds",
    "Time since the journal's database last had everything; while the drainer keeps up, the duration of a round",
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
JOURNAL_BACKLOG: Final = Gauge(
    "live_journal_backlog_bytes",
    "Bytes of journals that wait in the store",
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
JOURNAL_DAMAGED: Final = Gauge(
    "live_journal_damaged_rows",
    "Rows of the journal that were damaged when they were last read",
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
JOURNAL_ARCHIVE_LAG: Final = Gauge(
    "live_journal_archive_lag_seconds",
    "Time since checkpoints and the archive of periods were last up to date; while they are, the duration of a round",
    registry=REGISTRY,
    multiprocess_mode="livemax",
)

BY_BOARD: Final = (EVENTS_ACCEPTED, RANGE_LEFT, VIEWERS, ROTATION_LAG)  # metrics with a series per board


def forget_board(board: str) -> None:
    """Drop the series of a deleted board."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the files of several processes keep them; see `OfBoards`
        for metric in BY_BOARD:
            metric.remove(board)


class OfBoards(Collector):
    """The metrics of another collector, without the series of deleted boards.

    The files with which several processes combine their metrics never drop a series.
    """

    def __init__(self, collector: Collector, boards: Collection[str]) -> None:
        self._collector = collector
        self._boards = boards

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, each with the series that are left."""
        for metric in self._collector.collect():
            metric.samples = [
                sample
                for sample in metric.samples
                if "board" not in sample.labels or sample.labels["board"] in self._boards
            ]
            yield metric
