"""The boards: list them; read, create, change and delete one."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board, ClockKind, Operator, SortOrder, Ties
from live.domain.journaling import JournalLevel
from live.domain.ranking import Page, Ranks, Record
from live.errors import ProblemError, StoreUnavailableError
from live.ingest.replies import Reply
from live.store.board.ledger import Ledger
from live.store.board.reader import Reading, Selection
from live.web.admins import admin_of, read_body, read_object
from live.web.paging import cursors_around, selection_of
from live.web.past import archived_page, past_page
from live.web.past_pages import PastPage, Resolution, is_past_cursor, past_reply
from live.web.periods import archived_period
from live.web.responses import NOT_STORED, json_response, negotiated, page_reply, unchanged
from live.web.state import Live, live_of
from live.web.waiting import Wait

_ANONYMOUS: Final = "anonymous"  # in the audit log, for an administrator without an API key
_JSON: Final = ("application/json", "application/merge-patch+json", "")


class BoardSummary(msgspec.Struct, frozen=True):
    """The definition of a board. Lengths in `window`, `replay` and `idle_ttl` are in seconds."""

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
    like_button: bool
    journal: JournalLevel
    replay: int | None
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
    `as_of` is the time of a page of the past. `resolution` is `exact` if the page has every event before that time, and
    `hour` if it comes from hourly totals; `as_of` is the beginning of the hour then. `final` is true on pages of a
    period that the board does not keep any more, from the archive; `revision` says how often the period became final.
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
    as_of: str | UnsetType = UNSET
    resolution: Resolution | UnsetType = UNSET
    final: bool | UnsetType = UNSET
    revision: int | UnsetType = UNSET


async def list_boards(request: Request) -> Response:
    """Return the definitions of all boards."""
    summaries = [_summary_of(board) for board in live_of(request).boards.by_id.values()]
    return json_response(BoardList(summaries))


async def get_board(request: Request) -> Response:
    """Return one page of a board."""
    live, query = live_of(request), request.query_params
    if "as_of" in query:
        past = await past_page(request, live)
        return negotiated(request, _past_reply(past))
    known = request.headers.get("if-none-match", "")
    if "wait" not in query:
        return negotiated(request, await reply_of_board(live, request.path_params["board"], query, known))
    ledger = await live.use(request.path_params["board"])
    wait = Wait.parse(request, live.settings)
    if wait.tag:
        return negotiated(request, await _changed(request, live, ledger, wait))
    top = await live.reads.watch(ledger.reader, Selection("rank", 0, "", wait.asked.size))
    return negotiated(request, reply_with_page(known, *top))


async def reply_of_board(live: Live, board: str, query: Mapping[str, str], known: str) -> Reply:
    """The reply to a request for one page of a board. `known` is its `If-None-Match`.

    Raises:
        ProblemError: the board does not exist, or a parameter is not valid.
        StoreUnavailableError: the store is unavailable.
        EpochLostError: the store lost the board.
    """
    ledger = await live.use(board)
    has_position = "cursor" in query and not is_past_cursor(query["cursor"])  # a cursor names its period
    archived = None if has_position else await archived_period(query, ledger, live.reads)
    if archived is not None:
        return _past_reply(await archived_page(query, live, ledger, archived))
    selection = await selection_of(query, ledger, live.reads, live.settings.max_limit)
    return reply_with_page(known, *await live.reads.watch(ledger.reader, selection))


def reply_with_page(known: str, reading: Reading, viewers: int | None) -> Reply:
    """The reply with a page that was read. `known` is the `If-None-Match` of the request."""
    board, page = reading
    return page_reply(known, page, "board", lambda: _board_page(board, page, viewers or 0), viewers)


def _past_reply(past: PastPage) -> Reply:
    shown = _board_page(past.board, past.page, 0)
    return past_reply(msgspec.structs.replace(shown, next_cursor=past.cursor, **past.marks))


async def put_board(request: Request) -> Response:
    """Create a board, or replace its choices."""
    live, producer = live_of(request), await admin_of(request)
    board = request.path_params["board"]
    choices = await _choices(request)
    created = await live.board_admin.put(board, choices, producer.id or _ANONYMOUS, producer)
    return await _definition(live, board, HTTPStatus.CREATED if created else HTTPStatus.OK)


async def patch_board(request: Request) -> Response:
    """Change some choices of a board."""
    live, producer = live_of(request), await admin_of(request)
    board = request.path_params["board"]
    await live.board_admin.patch(board, await _choices(request), producer.id or _ANONYMOUS, producer)
    return await _definition(live, board, HTTPStatus.OK)


async def delete_board(request: Request) -> Response:
    """Delete a board with everything it owns."""
    live, producer = live_of(request), await admin_of(request)
    await live.board_admin.delete(request.path_params["board"], producer.id or _ANONYMOUS)
    await live.registry.look(has_changed=True)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def _changed(request: Request, live: Live, ledger: Ledger, wait: Wait) -> Reply:
    """The top of a board once it differs from the state that the client has, or 304 when the wait is over."""
    board = ledger.state.board
    page = await wait.page(request, live, board.id)
    if page is None:
        return unchanged(wait.tag)
    # One change can answer thousands of requests at once, so the count comes from the hub where it has one.
    channel = live.hub.channels.get(board.id)
    viewers = None if channel is None else channel.announcements.viewer_count
    if viewers is None:
        viewers = await live.presence.count(board.id)
    return reply_with_page(request.headers.get("if-none-match", ""), Reading(board, page), viewers)


def _board_page(board: Board, page: Page, viewers: int) -> BoardPage:
    next_cursor, prev_cursor = cursors_around(page)
    return BoardPage(
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
        next_cursor=next_cursor,
        prev_cursor=prev_cursor,
    )


def _summary_of(board: Board) -> BoardSummary:
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
        like_button=board.like_button,
        journal=board.journal.level,
        replay=board.replay,
        frozen=board.frozen,
        idle_ttl=board.idle_ttl,
    )


async def _choices(request: Request) -> dict[str, Any]:
    """The choices in the body of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON:
        raise ProblemError("unsupported_media_type", "send application/json")
    return read_object(await read_body(request), "malformed_body", "the body must be one JSON object with the choices")


async def _definition(live: Live, board: str, status: HTTPStatus) -> Response:
    """The response to a change: the board as this process now runs it."""
    await live.registry.look(has_changed=True)
    shown = live.boards.by_id.get(board)
    if shown is None:
        raise StoreUnavailableError(f"board {board} can't be run here", unknown=True)
    headers = dict(NOT_STORED)
    if status == HTTPStatus.CREATED:
        headers["Location"] = f"{live.settings.root_path}/v1/boards/{board}"
    return Response(msgspec.json.encode(_summary_of(shown)), status, headers, "application/json")
