"""`live reconcile`: compares boards in the store with their journals, and replaces the side that is wrong."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from live.boards.all_boards import all_boards
from live.cli.audit import print_unions
from live.cli.context import Context, command
from live.cli.terminal import out, several, words_of
from live.domain.event import rfc3339
from live.domain.text import counted, unknown
from live.errors import EpochLostError, NotFoundError, SetupError
from live.maintenance.rebuild import Rebuilding
from live.maintenance.reconcile import Report, compare_board
from live.maintenance.unions import UnionReport, compare_unions
from live.store.board.journal_stream import begin_journal
from live.store.board.keys import Keys
from live.store.connection.client import Store
from live.store.registry.audit_trail import command_acting


class Side(StrEnum):
    """The side that a repair replaces."""

    STORE = "store"
    JOURNAL = "journal"


_NAMES = {
    "log": "event", "taken": "negative sum", "slot": "value", "hidden": "hidden", "votes": "votes",
    "metadata": "metadata", "entrants": "contestant", "reached": "place among ties",
}  # fmt: skip


@command("store", "boards", "data_dir")
async def reconcile(
    context: Context,
    *,
    board: Annotated[list[str] | None, several("--board", "A board to compare. Default: all boards.")] = None,
    repair: Annotated[
        Side | None,
        typer.Option(
            "--repair", help="Replace this side where they differ: `store` if the journal is right, else `journal`."
        ),
    ] = None,
) -> None:
    """Compare boards in the store with their journals, and unions with their parts; exit with 1 if they differ.

    With `--repair journal`, the journal of a board that differs begins again with what the store holds. With `--repair
    store`, the board is rebuilt from its journal under a new epoch: stop the servers first. Without --store, the
    command uses the embedded store of the data directory.

    Example: live reconcile --board posts
    """
    with context.progress("Comparing") as show:
        try:
            reports, unions = await _reconcile(context, words_of(board), repair, show)
        except EpochLostError as error:
            raise SetupError(f"{error}. Run the command again when the board is back") from None
    equal = not any(report.drifted or report.fault for report in reports)
    equal &= not any(union.wrong for union in unions.values())
    if not context.report({"equal": equal, "boards": reports, "unions": unions}):
        for report in reports:
            verdict = f"the {repair} is replaced" if report.repaired else "DRIFT" if report.drifted else "equal"
            compared = f"{counted(sum(report.compared.values()), 'value')} compared at offset {report.offset:,}"
            if report.fault:
                verdict, compared = verdict if report.repaired else "NOT COMPARED", report.fault
            out.print(f"{report.board} (epoch {report.epoch}): {verdict}; {compared}")
            if report.drifted:
                out.print(f"  {counted(report.drifted, 'different value')}; the first ones are:")
            for drift in report.drift:
                since = rfc3339(drift.start, 1, "minutes") if drift.start else "all time"
                slot = "" if drift.start is None else f" of {since}"
                held, kept = [
                    "none" if value is None else f"{value:,}" if isinstance(value, int) else value
                    for value in (drift.store, drift.journal)
                ]
                out.print(f"  {drift.key}: {_NAMES[drift.kind]}{slot}: store {held}, journal {kept}")
        print_unions(unions)
    if not equal:
        raise typer.Exit(1)


async def _reconcile(
    context: Context,
    wanted: tuple[str, ...],
    side: Side | None,
    show: Any,  # noqa: ANN401
) -> tuple[list[Report], dict[str, UnionReport]]:
    """Compare boards. If the store and the journal of a board differ and a side is named, replace this side."""
    context.journal().close()  # raises an error if there is no journal
    settings = context.settings
    async with context.store() as client:
        boards = await all_boards(client, settings)
        found = []  # the boards to compare, each with its epoch in the store
        for name in wanted or boards:
            if name not in boards:
                raise NotFoundError(unknown("board", name, boards))
            keys = Keys(context.prefix, name)
            epoch, journal = await client.call(keys.meta, "HMGET", keys.meta, "epoch", "journal")
            if epoch is not None and journal is not None:
                found.append((boards[name][0], epoch.decode()))
            elif wanted:
                missing = "the store does not hold it" if epoch is None else "it has no journal"
                raise SetupError(f"board {name!r} can't be compared: {missing}")
        reports = []
        for one, epoch in found:
            report, behind = await compare_board(client, settings, one, epoch, show)
            reports.append(report)
            if side is None or not (report.drifted or report.fault):
                continue
            if side is Side.JOURNAL and behind:
                reason = "Accept the loss with `live serve --accept-loss`, or use --repair store"
                raise SetupError(f"{report.fault}. {reason}")
            drift = {"drifted": report.drifted, "drift": report.drift, "fault": report.fault}
            async with command_acting(client, context.prefix, "reconciled", drift, board=one.id) as entry:
                now = await _replace(client, context, one.id, epoch, side, show)
                entry["after"] = {"replaced": side}
            again, _ = await compare_board(client, settings, one, now, show)
            if again.drifted or again.fault:
                reports[-1] = again
            else:
                report.repaired = True
        return reports, await compare_unions(client, settings, [report.board for report in reports])


async def _replace(client: Store, context: Context, board: str, epoch: str, side: Side, show: Any) -> str:  # noqa: ANN401
    """Replace what one side holds of a board by what the other side holds. Return the epoch of the board."""
    if side is Side.JOURNAL:
        await begin_journal(client, Keys(context.prefix, board), epoch, again=True)
        return epoch
    client.high_water.active = True
    with context.journal() as database:
        work = Rebuilding(
            client, context.settings, context.in_file(), database, lambda _, done, total: show(done, total)
        )
        return (await work.replace(board, epoch)).epoch
