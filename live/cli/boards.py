"""`live boards`: lists the boards, their records and their memory."""

from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.table import Table

from live.boards.definitions import all_boards
from live.cli.context import Context, command, make_table, out
from live.store.board.usage import count, keys_of, measure, view

_FIRM = 1000  # members; an estimate that is based on fewer members is unreliable


@command("store", "data_dir")
async def show_boards(
    context: Context,
    *,
    memory: Annotated[
        bool, typer.Option("--memory", help="Measure the memory of each board, from samples of its store keys.")
    ] = False,
    members: Annotated[
        int | None, typer.Option("--members", min=1, help="Estimate the memory of each board with this many members.")
    ] = None,
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            min=0,
            help="Estimate the memory of each board with this many ids, events of a sliding window, or votes.",
        ),
    ] = None,
) -> None:
    """List the boards, with their records and offsets.

    Estimates are based on what a board holds, so fill it with some thousand members first.
    Without --store, the command uses the embedded store of a running `live serve`.

    Example: live boards --memory --members 1000000
    """
    measured = memory or members is not None or events is not None
    found = []
    async with context.store(start=False) as client:
        all_of_them = await all_boards(client)
        keys = await keys_of(client, all_of_them) if measured else {}
        for name, (board, _) in all_of_them.items():
            held = await measure(client, name, keys[name]) if measured else None
            found.append(view(await count(client, board), held, members, events))
    if not context.report({"boards": found}):
        predicted = any("predicted" in held.get("memory", {}) for held in found)
        table = _memory_table(found, predicted=predicted) if measured else _table(found)
        out.print(table)
        if predicted and any(0 < held["memory"]["members"] < _FIRM for held in found):
            out.print(f"Estimates based on fewer than {_FIRM:,} members are unreliable.")


def _table(found: list[dict[str, Any]]) -> Table:
    table = make_table("id", "title", "records", "offset", "", wraps=["id", "title"], numbers=["records", "offset"])
    for board in found:
        state = "frozen" if board["frozen"] else "" if board["epoch"] else "no data"
        table.add_row(board["board"], board["title"], f"{board['records']:,}", f"{board['offset']:,}", state)
    return table


def _memory_table(found: list[dict[str, Any]], *, predicted: bool) -> Table:
    numbers = ["records", "memory", "per member", "per event", *(["estimate"] if predicted else [])]
    values = ["bytes", "bytes_per_member", "bytes_per_event", *(["predicted"] if predicted else [])]
    table = make_table("id", *numbers, wraps=["id"], numbers=numbers)
    for board in found:
        sizes = [board["memory"][name] for name in values]
        shown = ["\u2013" if size is None else decimal(round(size)) for size in sizes]
        table.add_row(board["board"], f"{board['records']:,}", *shown)
    return table
