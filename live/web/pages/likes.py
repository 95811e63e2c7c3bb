"""Likes and votes of visitors: the like button of the pages, and what only contests show.

A like is an event of the server's own producer, so it is counted, synced and sent to viewers like any other event. A
cookie names the visitor.
"""

import re
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from hmac import compare_digest
from http import HTTPStatus
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.auth.requester import Requester
from live.domain.board import Board
from live.domain.event import MAX_MEMBER_BYTES, IncomingEvent, member_fault
from live.domain.meaning import BOARD, MEMBER, PERIOD, says
from live.domain.producer import LIKES, Principal
from live.domain.ranking import Page, Record
from live.domain.reader import Reader
from live.errors import PROBLEMS, REFUSALS, ProblemError, StoreUnavailableError
from live.http.parameters import Parameters
from live.store.board.ledger import Ledger
from live.store.board.read.contestants import ContestantsPlace, list_contestants, read_given
from live.web.api.boards import encode_cursor, read_cursor
from live.web.api.items import items_of
from live.web.middleware import requester_of
from live.web.pages.parameters import LookParameters
from live.web.pages.rendering import Visit, addresses, draw_alone, is_closed, takes_likes, visit_of
from live.web.pages.rows import record_path
from live.web.pages.words import name_words
from live.web.parts import Live, live_of, reader_of
from live.web.requests import read_form, require_own_page
from live.web.responses import NOT_KEPT, NOT_STORED, as_problem, json_response, problem_response

MOST_CONTESTANTS: Final = 50  # contestants without votes on a page
PODIUM: Final = 3  # records
_MOST_COOKIES: Final = 16  # cookies that are read; a browser has several only if its first requests overlapped
_MOST_SEARCHED: Final = 1000  # records among which votes are looked for that are not on the page

_COOKIE_AGE: Final = 400 * 86_400  # seconds; browsers keep no cookie for longer
_MOST_BODY: Final = 6 * MAX_MEMBER_BYTES + 100  # bytes: every byte of two members can be percent-encoded
_CODES: Final = {
    "frozen": "likes_closed", "closed": "likes_closed", "not_open": "likes_closed",
    "quota_exceeded": "votes_used", "entrant_unknown": "record_not_found",
    "vote_missing": "vote_unknown", "votes_final": "votes_fixed",
}  # fmt: skip
_JSON: Final = "application/json"
_SECOND: Final = "visitor"  # query parameter of a request that the browser repeats with its new cookie
_FIELDS: Final = ("key", "undo", "replaces", "page")  # of the form
_PATIENCE: Final = 600  # seconds after its time in which a like that waits can be repeated
_SPREAD: Final = 3  # seconds over which the repetitions of likes are spread
_SECONDS: Final = re.compile("[0-9]{1,12}")  # a time in seconds since 1970
_PRODUCER: Final = Principal(LIKES, None, frozenset({"post"}), 0, 1, LIKES)


class Liked(msgspec.Struct, frozen=True):
    """The result of a like. `counted` is false if nothing has changed, because the request was carried out before."""

    board: Annotated[str, BOARD]
    member: Annotated[str, MEMBER] = msgspec.field(name="key")
    counted: Annotated[
        bool, says("False if nothing has changed: for example, the visitor had liked the member before.")
    ]


class _Like(NamedTuple):
    """A like that a request asks for.

    `visitor` tells visitors apart; it is empty for a browser without a cookie. `voter` is the reader with a viewer
    token, if it votes as its `sub`. `fields` are the fields of the form. `others` are the cookies that do not count.
    """

    board: Board
    visitor: str
    voter: Reader | None
    fields: Mapping[str, str]
    others: Sequence[str] = ()

    @property
    def member(self) -> str:
        """The member that is liked, or whose vote is taken back."""
        return self.fields.get("undo") or self.fields.get("key", "")

    @property
    def takes_back(self) -> bool:
        """Whether the visitor takes its vote for the member back."""
        return bool(self.fields.get("undo"))

    @property
    def replaces(self) -> str | None:
        """The member whose vote is taken back for the new vote, if the visitor changes its vote."""
        other = self.fields.get("replaces")
        return None if self.takes_back or other in {None, "", self.member} else other


async def like_member(request: Request) -> Response:
    """Like a member as a visitor.

    The like buttons of pages use this. The request needs the `Origin` of this server and a cookie, which the 307
    response to the first request sets. Programs post events instead. `Accept: application/json` asks for JSON.
    """
    is_script = request.headers.get("accept", "") == _JSON
    try:
        board, voter = await _board_of(request)
        _require_own_page(request)
        form = await read_form(request, _MOST_BODY, "send the member as `key`, percent-encoded UTF-8")
        like = await _like_of(request, board, voter, form)
        return await (_answer(request, like, is_script=is_script) if like.visitor else _make_cookie(request))
    except (ProblemError, StoreUnavailableError) as error:
        if is_script:
            return problem_response(error)
        raise


def _require_own_page(request: Request) -> None:
    """Refuse a like without a token that a page of this server did not send, as browsers tell."""
    if "authorization" in request.headers:
        return
    if requester_of(request).origin is None:
        raise ProblemError("origin_forbidden", "likes come from the pages of this server; programs post events")
    require_own_page(request)


class LikeParameters(LookParameters, frozen=True, kw_only=True):
    """A like that had to wait, as the form has it, and its signature."""

    member: Annotated[str | None, says("The member.")] = msgspec.field(name="key", default=None)
    undo: Annotated[str | None, says("Instead of `key`: take the vote for this member back.")] = None
    replaces: Annotated[str | None, says("The member whose vote is taken back.")] = None
    page: Annotated[str | None, says("The page to return to.", extra={"schema": {"enum": ["record"]}})] = None
    until: Annotated[str, says("When it ends.")] = ""
    signature: Annotated[str, says("The signature.")] = ""


async def like_member_again(request: Request, query: LikeParameters) -> Response:
    """Send a like again that had to wait.

    Only the page that refuses a like with 429 or 503, without script, has the address of this, with a signature.
    """
    # The signature is of the like and its visitor. So no other address counts a like, and no other page can make a
    # visitor like.
    board, voter = await _board_of(request)
    like = await _like_of(request, board, voter, request.query_params)
    if not like.visitor or not _SECONDS.fullmatch(query.until) or int(query.until) < time.time():
        return _back(request, like)
    if not compare_digest((await _sign(live_of(request), like, query.until)).encode(), query.signature.encode()):
        return _back(request, like)
    return await _answer(request, like, is_script=False)


async def _board_of(request: Request) -> tuple[Board, Reader | None]:
    """Check that the board takes the likes of the reader, who may vote with a viewer token."""
    live, reader, requester = live_of(request), reader_of(request), requester_of(request)
    board = (await live.ledger(request.path_params["board"], reader)).state.board
    if "authorization" in request.headers:
        _require_token(reader, board, requester, live.settings.allowed_origins)
    else:
        requester.require_origin()
    voter = reader if board.id in reader.likes else None
    # A board with one vote per member counts each voter once. Other boards remember likes only if they have a like
    # button.
    counts_voters = voter is not None and board.votes is not None and board.votes.per_key == 1
    if not (board.like_button or counts_voters):
        raise ProblemError("likes_not_allowed", "set `like_button` in the definition of the board")
    if voter is None and board.votes is not None and board.votes.tickets:
        raise ProblemError("ticket_required", REFUSALS["ticket_missing"])
    return board, voter


async def _like_of(request: Request, board: Board, voter: Reader | None, fields: Mapping[str, str]) -> _Like:
    if voter is not None:
        return _Like(board, voter.voter, voter, fields)
    visitor, others = await find_visitor(live_of(request), requester_of(request), request.cookies)
    return _Like(board, visitor or "", None, fields, others)


async def _make_cookie(request: Request) -> Response:
    """Give the browser a cookie, with which it repeats its request.

    The like counts only then, so it counts once even if a response is lost. A cookie is charged like a read, and not
    like a like.
    """
    live, requester = live_of(request), requester_of(request)
    if _SECOND in request.query_params:
        raise ProblemError("cookie_required", "a cookie tells visitors apart, so that a like counts once")
    live.rate_limiter.admit_read(requester.network)
    path = f"{live.settings.root_path}/boards/{request.path_params['board']}/likes"
    again = addresses(request.query_params)(path, **{_SECOND: "new"})
    response = RedirectResponse(again, HTTPStatus.TEMPORARY_REDIRECT, NOT_STORED)
    visitor = await live.visitors.make()
    response.set_cookie(
        cookie_prefix(live, requester) + secrets.token_hex(4),
        visitor,
        max_age=_COOKIE_AGE,
        **requester.cookie_attributes(""),
    )
    return response


async def _answer(request: Request, like: _Like, *, is_script: bool) -> Response:
    """Charge and count a like. If it must wait, a browser without script receives a page that sends it again."""
    live = live_of(request)
    try:
        await live.voting.admit(requester_of(request).network, like.voter)
        async with live.voting.turn(like.visitor):
            counted = await _count(request, like)
    except (ProblemError, StoreUnavailableError) as error:
        problem = as_problem(error)
        if is_script or problem.retry_after is None:
            raise
        return await _waiting_page(request, like, problem)
    if not is_script:
        return _back(request, like, "" if like.takes_back else "#liked")
    return _drop(request, like, json_response(Liked(like.board.id, like.member, counted), NOT_KEPT))


def _back(request: Request, like: _Like, place: str = "") -> Response:
    is_record = like.fields.get("page") == "record"
    path = record_path(like.board.id, like.member) if is_record else f"/boards/{like.board.id}"
    to = f"{addresses(request.query_params)(live_of(request).settings.root_path + path)}{place}"
    return _drop(request, like, RedirectResponse(to, HTTPStatus.SEE_OTHER, NOT_STORED))


def _drop(request: Request, like: _Like, response: Response) -> Response:
    for name in like.others:
        response.delete_cookie(name, **requester_of(request).cookie_attributes(""))
    return response


async def _waiting_page(request: Request, like: _Like, problem: ProblemError) -> Response:
    """Send the like again by itself, for a browser without script."""
    live, visit = live_of(request), visit_of(request)
    # Browsers that were refused together do not return together.
    seconds = (problem.retry_after or 0) + secrets.randbelow(_SPREAD)
    until = str(int(time.time()) + seconds + _PATIENCE)
    place = {name: like.fields[name] for name in _FIELDS if name in like.fields}
    path = f"{live.settings.root_path}/boards/{like.board.id}/likes"
    signed = {**place, "until": until, "signature": await _sign(live, like, until)}
    status = PROBLEMS[problem.code].status
    items = await items_of(live, (like.member,))
    return await draw_alone(
        visit,
        "waiting.html",
        status,
        {**problem.headers, **NOT_STORED, "Retry-After": str(seconds)},
        likes=True,
        items=items,
        board=like.board,
        name=items[like.member].title if items else name_words(visit.language, like.member),
        place=place,
        says="rate_exceeded" if status == HTTPStatus.TOO_MANY_REQUESTS else "later",
        seconds=seconds,
        action=addresses(visit.query)(path),
        again=addresses(visit.query)(path, **signed),
    )


async def _sign(live: Live, like: _Like, until: str) -> str:
    """Sign a like that waits, so that only the page of its refusal can repeat it with `GET`, until a time."""
    what = "undo" if like.takes_back else like.replaces or ""
    return await live.visitors.sign((like.visitor, like.board.id, like.member, what, until))


def _require_token(reader: Reader, board: Board, requester: Requester, allowed: Sequence[str]) -> None:
    """Refuse a token that does not permit the like, or from a page of an origin that is not allowed."""
    requester.require_origin(allowed)
    reader.require_sure()
    if reader.fault:
        raise ProblemError("credentials_invalid", reader.fault)
    if board.id not in reader.likes:
        raise ProblemError("scope_forbidden", "a viewer token permits likes on the boards that its claim `likes` names")


async def _count(request: Request, like: _Like) -> bool:
    """Count a like. Return False if that changes nothing, because it was counted before."""
    live, board, member, visitor = live_of(request), like.board, like.member, like.visitor
    ledger = await live.use(board.id, reader_of(request))
    page = None
    if member_fault(member) is None:
        page = await ledger.reader.find(member, 0)
        # The member is a contestant without votes, or was hidden after the visitor voted for it.
        if page is None and (like.takes_back or await ledger.reader.entrant(member) is not None):
            page = await ledger.reader.read(1)
    if page is None:
        raise ProblemError("record_not_found", "only members on the board can be liked")
    if board.votes is None and (like.takes_back or like.replaces is not None):
        raise ProblemError("like_refused", "only votes can be taken back or changed, and the board has no votes")
    if like.replaces is not None and (fault := member_fault(like.replaces)):
        raise ProblemError("vote_unknown", f"`replaces`: {fault}")
    event = _event_of(like, page.period or "")
    answer = await live.intake.count(_PRODUCER, event)
    if not answer.rejected:
        return answer.accepted == 1
    code = answer.rejected[0].code
    if board.votes is not None:
        named = [member] if like.replaces is None else [member, like.replaces]
        given = (await read_given(ledger.state, visitor, named, page.slot)).by_member
        if given == ({} if like.takes_back else {member: 1}):
            return False  # the votes are as the visitor wants them
    raise ProblemError(_CODES.get(code, "like_refused"), REFUSALS[code])


def _event_of(like: _Like, period: str) -> IncomingEvent:
    """Return the event of a like.

    On a board with votes, `actor` decides whether it counts, in each period. On other boards, `source` and `id` decide,
    in the whole window.
    """
    member, visitor = like.member, like.visitor
    if like.board.votes is None:
        return IncomingEvent(
            member=member, board=like.board.id, actor=visitor, source=visitor, id=f"{period}\n{member}"
        )
    return IncomingEvent(
        member=member,
        board=like.board.id,
        actor=visitor,
        amount=-1 if like.takes_back else 1,
        replaces=UNSET if like.replaces is None else like.replaces,
    )


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
    """Read a visitor's votes for members in the period at `slot`; None if visitors can't vote on pages now."""
    board = ledger.state.board
    if board.votes is None or not takes_likes(board):
        return None
    most = board.votes.per_actor
    voter = visit.reader.voter if board.id in visit.reader.likes else None
    if voter is None and not board.votes.tickets:
        voter = (await find_visitor(visit.live, visit.requester, visit.cookies))[0]
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
    """Read the parts that only a contest has. With `rows`, the table has room for so many, and nothing follows."""
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


def cookie_prefix(live: Live, requester: Requester) -> str:
    """Make the prefix of the names of visitors' cookies on this server."""
    return requester.cookie("visitor", live.settings.root_path) + "."


async def find_visitor(
    live: Live, requester: Requester, cookies: Mapping[str, str]
) -> tuple[str | None, Sequence[str]]:
    """Find the visitor of a request, or None, and the names of the cookies that do not count.

    A browser that sends several requests before it has a cookie receives a cookie for each, under different names. The
    first cookie in a request counts. Browsers send the oldest cookie first (RFC 6265, section 5.4), so the oldest is
    in every request that has a cookie at all, and no later cookie takes its place.
    """
    own = re.compile(re.escape(cookie_prefix(live, requester)) + "[0-9a-f]{8}")  # other names are of other servers
    names = [name for name in cookies if own.fullmatch(name)][:_MOST_COOKIES]
    for name in names:
        visitor = await live.visitors.read(cookies[name])
        if visitor is not None:
            return visitor, [other for other in names if other != name]
    return None, names


class VoterView(msgspec.Struct, frozen=True):
    """The votes of a visitor. `left` is null if there is no limit."""

    board: Annotated[str, BOARD]
    period: Annotated[str | None, PERIOD]
    left: Annotated[int | None, says("Votes that the visitor has left. Null without a limit.")]
    votes: Annotated[Sequence[str], says("Those of the members that have a vote of the visitor.")]


class VoteParameters(Parameters, frozen=True, kw_only=True, rename={"members": "key"}):
    """The members whose votes a script asks for."""

    members: Annotated[Sequence[str], says("The members to look at.", max_length=100)] = ()


async def get_votes(request: Request, query: VoteParameters) -> Response:
    """Return the votes of a visitor.

    The script of pages asks which members have a vote of the visitor, whom a cookie names, in this period.
    """
    visit, live = visit_of(request), live_of(request)
    ledger = await live.use(request.path_params["board"], reader_of(request))
    page = await ledger.reader.read(1)
    # Looking for votes for other members takes milliseconds, so clients take turns.
    looked = given_of(visit, ledger, query.members, page.slot)
    given = await live.drawings.draw(visit.requester.network, looked)
    if given is None:
        raise ProblemError("likes_closed", "visitors can't vote on the pages of this board now")
    return json_response(VoterView(ledger.state.board.id, page.period, given.left, given.members), NOT_KEPT)
