"""The command `live`: reads flags, calls the packages that do the work, and reports an error as one clear message."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import live.replay.run as replaying
from live import __version__
from live.cli.backup import backup, restore
from live.cli.boards import show_boards
from live.cli.export import export
from live.cli.journal import journal, rebuild
from live.cli.keys import keys
from live.cli.load import load
from live.cli.personal import erase, void
from live.cli.reconcile import reconcile
from live.cli.terminal import (
    BoardsOption,
    DataDirOption,
    JsonOption,
    KeyOption,
    StoreOption,
    UrlOption,
    clear_errors,
    out,
    print_json,
    progress_bar,
    setting_help,
)
from live.domain.board_file import load_boards
from live.domain.counts import counted
from live.errors import SetupError
from live.replay.options import make_options as make_replay_options
from live.serve import serve as serve_board
from live.settings import Settings, check_variables, load_settings
from live.store.board.audit import Auditor, Progress, Report
from live.store.connection.client import connect
from live.store.connection.private import UMASK
from live.store.registry.definitions import DefinitionStore

app = typer.Typer(
    name="live",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A real-time ranking server: POST events, watch an exact ranking move in every browser.",
    epilog="To start, run `live serve --demo` and open the address that it prints.",
)
app.add_typer(keys)
app.command(name="boards")(show_boards)
app.command()(load)
app.add_typer(journal)
app.command()(rebuild)
app.command()(void)
app.command()(erase)
app.command()(reconcile)
app.command()(backup)
app.command()(restore)
app.command()(export)

BoardOption = Annotated[str | None, typer.Option("--board", help="The board to check. Default: all boards.")]
AdminKeyOption = Annotated[
    bool | None,
    typer.Option(
        "--admin-key/--no-admin-key",
        help="Print the admin API key of the data directory; create it if there is no API key. Default: on a terminal.",
    ),
]
AcceptLossOption = Annotated[
    bool,
    typer.Option("--accept-loss", help="Continue with a store that lost data. Use this once, not in a service file."),
]
NoIdsOption = Annotated[
    bool,
    typer.Option(
        "--no-ids",
        help="Add no ids. This saves the store about 40 bytes per event for up to two dedupe windows, but the "
        "replay stops when a response is lost.",
    ),
]


@app.callback(invoke_without_command=True)
def root(*, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Handle --version; everything else is a command."""
    if version:
        typer.echo(f"live {__version__}")
        raise typer.Exit


@app.command()
def serve(  # noqa: PLR0913 - one parameter per flag
    *,
    host: Annotated[str | None, typer.Option("--host", help=setting_help("host"))] = None,
    port: Annotated[int | None, typer.Option("--port", help=setting_help("port"))] = None,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    workers: Annotated[int | None, typer.Option("--workers", help=setting_help("workers"))] = None,
    role: Annotated[str | None, typer.Option("--role", help=setting_help("role"))] = None,
    open_to_all: Annotated[bool, typer.Option("--open", help=setting_help("open"))] = False,
    demo: Annotated[bool, typer.Option("--demo", help=setting_help("demo"))] = False,
    admin_key: AdminKeyOption = None,
    accept_loss: AcceptLossOption = False,
) -> None:
    """Serve boards: pages, HTTP and WebSockets.

    Without --store, it starts an embedded Valkey server that keeps its data in the data directory.
    Until `live keys add` has created an API key that may post, it listens on this machine only, unless --open is given.
    Every other setting is an environment variable; docs/settings.md lists them all.

    Example: live serve --demo
    """
    with clear_errors():
        settings = load_settings(
            host=host, port=port, store=store, boards=boards, data_dir=data_dir, workers=workers, role=role,
            open=open_to_all or None, demo=demo or None,
        )  # fmt: skip
        try:
            serve_board(
                settings, admin_key=sys.stdout.isatty() if admin_key is None else admin_key, accept_loss=accept_loss
            )
        except KeyboardInterrupt:
            raise typer.Exit from None


@app.command()
def replay(  # noqa: PLR0913 - one parameter per flag
    file: Annotated[Path, typer.Argument(help="Events as NDJSON or CSV (with a header line), also .gz.")],
    *,
    to: UrlOption = "http://127.0.0.1:8000",
    board: Annotated[str | None, typer.Option("--board", help="Send every event to this board.")] = None,
    speed: Annotated[str, typer.Option("--speed", help="A factor on the pace of the events, or `max`.")] = "max",
    restart: Annotated[bool, typer.Option("--restart", help="Start over; all events count again.")] = False,
    no_ids: NoIdsOption = False,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a file of events to a running server, in batches.

    If it is interrupted, the same command continues after the last acknowledged batch.
    Each event gets an id, so an event that is sent again because a response was lost counts once.

    Example: live replay likes.ndjson.gz --board posts --speed 60
    """
    with clear_errors():
        check_variables()
        options = make_replay_options(
            path=file, url=to, board=board, speed=speed, restart=restart, key=key, ids=not no_ids
        )
        with progress_bar(f"Sending {file.name}", quiet=as_json) as show:
            outcome = asyncio.run(replaying.replay(options, show))
    if as_json:
        print_json(outcome)
        return
    _print_outcome(outcome)


def _print_outcome(outcome: replaying.Outcome) -> None:
    """Print the result of a replay."""
    if outcome.stopped:
        out.print("Interrupted; run the same command to continue from here.")
    if outcome.resumed_at:
        out.print(f"Continued after the first {counted(outcome.resumed_at, 'event')}.")
    out.print(
        f"{counted(outcome.sent, 'event')} sent: {outcome.accepted:,} counted, {outcome.duplicate:,} counted before."
    )
    if outcome.lost:
        out.print(f"{counted(outcome.lost, 'lost response')}: sent again, and each event counted once.")
    for code, count in sorted(outcome.rejected.items()):
        out.print(f"{count:,} rejected as {code}")
    for example in outcome.examples:
        out.print(f"  event {example['event']}: {example['detail']}", markup=False)


@app.command()
def audit(
    *,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    board: BoardOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set each score in the ranking to what the slots hold.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that the score of every member of a running board is the sum of its slots; exit with 1 on drift.

    The board keeps running. Without --store, the command uses the embedded store of a running `live serve`.

    Example: live audit --board posts
    """
    with clear_errors():
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        in_file = list(load_boards(settings.boards).by_id)
        with progress_bar("Comparing", quiet=as_json) as show:
            reports = asyncio.run(audit_boards(settings, in_file, board, show, repair=repair))
    if as_json:
        print_json({"clean": all(report.clean for report in reports), "boards": reports})
    else:
        for report in reports:
            print_report(report)
    if not all(report.clean for report in reports):
        raise typer.Exit(1)


async def audit_boards(
    settings: Settings, in_file: list[str], board: str | None, show: Progress, *, repair: bool
) -> list[Report]:
    """Audit one board, or all boards of the file and of the store, one after another."""
    client = connect(settings.store or f"unix://{settings.data_dir.resolve() / 'valkey.sock'}", settings)
    try:
        made = (await DefinitionStore(client, settings.key_prefix).load()).boards
        alive = [name for name, definition in made.items() if definition.state == "live"]
        known = list(dict.fromkeys((*in_file, *alive)))
        if board is not None and board not in known:
            raise SetupError(f"there is no board {board!r}; there are: {', '.join(known)}")
        wanted = known if board is None else [board]
        return [await Auditor(client, one, settings.key_prefix, show).audit(repair=repair) for one in wanted]
    finally:
        await client.aclose()


def print_report(report: Report) -> None:
    """An audit's findings, for people."""
    verdict = "no drift" if report.clean else "repaired" if report.repaired else "DRIFT"
    moving = " (the total was not checked, because the board changed meanwhile)" if report.totals == "moving" else ""
    members, slots = counted(report.members, "member"), counted(report.slots, "slot")
    out.print(f"{report.board}: {verdict}; {members} in {slots}{moving}", markup=False)
    if report.totals == "drift":
        out.print("  the total differs from what the slots hold")
    if report.drifted:
        out.print(f"  {counted(report.drifted, 'wrong score')}; the first ones are:")
    for drift in report.drift:
        score = "no record" if drift.score is None else f"score {drift.score:,}"
        out.print(f"  {drift.key}: {score}, the slots hold {drift.held:,}", markup=False)
    for slot in report.stray_slots:
        out.print(f"  {slot}: this slot is unknown to rotation", markup=False)


def main() -> None:
    """Run the command. The files that it writes are readable by their owner only."""
    os.umask(UMASK)
    app()
