"""`likes-to-frames`: the project's own load test against a server process with default settings."""

import asyncio
from contextlib import ExitStack

from bench.processes import BenchError, cpu_seconds, live_server, running_store
from bench.table import Row, Scale, Tell, middle, of_round
from live.load.run import Options, Report, make_options, run
from live.settings import Settings

_PRODUCERS = 8
_KEYS = 1_000


def likes_to_frames(scale: Scale, tell: Tell) -> list[Row]:
    """How long after its acknowledgement a like is seen by each viewer (see `live.load`); the medians of the rounds.

    CPU is that of server and store from the first handshake to the last close, for each frame that a viewer got.
    """
    rounds: list[dict[str, float]] = []
    with ExitStack() as stack:
        store = stack.enter_context(running_store())
        server = stack.enter_context(live_server(store))
        options = make_options(
            url=f"http://{server.address}", board="posts", producers=_PRODUCERS, viewers=scale.viewers,
            rate=scale.likes_a_second, duration=f"{scale.load_seconds}s", keys=_KEYS, slo=None,
        )  # fmt: skip
        for number in range(1, scale.rounds + 1):
            before = cpu_seconds(server.pid) + cpu_seconds(store.pid)
            report = _load(options, of_round(tell, number))
            cpu = cpu_seconds(server.pid) + cpu_seconds(store.pid) - before
            rounds.append(_figures(report, cpu))
    mid = middle(rounds)
    interval = Settings().conflation_interval * 1000
    times = ", ".join(f"{name} {mid[name]:.0f}" for name in ("p50", "p90", "p99", "max"))
    return [
        Row(
            work=f"likes-to-frames: {scale.viewers:,} viewers, {scale.likes_a_second:,} likes/s",
            measured=f"acknowledged to seen: {times} ms",
            against=f"the conflation interval: {interval:.0f} ms",
            ratio=mid["p99"] / interval,
            goal=f"p99 ≤ {interval + 50:.0f} ms",
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work="likes-to-frames: what viewers got",
            measured=f"{mid['converged']:,.0f} of {scale.viewers:,} converged, {mid['bytes_per_viewer_second']:,.0f} "
            "bytes a viewer and second",
            against=f"{mid['cpu_a_frame']:.0f} µs of server and store a frame",
        ),
    ]


def _load(options: Options, tell: Tell) -> Report:
    return asyncio.run(run(options, lambda done, total: tell(f"{done:.0f} of {total:.0f} s")))


def _figures(report: Report, cpu: float) -> dict[str, float]:
    if report.received is None or report.acknowledged is None:
        raise BenchError("no viewer saw a like")
    received = report.received
    return {
        "p50": received.p50, "p90": received.p90, "p99": received.p99, "max": received.max,
        "acknowledged_p99": report.acknowledged.p99, "converged": report.converged, "frames": report.frames,
        "failed": report.failed, "bytes_per_viewer_second": report.bytes_per_viewer_second,
        "cpu_a_frame": cpu / max(1, report.frames) * 1e6,
    }  # fmt: skip
