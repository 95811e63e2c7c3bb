"""The registered members of a contest, page by page."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from live.domain.views import EntrantList
from live.errors import ProblemError
from live.network.parameters import whole_number
from live.store.board.read.contestants import START, read_piece
from live.web.http.responses import json_response
from live.web.reads.boards import encode_cursor, read_cursor
from live.web.services import live_of, reader_of

MOST_ENTRANTS: Final = 1000
DEFAULT_ENTRANTS: Final = 100


class _Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place at which the next page begins.

    It is valid only in one epoch: in another, members can have another order.
    """

    epoch: str
    cursor: Annotated[str, Meta(pattern="^[0-9]{1,15}$")]


async def list_entrants(request: Request) -> Response:
    """Return a page of the registered members, without hidden members."""
    live, query = live_of(request), request.query_params
    ledger = await live.use(request.path_params["board"], reader_of(request))
    limit = whole_number(query, "limit", DEFAULT_ENTRANTS, 1, MOST_ENTRANTS)
    place = read_cursor(query["cursor"], _Place) if "cursor" in query else None
    if ledger.state.board.votes is None:
        raise ProblemError("board_open_to_all", "only a board with `votes` registers members")
    piece = await read_piece(ledger.reader, place.cursor if place else START, limit, voted=True)
    if place is not None and place.epoch != piece.epoch:
        raise ProblemError("cursor_invalid", "the board is on another server or has new data: begin again")
    following = None if piece.following == START else encode_cursor(_Place(piece.epoch, piece.following))
    body = EntrantList(ledger.state.board.id, piece.epoch, piece.entrants, following)
    return json_response(body, live.board_cache)
