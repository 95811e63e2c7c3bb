"""The votes that a visitor has given on a board, for the script of the board's pages."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.errors import ProblemError
from live.web.http.responses import NOT_STORED
from live.web.pages.ballot import given_of
from live.web.pages.rendering import visit_of
from live.web.services import live_of, reader_of

MOST_ASKED: Final = 100  # members in a request


class VoterView(msgspec.Struct, frozen=True):
    """The votes of a visitor. `left` is null if there is no limit."""

    board: str
    period: str | None
    left: int | None
    votes: Sequence[str]


async def get_votes(request: Request) -> Response:
    """Return which members have a vote of the visitor, and how many votes the visitor has left."""
    visit, live = visit_of(request), live_of(request)
    members = request.query_params.getlist("key")
    if len(members) > MOST_ASKED:
        raise ProblemError("parameter_invalid", f"at most {MOST_ASKED} members in one request")
    ledger = await live.use(request.path_params["board"], reader_of(request))
    page = await ledger.reader.read(1)
    # Looking for votes for other members takes milliseconds, so clients take turns.
    async with live.drawings.turn(visit.client.network):
        given = await given_of(visit, ledger, members, page.slot)
    if given is None:
        raise ProblemError("likes_closed", "visitors can't vote on the pages of this board now")
    view = VoterView(ledger.state.board.id, page.period, given.left, given.members)
    return Response(msgspec.json.encode(view), headers=NOT_STORED, media_type="application/json")
