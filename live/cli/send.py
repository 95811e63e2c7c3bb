"""`live send` and `live load`: send events from a file, or likes at a rate, to a running server."""

from pathlib import Path
from typing import Annotated

import typer

from live.cli.context import Context, KeyOption, UrlOption, command, out, several, words_of
from live.client.target import parse_api_key, parse_url
from live.domain.text import counted
from live.errors import SetupError
from live.load.options import load_options
from live.load.run import run, show
from live.send.run import SendOptions, send_file

NoIdsOption = Annotated[
    bool,
    typer.Option(
        "--no-ids",
        help="Add no ids. This saves the store about 40 bytes per event for up to two dedupe windows, but the "
        "command stops when a response is lost.",
    ),
]


@command()
async def send(  # noqa: PLR0913 - one parameter per flag
    context: Context,
    file: Annotated[Path, typer.Argument(help="Events as NDJSON or CSV (with a header line), also .gz.")],
    *,
    to: UrlOption = None,
    board: Annotated[str | None, typer.Option("--board", help="Send every event to this board.")] = None,
    speed: Annotated[
        str, typer.Option("--speed", help="How many times as fast as the events happened, or `max`.")
    ] = "max",
    restart: Annotated[bool, typer.Option("--restart", help="Start over; all events count again.")] = False,
    no_ids: NoIdsOption = False,
    key: KeyOption = None,
) -> None:
    """Send a file of events to a running server, in batches.

    If it is interrupted, the same command continues after the last acknowledged batch.
    Each event gets an id, so an event that is sent again because a response was lost counts once.
    It exits with 1 if the server refused events.

    Example: live send likes.ndjson.gz --board posts --speed 60
    """
    try:
        factor = None if speed == "max" else float(speed)
    except ValueError:
        factor = 0
    if factor is not None and not 0 < factor < float("inf"):
        raise SetupError(f"--speed {speed!r}: expected a number such as 60, or max")
    try:
        url, key = parse_url(context.server(to)), parse_api_key(key)
    except ValueError as error:
        raise SetupError(str(error)) from None
    options = SendOptions(path=file, url=url, board=board, speed=factor, restart=restart, key=key, ids=not no_ids)
    with context.progress(f"Sending {file.name}") as show:
        outcome = await send_file(options, show)
    if not context.report(outcome):
        if outcome.stopped:
            out.print("Interrupted; run the same command to continue from here.")
        if outcome.resumed_at:
            out.print(f"Continued after the first {counted(outcome.resumed_at, 'event')}.")
        known = f"{outcome.accepted:,} counted, {outcome.duplicate:,} counted before"
        out.print(f"{counted(outcome.sent, 'event')} sent: {known}.")
        if outcome.lost:
            out.print(f"{counted(outcome.lost, 'lost response')}: sent again, and each event counted once.")
        for code, count in sorted(outcome.rejected.items()):
            out.print(f"{count:,} rejected as {code}")
        for example in outcome.examples:
            out.print(f"  event {example['event']}: {example['detail']}")
    if outcome.rejected:
        raise typer.Exit(1)


_Board = Annotated[str, typer.Option("--board", help="The board that receives the likes and is watched.")]
_Producers = Annotated[int, typer.Option("--producers", min=1, max=10_000, help="Connections that send.")]
_Viewers = Annotated[int, typer.Option("--viewers", min=0, max=20_000, help="WebSockets that watch.")]
_SseViewers = Annotated[int, typer.Option("--sse-viewers", min=0, max=20_000, help="Event streams that watch.")]
_Rate = Annotated[str, typer.Option("--rate", help="Likes per second in total, such as 500, or a ramp: 100..2000.")]
_Duration = Annotated[str, typer.Option("--duration", help="How long to send, such as 30s.")]
_Batch = Annotated[int, typer.Option("--batch", min=1, max=1000, help="Likes per request.")]
_Processes = Annotated[int, typer.Option("--processes", min=1, max=64, help="Processes that generate load.")]
_Members = Annotated[
    int, typer.Option("--members", min=1, help="Members that receive likes; a few receive most (Zipf).")
]
_Slo = Annotated[
    list[str] | None,
    several("--slo", "An objective such as seen:p99=250ms or acknowledged:p99.9=50ms."),
]


@command()
async def load(  # noqa: PLR0913 - one parameter per flag
    context: Context,
    *,
    to: UrlOption = None,
    board: _Board = "posts",
    producers: _Producers = 32,
    viewers: _Viewers = 100,
    sse_viewers: _SseViewers = 0,
    rate: _Rate = "200",
    duration: _Duration = "10s",
    batch: _Batch = 1,
    processes: _Processes = 1,
    members: _Members = 1000,
    slo: _Slo = None,
    key: KeyOption = None,
) -> None:
    """Load-test a running server: how long until likes are durable, and until viewers see them?

    Likes are due at a fixed rate, however slow the server is. All times are measured from the moment when a like was
    due. The command exits with 1 if less than 95 % of the rate is reached, if a request fails, if a viewer misses the
    last like, or if an objective is missed.

    Example: live load --viewers 200 --rate 500 --duration 20s --slo seen:p99=250ms
    """
    options = load_options(
        url=context.server(to), key=key, board=board, producers=max(producers, processes), viewers=viewers,
        sse_viewers=sse_viewers, rate=rate, duration=duration, batch=batch, processes=processes, members=members,
        slo=words_of(slo),
    )  # fmt: skip
    with context.progress("Load-testing") as progress:
        report = await run(options, progress)
    if not context.report(report):
        out.print(show(report))
    if not report.passed:
        raise typer.Exit(1)
