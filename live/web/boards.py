"""GET /v1/boards and GET /v1/boards/{board}: the boards, and a board's records a page at a time."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board, ClockKind, Operator, SortOrder, Ties
from live.domain.event import MAX_SCORE
from live.domain.ranking import Page, Ranks, Record
from live.errors import ProblemError
from live.network.parameters import whole_number
from live.store.board.ledger import Ledger
from live.web.cursor import Cursor, decode_cursor, encode_cursor
from live.web.periods import period_of, period_of_cursor
from live.web.state import Live, live_of
from live.web.waiting import Wait

_DEFAULT_LIMIT: Final = 100
_HEADERS: Final = {"Cache-Control": "no-cache"}
_MOST_START: Final = 10**9 - 1


class BoardSummary(msgspec.Struct, frozen=True):
    """The definition of a board. Lengths in `window`, and `idle_ttl`, are in seconds."""

    board: str
    title: str
    window: dict[str, int | str | None]
    operator: Operator
    sort_order: SortOrder
    ties: Ties
    ranks: Ranks
    clock: ClockKind
    source: Sequence[str]
    union: dict[str, int]
    frozen: bool
    idle_ttl: int | None


class BoardList(msgspec.Struct, frozen=True):
    """All boards of the server."""

    boards: Sequence[BoardSummary]


class BoardPage(msgspec.Struct, frozen=True):
    """One page of a board.

    `next_cursor` is null on the last page, and `prev_cursor` on the first. `period` is the name of the period of a
    calendar board. `total_score` is null if scores are not amounts, and `entrant_count` is null on boards without
    registration. `viewer_count` is the number of viewers in all processes; the `ETag` does not depend on it.
    """

    board: str
    title: str
    epoch: str
    offset: int
    period: str | None
    rank_count: int
    total_score: int | None
    entrant_count: int | None
    viewer_count: int
    records: Sequence[Record]
    next_cursor: str | None
    prev_cursor: str | None


async def list_boards(request: Request) -> Response:
    """Every board of this server."""
    summaries = [summary_of(board) for board in live_of(request).boards.by_id.values()]
    return json_response(request, BoardList(summaries), None)


def summary_of(board: Board) -> BoardSummary:
    """A board as the list of boards shows it."""
    return BoardSummary(
        board=board.id,
        title=board.title,
        window={"kind": type(board.window).__name__.lower(), **msgspec.to_builtins(board.window)},
        operator=board.operator,
        sort_order=board.sort_order,
        ties=board.ties,
        ranks=board.ranks,
        clock=board.clock,
        source=sorted(board.source),
        union=dict(board.union),
        frozen=board.frozen,
        idle_ttl=board.idle_ttl,
    )


async def get_board(request: Request) -> Response:
    """One page of a board."""
    live = live_of(request)
    ledger = await live.use(request.path_params["board"])
    wait = Wait.parse(request, live.settings) if "wait" in request.query_params else None
    if wait is not None and wait.tag:
        return await _wait(request, live, ledger, wait)
    reading = _page(request, ledger) if wait is None else ledger.reader.read(wait.asked.size)
    page, viewers = await asyncio.gather(reading, live.presence.count(ledger.state.board.id))
    return _answer(request, ledger.state.board, page, viewers)


async def _wait(request: Request, live: Live, ledger: Ledger, wait: Wait) -> Response:
    """The top of a board when it is another than the client has."""
    board = ledger.state.board
    page = await wait.page(request, live, board.id)
    if page is None:
        return _unchanged(wait.tag)
    channel = live.hub.channels.get(board.id)
    viewers = (
        None if channel is None else channel.announcements.viewer_count
    )  # as the hub has heard: thousands may be answered at once
    return _answer(request, board, page, await live.presence.count(board.id) if viewers is None else viewers)


def _answer(request: Request, board: Board, page: Page, viewers: int) -> Response:
    more = page.start + len(page.records) < page.rank_count
    body = BoardPage(
        board=board.id,
        title=board.title,
        epoch=page.epoch,
        offset=page.offset,
        period=page.period,
        rank_count=page.rank_count,
        total_score=page.total_score,
        entrant_count=page.entrants,
        viewer_count=viewers,
        records=page.records,
        next_cursor=encode_cursor(Cursor("after", *page.last, page.slot)) if more and page.last else None,
        prev_cursor=encode_cursor(Cursor("before", *page.first, page.slot)) if page.start and page.first else None,
    )
    return json_response(request, body, page)


async def _page(request: Request, ledger: Ledger) -> Page:
    """The page of a board that is asked for.

    Raises:
        ProblemError: a parameter is out of range, or the period is not kept.
        StoreUnavailableError: the store is away.
        EpochLostError: the store lost the board.
    """
    most = live_of(request).settings.max_limit
    limit = whole_number(request.query_params, "limit", min(_DEFAULT_LIMIT, most), 1, most)
    word, around = request.query_params.get("cursor"), request.query_params.get("score")
    if word is not None:
        cursor = decode_cursor(word)
        period = await period_of_cursor(ledger, cursor.period)
        place = (cursor.score, cursor.name)
        if cursor.direction == "after":
            return await ledger.reader.read(limit, period=period, after=place)
        return await ledger.reader.read(limit, period=period, before=place)
    period = await period_of(request, ledger)
    if around is not None:
        return await ledger.reader.read_score(_score(around), limit, period=period)
    start = whole_number(request.query_params, "start", 0, 0, _MOST_START)
    return await ledger.reader.read(limit, start=start, period=period)


def _score(text: str) -> int:
    """The score that a page is asked for around.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    digits = text.removeprefix("-")
    if not (
        digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MAX_SCORE)) and int(digits) <= MAX_SCORE
    ):
        raise ProblemError("parameter_invalid", "`score` must be a whole number within ±2^53")
    return int(text)


def json_response(request: Request, body: object, page: Page | None) -> Response:
    """A JSON answer; one that shows a board can be asked for again with If-None-Match."""
    headers = dict(_HEADERS)
    if page is not None:
        period = "" if page.slot is None else f":{page.slot}"  # one ends with no change in the store
        tag = f'"{page.epoch}:{page.offset}{period}"'  # of this very URL, so the position says it all
        headers["ETag"] = tag
        known = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
        if tag in known or "*" in known:
            return _unchanged(tag)
    return Response(msgspec.json.encode(body), headers=headers, media_type="application/json")


def _unchanged(tag: str) -> Response:
    return Response(status_code=304, headers={**_HEADERS, "ETag": tag})
