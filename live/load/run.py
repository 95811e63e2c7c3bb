"""Runs a load test: viewers connect, producers send likes for a while, then both sides are compared."""

import asyncio
import time
from collections.abc import Callable

import aiohttp
import msgspec

from live.client.target import parse_api_key, parse_url
from live.domain.window import parse_duration
from live.errors import SetupError
from live.load.measure import Promise, Quantiles, parse_promise, quantiles, seen_after
from live.load.producers import Producers
from live.load.viewers import Viewers

_SETTLE = 3.0  # seconds for the last messages to arrive

Progress = Callable[[float, float], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The load to generate, for how many seconds, and the API key, if the server requires one."""

    url: str
    board: str
    producers: int
    viewers: int
    rate: float
    duration: float
    members: int
    promise: Promise | None
    key: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a load test, with times in milliseconds.

    `acknowledged` is the time from sending a like to its durable response. `received` is the time from that response to
    the message that shows the like to a viewer (0 if the message came first). `converged` is the number of viewers that
    have seen the last acknowledged like.
    """

    producers: int
    viewers: int
    seconds: float
    sent: int
    accepted: int
    rejected: int
    failed: int
    likes_per_second: float
    acknowledged: Quantiles | None
    received: Quantiles | None
    converged: int
    frames: int
    bytes_per_viewer_second: float
    promise: str | None
    kept: bool | None


def make_options(  # noqa: PLR0913 - one for each flag
    *,
    url: str,
    board: str,
    producers: int,
    viewers: int,
    rate: float,
    duration: str,
    members: int,
    slo: str | None,
    key: str | None = None,
) -> Options:
    """Build the options from flags.

    Raises:
        SetupError: the URL, the API key, the duration or the objective is malformed.
    """
    try:
        return Options(
            url=parse_url(url), key=parse_api_key(key), board=board, producers=producers, viewers=viewers, rate=rate,
            duration=parse_duration(duration), members=members, promise=parse_promise(slo) if slo else None,
        )  # fmt: skip
    except ValueError as error:
        raise SetupError(str(error)) from None


async def run(options: Options, progress: Progress) -> Report:
    """Run the test.

    Raises:
        SetupError: the server can't be reached, has no such board, or does not allow the producers to send.
    """
    await _check_board(options)
    viewers = Viewers(options.url, options.board)
    producers = Producers(options.url, options.board, options.members, options.key)
    try:
        await viewers.connect(options.viewers)
        started = time.perf_counter()
        sending = asyncio.create_task(producers.run(options.producers, options.rate, options.duration))
        while not sending.done():
            progress(min(time.perf_counter() - started, options.duration), options.duration)
            await asyncio.wait({sending}, timeout=0.2)
        await sending
        seconds = time.perf_counter() - started
        await viewers.await_offset(producers.last_offset, _SETTLE)
    finally:
        await viewers.close()
    return _report(options, producers, viewers, seconds)


def describe(report: Report) -> list[str]:
    """The report as lines for people."""
    counted = (
        f"{report.accepted:,} of {report.sent:,} likes counted in {report.seconds:.1f} s "
        f"({report.likes_per_second:,.0f} per second), {report.rejected:,} rejected, {report.failed:,} failed"
    )
    seen = (
        f"{report.converged:,} of {report.viewers:,} viewers saw the last one; {report.frames:,} messages, "
        f"{report.bytes_per_viewer_second:,.0f} bytes per viewer and second"
    )
    lines = [counted, seen]
    for name, values in (("sent to acknowledged", report.acknowledged), ("acknowledged to seen", report.received)):
        if values is not None:
            lines.append(
                f"{name}: p50 {values.p50:.1f} ms, p90 {values.p90:.1f} ms, p99 {values.p99:.1f} ms, "
                f"max {values.max:.1f} ms"
            )
    if report.promise is not None:
        lines.append(f"objective {report.promise}: {'met' if report.kept else 'MISSED'}")
    return lines


async def _check_board(options: Options) -> None:
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"{options.url}/v1/boards/{options.board}?limit=1") as response,
        ):
            if response.status != 200:  # noqa: PLR2004
                raise SetupError(f"{response.url} returned {response.status}: {(await response.text())[:300]}")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SetupError(f"can't reach {options.url}: {error!r}. Is `live serve` running?") from None


def _report(options: Options, producers: Producers, viewers: Viewers, seconds: float) -> Report:
    acknowledged = quantiles([ack.at - ack.sent for ack in producers.acknowledged])
    received = quantiles(seen_after(producers.acknowledged, viewers.seen))
    promise = options.promise
    kept = None
    if promise is not None:
        # A test in which no viewer saw anything does not meet its objective.
        kept = received is not None and getattr(received, promise.quantile) <= promise.milliseconds
        kept = kept and producers.failed == 0 and viewers.converged(producers.last_offset) == options.viewers
    return Report(
        producers=options.producers,
        viewers=options.viewers,
        seconds=round(seconds, 3),
        sent=producers.sent,
        accepted=producers.accepted,
        rejected=producers.rejected,
        failed=producers.failed,
        likes_per_second=round(producers.accepted / seconds, 1),
        acknowledged=acknowledged,
        received=received,
        converged=viewers.converged(producers.last_offset),
        frames=viewers.frames,
        bytes_per_viewer_second=round(viewers.bytes / max(1, options.viewers) / seconds, 1),
        promise=None if promise is None else promise.text,
        kept=kept,
    )
