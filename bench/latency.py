"""`likes-to-frames`: time from the answer to a like until the frame that shows it has reached each viewer."""

import asyncio
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from bench.board import BATCH, Board
from bench.broadcasters import TICK
from bench.processes import BenchError
from bench.swarm import Delivery, Swarm, built, need_files, not_built, swarming
from bench.table import Report, Row, Scale, median_ratio, medians, of_round
from bench.watched import PATH, fill, settle, sync_size
from live.load.latencies import Seen, quantiles, times_to_seen
from live.load.options import Schedule
from live.load.worker import Producers
from live.settings import Settings

_BOARDS: Final = '[[board]]\nid = "posts"\n'
_PRODUCERS: Final = 256  # connections; more than the likes of one tick, so that a pause of one tick delays no like
_HISTORY: Final = 3600  # seconds of likes that the board has at the start
_NOTE: Final = struct.Struct("=QQd")  # written by bench/viewer.c: viewer, offset, time
_AFTER: Final = 2.0  # seconds for the last frames to arrive
_Round = dict[str, float]


class _Run(msgspec.Struct, frozen=True):
    """The result of one run: the answered likes, and the frames that viewers received, with times."""

    producers: Producers
    delivery: Delivery
    seen: Sequence[Seen]


def likes_to_frames(scale: Scale, report: Report) -> list[Row]:
    """Measure the time from a like's acknowledgement until each viewer of the top 50 has seen it.

    The figures are medians of the rounds. The likes come as in `live load`: one in each POST, to members in proportion
    to 1/rank. The board starts with 100,000 members and an hour of such likes. A viewer has seen a like when it
    receives its first frame at the like's offset or later. The swarm records when it read each frame, on the clock of
    `time.perf_counter`. The CPU figure is that of server and store during the likes, per delivered frame.
    """
    need_files(scale.viewers)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("likes-to-frames")
        board = Board(stack, _BOARDS)
        report("filling")
        _fill(board, scale)
        swarm = stack.enter_context(swarming(programs, board.server, PATH))
        swarm.connect(scale.viewers, first=True)
        rounds = []
        for number in range(1, scale.rounds + 1):
            of_round(report, number)("likes")
            rounds.append(_figures(_run(board, swarm, scale), sync_size(board)))
    return _rows(rounds, scale)


def _fill(board: Board, scale: Scale) -> None:
    """Give each member its share of earlier likes, by 1/rank."""
    whole = sum(1 / rank for rank in range(1, scale.members + 1))
    events: list[dict[str, object]] = [
        {"key": f"post-{rank}", "amount": max(1, round(_HISTORY * scale.likes_a_second / whole / rank))}
        for rank in range(1, scale.members + 1)
    ]
    for first in range(0, len(events), BATCH):
        fill(board, events[first : first + BATCH])


def _run(board: Board, swarm: Swarm, scale: Scale) -> _Run:
    producers = Producers(f"http://{board.server.address}", "posts", scale.members, board.key)

    async def like() -> Delivery:
        counting = asyncio.to_thread(swarm.measure, scale.load_seconds, [board.server, board.store])
        rate = float(scale.likes_a_second)
        schedule = Schedule(first_rate=rate, last_rate=rate, seconds=scale.load_seconds)
        sending = producers.run(_PRODUCERS, schedule, time.perf_counter())
        delivery, _ = await asyncio.gather(counting, sending)
        await asyncio.sleep(_AFTER)
        return delivery

    with TemporaryDirectory(prefix="live-bench-") as folder:
        notes = Path(folder) / "notes"
        settle()
        swarm.note(notes)
        delivery = asyncio.run(like())
        swarm.note(None)
        return _Run(producers, delivery, _read(notes, scale.viewers))


def _read(notes: Path, viewers: int) -> list[Seen]:
    seen: dict[int, Seen] = {number: Seen([], []) for number in range(viewers)}
    for number, offset, at in _NOTE.iter_unpack(notes.read_bytes()):
        seen[number].offsets.append(offset)
        seen[number].times.append(at)
    return list(seen.values())


def _figures(run: _Run, sync_size: int) -> _Round:
    producers, delivery = run.producers, run.delivery
    received = quantiles(times_to_seen(producers.acknowledged, run.seen, since_due=False))
    acknowledged = quantiles([like.at - like.due for like in producers.acknowledged])
    if received is None or acknowledged is None:
        raise BenchError("no viewer saw a like")
    converged = sum(1 for seen in run.seen if seen.reached(producers.last_offset))
    return {
        "p50": received.p50, "p90": received.p90, "p99": received.p99, "max": received.max,
        "acknowledged_p99": acknowledged.p99, "likes": producers.counts.accepted, "failed": producers.counts.failed,
        "converged": converged, "frames_per_viewer_second": delivery.rate / delivery.viewers,
        "frame": delivery.payload, "sync": sync_size, "lost": delivery.lost,
        "bytes_per_viewer_second": delivery.payload_bytes / delivery.viewers / delivery.seconds,
        "cpu_a_frame": sum(delivery.microseconds()), "swarm_load": delivery.swarm_cpu / delivery.seconds,
    }  # fmt: skip


def _rows(rounds: Sequence[_Round], scale: Scale) -> list[Row]:
    mid = medians(rounds)
    interval = Settings().conflation_interval * 1000
    times = ", ".join(f"{name} {mid[name]:.0f}" for name in ("p50", "p90", "p99", "max"))
    rate = mid["likes"] / scale.load_seconds
    frames = mid["frames_per_viewer_second"]
    return [
        Row(
            work=f"likes-to-frames: {scale.viewers:,} viewers, {scale.likes_a_second:,} likes/s",
            measured=f"acknowledged to seen: {times} ms; {rate:,.0f} likes/s received",
            against=f"the conflation interval: {interval:.0f} ms",
            ratio=mid["p99"] / interval,
            goal=f"p99 ≤ {interval + 50:.0f} ms",
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work="likes-to-frames: what viewers received",
            measured=f"{mid['converged']:,.0f} of {scale.viewers:,} converged, {frames:.1f} of {1 / TICK:.0f} frames a "
            "second",
            against=f"{mid['cpu_a_frame']:.1f} µs of server and store per frame",
        ),
        Row(
            work="likes-to-frames: bytes per viewer and second",
            measured=f"{mid['bytes_per_viewer_second']:,.0f} bytes, {mid['frame']:,.0f} per frame",
            against=f"the whole top each time: {mid['sync'] * frames:,.0f} bytes, {mid['sync']:,.0f} per frame",
            ratio=median_ratio(rounds, ("frame",), ("sync",)),
        ),
    ]
