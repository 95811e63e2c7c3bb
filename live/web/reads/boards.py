"""The boards: list them; read, create, change and delete one."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board, ClockKind, JournalLevel, Operator, SortOrder, Ties
from live.domain.ranking import Ranks
from live.errors import ProblemError, StoreUnavailableError
from live.ingest.replies import Reply
from live.network.parameters import whole_number
from live.web.contract.board_document import board_page, reply_with_page
from live.web.http.middleware import client_of
from live.web.http.responses import NOT_STORED, json_response, negotiated
from live.web.paging import DEFAULT_LIMIT, selection_of
from live.web.past_pages import PastPage, is_past_cursor, past_reply, start_in
from live.web.periods import archived_period
from live.web.reads.history import archived_page, past_page
from live.web.reads.waiting import Wait, reply_after_wait
from live.web.services import Live, live_of
from live.web.writes.admin import admin_of, read_body, read_object

_ANONYMOUS: Final = "anonymous"  # in the audit log, for an administrator without an API key
_JSON: Final = ("application/json", "application/merge-patch+json", "")


class BoardSummary(msgspec.Struct, frozen=True):
    """The definition of a board. Lengths in `window` and `idle_ttl` are in seconds."""

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
    frozen: bool
    idle_ttl: int | None


class BoardList(msgspec.Struct, frozen=True):
    """All boards of the server."""

    boards: Sequence[BoardSummary]


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
    board, known = request.path_params["board"], request.headers.get("if-none-match", "")
    if "wait" not in query:
        return negotiated(request, await reply_of_board(live, board, query, known, client_of(request).network))
    await live.use(board)
    return negotiated(request, await reply_after_wait(request, Wait.parse(query, live.settings).since(known)))


async def reply_of_board(live: Live, board: str, query: Mapping[str, str], known: str, client: str) -> Reply:
    """Return the reply to a request for one page of a board.

    `known` is its `If-None-Match`, and `client` the network that it comes from.

    Raises:
        ProblemError: the board does not exist, or a parameter is not valid.
        EpochLostError: the store lost the board.
    """
    ledger = await live.use(board)
    has_position = "cursor" in query and not is_past_cursor(query["cursor"])  # a cursor names its period
    archived = None if has_position else await archived_period(query, ledger, live.reads)
    if archived is not None:
        most = live.settings.max_limit
        limit = whole_number(query, "limit", min(DEFAULT_LIMIT, most), 1, most)
        return _past_reply(await archived_page(live, ledger, client, archived, start_in(query), limit))
    selection = await selection_of(query, ledger, live.reads, live.settings.max_limit)
    return reply_with_page(known, *await live.reads.watch(ledger.reader, selection))


def _past_reply(past: PastPage) -> Reply:
    shown = board_page(past.board, past.page, 0)
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
    await live.registry.refresh(has_changed=True)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


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
    await live.registry.refresh(has_changed=True)
    shown = live.boards.by_id.get(board)
    if shown is None:
        raise StoreUnavailableError(f"board {board} can't be run here", unknown=True)
    headers = dict(NOT_STORED)
    if status == HTTPStatus.CREATED:
        headers["Location"] = f"{live.settings.root_path}/v1/boards/{board}"
    return Response(msgspec.json.encode(_summary_of(shown)), status, headers, "application/json")
