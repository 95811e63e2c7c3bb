"""The scores of members in each slot of the window: the data of sparklines and charts."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.window import EVER
from live.errors import ProblemError
from live.network.parameters import whole_number
from live.store.board.read.slots import TOP_SLOTS, SlotValues, read_slots
from live.web.http.responses import json_response, kept_json, negotiated
from live.web.services import live_of

DEFAULT_SLOTS: Final = TOP_SLOTS
MAX_SLOTS: Final = 100
MAX_MEMBERS: Final = 100
_MAX_VALUES: Final = 2500  # of one response; the store reads them in about a millisecond


class SlotTime(msgspec.Struct, frozen=True):
    """A slot of the window, from `start` to before `end`. Both are null if the window has no slots."""

    start: str | None
    end: str | None


class SlotScores(msgspec.Struct, frozen=True):
    """The score of a member in each slot. On boards that don't add amounts, null means no event."""

    key: str
    scores: Sequence[int | None]


class SlotList(msgspec.Struct, frozen=True):
    """The scores of members in the newest slots of the window. The oldest slot is first. The last one is still open."""

    board: str
    epoch: str
    offset: int
    slots: Sequence[SlotTime]
    records: Sequence[SlotScores]


async def list_slots(request: Request) -> Response:
    """Return the slots of several members, or those of the first records of the board."""
    live = live_of(request)
    cache = live.board_cache
    ledger = await live.use(request.path_params["board"])
    board, members = ledger.state.board, request.query_params.getlist("key")
    limit = whole_number(request.query_params, "limit", DEFAULT_SLOTS, 1, MAX_SLOTS)
    if not members:
        if limit > TOP_SLOTS:
            raise ProblemError("parameter_invalid", f"without `key`, `limit` must be from 1 to {TOP_SLOTS}")
        top = await live.top_slots.of(ledger.reader)
        if limit == DEFAULT_SLOTS:
            return negotiated(request, live.encoded.of(top, lambda: kept_json(_list_of(board, top, limit), cache)))
        return json_response(_list_of(board, top, limit), cache)
    if len(members) > MAX_MEMBERS or len(members) * limit > _MAX_VALUES:
        raise ProblemError(
            "parameter_invalid", f"give `key` 1 to {MAX_MEMBERS} times, and at most {_MAX_VALUES // limit} times here"
        )
    return json_response(_list_of(board, await read_slots(ledger.state, members, limit), limit), cache)


async def get_slots(request: Request) -> Response:
    """Return the slots of one member."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"])
    limit = whole_number(request.query_params, "limit", DEFAULT_SLOTS, 1, MAX_SLOTS)
    found = await read_slots(ledger.state, [request.path_params["key"]], limit)
    if not found.values or not any(value is not None for value in found.values[0] or ()):
        raise ProblemError("record_not_found", f"the member has no events in the newest {limit} slots of the window")
    return json_response(_list_of(ledger.state.board, found, limit), live.board_cache)


def _list_of(board: Board, found: SlotValues, limit: int) -> SlotList:
    """Make the document of the newest `limit` slots. Hidden members are omitted."""
    empty = 0 if board.operator == "incr" else None
    return SlotList(
        board=board.id,
        epoch=found.epoch,
        offset=found.offset,
        slots=[
            SlotTime(None, None) if slot == EVER else SlotTime(*(rfc3339(time, 1, "seconds") for time in slot))
            for slot in found.slots[-limit:]
        ],
        records=[
            SlotScores(member, [empty if value is None else value for value in values[-limit:]])
            for member, values in zip(found.members, found.values, strict=True)
            if values is not None
        ],
    )
