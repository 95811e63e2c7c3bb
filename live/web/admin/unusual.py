"""The page "What is unusual": members that gained much in the last ten minutes, or mostly from one source."""

from typing import Final

from starlette.responses import Response

from live.journal.past.contributors import find_unusual
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.admin.members import ACTS, chosen_board
from live.web.reads.sources import BoardPast

_MINUTES: Final = 10


async def show(desk: Desk, error: Exception | None = None, _form: Form = NO_FORM) -> Response:
    """Show the unusual members of a board. A process that reads the past finds them in the journal."""
    boards = sorted(ledger.state.board.id for ledger in desk.ledgers())
    ledger, found = await chosen_board(desk, boards), None
    if ledger is not None:
        past = await BoardPast.of(desk.live, ledger, desk.visit.client.network)
        await past.wait(past.now)
        since = past.now - _MINUTES * 60_000
        found = await past.run(find_unusual, past.board, past.hidden, since, past.now)
    return await desk.show(
        "unusual",
        error,
        ledger=ledger,
        boards=boards,
        found=found,
        minutes=_MINUTES,
        titles=await desk.live.items.of([one.key for one in found.members] if found is not None else []),
    )


PAGE: Final = AdminPage(path="unusual", show=show, acts=ACTS)
