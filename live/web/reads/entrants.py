"""The registered members of a contest, page by page."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from live.domain.views import EntrantList
from live.errors import ProblemError
from live.network.parameters import Parameters
from live.store.board.read.contestants import START, read_piece
from live.web.http.responses import json_response
from live.web.reads.boards import encode_cursor, read_cursor
from live.web.services import live_of, reader_of


class EntrantParameters(Parameters, frozen=True, kw_only=True):
    """A page of the registered members."""

    limit: Annotated[
        int, Meta(ge=1, le=1000, description="About how many members. A page can have more: up to 512.")
    ] = 100
    cursor: Annotated[str | None, Meta(description="`next_cursor` of an earlier page.")] = None


class _Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place at which the next page begins.

    It is valid only in one epoch: in another, members can have another order.
    """

    epoch: str
    cursor: Annotated[str, Meta(pattern="^[0-9]{1,15}$")]


async def list_entrants(request: Request, query: EntrantParameters) -> Response:
    """List the registered members of a contest.

    The members are in no particular order. Hidden members are left out. Together, the pages list each member that is
    registered from the first request to the last. If others register meanwhile, members can be twice.
    """
    live = live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    place = None if query.cursor is None else read_cursor(query.cursor, _Place)
    if ledger.state.board.votes is None:
        raise ProblemError("board_open_to_all", "only a board with `votes` registers members")
    piece = await read_piece(ledger.reader, place.cursor if place else START, query.limit, voted=True)
    if place is not None and place.epoch != piece.epoch:
        raise ProblemError("cursor_invalid", "the board is on another server or has new data: begin again")
    following = None if piece.following == START else encode_cursor(_Place(piece.epoch, piece.following))
    body = EntrantList(ledger.state.board.id, piece.epoch, piece.entrants, following)
    return json_response(body, live.board_cache)
