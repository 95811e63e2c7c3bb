"""The command `live load`."""

from typing import Annotated

import typer

from live.cli.context import Context, command
from live.cli.terminal import KeyOption, UrlOption, out, several, words_of
from live.load.options import make_options
from live.load.report import show
from live.load.run import run

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
    to: UrlOption = "http://127.0.0.1:8000",
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
    options = make_options(
        url=to, key=key, board=board, producers=producers, viewers=viewers, sse_viewers=sse_viewers, rate=rate,
        duration=duration, batch=batch, processes=processes, members=members, slo=words_of(slo),
    )  # fmt: skip
    with context.progress("Load-testing") as progress:
        report = await run(options, progress)
    if not context.report(report):
        out.print(show(report))
    if not report.passed:
        raise typer.Exit(1)
