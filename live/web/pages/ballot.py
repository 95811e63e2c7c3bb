"""The parts of pages that only contests have: the contestants without votes, and the result."""

from collections.abc import Sequence
from typing import Final

import msgspec

from live.domain.board import Board
from live.domain.ranking import Page, Record
from live.store.board.ledger import Ledger
from live.store.board.read.contestants import ContestantsPlace, list_contestants
from live.web.pages.rendering import Visit, is_closed
from live.web.reads.boards import encode_cursor, read_cursor

MOST_CONTESTANTS: Final = 50  # contestants without votes on a page
PODIUM: Final = 3  # records


class Ballot(msgspec.Struct, frozen=True):
    """The part of a page that only contests have.

    `contestants` are registered and have no votes; they are on the page that has the last record. `following` is the
    value of `?contestants=` for the next contestants, and `is_first` says whether `contestants` begin with the first
    contestant without votes. When voting is over, `podium` has the first records.
    """

    contestants: Sequence[Record] = ()
    following: str | None = None
    is_first: bool = True
    podium: Sequence[Record] = ()


async def ballot_of(visit: Visit, ledger: Ledger, page: Page) -> Ballot:
    """Read the parts that only a contest has.

    Raises:
        ProblemError: `cursor_invalid`.
    """
    board: Board = ledger.state.board
    text = visit.query.get("contestants")
    unread = "`contestants` is not from a link of this page"
    place = None if text is None else read_cursor(text, ContestantsPlace, unread)
    podium: Sequence[Record] = ()
    if is_closed(board):
        podium = page.records if page.start == 0 else (await ledger.reader.read(PODIUM)).records
    has_end = page.start + len(page.records) >= page.rank_count
    if board.votes is None or not board.votes.registered or not has_end:
        return Ballot(podium=podium[:PODIUM])
    found = await list_contestants(ledger.reader, place, MOST_CONTESTANTS)
    following = None if found.following is None else encode_cursor(found.following)
    return Ballot(found.records, following, place is None, podium[:PODIUM])
