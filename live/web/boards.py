"""GET /v1/boards and below: a board's records a page at a time, and one record with its neighbours."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from live.errors import ProblemError
from live.event import MAX_SCORE
from live.ranking import Page, Record
from live.web.problems import whole_number
from live.web.state import live_of

_DEFAULT_LIMIT: Final = 100
_MOST_AROUND: Final = 100

Score = Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)]


class BoardSummary(msgspec.Struct, frozen=True):
    """A board as the list of boards shows it; `window` and `slot` in seconds."""

    board: str
    title: str
    window: int
    slot: int
    clock: str


class BoardList(msgspec.Struct, frozen=True):
    """Every board of the server."""

    boards: Sequence[BoardSummary]


class BoardPage(msgspec.Struct, frozen=True):
    """One page of a board; `next_cursor` is null on the last one."""

    board: str
    title: str
    epoch: str
    offset: int
    rank_count: int
    total_score: int
    records: Sequence[Record]
    next_cursor: str | None


class RecordView(msgspec.Struct, frozen=True):
    """One record; `gap` is what it misses to the score of the rank above, null for the first."""

    board: str
    epoch: str
    offset: int
    rank_count: int
    key: str
    score: int
    rank: int
    gap: int | None
    records: Sequence[Record]


def encode_cursor(record: Record) -> str:
    """The position just behind a record, as an opaque word; it stays good when the record moves or leaves."""
    return base64.urlsafe_b64encode(msgspec.json.encode((record.score, record.key))).rstrip(b"=").decode()


def decode_cursor(cursor: str) -> tuple[int, str]:
    """The position (score, key) of a cursor.

    Raises:
        ProblemError: `cursor_invalid`.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=tuple[Score, str])
    except (binascii.Error, ValueError):
        raise ProblemError("cursor_invalid", "give `next_cursor` of an earlier page as it is") from None


async def list_boards(request: Request) -> Response:
    """Every board of this server."""
    summaries = [
        BoardSummary(board.id, board.title, board.window.length, board.window.slot, board.clock)
        for board in live_of(request).boards.by_id.values()
    ]
    return _json(request, BoardList(summaries), None)


async def get_board(request: Request) -> Response:
    """One page of a board."""
    live = live_of(request)
    board = live.board(request.path_params["board"])
    limit = whole_number(request, "limit", min(_DEFAULT_LIMIT, live.settings.max_limit), 1, live.settings.max_limit)
    cursor = request.query_params.get("cursor")
    after = None if cursor is None else decode_cursor(cursor)
    page = await live.ledgers[board.id].read(limit, after=after)
    more = page.records and page.start + len(page.records) < page.rank_count
    body = BoardPage(
        board=board.id,
        title=board.title,
        epoch=page.epoch,
        offset=page.offset,
        rank_count=page.rank_count,
        total_score=page.total_score,
        records=page.records,
        next_cursor=encode_cursor(page.records[-1]) if more else None,
    )
    return _json(request, body, page)


async def get_record(request: Request) -> Response:
    """One record of a board, with its neighbours."""
    live = live_of(request)
    board = live.board(request.path_params["board"])
    key = request.path_params["key"]
    around = whole_number(request, "around", 0, 0, _MOST_AROUND)
    page = await live.ledgers[board.id].find(key, max(around, 1))  # the one above is needed for the gap
    own = next((record for record in page.records if record.key == key), None) if page else None
    if page is None or own is None:
        raise ProblemError("record_not_found", "a key is on the board while its score is not zero")
    above = next((record for record in page.records if record.rank == own.rank - 1), None)
    body = RecordView(
        board=board.id,
        epoch=page.epoch,
        offset=page.offset,
        rank_count=page.rank_count,
        key=own.key,
        score=own.score,
        rank=own.rank,
        gap=None if above is None else above.score - own.score,
        records=[record for record in page.records if abs(record.rank - own.rank) <= around],
    )
    return _json(request, body, page)


def _json(request: Request, body: object, page: Page | None) -> Response:
    """A JSON answer; one that shows a board can be asked for again with If-None-Match."""
    headers = {"Cache-Control": "no-cache"}
    if page is not None:
        tag = f'"{page.epoch}:{page.offset}"'  # of this very URL, so the position says it all
        headers["ETag"] = tag
        known = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
        if tag in known or "*" in known:
            return Response(status_code=304, headers=headers)
    return Response(msgspec.json.encode(body), headers=headers, media_type="application/json")
