"""The votes that a visitor has given on a board, for the script of the board's pages."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from live.domain.text import BOARD, PERIOD
from live.errors import ProblemError
from live.network.parameters import Parameters
from live.web.http.responses import NOT_STORED
from live.web.pages.ballot import given_of
from live.web.pages.rendering import visit_of
from live.web.services import live_of, reader_of


class VoterView(msgspec.Struct, frozen=True):
    """The votes of a visitor. `left` is null if there is no limit."""

    board: Annotated[str, BOARD]
    period: Annotated[str | None, PERIOD]
    left: Annotated[int | None, Meta(description="Votes that the visitor has left. Null without a limit.")]
    votes: Annotated[Sequence[str], Meta(description="Those of the members that have a vote of the visitor.")]


class VoteParameters(Parameters, frozen=True, kw_only=True):
    """The members whose votes a script asks for."""

    members: Annotated[list[str], Meta(max_length=100, description="The members to look at.")] = msgspec.field(
        name="key", default_factory=list
    )


async def get_votes(request: Request, query: VoteParameters) -> Response:
    """Return the votes of a visitor.

    The script of pages asks which members have a vote of the visitor, whom a cookie names, in this period.
    """
    visit, live = visit_of(request), live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    page = await ledger.reader.read(1)
    # Looking for votes for other members takes milliseconds, so clients take turns.
    async with live.drawings.turn(visit.client.network):
        given = await given_of(visit, ledger, query.members, page.slot)
    if given is None:
        raise ProblemError("likes_closed", "visitors can't vote on the pages of this board now")
    view = VoterView(ledger.state.board.id, page.period, given.left, given.members)
    return Response(msgspec.json.encode(view), headers=NOT_STORED, media_type="application/json")
