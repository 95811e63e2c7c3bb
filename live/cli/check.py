"""`live check`: compare what boards hold with their journals, their own slots and their parts."""

from functools import partial
from typing import Annotated, Any

import typer

from live.boards.definitions import all_boards
from live.cli.context import Context, command, out, several, words_of
from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.text import counted, unknown
from live.errors import EpochLostError, NotFoundError, SetupError
from live.maintenance.check import Difference, Report, Side, advice_of, check_board, opened, replace_store
from live.maintenance.unions import UnionReport, compare_unions
from live.process.checks import find_losses, loss_of_store, readable
from live.store.board.journal_stream import begin_journal
from live.store.board.manage.swap import clean
from live.store.connection.client import Store
from live.store.registry.audit_trail import command_acting

_NAMES = {
    "log": "event", "taken": "negative sum", "slot": "value", "hidden": "hidden", "votes": "votes",
    "metadata": "metadata", "entrants": "contestant", "reached": "place among ties", "record": "score",
    "level": "distinct score", "total": "total", "listed": "slot in the list of slots", "counted": "sum of the entries",
    "secret": "key of the digests of voters",
}  # fmt: skip


@command("store", "data_dir")
async def check(
    context: Context,
    *,
    board: Annotated[list[str] | None, several("--board", "A board to check. Default: all boards.")] = None,
    repair: Annotated[
        Side | None,
        typer.Option(
            "--repair", help="Replace this side where they differ: `store` if the journal is right, else `journal`."
        ),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also add up the entries of journals plainly, in another way than servers.")
    ] = False,
) -> None:
    """Check that the store holds what it should; exit with 1 if something stays wrong. Boards stay in use.

    A board is compared with its journal, or without a journal with what its own slots say. A union is also compared
    with its parts. With `--repair store`, the board gets the right contents in one step while servers use it. With
    `--repair journal`, the journal begins again with what the store holds. Without --store, the command uses the
    embedded store of the data directory.

    Example: live check --board posts
    """
    with context.progress("Comparing") as show:
        try:
            reports, unions = await _check(context, words_of(board), repair, show, deep=deep)
        except EpochLostError as error:
            raise SetupError(f"{error}. Run the command again when the board is back") from None
    is_right = not any(union.wrong for union in unions.values())
    clean = is_right and all(report.clean for report in reports)
    if not context.report({"clean": clean, "boards": reports, "unions": unions}):
        for report in reports:
            print_report(report, repair)
        print_unions(unions)
    if not (is_right and all(report.clean or report.repaired for report in reports)):
        raise typer.Exit(1)


def print_report(report: Report, side: Side | None) -> None:
    """Print the result for a board, for people."""
    verdict = f"the {side} is replaced" if report.repaired else "DRIFT" if report.drifted else "no drift"
    compared = f"{counted(sum(report.compared.values()), 'value')} compared at offset {report.offset:,}"
    if not report.journal:
        compared += ", without a journal"
    if report.fault:
        verdict, compared = verdict if report.repaired else "NOT COMPARED", report.fault
    out.print(f"{report.board} (epoch {report.epoch}): {verdict}; {compared}", soft_wrap=True)
    if report.drifted:
        out.print(f"  {counted(report.drifted, 'different value')}; the first ones are:")
    for drift in report.drift:
        out.print(f"  {_words(drift)}", soft_wrap=True)


def _words(drift: Difference) -> str:
    held, right = [
        "none" if value is None else f"{value:,}" if isinstance(value, int) else value
        for value in (drift.store, drift.right)
    ]
    if drift.kind == "listed":
        return f"{_since(drift.start)}: this slot is unknown to rotation"
    slot = "" if drift.start is None else f" of {_since(drift.start)}"
    return f"{drift.key}: {_NAMES[drift.kind]}{slot}: {held} instead of {right}"


def _since(start: int | None) -> str:
    return rfc3339(start, 1, "minutes") if start else "all time"


def print_unions(unions: dict[str, UnionReport]) -> None:
    """Print how unions differ from their parts, for people."""
    for name, union in unions.items():
        if union.note:
            out.print(f"{name}: not compared with its parts: {union.note}", soft_wrap=True)
        elif union.wrong:
            out.print(f"{name}: DIFFERS from its parts for {counted(union.wrong, 'member')}; the first ones are:")
        for one in union.examples:
            out.print(f"  {one.member}: the union has {one.union:,}, its parts have {one.parts:,}")


async def _check(
    context: Context,
    wanted: tuple[str, ...],
    side: Side | None,
    show: Any,  # noqa: ANN401
    *,
    deep: bool,
) -> tuple[list[Report], dict[str, UnionReport]]:
    settings = context.settings
    async with context.store() as client:
        losses, _ = await find_losses(client, settings, partial(readable, settings), changes=False)
        if losses.store:
            raise SetupError(loss_of_store(client, losses))
        boards = await all_boards(client)
        names = [*boards, *(name for name in losses.boards if name not in boards)]
        if not names:
            raise SetupError("the store has no board under this key prefix")
        reports = []
        for name in wanted or names:
            if name not in names:
                raise NotFoundError(unknown("board", name, names))
            board, known = boards.get(name, (None, ""))
            meta = client.keys_of(name).meta
            epoch = (await client.call(meta, "HGET", meta, "epoch") or b"").decode()
            if board is None or not epoch or name in losses.boards:
                lost = losses.boards.get(name, "the store does not hold it")
                has_journal = settings.journal != "off" and (board is None or board.journal != "off")
                fault = f"{lost}. {advice_of(name, Side.JOURNAL if has_journal else Side.STORE)}"
                reports.append(Report(board=name, epoch=epoch or known, journal=has_journal, fault=fault))
            else:
                reports.append(await _check_board(client, context, board, epoch, side, show, deep=deep))
        return reports, await compare_unions(client, settings, [report.board for report in reports])


async def _check_board(
    client: Store,
    context: Context,
    board: Board,
    epoch: str,
    side: Side | None,
    show: Any,  # noqa: ANN401
    *,
    deep: bool,
) -> Report:
    settings = context.settings
    if side is Side.STORE:
        async with opened(client, settings, board, epoch) as (state, _):
            await clean(state)
    report, is_replaceable = await check_board(client, settings, board, epoch, show, deep=deep)
    if side is None or report.clean or not is_replaceable or (side is Side.JOURNAL and not report.journal):
        return report
    if side is Side.STORE and report.fault:
        raise SetupError(f"{report.fault}. The journal can begin again with --repair journal")
    drift = {"drifted": report.drifted, "drift": report.drift, "fault": report.fault}
    async with command_acting(client, "repaired", drift, board=board.id) as entry:
        if side is Side.JOURNAL:
            await begin_journal(client, client.keys_of(board.id), epoch, again=True)
        # The journal now has the slots of the store. The ranking may differ from them.
        if side is Side.STORE or not (await check_board(client, settings, board, epoch, show))[0].clean:
            await replace_store(client, settings, board, epoch, show)
        entry["after"] = {"replaced": side}
    again, _ = await check_board(client, settings, board, epoch, show, deep=deep)
    if not again.clean:
        return again
    report.repaired = True
    return report
