"""One's own place: a record with its neighbours, a list of keys at once, and one key over all boards."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.ranking import Page, Record, neighbourhood
from live.errors import ProblemError
from live.network.parameters import whole_number
from live.store.board.ledger import Ledger
from live.web.boards import json_response
from live.web.periods import period_of
from live.web.state import live_of

_MOST_AROUND: Final = 100
_MOST_KEYS: Final = 100


class RecordView(msgspec.Struct, frozen=True):
    """One record.

    `gap` is the number of points behind the next rank, and null for the first record. `percentile` is the percentage of
    the other records that are behind. A contestant without votes has the score 0, and no rank or percentile.
    """

    board: str
    epoch: str
    offset: int
    period: str | None
    rank_count: int
    key: str
    score: int
    rank: int | None
    percentile: float | None
    gap: int | None
    records: Sequence[Record]
    fields: dict[str, int] | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET


class RecordList(msgspec.Struct, frozen=True):
    """Records of several members, in the order of the request. Members that are not on the board are omitted."""

    board: str
    period: str | None
    records: Sequence[RecordView]


class Standing(msgspec.Struct, frozen=True):
    """The records of one member on all boards."""

    key: str
    records: Sequence[RecordView]


async def get_record(request: Request) -> Response:
    """One record of a board, with its neighbours."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"])
    around = whole_number(request.query_params, "around", 0, 0, _MOST_AROUND)
    period = await period_of(request, ledger)
    key = request.path_params["key"]
    found = await _view(ledger, key, around, period) or await _without_vote(ledger, key, period)
    if found is None:
        raise ProblemError("record_not_found", "a member is on the board while its score is not zero")
    return json_response(request, *found)


async def list_records(request: Request) -> Response:
    """The records of the keys that are asked for, all at one instant: `?key=a&key=b`."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"])
    keys = request.query_params.getlist("key")
    if not 0 < len(keys) <= _MOST_KEYS:
        raise ProblemError("parameter_invalid", f"give `key` 1 to {_MOST_KEYS} times")
    period = await period_of(request, ledger)
    pages = await ledger.reader.find_all(keys, 1, period=period)
    records = [_view_of(ledger, page, key, 0) for key, page in zip(keys, pages, strict=True) if page is not None]
    return json_response(
        request, RecordList(ledger.state.board.id, records[0].period if records else None, records), None
    )


async def get_standing(request: Request) -> Response:
    """One key's record on every board that it is on."""
    live = live_of(request)
    key = request.path_params["key"]
    found = await live.over_boards(lambda ledger: _view(ledger, key, 0, None))
    return json_response(request, Standing(key, [view for view, _ in filter(None, found)]), None)


async def _view(ledger: Ledger, key: str, around: int, period: int | None) -> tuple[RecordView, Page] | None:
    """A key's record, and the page that it was found on."""
    page = await ledger.reader.find(key, max(around, 1), period=period)  # the one above is needed for the gap
    return None if page is None else (_view_of(ledger, page, key, around), page)


def _view_of(ledger: Ledger, page: Page, key: str, around: int) -> RecordView:
    """A key's record, from a page with at least the record above it."""
    own, gap, records = neighbourhood(page.records, key, around)
    ahead = page.start + page.records.index(own)
    percentile = 100.0 if page.rank_count == 1 else 100 * (page.rank_count - ahead - 1) / (page.rank_count - 1)
    return RecordView(
        board=ledger.state.board.id,
        epoch=page.epoch,
        offset=page.offset,
        period=page.period,
        rank_count=page.rank_count,
        key=own.key,
        score=own.score,
        rank=own.rank,
        percentile=round(percentile, 2),
        gap=gap,
        records=records,
        fields=own.fields,
        metadata=own.metadata,
    )


async def _without_vote(ledger: Ledger, key: str, period: int | None) -> tuple[RecordView, Page] | None:
    """A key that is registered for a contest, and has no vote; it misses what the last has."""
    metadata = await ledger.reader.entrant(key)
    if metadata is None:
        return None
    page = await ledger.reader.read(1, period=period)
    last = await ledger.reader.read(1, start=max(0, page.rank_count - 1), period=period)
    view = RecordView(
        board=ledger.state.board.id,
        epoch=page.epoch,
        offset=page.offset,
        period=page.period,
        rank_count=page.rank_count,
        key=key,
        score=0,
        rank=None,
        percentile=None,
        gap=last.records[0].score if last.records else None,
        records=[],
        metadata=msgspec.Raw(metadata),
    )
    return view, page
