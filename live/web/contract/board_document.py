"""The JSON document of one page of a board."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from live.domain.board import Board
from live.domain.ranking import Page, Record
from live.ingest.replies import Reply
from live.store.board.read.reader import PageReading
from live.web.http.responses import page_reply
from live.web.paging import cursors_around


class BoardPage(msgspec.Struct, frozen=True):
    """One page of a board.

    `next_cursor` is null on the last page, and `prev_cursor` on the first. `period` is the name of the period of a
    calendar board. `total_score` is null if scores are not amounts, and `entrant_count` is null on boards without
    registration. `viewer_count` is the number of viewers in all processes; the `ETag` does not depend on it.
    `as_of` is the time of a page of the past. `final` is true on pages of a period that the board does not keep any
    more, from the archive; `revision` says how often the period became final.
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
    final: bool | UnsetType = UNSET
    revision: int | UnsetType = UNSET


def reply_with_page(known: str, reading: PageReading, viewers: int | None) -> Reply:
    """The reply with a page that was read. `known` is the `If-None-Match` of the request."""
    board, page = reading
    return page_reply(known, page, "board", lambda: board_page(board, page, viewers or 0), viewers)


def board_page(board: Board, page: Page, viewers: int) -> BoardPage:
    """The document of a page, with the number of viewers."""
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
