"""The scores of members over the window: the data of sparklines and charts."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.window import EVER, MOST_FOLDED
from live.errors import ProblemError
from live.network.parameters import whole_number
from live.store.board.read.slots import TOP_POINTS, SlotValues, read_slots
from live.web.http.responses import json_response, kept_json, negotiated
from live.web.services import live_of, reader_of

DEFAULT_POINTS: Final = TOP_POINTS
MAX_POINTS: Final = 100
MAX_MEMBERS: Final = 100
_MAX_VALUES: Final = 10_000  # in one response; the store reads them in steps of about a millisecond


class SlotTime(msgspec.Struct, frozen=True):
    """One or several slots of the window, from `start` to before `end`. Both are null if the window has no slots."""

    start: str | None
    end: str | None


class SlotScores(msgspec.Struct, frozen=True):
    """The score of a member in each point. On boards that don't add amounts, null means no event."""

    key: str
    scores: Sequence[int | None]


class SlotList(msgspec.Struct, frozen=True):
    """The scores of members over the window. Each point adds up one or several slots.

    The oldest point is first. The last point is the slot that is still open.
    """

    board: str
    epoch: str
    offset: int
    slots: Sequence[SlotTime]
    records: Sequence[SlotScores]


async def list_slots(request: Request) -> Response:
    """Return the slots of several members, or of the first records of the board."""
    live = live_of(request)
    cache = live.board_cache
    ledger = await live.use(request.path_params["board"], reader_of(request))
    board, members = ledger.state.board, request.query_params.getlist("key")
    limit = whole_number(request.query_params, "limit", DEFAULT_POINTS, 1, MAX_POINTS)
    if not members:
        if "limit" in request.query_params:
            raise ProblemError("parameter_invalid", "`limit` needs `key`")
        top = await live.top_slots.of(ledger.reader)
        return negotiated(request, live.encoded.of(top, lambda: kept_json(_list_of(board, top), cache)))
    window = board.window
    slots = limit if window.tables or limit == 1 else min(window.live, MOST_FOLDED)
    most = min(MAX_MEMBERS, _MAX_VALUES // slots)
    if len(members) > most:
        raise ProblemError("parameter_invalid", f"give `key` at most {most} times: {slots:,} slots are read for each")
    return json_response(_list_of(board, await read_slots(ledger.state, members, limit)), cache)


async def get_slots(request: Request) -> Response:
    """Return the slots of one member."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    limit = whole_number(request.query_params, "limit", DEFAULT_POINTS, 1, MAX_POINTS)
    found = await read_slots(ledger.state, [request.path_params["key"]], limit)
    if not found.values or not any(value is not None for value in found.values[0] or ()):
        raise ProblemError("record_not_found", "the member has no events in these slots of the window")
    return json_response(_list_of(ledger.state.board, found), live.board_cache)


def _list_of(board: Board, found: SlotValues) -> SlotList:
    """Make the document of a reply, without hidden members."""
    empty = 0 if board.operator == "incr" else None
    return SlotList(
        board=board.id,
        epoch=found.epoch,
        offset=found.offset,
        slots=[
            SlotTime(None, None) if slot == EVER else SlotTime(*(rfc3339(time, 1, "seconds") for time in slot))
            for slot in found.slots
        ],
        records=[
            SlotScores(member, [empty if value is None else value for value in values])
            for member, values in zip(found.members, found.values, strict=True)
            if values is not None
        ],
    )
