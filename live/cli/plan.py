"""`live plan`: computes the resources that a load needs, from measured unit costs."""

from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from live.cli.terminal import JsonOption, clear_errors, make_table, out, reported
from live.domain.capacity import UNIT_COSTS, CapacityPart, Demand, plan
from live.errors import SetupError
from live.settings import load_settings

ViewersOption = Annotated[int, typer.Option("--viewers", min=0, help="Viewers on all boards together.")]
FramesOption = Annotated[float, typer.Option("--frames", min=0, max=1000, help="Messages a second to each viewer.")]
EventsOption = Annotated[float, typer.Option("--events", min=0, help="Events a second, spread over the boards.")]
BoardCountOption = Annotated[int, typer.Option("--board-count", min=1, help="Boards.")]
MembersOption = Annotated[int, typer.Option("--members", min=0, help="Members of all boards together.")]
SlotsOption = Annotated[int, typer.Option("--slots", min=1, help="In how many slots of its board a member is.")]
IdsOption = Annotated[bool, typer.Option("--ids", help="Each event has an id, by which duplicates are found.")]


def show_plan(  # noqa: PLR0913 - one parameter per flag
    *,
    viewers: ViewersOption = 0,
    frames: FramesOption = 1.0,
    events: EventsOption = 0.0,
    boards: BoardCountOption = 1,
    members: MembersOption = 0,
    slots: SlotsOption = 1,
    ids: IdsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say how many processes and primaries a load takes, how much memory and traffic, and what to leave to others.

    The figures follow from unit costs that were measured on one machine: expect half or twice as much on yours.
    The command asks no server. It reads LIVE_MAX_VIEWERS, LIVE_MAX_BOARDS and LIVE_DEDUPE_WINDOW.

    Example: live plan --viewers 1000000 --frames 1 --events 1000000 --board-count 100000
    """
    with clear_errors():
        settings = load_settings()
        if not (viewers or events or members):
            raise SetupError("there is nothing to plan: give --viewers, --events or --members")
        if viewers and not settings.max_viewers:
            raise SetupError("LIVE_MAX_VIEWERS is 0, so no process takes viewers: set it to 1 or more")
        made = plan(
            Demand(
                viewers=viewers,
                frames=frames,
                events=events,
                boards=boards,
                members=members,
                slots=slots,
                has_ids=ids,
                dedupe_window=settings.dedupe_window,
                process_viewers=settings.max_viewers or 1,
                max_boards=settings.max_boards,
            )
        )
    if reported(made, as_json=as_json):
        return
    numbers = ["count", "cores", "memory", "traffic"]
    table = make_table("", *numbers, numbers=numbers)
    _add(table, "viewer processes", made.viewer_processes)
    _add(table, "ingest processes", made.ingest_processes)
    _add(table, "primaries of the store", made.primaries, "give --members")
    out.print(table)
    if made.sql_bytes_per_day:
        out.print(f"The journal adds {decimal(round(made.sql_bytes_per_day))} a day to its database.")
    if made.advice:
        out.print()
        out.print("Beyond the figures:")
        for line in made.advice:
            out.print(f"- {line}")
    out.print()
    out.print(f"Unit costs of {max(cost.measured for cost in UNIT_COSTS)}; docs/scaling.md lists them.")


def _add(table: Table, name: str, part: CapacityPart, unknown: str = "\u2013") -> None:
    traffic = f"{decimal(round(part.bytes_per_second))}/s" if part.bytes_per_second else "\u2013"
    memory = decimal(round(part.memory)) if part.memory else unknown
    table.add_row(name, f"{part.count:,}", f"{part.cores:,.1f}", memory, traffic)
