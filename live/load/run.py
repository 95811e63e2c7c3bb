"""Run a load test: start its processes, let them connect, send and settle together, and report the results."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Final, cast

import aiohttp
import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from live.errors import SetupError
from live.load.latencies import Acknowledged, Quantiles, quantiles, times_to_seen
from live.load.options import Options
from live.load.worker import Counts, Result, work

ENOUGH: Final = 0.95  # the share of the requested likes that must count
_STEPS: Final = 10  # steps of a ramp in the report


class RampStep(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a ramp: likes per second that were due and that were counted, and times to responses."""

    until: float
    requested_rate: float
    rate: float
    acknowledged: Quantiles | None


class ObjectiveResult(msgspec.Struct, frozen=True):
    """An objective, and whether it was met."""

    text: str
    met: bool


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a load test.

    All times are in milliseconds, and count from the time when a request was due.
    """

    producers: int
    viewers: int
    sse_viewers: int
    processes: int
    batch: int
    seconds: float
    requested: int
    sent: int
    accepted: int
    rejected: int
    failed: int
    unsent: int  # likes that were never sent, because no connection was free when they were due
    requested_rate: float
    rate: float  # likes per second that were counted until the end of the test
    # Likes that were counted until the end of the test, as a share of the requested likes. Below 0.95, the test fails.
    reached: float
    # Time until a request was sent. High values mean that more connections, more processes or a larger batch are
    # needed, or that the server is too slow.
    sent_late: Quantiles | None
    # Time until the durable response. A request that was never sent counts with the time for which it waited.
    acknowledged: Quantiles | None
    seen: Quantiles | None  # time until a viewer received the message that shows the like
    seen_sse: Quantiles | None
    converged: int  # number of viewers that saw the last counted like
    frames: int
    bytes_per_viewer_second: float
    steps: list[RampStep]
    objectives: list[ObjectiveResult]
    passed: bool  # whether the rate was reached, nothing failed, every viewer converged, and every objective was met


def make_report(options: Options, results: Sequence[Result], started: float, last_offset: int) -> LoadReport:
    """Unite the measurements of all processes."""
    plan = options.schedule
    acks = sorted(chain.from_iterable(result.acknowledged for result in results), key=lambda ack: ack.due)
    in_time = sum(ack.likes for ack in acks if ack.at <= started + plan.seconds)
    websocket = [seen for result in results for seen in result.websocket]
    sse = [seen for result in results for seen in result.sse]
    converged = sum(1 for seen in (*websocket, *sse) if seen.reached(last_offset))
    waited = chain.from_iterable(result.waited for result in results)
    acknowledged = quantiles(chain((ack.at - ack.due for ack in acks), waited))
    seen_by = [quantiles(times_to_seen(acks, viewers)) for viewers in (websocket, sse)]
    met = []
    for each in options.objectives:
        measured = [acknowledged] if each.what == "acknowledged" else seen_by
        met.append(ObjectiveResult(each.text, each.is_met([times for times in measured if times is not None])))
    totals = {name: sum(getattr(result.counts, name) for result in results) for name in Counts.__struct_fields__}
    return LoadReport(
        producers=options.producers, viewers=options.viewers, sse_viewers=options.sse_viewers,
        processes=options.processes, batch=plan.batch, seconds=plan.seconds, requested=plan.likes, **totals,
        requested_rate=round(plan.likes / plan.seconds, 1), rate=round(in_time / plan.seconds, 1),
        reached=round(in_time / plan.likes, 4), sent_late=quantiles(ack.sent - ack.due for ack in acks),
        acknowledged=acknowledged, seen=seen_by[0], seen_sse=seen_by[1], converged=converged,
        frames=sum(result.frames for result in results),
        bytes_per_viewer_second=round(
            sum(result.bytes for result in results) / max(1, len(websocket) + len(sse)) / plan.seconds, 1
        ),
        steps=_steps(options, acks, started), objectives=met,
        passed=(
            in_time >= ENOUGH * plan.likes
            and not totals["failed"]
            and converged == options.viewers + options.sse_viewers
            and all(each.met for each in met)
        ),
    )  # fmt: skip


def _steps(options: Options, acks: Sequence[Acknowledged], started: float) -> list[RampStep]:
    """Return the parts of a ramp. For a constant rate, return an empty list."""
    plan = options.schedule
    if plan.first_rate == plan.last_rate:
        return []
    length = plan.seconds / _STEPS
    steps = []
    for number in range(_STEPS):
        first, last = number * length, (number + 1) * length
        due = [ack for ack in acks if first <= ack.due - started < last]
        steps.append(
            RampStep(
                until=round(last, 3),
                requested_rate=round(plan.likes_between(first, last) / length, 1),
                rate=round(sum(ack.likes for ack in acks if first <= ack.at - started < last) / length, 1),
                acknowledged=quantiles(ack.at - ack.due for ack in due),
            )
        )
    return steps


def show(report: LoadReport) -> RenderableType:
    """Lay out the report for a terminal."""
    counts = (
        f"{report.accepted:,} of {report.requested:,} likes counted, {report.rate:,.0f} of "
        f"{report.requested_rate:,.0f} per second; {report.rejected:,} rejected, {report.failed:,} failed, "
        f"{report.unsent:,} not sent"
    )
    watching = report.viewers + report.sse_viewers
    if watching:
        counts += (
            f"\n{report.converged:,} of {watching:,} viewers saw the last one; {report.frames:,} messages, "
            f"{report.bytes_per_viewer_second:,.0f} bytes per viewer and second"
        )
    latencies = Table("since due, until", "p50", "p90", "p99", "p99.9", "max", box=None, pad_edge=False)
    for name, times in (
        ("sent", report.sent_late),
        ("acknowledged", report.acknowledged),
        ("seen (WebSocket)", report.seen),
        ("seen (SSE)", report.seen_sse),
    ):
        if times is not None:
            values = (times.p50, times.p90, times.p99, times.p999, times.max)
            latencies.add_row(name, *(f"{value:,.1f} ms" for value in values))
    ramp = Table("until", "requested", "counted", "acknowledged p50", "p99", "max", box=None, pad_edge=False)
    for step in report.steps:
        found = step.acknowledged
        shown = ("-",) * 3 if found is None else [f"{value:,.1f} ms" for value in (found.p50, found.p99, found.max)]
        ramp.add_row(f"{step.until:g} s", f"{step.requested_rate:,.0f}/s", f"{step.rate:,.0f}/s", *shown)
    for column in (*latencies.columns[1:], *ramp.columns):
        column.justify = "right"
    verdicts = [f"objective {each.text}: {'met' if each.met else 'MISSED'}" for each in report.objectives]
    if report.reached < ENOUGH:
        verdicts.append(
            f"FAILED: the test reached {report.reached:.1%} of the requested rate; {ENOUGH:.0%} are needed. If likes "
            "were sent late, try more --producers, more --processes or a larger --batch. Otherwise the server is at "
            "its limit."
        )
    if report.failed:
        verdicts.append(f"FAILED: {report.failed:,} likes got no response, or an error")
    if report.converged < watching:
        verdicts.append("FAILED: some viewers did not see the last like")
    return Group(Text(counts), latencies, *([ramp] if report.steps else ()), Text("\n".join(verdicts)))


_LEAD: Final = 0.2  # seconds from the signal to start until the first like is due

Progress = Callable[[float, float], None]


async def run(options: Options, progress: Progress) -> LoadReport:
    """Run the test."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"{options.url}/v1/boards/{options.board}?limit=1") as response,
        ):
            if response.status != 200:  # noqa: PLR2004
                raise SetupError(f"{response.url} returned {response.status}: {(await response.text())[:300]}")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SetupError(f"can't reach {options.url}: {error!r}. Is `live serve` running?") from None
    with _children(options) as children:
        await asyncio.to_thread(_next_of_each, children)
        started = time.perf_counter() + _LEAD
        for child in children:
            child.send(started)
        sending = asyncio.create_task(asyncio.to_thread(_next_of_each, children))
        while not sending.done():
            progress(min(max(0.0, time.perf_counter() - started), options.schedule.seconds), options.schedule.seconds)
            await asyncio.wait({sending}, timeout=0.2)
        last_offset = max(await sending)
        for child in children:
            child.send(last_offset)
        results = await asyncio.to_thread(_next_of_each, children)
    return make_report(options, results, started, last_offset)


@contextmanager
def _children(options: Options) -> Iterator[list[Connection]]:
    """Start the processes of the test, and end them afterwards."""
    context = get_context("spawn")
    children = []
    processes = []
    try:
        for number in range(options.processes):
            ours, theirs = context.Pipe()
            children.append(ours)
            with theirs:
                process = context.Process(target=work, args=(options, number, theirs))
                process.start()
            processes.append(process)
        yield children
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _next_of_each(children: Sequence[Connection]) -> list[Any]:
    """Receive the next message of each child. Raise the first error at once."""
    found: dict[Connection, Any] = {}
    while len(found) < len(children):
        for child in cast("list[Connection]", wait(set(children) - found.keys())):
            try:
                message = child.recv()
            except EOFError:
                raise SetupError("a process of the load test ended unexpectedly; its error is above") from None
            if isinstance(message, SetupError):
                raise message
            found[child] = message
    return list(found.values())
