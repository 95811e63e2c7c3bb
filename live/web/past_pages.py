"""Pages of the past: what responses show of them, and their cursors."""

import base64
import binascii
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.ranking import Page
from live.errors import ProblemError
from live.ingest.replies import Reply
from live.journal.past.queries import AsOf, RankingSlice
from live.journal.state.ranking import period_name, records_of
from live.network.parameters import whole_number
from live.web.http.responses import negotiated

_LONGEST: Final = 10**9 - 1
_CACHE: Final = b"public, max-age=60"  # a member that is hidden today leaves the past too


class PastPage(NamedTuple):
    """Some records of a board at a time, the cursor of the next ones, and the time.

    Or those of a period from the archive, which is final, and its revision.
    """

    board: Board
    page: Page
    cursor: str | None
    as_of: str | UnsetType
    final: bool | UnsetType = UNSET
    revision: int | UnsetType = UNSET

    @property
    def marks(self) -> dict[str, object]:
        """The fields that only responses about the past have."""
        return {"as_of": self.as_of, "final": self.final, "revision": self.revision}


def page_of(moment: AsOf, found: RankingSlice, cursor: str | None) -> PastPage:
    """The page of some records that were read."""
    revision, page = found.ranking.revision, _page_of(moment.board, found)
    if revision is not None:
        return PastPage(moment.board, page, cursor, UNSET, final=True, revision=revision)
    return PastPage(moment.board, page, cursor, rfc3339(moment.at))


def _page_of(board: Board, found: RankingSlice) -> Page:
    ranking = found.ranking
    return Page(
        epoch=ranking.epoch,
        offset=ranking.offset,
        rank_count=found.count,
        total_score=ranking.total if board.score is None else None,
        start=found.start,
        records=tuple(records_of(board, ranking.members, ranking.scores, ranking.ranks, ranking.metadata, found.start)),
        slot=ranking.period,
        period=period_name(board, ranking.period),
    )


def past_reply(body: object) -> Reply:
    """A JSON reply about the past, which does not change."""
    return Reply(HTTPStatus.OK, b"application/json", msgspec.json.encode(body), cache=_CACHE)


def past_response(request: Request, body: object) -> Response:
    """A JSON response about the past."""
    return negotiated(request, past_reply(body))


def start_in(query: Mapping[str, str]) -> int:
    """How many records to skip: `start`, or what a cursor says."""
    text = query.get("cursor")
    if text is None:
        return whole_number(query, "start", 0, 0, _LONGEST)
    start = _start_of_cursor(text)
    if start is None:
        raise ProblemError("cursor_invalid", "use `next_cursor` of an earlier page unchanged, with the same parameters")
    return start


def is_past_cursor(text: str) -> bool:
    """Whether a cursor is one of a page of the past."""
    return _start_of_cursor(text) is not None


def _start_of_cursor(text: str) -> int | None:
    try:
        kind, start = msgspec.json.decode(
            base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), type=tuple[str, int]
        )
    except (binascii.Error, ValueError):
        return None
    return start if kind == "past" and 0 <= start <= _LONGEST else None


def cursor_at(start: int) -> str:
    """The cursor of the page that begins after `start` records."""
    return base64.urlsafe_b64encode(msgspec.json.encode(("past", start))).rstrip(b"=").decode()
