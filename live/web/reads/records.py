"""The records of a board: read them, register or withdraw a contestant, hide or show a record."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import IncomingEvent, event_fault, key_fault
from live.domain.ranking import Page, Record, neighbourhood
from live.errors import ProblemError
from live.ingest.replies import Reply
from live.network.parameters import whole_number
from live.store.board.ledger import Ledger
from live.store.board.read.reader import PageReading, Selection
from live.web.http.middleware import client_of
from live.web.http.responses import NOT_STORED, json_response, negotiated, page_reply
from live.web.past_pages import PastPage, past_reply
from live.web.periods import archived_period, period_of
from live.web.reads.history import archived_record, explain, past_record
from live.web.services import Live, live_of
from live.web.writes.admin import admin_of, read_body, read_object

_MAX_AROUND: Final = 100
_MAX_MEMBERS: Final = 100


class RecordView(msgspec.Struct, frozen=True):
    """One record.

    `gap` is the number of points behind the next rank, and null for the first record. `percentile` is the percentage of
    the other records that are behind. A contestant without votes has the score 0, and no rank or percentile.
    `as_of` is the time of a record of the past, and `final` and `revision` are as in `BoardPage`.
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
    as_of: str | UnsetType = UNSET
    final: bool | UnsetType = UNSET
    revision: int | UnsetType = UNSET


class RecordList(msgspec.Struct, frozen=True):
    """Records of several members, in the order of the request. Members that are not on the board are omitted."""

    board: str
    period: str | None
    records: Sequence[RecordView]


class MemberRecords(msgspec.Struct, frozen=True):
    """The records of one member on all boards."""

    key: str
    records: Sequence[RecordView]


class Visibility(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether to hide a record. A hidden record keeps counting but has no rank."""

    hidden: bool


async def list_records(request: Request) -> Response:
    """Return the records of several members (`?key=a&key=b`), all read at one instant."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"])
    members = request.query_params.getlist("key")
    if not 0 < len(members) <= _MAX_MEMBERS:
        raise ProblemError("parameter_invalid", f"give `key` 1 to {_MAX_MEMBERS} times")
    period = await period_of(request.query_params, ledger, live.reads)
    pages = await ledger.reader.find_all(members, 1, period=period)
    found = zip(members, pages, strict=True)
    records = [_ranked(ledger.state.board, page, member, 0) for member, page in found if page is not None]
    return json_response(RecordList(ledger.state.board.id, records[0].period if records else None, records))


async def get_member_records(request: Request) -> Response:
    """Return the record of one member on every board that it is on."""
    member = request.path_params["key"]
    found = await live_of(request).over_boards(lambda ledger: _find(ledger, member))
    return json_response(MemberRecords(member, list(filter(None, found))))


async def get_record(request: Request) -> Response:
    """Return one record of a board with its neighbours."""
    board, member = request.path_params["board"], request.path_params["key"]
    if "explain" in request.query_params:
        return await explain(request, live_of(request), member)
    if "as_of" in request.query_params:
        around = around_of(request.query_params)
        past = await past_record(request, live_of(request), member, around)
        return negotiated(request, _past_reply(past, member, around))
    known = request.headers.get("if-none-match", "")
    live, client = live_of(request), client_of(request).network
    return negotiated(request, await reply_of_record(live, board, member, request.query_params, known, client))


async def reply_of_record(
    live: Live, board: str, member: str, query: Mapping[str, str], known: str, client: str
) -> Reply:
    """Return the reply to a request for one record.

    `known` is its `If-None-Match`, and `client` the network that it comes from.

    Raises:
        ProblemError: the board or the record does not exist, or a parameter is not valid.
        EpochLostError: the store lost the board.
    """
    ledger = await live.use(board)
    around = around_of(query)
    archived = await archived_period(query, ledger, live.reads)
    if archived is not None:
        past = await archived_record(live, ledger, client, archived, member, around)
        if past is None:
            raise ProblemError("record_not_found", "the member was not on the board in that period")
        return _past_reply(past, member, around)
    period = await period_of(query, ledger, live.reads)
    if key_fault(member) is not None:
        raise ProblemError("record_not_found", "no member can have this name")
    reading = await live.reads.read(ledger.reader, nearby(member, around, period))
    if reading.page.records:
        return reply_with_record(known, reading, member, around)
    found = await _find_contestant(ledger, member, period)
    if found is None:
        raise ProblemError("record_not_found", "a member is on the board while its score is not zero")
    view, first = found
    return page_reply(known, first, "contestant", lambda: view)


def _past_reply(past: PastPage, member: str, around: int) -> Reply:
    return past_reply(msgspec.structs.replace(_ranked(past.board, past.page, member, around), **past.marks))


def around_of(query: Mapping[str, str]) -> int:
    """How many neighbours a request asks for on each side.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    return whole_number(query, "around", 0, 0, _MAX_AROUND)


def nearby(member: str, around: int, period: int | None) -> Selection:
    """What to read for a record: its gap needs the record above."""
    return Selection("around", max(around, 1), member, 0, period)


def reply_with_record(known: str, reading: PageReading, member: str, around: int) -> Reply:
    """The reply with a record that was read with its neighbours. `known` is the `If-None-Match` of the request."""
    board, page = reading
    return page_reply(known, page, ("record", around), lambda: _ranked(board, page, member, around))


async def put_record(request: Request) -> Response:
    """Register a contestant with its metadata, a JSON object, or replace the metadata."""
    ledger, member = await _administered(request)
    _require_contest(ledger)
    metadata = await read_body(request)
    read_object(metadata, "record_invalid", "the body must be one JSON object, the metadata of the member")
    fault = event_fault(IncomingEvent(key=member, metadata=msgspec.Raw(metadata)))
    if fault is not None:
        raise ProblemError("record_invalid", fault[1])
    created = await ledger.moderation.enter(member, metadata)
    return Response(status_code=HTTPStatus.CREATED if created else HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def patch_record(request: Request) -> Response:
    """Hide a record, or show it again."""
    ledger, member = await _administered(request)
    expected = 'the body must be like {"hidden": true}'
    body = read_object(await read_body(request), "record_invalid", expected)
    try:
        wanted = msgspec.convert(body, Visibility)
    except msgspec.ValidationError as error:
        raise ProblemError("record_invalid", f"{expected}: {error}") from None
    await ledger.moderation.hide(member, hidden=wanted.hidden)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def delete_record(request: Request) -> Response:
    """Withdraw a contestant that has no votes."""
    ledger, member = await _administered(request)
    _require_contest(ledger)
    await ledger.moderation.withdraw(member)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def _administered(request: Request) -> tuple[Ledger, str]:
    """The board and the member that an administrator changes."""
    await admin_of(request)
    ledger = await live_of(request).use(request.path_params["board"])
    member: str = request.path_params["key"]
    fault = key_fault(member)
    if fault is not None:
        raise ProblemError("record_invalid", fault)
    return ledger, member


def _require_contest(ledger: Ledger) -> None:
    if ledger.state.board.votes is None:
        raise ProblemError("board_open_to_all", "only a board with `votes` registers members")


async def _find(ledger: Ledger, member: str) -> RecordView | None:
    """The record of a member on its board; None if it has none."""
    page = await ledger.reader.find(member, 1)
    return None if page is None else _ranked(ledger.state.board, page, member, 0)


async def _find_contestant(ledger: Ledger, member: str, period: int | None) -> tuple[RecordView, Page] | None:
    """A registered contestant without votes; its gap is the score of the last record. None if it is not registered."""
    metadata = await ledger.reader.entrant(member)
    if metadata is None:
        return None
    page = await ledger.reader.read(1, period=period)
    last = await ledger.reader.read(1, start=max(0, page.rank_count - 1), period=period)
    own = Record(key=member, score=0, rank=0, metadata=msgspec.Raw(metadata))
    return _view(ledger.state.board, page, own, gap=last.records[0].score if last.records else None), page


def _ranked(board: Board, page: Page, member: str, around: int) -> RecordView:
    """The record of a member, from a page that has at least the record above it."""
    own, gap, records = neighbourhood(page.records, member, around)
    ahead = page.start + page.records.index(own)
    percentile = 100.0 if page.rank_count == 1 else 100 * (page.rank_count - ahead - 1) / (page.rank_count - 1)
    return _view(board, page, own, gap=gap, rank=own.rank, percentile=round(percentile, 2), records=records)


def _view(
    board: Board,
    page: Page,
    own: Record,
    *,
    gap: int | None,
    rank: int | None = None,
    percentile: float | None = None,
    records: Sequence[Record] = (),
) -> RecordView:
    return RecordView(
        board=board.id,
        epoch=page.epoch,
        offset=page.offset,
        period=page.period,
        rank_count=page.rank_count,
        key=own.key,
        score=own.score,
        rank=rank,
        percentile=percentile,
        gap=gap,
        records=records,
        fields=own.fields,
        metadata=own.metadata,
    )
