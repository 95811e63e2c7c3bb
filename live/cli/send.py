"""`live send`: sends a file of events to a server."""

from pathlib import Path
from typing import Annotated

import typer

from live.cli.context import Context, command
from live.cli.terminal import KeyOption, UrlOption, out
from live.domain.text import counted
from live.send.progress import make_options
from live.send.run import send_file

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
    to: UrlOption = "http://127.0.0.1:8000",
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
    options = make_options(path=file, url=to, board=board, speed=speed, restart=restart, key=key, ids=not no_ids)
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
