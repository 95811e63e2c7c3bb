"""`live tickets`: prints the tickets of a contest, and lists the tickets that have voted."""

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from live.auth.api_keys import board_faults
from live.auth.tickets import MOST_TICKETS, voter_of
from live.cli.context import Context, command
from live.cli.sheet import write_sheet
from live.cli.terminal import err, out
from live.cli.token import ServerOption, address_of
from live.domain.producer import ALL
from live.domain.text import unknown
from live.errors import NotFoundError, SetupError
from live.network.hosts import is_loopback
from live.store.board.keys import Keys
from live.store.board.manage.erasure import has_voted, read_held
from live.store.board.usage import opened_boards
from live.store.board.write.slot_assignment import voter_digests

_STEP: Final = 1000  # voters that the store looks up at once


@command("store", "data_dir")
async def tickets(
    context: Context,
    board: Annotated[str, typer.Argument(metavar="BOARD", help="The id of the board.")],
    *,
    count: Annotated[
        int | None, typer.Option("--count", min=1, max=MOST_TICKETS, help="Number of tickets. Needs --sheet.")
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", metavar="FILE", help="Write tickets to this page (HTML), to print.")
    ] = None,
    server: ServerOption = None,
) -> None:
    """List the numbers of the tickets that have voted on a board, one per line. Nobody learns for whom.

    With --count and --sheet, write a page of numbered tickets instead. Each ticket is one voter on the board. The same
    LIVE_TOKEN_SECRET and board always give the same tickets.

    Example: live tickets songs --count 300 --sheet tickets.html --server https://board.example.org
    """
    if count is None and sheet is None and server is None:
        found = await _used(context, board)
        if not context.report({"board": board, "tickets": found}):
            for number in found:
                out.print(str(number))
        return
    if count is None or sheet is None:
        raise SetupError("--count and --sheet belong together: the number of tickets, and the page to print")
    if fault := next(board_faults("BOARD", (board,)), None):
        raise SetupError(fault)
    if board.endswith(ALL):
        raise SetupError("BOARD: name one board, whose tickets to print")
    if not context.settings.token_secret:
        raise SetupError("LIVE_TOKEN_SECRET is not set: give the server and this command the same secret")
    address = address_of(context.settings, server)
    try:
        write_sheet(sheet, context.settings.token_secret, board, count, address)
    except OSError as error:
        raise SetupError(f"--sheet: can't write {sheet}: {error.strerror}") from None
    if context.report({"board": board, "tickets": count, "sheet": str(sheet)}):
        return
    err.print(f"Wrote {count:,} tickets to {sheet}. Whoever sees a ticket can vote with it.", soft_wrap=True)
    if is_loopback(urlsplit(address).hostname or ""):
        err.print(f"Phones can't open {address}: name the address of the server with --server.", soft_wrap=True)


async def _used(context: Context, board: str) -> list[int]:
    """Return the numbers of the tickets that have voted."""
    async with context.store(start=False) as client:
        keys = Keys(context.prefix, board)
        held = await read_held(client, keys)
        if held is None:
            known = await opened_boards(client, context.prefix)
            raise NotFoundError(f"in the store, {unknown('board', board, known)}")
        found: list[int] = []
        for first in range(1, MOST_TICKETS + 1, _STEP):
            numbers = range(first, first + _STEP)
            digests = [voter_digests(held.secret, voter_of(number), "")[0] for number in numbers]
            voted = await has_voted(client, keys, held, digests)
            found += [number for number, has in zip(numbers, voted, strict=True) if has]
        return found
