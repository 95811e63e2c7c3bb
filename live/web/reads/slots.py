"""The scores of members over the window: the data of sparklines and charts."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.text import BOARD, EPOCH, KEY, OFFSET
from live.domain.window import EVER, MOST_FOLDED
from live.errors import ProblemError
from live.network.parameters import Parameters
from live.store.board.read.slots import TOP_POINTS, SlotValues, read_slots
from live.web.http.responses import json_response, kept_json, negotiated
from live.web.services import live_of, reader_of

_MAX_MEMBERS: Final = 100
_MAX_VALUES: Final = 10_000  # in one response; the store reads them in steps of about a millisecond


class SlotTime(msgspec.Struct, frozen=True):
    """One or several slots of the window, from `start` to before `end`. Both are null if the window has no slots."""

    start: Annotated[
        str | None,
        Meta(description="Start of the oldest slot of the point, RFC 3339. Null if the window has no slots."),
    ]
    end: Annotated[
        str | None, Meta(description="End of the newest slot of the point, RFC 3339. Null if the window has no slots.")
    ]


class SlotScores(msgspec.Struct, frozen=True):
    """The score of a member in each point. On boards that don't add amounts, null means no event."""

    key: Annotated[str, KEY]
    scores: Annotated[
        Sequence[int | None],
        Meta(description="One score for each point. Null means no event, on boards that do not add amounts."),
    ]


class SlotList(msgspec.Struct, frozen=True):
    """The scores of members over the window. Each point adds up one or several slots.

    The oldest point is first. The last point is the slot that is still open.
    """

    board: Annotated[str, BOARD]
    epoch: Annotated[str, EPOCH]
    offset: Annotated[int, OFFSET]
    slots: Annotated[
        Sequence[SlotTime],
        Meta(
            description="The time of each point, the oldest point first. The last point is the slot that is still open."
        ),
    ]
    records: Annotated[Sequence[SlotScores], Meta(description="Scores of the members, in the order of the request.")]


class SlotParameters(Parameters, frozen=True, kw_only=True):
    """The number of points."""

    limit: Annotated[int, Meta(ge=1, le=100, description="Largest number of points.")] = TOP_POINTS


class SeveralSlotParameters(SlotParameters, frozen=True, kw_only=True):
    """The members whose slots are read, and the number of points."""

    members: Annotated[
        list[str], Meta(min_length=1, max_length=_MAX_MEMBERS, description="Repeat it for each member.")
    ] = msgspec.field(name="key", default_factory=list)


async def list_slots(request: Request, query: SeveralSlotParameters) -> Response:
    """Read scores by slot.

    Returns the scores of members over the window, with the oldest point first. If the window has more than `limit`
    slots, each point is the sum of several slots. Without `key`, the response has the members that were the first 100
    of the board when the newest point began.
    """
    live = live_of(request)
    cache = live.board_cache
    ledger = await live.use(request.path_params["board"], reader_of(request))
    board, members, limit = ledger.state.board, query.members, query.limit
    if not members:
        if "limit" in request.query_params:
            raise ProblemError("parameter_invalid", "`limit` needs `key`")
        top = await live.top_slots.of(ledger.reader)
        return negotiated(request, live.encoded.of(top, lambda: kept_json(_list_of(board, top), cache)))
    window = board.window
    slots = limit if window.tables or limit == 1 else min(window.live, MOST_FOLDED)
    most = min(_MAX_MEMBERS, _MAX_VALUES // slots)
    if len(members) > most:
        raise ProblemError("parameter_invalid", f"give `key` at most {most} times: {slots:,} slots are read for each")
    return json_response(_list_of(board, await read_slots(ledger.state, members, limit)), cache)


async def get_slots(request: Request, query: SlotParameters) -> Response:
    """Read the scores of one member by slot.

    Returns the score of the member over the window, with the oldest point first. If the window has more than `limit`
    slots, each point is the sum of several slots.
    """
    live = live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    found = await read_slots(ledger.state, [request.path_params["key"]], query.limit)
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
