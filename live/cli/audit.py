"""`live audit`: compares scores with the sums of the slots."""

from typing import Annotated

import typer

from live.cli.context import Context, command
from live.cli.terminal import out
from live.domain.text import counted, unknown
from live.errors import NotFoundError
from live.maintenance.unions import UnionReport, compare_unions
from live.store.board.audit import Auditor, AuditReport
from live.store.registry.audit_trail import command_acting
from live.store.registry.definitions import DefinitionStore

BoardOption = Annotated[str | None, typer.Option("--board", help="The board to check. Default: all boards.")]


@command("store", "boards", "data_dir")
async def audit(
    context: Context,
    *,
    board: BoardOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set each score in the ranking to what the slots hold.")
    ] = False,
) -> None:
    """Check that the score of every member of a running board is the sum of its slots; exit with 1 on drift.

    Also check that a union has the weighted sum of its parts. The board keeps running. Without --store, the command
    uses the embedded store of a running `live serve`.

    Example: live audit --board posts
    """
    in_file, reports = list(context.in_file().by_id), list[AuditReport]()
    with context.progress("Comparing") as show:
        async with context.store(start=False) as client:
            made = (await DefinitionStore(client, context.prefix).load()).boards
            alive = [name for name, definition in made.items() if definition.state == "live"]
            names = list(dict.fromkeys((*in_file, *alive)))
            if board is not None and board not in names:
                raise NotFoundError(unknown("board", board, names))
            wanted = names if board is None else [board]
            for one in wanted:
                auditor = Auditor(client, one, context.prefix, show)
                report = await auditor.audit(repair=False)
                if repair and not report.clean:
                    async with command_acting(client, context.prefix, "repaired", report, board=one):
                        report = await auditor.audit(repair=True)
                reports.append(report)
            unions = await compare_unions(client, context.settings, wanted)
    clean = all(report.clean for report in reports) and not any(union.wrong for union in unions.values())
    if not context.report({"clean": clean, "boards": reports, "unions": unions}):
        for report in reports:
            print_report(report)
        print_unions(unions)
    if not clean:
        raise typer.Exit(1)


def print_report(report: AuditReport) -> None:
    """Print the findings of an audit for people."""
    verdict = "no drift" if report.clean else "repaired" if report.repaired else "DRIFT"
    moving = " (the total was not checked, because the board changed meanwhile)" if report.totals == "moving" else ""
    members, slots = counted(report.members, "member"), counted(report.slots, "slot")
    out.print(f"{report.board}: {verdict}; {members} in {slots}{moving}")
    if report.totals == "drift":
        out.print("  the total differs from what the slots hold")
    if report.drifted:
        out.print(f"  {counted(report.drifted, 'wrong score')}; the first ones are:")
    for drift in report.drift:
        score = "no record" if drift.score is None else f"score {drift.score:,}"
        out.print(f"  {drift.key}: {score}, the slots hold {drift.held:,}")
    for slot in report.stray_slots:
        out.print(f"  {slot}: this slot is unknown to rotation")


def print_unions(unions: dict[str, UnionReport]) -> None:
    """Print how unions differ from their parts, for people."""
    for name, union in unions.items():
        if union.note:
            out.print(f"{name}: not compared with its parts: {union.note}", soft_wrap=True)
        elif union.wrong:
            out.print(f"{name}: DIFFERS from its parts for {counted(union.wrong, 'member')}; the first ones are:")
        for one in union.examples:
            out.print(f"  {one.key}: the union has {one.union:,}, its parts have {one.parts:,}")
