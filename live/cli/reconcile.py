"""`live reconcile`: compares boards in the store with their journals, and repairs one of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from live.boards.definition import DefinitionError, read_board
from live.cli.terminal import (
    BoardsOption,
    DataDirOption,
    JsonOption,
    StoreOption,
    clear_errors,
    out,
    print_json,
    progress_bar,
)
from live.domain.board import Board, Boards
from live.domain.board_file import load_boards
from live.domain.counts import counted
from live.errors import EpochLostError, SetupError
from live.journal.database import existing_journal
from live.journal.drain import Drainer
from live.journal.follower import Follower
from live.journal.reconcile import Difference, Reconciler, Report
from live.settings import Settings, load_settings
from live.store.board.keys import Keys
from live.store.board.mending import BoardMender
from live.store.board.state import BoardState
from live.store.connection.client import Store, connect, store_errors
from live.store.connection.embedded import running_or_started
from live.store.registry.definitions import DefinitionStore


class Side(StrEnum):
    """What a repair changes."""

    STORE = "store"
    JOURNAL = "journal"


_NAMES = {
    "log": "event", "taken": "negative sum", "slot": "value", "hidden": "hidden", "votes": "votes",
    "metadata": "metadata", "entrants": "contestant", "reached": "place among ties",
}  # fmt: skip


def reconcile(
    *,
    board: Annotated[
        list[str] | None, typer.Option("--board", help="A board to compare; may be repeated. Default: all boards.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what differs. Needs --to.")] = False,
    to: Annotated[
        Side | None,
        typer.Option("--to", help="What --repair changes: `store` if the journal is right, `journal` if the store is."),
    ] = None,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare boards in the store with their journals while events come; exit with 1 if they differ.

    A repair adds missing amounts and subtracts excess ones, each once, and viewers see it. If the command is
    interrupted, run it again. Without --store, the command uses the embedded store of the data directory.

    Example: live reconcile --board posts
    """
    with clear_errors():
        if repair is not (to is not None):
            raise SetupError("--repair and --to go together: say which side a repair changes, `store` or `journal`")
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        with progress_bar("Comparing", quiet=as_json) as show:
            try:
                reports = asyncio.run(_reconcile(settings, board or [], to, show))
            except EpochLostError as error:
                raise SetupError(f"{error}. Run the command again when the board is back") from None
    if as_json:
        print_json({"equal": not any(report.drifted for report in reports), "boards": reports})
    else:
        for report in reports:
            _print(report, to)
    if any(report.drifted for report in reports):
        raise typer.Exit(1)


async def _reconcile(settings: Settings, wanted: list[str], side: Side | None, show: Any) -> list[Report]:  # noqa: ANN401
    existing_journal(settings).close()  # raises an error if there is none
    with nullcontext(settings.store) if settings.store else running_or_started(settings.data_dir) as url:
        client = connect(url, settings)
        try:
            boards = await _boards(client, settings)
            found = await _in_store(client, settings, boards, wanted)
            async with _draining(client, settings, boards):
                return [await _compare(client, settings, board, epoch, side, show) for board, epoch in found]
        finally:
            await client.aclose()


@asynccontextmanager
async def _draining(client: Store, settings: Settings, boards: Mapping[str, Board]) -> AsyncIterator[None]:
    """Move entries to SQL while in the context, unless a server does so."""
    database = existing_journal(settings)
    draining: asyncio.Task[None] | None = None
    try:
        if await database.take():
            known = Boards(boards.values())
            draining = asyncio.create_task(Drainer(client, settings, database, lambda: known).run())
        yield
    finally:
        if draining is not None:
            draining.cancel()
        await database.aclose()


async def _boards(client: Store, settings: Settings) -> dict[str, Board]:
    """The boards of the boards file and the run-time boards, by id."""
    boards: dict[str, Board] = dict(load_boards(settings.boards).by_id)
    for name, definition in (await DefinitionStore(client, settings.key_prefix).load()).boards.items():
        if definition.state == "live":
            try:
                boards.setdefault(name, read_board(name, definition.choices))
            except DefinitionError as error:
                raise SetupError(f"the definition of board {name!r} can't be read: {error}") from None
    return boards


async def _in_store(
    client: Store, settings: Settings, boards: Mapping[str, Board], wanted: list[str]
) -> list[tuple[Board, str]]:
    """The boards to compare, each with its epoch in the store."""
    found = []
    for name in wanted or boards:
        if name not in boards:
            raise SetupError(f"there is no board {name!r}; there are: {', '.join(boards)}")
        keys = Keys(settings.key_prefix, name)
        async with store_errors():
            epoch, journal = await client.call(keys.meta, "HMGET", keys.meta, "epoch", "journal")
        if epoch is not None and journal is not None:
            found.append((boards[name], epoch.decode()))
        elif wanted:
            missing = "the store does not hold it" if epoch is None else "it has no journal"
            raise SetupError(f"board {name!r} can't be compared: {missing}")
    return found


async def _compare(
    client: Store,
    settings: Settings,
    board: Board,
    epoch: str,
    side: Side | None,
    show: Any,  # noqa: ANN401
) -> Report:
    state = BoardState(client, board, settings, born=epoch)
    await state.open()
    with existing_journal(settings, writes=False) as database:
        follower = Follower(database, settings.key_prefix, board.id, epoch)
        await follower.begin(show)
        reconciler = Reconciler(state, follower, BoardMender(state), show)
        return await reconciler.reconcile(None if side is None else side.value)


def _print(report: Report, side: Side | None) -> None:
    """A report for people."""
    verdict = "equal" if not report.drifted else "DRIFT" if report.left else f"the {side} is repaired"
    compared = counted(sum(report.compared.values()), "value")
    out.print(
        f"{report.board} (epoch {report.epoch}): {verdict}; {compared} compared at offset {report.offset:,}",
        markup=False,
    )
    if report.drifted:
        left = f", {report.left:,} of them after the repair" if side is not None and report.left else ""
        out.print(f"  {counted(report.drifted, 'different value')}{left}; the first ones are:")
    for drift in report.drift:
        out.print(f"  {_line(drift)}", markup=False)


def _line(drift: Difference) -> str:
    slot = "" if drift.start is None else f" of {_time(drift.start)}"
    values = [
        "none" if value is None else f"{value:,}" if isinstance(value, int) else value
        for value in (drift.store, drift.journal)
    ]
    return f"{drift.key}: {_NAMES[drift.kind]}{slot}: store {values[0]}, journal {values[1]}"


def _time(start: int) -> str:
    """The start of a slot; a slot that covers all time begins at 0."""
    return datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%MZ") if start else "all time"
