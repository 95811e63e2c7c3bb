"""Routes that list the boards, and that read a page, the definition or the baseline of a board."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.choices import ShownChoices
from live.domain.event import MAX_MEMBER_BYTES, MAX_SCORE, rfc3339
from live.domain.meaning import BOARD, EPOCH, PERIOD, says
from live.domain.reader import Gated, Reader
from live.domain.views import BoardList, BoardPage, BoardSummary, facts_of
from live.errors import ProblemError
from live.http.reply import VARY_BY_READER, Reply
from live.store.board.ledger import Ledger
from live.store.board.read.reader import PageResult, Selection, period_name
from live.web.api.sources import MOST_RECORDS, NOW, When, WhenParameters, marks_of, read_page
from live.web.middleware import requester_of
from live.web.parts import Live, live_of, reader_of
from live.web.responses import NOT_KEPT, json_response, kept_json, negotiated, page_reply

_T = TypeVar("_T")

Score = Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)]
Start = Annotated[int, Meta(ge=0, le=10**9 - 1)]

_PAST: Final = b'["past",'  # the first element of cursors of the past


class BaselineView(msgspec.Struct, frozen=True):
    """The ranks and scores of members an hour ago, or at the end of the last day or week."""

    board: Annotated[str, BOARD]
    epoch: Annotated[str, EPOCH]
    period: Annotated[str | None, PERIOD]
    since: Annotated[str | None, says("The time of the ranks and scores, RFC 3339. Null if there is no baseline yet.")]
    ranks: Annotated[
        Mapping[str, int | None],
        says(
            "Rank at that time, by member: of the first 1,000 of that time, and of the first 1,000 of"
            " now. Null for a member without a record."
        ),
    ]
    scores: Annotated[Mapping[str, int], says("Score of each of the first 1,000 members of that time, by member.")]
    complete: Annotated[bool, says("Whether `ranks` has every member that had a record.")] = False
    rank_count: Annotated[int | None, says("Number of members on the board at that time. Null if unknown.")] = None
    per_minute: Annotated[
        int | None, says("Sum of the amounts counted in an average minute since then. Null if unknown.")
    ] = None


async def list_boards(request: Request) -> Response:
    """List all boards.

    Returns their definitions.
    """
    live = live_of(request)
    reader = reader_of(request)
    boards = [summary_of(ledger.state.board, live.registry.ledgers, reader) for ledger in live.ledgers(reader)]
    return json_response(BoardList(boards), live.board_cache, (VARY_BY_READER,))


async def get_definition(request: Request) -> Response:
    """Read the definition of a board.

    Returns the choices that `PUT /v1/boards/{board}` takes. The response leaves out
    choices with their default, and parts of a union that the request may not read.
    """
    live, reader = live_of(request), reader_of(request)
    ledger = await live.ledger(request.path_params["board"], reader)
    return json_response(visible_choices(live, ledger.state.board, reader), NOT_KEPT)


def visible_choices(live: Live, board: Board, reader: Reader) -> dict[str, Any]:
    """Return the choices that define a board, without the parts of a union that the reader may not read."""
    choices, visible = live.registry.defined(board.id), parts_of(board, live.registry.ledgers, reader)
    if len(visible) < len(board.union):
        choices |= {"union": list(visible), "weights": list(visible.values())}
    return choices


class BoardParameters(WhenParameters, frozen=True, kw_only=True):
    """One page of a board."""

    limit: Annotated[int, says("Maximum number of records.", ge=1, le=MOST_RECORDS)] = 100
    start: Annotated[Start, says("Number of records to skip. Use a cursor to continue exactly.")] = 0
    cursor: Annotated[str | None, says("`next_cursor` or `prev_cursor` of an earlier page.")] = None
    score: Annotated[
        Score | None,
        says(
            "Return the page around the place that this score has or would have.",
            extra={"valid": "a whole number within ±2^53"},
        ),
    ] = None


async def get_board(request: Request, query: BoardParameters) -> Response:
    """Read one page of a board.

    Returns the top of the board, the page after a cursor, or the page around a score.
    """
    wanted, reader = BoardQuery.of(request.path_params["board"], query), reader_of(request)
    asker = live_of(request), reader, requester_of(request).network
    return negotiated(request, await wanted.answer(*asker, request.headers.get("if-none-match", "")))


class BoardQuery(NamedTuple):
    """One page of a board, whoever reads it."""

    board: str
    what: Selection
    when: When

    @classmethod
    def of(cls, board: str, query: BoardParameters) -> "BoardQuery":
        """Make the query of a request."""
        when, limit = query.when, query.limit
        if query.cursor is not None:
            cursor = decode_cursor(query.cursor)
            if isinstance(cursor, int) and not when.is_now:
                what = Selection("rank", cursor, "", limit)
            elif isinstance(cursor, Cursor) and when.as_of is None:
                what = Selection(cursor.direction, cursor.score, cursor.name, limit)
                when = NOW if cursor.period is None else When(cursor.period)  # the cursor itself names its period
            else:
                detail = "use `next_cursor` of an earlier page unchanged, with the same parameters"
                raise ProblemError("cursor_invalid", detail)
        elif query.score is not None and when.as_of is None:
            what = Selection("score", query.score, "", limit)
        else:
            what = Selection("rank", query.start, "", limit)
        return cls(board, what, when)

    async def answer(
        self, live: Live, reader: Reader, client: str, known: str, failed: Exception | None = None
    ) -> Reply:
        """Read the page, unless a read has failed already, and make the reply. `known` is a tag."""
        if failed is not None:
            raise failed
        ledger = await live.use(self.board, reader)
        found = await read_page(live, ledger, self.what, self.when, client, is_counted=True)
        return board_reply(live, known, found)


def board_reply(live: Live, known: str, found: PageResult) -> Reply:
    """Make the JSON reply of a page of a board. `known` is the `If-None-Match` of the client."""
    return page_reply(known, found, "board", lambda: _document(found), found.viewers, live.board_cache)


def _document(found: PageResult) -> BoardPage:
    board, page = found.board, found.page
    following = previous = None
    if page.start + len(page.records) < page.rank_count:
        if found.is_past:
            following = encode_cursor(("past", page.start + len(page.records)))
        elif page.last:
            following = encode_cursor(Cursor("after", *page.last, page.slot))
    if page.start and page.first:
        previous = encode_cursor(Cursor("before", *page.first, page.slot))
    return BoardPage(
        board=board.id,
        title=board.title,
        epoch=page.epoch,
        offset=page.offset,
        period=page.period,
        rank_count=page.rank_count,
        total_score=page.total_score,
        entrant_count=page.entrants,
        viewer_count=found.viewers or 0,
        records=page.records,
        next_cursor=following,
        prev_cursor=previous,
        definition=UNSET if found.is_past else board.definition_tag,
        **facts_of(board, page.slot),
        **marks_of(found),
    )


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A position in a ranking; the next page is after or before it. It stays valid when the record there moves.

    `period` is the start of the period that is read, in seconds since 1970. A cursor for a ranking of the past is
    `["past", start]`, because that ranking does not change.
    """

    direction: Literal["after", "before"]
    score: Score
    name: Annotated[bytes, Meta(max_length=MAX_MEMBER_BYTES + 8)]
    period: int | None


def encode_cursor(cursor: object) -> str:
    """Make opaque text of a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).rstrip(b"=").decode()


def decode_text(text: str) -> bytes:
    """Read text that `encode_cursor` made."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def read_cursor(text: str, kind: type[_T], detail: str = "use `next_cursor` of an earlier reply unchanged") -> _T:
    """Read a cursor of a kind. `detail` tells clients what to send."""
    try:
        return msgspec.json.decode(decode_text(text), type=kind)
    except ValueError:
        raise ProblemError("cursor_invalid", detail) from None


def decode_cursor(text: str) -> Cursor | int:
    """Read the text of a cursor: a position, or for the past the number of records before the page."""
    try:
        data = decode_text(text)
        if data.startswith(_PAST):
            return msgspec.json.decode(data, type=tuple[str, Start])[1]
        return msgspec.json.decode(data, type=Cursor)
    except ValueError:
        detail = "use `next_cursor` or `prev_cursor` of an earlier page unchanged"
        raise ProblemError("cursor_invalid", detail) from None


def summary_of(board: Board, ledgers: Gated[Ledger], reader: Reader) -> BoardSummary:
    """Show the definition of a board. Leave out the parts of a union that the reader may not read."""
    return BoardSummary(
        board=board.id,
        window={"kind": type(board.window).__name__.lower(), **msgspec.to_builtins(board.window)},
        types=sorted(board.source),
        category=sorted(board.categories),
        union=parts_of(board, ledgers, reader),
        score=board.score,
        max_amount=board.largest_amount if board.adds and not board.union else None,
        idle_ttl=board.idle_seconds,
        visibility="private" if board.is_private else "public",
        **{name: getattr(board, name) for name in ShownChoices.__struct_fields__},
    )


def parts_of(board: Board, ledgers: Gated[Ledger], reader: Reader) -> dict[str, int]:
    """Return the parts of a union that a reader may know. All parts of a public union are public."""
    return {
        part: weight
        for part, weight in board.parts.items()
        if not board.is_private or part in reader.opens or ledgers.find(part, reader) is not None
    }


async def get_baseline(request: Request) -> Response:
    """Read the ranks and scores of an hour ago, or of the last day or week.

    Everyone gets the same response. Compare it with the current page to see who moved, and who gained how much.
    """
    live = live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    board, baseline = ledger.state.board, await live.baselines.with_top(ledger.baseline, ledger.reader)
    if baseline is None:
        nothing = BaselineView(board.id, ledger.state.fence.shown_epoch, None, None, {}, {})
        return json_response(nothing, live.board_cache)

    def view() -> Reply:
        period, since = period_name(board, baseline.slot), rfc3339(baseline.time)
        complete = baseline.is_complete and not baseline.deep
        shown = BaselineView(
            board.id, baseline.epoch, period, since, baseline.ranks, baseline.scores, complete, baseline.rank_count,
            baseline.per_minute,
        )  # fmt: skip
        return kept_json(shown, live.board_cache)

    return negotiated(request, live.encoded.of(baseline, view))
