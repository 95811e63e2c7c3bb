"""All metrics, which Prometheus reads at /metrics."""

import os
import warnings
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

REGISTRY: Final = CollectorRegistry()

# These bounds include 5 ms for a rotation step, 150 ms for a message (the interval of 100 ms and 50 ms more), the
# thresholds of `ops/alerts.yml`, and the deadlines of a write, 2 and 8 s.
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2, 4, 8)
_OF_ONE: Final = frozenset({"process_max_fds", "process_start_time_seconds"})
_ENDED: Final = slice(13, 15)  # the fields cutime and cstime of proc(5), counted after the name of the process
_SIZES: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 3000)


def _counter(name: str, meaning: str, *labels: str) -> Counter:
    return Counter(name, meaning, labels, registry=REGISTRY)


def _gauge(name: str, meaning: str, over_processes: Literal["livesum", "livemax", "livemin"], *labels: str) -> Gauge:
    return Gauge(name, meaning, labels, registry=REGISTRY, multiprocess_mode=over_processes)


def _histogram(name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
    return Histogram(name, meaning, labels, buckets=buckets, registry=REGISTRY)


EVENTS_ACCEPTED: Final = _counter("live_events_accepted", "Events counted and synced to disk, by board", "board")
EVENTS_REJECTED: Final = _counter("live_events_rejected", "Events refused one by one, by refusal code", "code")
EVENTS_DUPLICATE: Final = _counter("live_events_duplicate", "Events not counted again because their identity was known")
PROBLEMS_ANSWERED: Final = _counter("live_problems", "Requests refused as a whole, by problem code", "code")
DROPPED_CONNECTIONS: Final = _counter(
    "live_dropped_connections",
    "HTTP connections closed by the server: slow to send, responses unread, or lingering after the last response",
    "reason",
)
COMMIT_EVENTS: Final = _histogram("live_commit_events", "Events per script call", _SIZES)
COMMIT_SECONDS: Final = _histogram(
    "live_commit_seconds", "Duration of a script call, including the sync to disk", SECONDS
)
ROTATION_SECONDS: Final = _histogram("live_rotation_step_seconds", "Duration of a rotation step", SECONDS)
ROTATION_FAILURES: Final = _counter("live_rotation_failures", "Rotation steps that failed")
VIEWERS: Final = _gauge("live_viewers", "Viewers of this process, by board", "livesum", "board")
CONNECTIONS: Final = _gauge(
    "live_connections",
    "Open connections, viewers included, by worker; the process of a server without workers is worker 0",
    "livesum",
    "worker",
)
QUEUE_LENGTH: Final = _gauge("live_queue_length", "Requests that wait for their turn, by queue", "livesum", "queue")
REQUEST_SECONDS: Final = _histogram(
    "live_request_seconds",
    "Time from the head of a request until its response was written, by route and status",
    SECONDS,
    "route",
    "status",
)
BYTES_SENT: Final = _counter("live_bytes_sent", "Bytes of messages sent to viewers")
CONFLATED: Final = _counter("live_conflated", "Changes that viewers received in one message with earlier changes")
RECOVERIES: Final = _counter(
    "live_recoveries",
    "Viewers that reconnected with a position, by whether they received exactly the changes they missed",
    "recovered",
)
TICK_SECONDS: Final = _histogram("live_tick_seconds", "Duration of one tick of a board: read, encode, send", SECONDS)
SEND_LAG_SECONDS: Final = _histogram(
    "live_send_lag_seconds", "Time from the notice of a change until it was sent to all viewers", SECONDS
)
ROTATION_LAG: Final = _gauge(
    "live_rotation_lag_seconds",
    "How long the oldest data outside the window has been waiting to be subtracted",
    "livemax",
    "board",
)
RANGE_LEFT: Final = _gauge(
    "live_score_range_left",
    "How much of the range of exact scores is left, from 1 (all) to 0, for the value of the last batch that is nearest "
    "to an end of its range",
    "livemin",
    "board",
)
FRAMES_SENT: Final = _counter("live_frames_sent", "Messages sent to viewers, by type", "type")
DROPPED_VIEWERS: Final = _counter(
    "live_dropped_viewers",
    "Viewers disconnected because they read too slowly, or because a client with fewer viewers needed the place",
    "reason",
)
STORE_STALE: Final = _gauge("live_store_stale", "1 while the server of a watched board is unreachable", "livemax")
DISK_USED: Final = _gauge(
    "live_disk_used_ratio", "Share of the disk of the data directory that is used, from 0 to 1 (full)", "livemax"
)
STORE_MEMORY_USED: Final = _gauge(
    "live_store_memory_used_ratio",
    "Share of its memory limit that the fullest server of the store uses, from 0 to 1; 0 without a limit",
    "livemax",
)
KEYS_EXPIRE: Final = _gauge(
    "live_api_keys_expire_timestamp_seconds",
    "When the next API key expires, in seconds since 1970; 0 for never",
    "livemax",
)
JOURNAL_ENTRIES: Final = _counter("live_journal_entries", "Entries of journals moved to SQL")
JOURNAL_MISSING: Final = _counter("live_journal_missing", "Times that entries of a journal were missing")
JOURNAL_COMMIT_SECONDS: Final = _histogram(
    "live_journal_commit_seconds", "Duration of a transaction of the drainer", SECONDS
)
JOURNAL_LAG: Final = _gauge(
    "live_journal_lag_seconds",
    "Time since the journal's database last had all entries; while the drainer keeps up, this is the duration of one "
    "of its rounds",
    "livemax",
)
JOURNAL_BACKLOG: Final = _gauge("live_journal_backlog_bytes", "Bytes of journals that wait in the store", "livemax")
JOURNAL_ARCHIVE_LAG: Final = _gauge(
    "live_journal_archive_lag_seconds",
    "Time since checkpoints and the archive of periods were last up to date; while they keep up, this is the duration "
    "of a round of upkeep",
    "livemax",
)

BUILD_INFO: Final = _gauge(
    "live_build_info", "1, labelled with the version and the commit", "livemax", "version", "commit"
)

BY_BOARD: Final = (EVENTS_ACCEPTED, RANGE_LEFT, VIEWERS, ROTATION_LAG)  # metrics with a series per board


def forget_board(board: str) -> None:
    """Drop the time series of a deleted board."""
    with warnings.catch_warnings():
        # `prometheus_client` warns that it can't remove a series from the files of several processes; `OfBoards`
        # removes them.
        warnings.simplefilter("ignore", UserWarning)
        for metric in BY_BOARD:
            metric.remove(board)


class ProcessTotals(Collector):
    """The sums of the time, memory and descriptors of several processes, under the usual names `process_…`.

    The sum of the CPU time includes ended children of `parent`: if the sum fell, it would look like a restart.
    """

    def __init__(self, processes: Collection[int], parent: int | None = None) -> None:
        self._processes = processes
        self._parent = parent

    def collect(self) -> Iterator[Metric]:
        """Yield the sums of all processes. For limits and start times, yield the value of the first process."""
        ended = -1.0
        # Read again until no process has ended meanwhile: otherwise such a process could count twice.
        while ended != (ended := self._cpu_of_ended()):
            sums: dict[str, Metric] = {}
            for process in sorted(self._processes):
                for metric in ProcessCollector(pid=partial(int, process), registry=None).collect():
                    shared = sums.setdefault(metric.name, metric)
                    if shared is not metric and metric.name not in _OF_ONE:
                        (mine,), (other,) = shared.samples, metric.samples
                        shared.samples = [mine._replace(value=mine.value + other.value)]
        if cpu := sums.get("process_cpu_seconds"):
            (total,) = cpu.samples
            cpu.samples = [total._replace(value=total.value + ended)]
        yield from sums.values()

    def _cpu_of_ended(self) -> float:
        """Return the CPU time, in seconds, of children that their parent has waited for."""
        if self._parent is None:
            return 0.0
        try:
            fields = Path(f"/proc/{self._parent}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # a system without /proc has none of these metrics
            return 0.0
        return sum(map(int, fields[_ENDED])) / os.sysconf("SC_CLK_TCK")


class OfBoards(Collector):
    """The metrics of another collector, without the time series of deleted boards.

    Several processes combine their metrics with files. These files never drop a time series.
    """

    def __init__(self, collector: Collector, boards: Collection[str]) -> None:
        self._collector = collector
        self._boards = boards

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with the time series of boards that exist."""
        for metric in self._collector.collect():
            metric.samples = [
                sample
                for sample in metric.samples
                if "board" not in sample.labels or sample.labels["board"] in self._boards
            ]
            yield metric
