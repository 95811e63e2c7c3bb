"""The parts of pages that only contests have: contestants without votes, the votes of the visitor, and the result."""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from live.domain.board import Board
from live.domain.ranking import Page, Record
from live.store.board.ledger import Ledger
from live.store.board.read.contestants import ContestantsPlace, list_contestants
from live.store.board.read.voter import read_given
from live.web.pages.rendering import Visit, is_closed, takes_likes
from live.web.reads.boards import encode_cursor, read_cursor
from live.web.visitor import may_have_voted, voter_of

MOST_CONTESTANTS: Final = 50  # contestants without votes on a page
PODIUM: Final = 3  # records
_MOST_SEARCHED: Final = 1000  # records among which votes are looked for that are not on the page


class Ballot(msgspec.Struct, frozen=True):
    """The part of a page that only contests have.

    `contestants` are registered and have no votes; they are on the page that has the last record. `following` is the
    value of `?contestants=` for the next contestants, and `is_first` says whether `contestants` begin with the first
    contestant without votes. When voting is over, `podium` has the first records. `given` are the votes of the visitor,
    None if visitors can't vote on the page now.
    """

    contestants: Sequence[Record] = ()
    following: str | None = None
    is_first: bool = True
    podium: Sequence[Record] = ()
    given: "Given | None" = None


class Given(msgspec.Struct, frozen=True):
    """The votes of a visitor on a board.

    `members` are those that have a vote, as far as they are known. `left` is how many votes the visitor has left, None
    without a limit. If `is_own` is false, everybody who has not voted may see the same.
    """

    members: Sequence[str] = ()
    left: int | None = None
    is_own: bool = False


async def given_of(visit: Visit, ledger: Ledger, members: Collection[str], slot: int | None) -> Given | None:
    """Read the votes of a visitor for members. `slot` is the start of the period.

    Return None if visitors can't vote on pages now.

    Raises:
        StoreUnavailableError, EpochLostError: the store does not answer, or has lost the board.
    """
    live, board = visit.live, ledger.state.board
    if board.votes is None or not takes_likes(board):
        return None
    most = board.votes.per_actor
    if not may_have_voted(live, visit.client, visit.cookies, board, visit.reader):
        return Given(left=most)
    voter = await voter_of(live, visit.client, visit.cookies, board, visit.reader)
    if voter is None:
        return Given(left=most)
    known = dict.fromkeys(members)
    given = await read_given(ledger.state, voter, known, slot)
    if given.total > len(given.by_member):
        page = await ledger.reader.read(_MOST_SEARCHED)
        known |= dict.fromkeys(record.member for record in page.records)
        given = await read_given(ledger.state, voter, known, slot)
    left = None if most is None else max(0, most - given.total)
    return Given(tuple(given.by_member), left, is_own=True)


async def ballot_of(visit: Visit, ledger: Ledger, page: Page, rows: int | None = None) -> Ballot:
    """Read the parts that only a contest has. With `rows`, the table has room for so many rows, and nothing follows it.

    Raises:
        ProblemError: `cursor_invalid`.
        StoreUnavailableError, EpochLostError: the store does not answer, or has lost the board.
    """
    ballot = await _contestants_of(visit, ledger, page)
    if rows is not None:
        room = max(0, rows - len(page.records) - 1)  # a heading is above contestants without votes
        return Ballot(ballot.contestants[:room])
    members = [record.member for record in (*page.records, *ballot.contestants)]
    return msgspec.structs.replace(ballot, given=await given_of(visit, ledger, members, page.slot))


async def _contestants_of(visit: Visit, ledger: Ledger, page: Page) -> Ballot:
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
