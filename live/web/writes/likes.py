"""/boards/{board}/likes: the like button of the pages.

A like is an event of the server's own producer, so it is counted, synced and sent to viewers like any other event.
"""

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from hmac import compare_digest
from http import HTTPStatus
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.auth.client import Client
from live.domain.board import Board
from live.domain.event import MAX_KEY_BYTES, IncomingEvent, key_fault
from live.domain.producer import LIKES, Principal
from live.domain.reader import Reader
from live.domain.text import BOARD, KEY
from live.errors import PROBLEMS, REFUSALS, ProblemError, StoreUnavailableError
from live.store.board.read.voter import read_given
from live.web.http.forms import read_form, require_own_page
from live.web.http.middleware import client_of
from live.web.http.responses import NOT_STORED, as_problem, problem_response
from live.web.pages.parameters import LookParameters
from live.web.pages.rendering import addresses, record_path, render, visit_of
from live.web.pages.words import name_words
from live.web.reads.items import items_of
from live.web.services import Live, live_of, reader_of
from live.web.visitor import cookie_prefix, find_visitor

_COOKIE_AGE: Final = 400 * 86_400  # seconds; browsers keep no cookie for longer
_MOST_BODY: Final = 6 * MAX_KEY_BYTES + 100  # bytes: every byte of two members can be percent-encoded
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
    key: Annotated[str, KEY]
    counted: Annotated[
        bool, Meta(description="False if nothing has changed: for example, the visitor had liked the member before.")
    ]


class _Ballot(NamedTuple):
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
        return await _like(request, is_script=is_script)
    except (ProblemError, StoreUnavailableError) as error:
        if is_script:
            return problem_response(error)
        raise


class LikeParameters(LookParameters, frozen=True, kw_only=True):
    """A like that had to wait, as the form has it, and its signature."""

    key: Annotated[str | None, Meta(description="The member.")] = None
    undo: Annotated[str | None, Meta(description="Instead of `key`: take the vote for this member back.")] = None
    replaces: Annotated[str | None, Meta(description="The member whose vote is taken back.")] = None
    page: Annotated[str | None, Meta(description="The page to return to.", extra={"schema": {"enum": ["record"]}})] = (
        None
    )
    until: Annotated[str, Meta(description="When it ends.")] = ""
    signature: Annotated[str, Meta(description="The signature.")] = ""


async def like_member_again(request: Request, query: LikeParameters) -> Response:
    """Send a like again that had to wait.

    Only the page that refuses a like with 429 or 503, without script, has the address of this, with a signature.
    """
    # The signature is of the like and its visitor. So no other address counts a like, and no other page can make a
    # visitor like.
    live, client = live_of(request), client_of(request)
    board, voter = await _board_of(request)
    visitor, others = await find_visitor(live, client, request.cookies) if voter is None else (voter.voter, ())
    ballot = _Ballot(board, visitor or "", voter, request.query_params, others)
    if visitor is None or not _SECONDS.fullmatch(query.until) or int(query.until) < time.time():
        return _back(request, ballot)
    if not compare_digest((await _sign(live, ballot, query.until)).encode(), query.signature.encode()):
        return _back(request, ballot)
    return await _answer(request, ballot, is_script=False)


async def _like(request: Request, *, is_script: bool) -> Response:
    live, client = live_of(request), client_of(request)
    board, voter = await _board_of(request)
    if "authorization" not in request.headers:
        # Only a page of this server may send this request. Browsers send `Origin` and `Sec-Fetch-Site` with requests
        # of a page.
        if client.origin is None:
            raise ProblemError("origin_forbidden", "likes come from the pages of this server; programs post events")
        require_own_page(request)
    form = await read_form(request, _MOST_BODY, "send the member as `key`, percent-encoded UTF-8")
    visitor, others = await find_visitor(live, client, request.cookies) if voter is None else (voter.voter, ())
    if visitor is None:
        return await _make_cookie(request)
    return await _answer(request, _Ballot(board, visitor, voter, form, others), is_script=is_script)


async def _board_of(request: Request) -> tuple[Board, Reader | None]:
    """Find the board of a like, and the reader that votes with a viewer token. Check that the board takes their likes.

    Raises:
        ProblemError: `board_not_found`, `likes_not_allowed`, `ticket_required`, `origin_forbidden`,
            `credentials_invalid` or `scope_forbidden`.
        StoreUnavailableError: the credentials can't be checked now.
    """
    live, reader, client = live_of(request), reader_of(request), client_of(request)
    board = (await live.ledger(request.path_params["board"], reader)).state.board
    if "authorization" in request.headers:
        _require_token(reader, board, client, live.settings.allowed_origins)
    else:
        client.require_origin()
    voter = reader if board.id in reader.likes else None
    # A board with one vote per member counts each voter once. Other boards remember likes only if they have a like
    # button.
    counts_voters = voter is not None and board.votes is not None and board.votes.per_key == 1
    if not (board.like_button or counts_voters):
        raise ProblemError("likes_not_allowed", "set `like_button` in the definition of the board")
    if voter is None and board.votes is not None and board.votes.tickets:
        raise ProblemError("ticket_required", REFUSALS["ticket_missing"])
    return board, voter


async def _make_cookie(request: Request) -> Response:
    """Give the browser a cookie, with which it repeats its request.

    The like counts only then, so it counts once even if a response is lost. A cookie is charged like a read, and not
    like a like.

    Raises:
        ProblemError: `cookie_required` or `rate_exceeded`.
    """
    live, client = live_of(request), client_of(request)
    if _SECOND in request.query_params:
        raise ProblemError("cookie_required", "a cookie tells visitors apart, so that a like counts once")
    live.rate_limiter.admit_read(client.network)
    path = f"{live.settings.root_path}/boards/{request.path_params['board']}/likes"
    again = addresses(request.query_params)(path, **{_SECOND: "new"})
    response = RedirectResponse(again, HTTPStatus.TEMPORARY_REDIRECT, NOT_STORED)
    visitor = await live.visitors.make()
    response.set_cookie(
        cookie_prefix(live, client) + secrets.token_hex(4), visitor, max_age=_COOKIE_AGE, **client.cookie_attributes("")
    )
    return response


async def _answer(request: Request, ballot: _Ballot, *, is_script: bool) -> Response:
    """Charge and count a like. If it must wait, a browser without script receives a page that sends it again."""
    live = live_of(request)
    try:
        await live.voting.admit(client_of(request).network, ballot.voter)
        async with live.voting.turn(ballot.visitor):
            counted = await _count(request, ballot)
    except (ProblemError, StoreUnavailableError) as error:
        problem = as_problem(error)
        if is_script or problem.retry_after is None:
            raise
        return await _waiting_page(request, ballot, problem)
    if not is_script:
        return _back(request, ballot, "" if ballot.takes_back else "#liked")
    body = msgspec.json.encode(Liked(ballot.board.id, ballot.member, counted))
    return _drop(request, ballot, Response(body, headers=NOT_STORED, media_type=_JSON))


def _back(request: Request, ballot: _Ballot, place: str = "") -> Response:
    """Redirect to the page from which a like came."""
    record = record_path(ballot.board.id, ballot.member) if ballot.fields.get("page") == "record" else None
    path = f"{live_of(request).settings.root_path}{record or f'/boards/{ballot.board.id}'}"
    to = f"{addresses(request.query_params)(path)}{place}"
    return _drop(request, ballot, RedirectResponse(to, HTTPStatus.SEE_OTHER, NOT_STORED))


def _drop(request: Request, ballot: _Ballot, response: Response) -> Response:
    """Delete the cookies that do not count."""
    for name in ballot.others:
        response.delete_cookie(name, **client_of(request).cookie_attributes(""))
    return response


async def _waiting_page(request: Request, ballot: _Ballot, problem: ProblemError) -> Response:
    """Make a page for a browser without script that says that a like must wait, and sends it again by itself."""
    live, visit = live_of(request), visit_of(request)
    # Browsers that were refused together do not return together.
    seconds = (problem.retry_after or 0) + secrets.randbelow(_SPREAD)
    until = str(int(time.time()) + seconds + _PATIENCE)
    place = {name: ballot.fields[name] for name in _FIELDS if name in ballot.fields}
    path = f"{live.settings.root_path}/boards/{ballot.board.id}/likes"
    signed = {**place, "until": until, "signature": await _sign(live, ballot, until)}
    status = PROBLEMS[problem.code].status
    items = await items_of(live, (ballot.member,))
    async with live.drawings.turn(visit.client.network):
        page = await render(
            visit,
            "waiting.html",
            status,
            likes=True,
            items=items,
            board=ballot.board,
            name=items[ballot.member].title if items else name_words(visit.language, ballot.member),
            place=place,
            says="rate_exceeded" if status == HTTPStatus.TOO_MANY_REQUESTS else "later",
            seconds=seconds,
            action=addresses(visit.query)(path),
            again=addresses(visit.query)(path, **signed),
        )
    page.headers.update({**problem.headers, **NOT_STORED, "Retry-After": str(seconds)})
    return page


async def _sign(live: Live, ballot: _Ballot, until: str) -> str:
    """Sign a like that waits, so that only the page of its refusal can repeat it with `GET`, until a time."""
    what = "undo" if ballot.takes_back else ballot.replaces or ""
    return await live.visitors.sign((ballot.visitor, ballot.board.id, ballot.member, what, until))


def _require_token(reader: Reader, board: Board, client: Client, allowed: Sequence[str]) -> None:
    """Refuse a like with a viewer token that does not permit it, or from a page of an origin that is not allowed.

    Raises:
        ProblemError: `origin_forbidden`, `credentials_invalid` or `scope_forbidden`.
        StoreUnavailableError: the credentials can't be checked now.
    """
    client.require_origin(allowed)
    reader.require_sure()
    if reader.fault:
        raise ProblemError("credentials_invalid", reader.fault)
    if board.id not in reader.likes:
        raise ProblemError("scope_forbidden", "a viewer token permits likes on the boards that its claim `likes` names")


async def _count(request: Request, ballot: _Ballot) -> bool:
    """Count a like. Return False if that changes nothing, because it was counted before.

    Raises:
        ProblemError: `record_not_found`, `likes_closed`, `votes_used`, `vote_unknown`, `votes_fixed`, `like_refused`
            or `overloaded`.
        EpochLostError: the store lost the board.
    """
    live, board, member, visitor = live_of(request), ballot.board, ballot.member, ballot.visitor
    ledger = await live.use(board.id, reader_of(request))
    page = None if key_fault(member) else await ledger.reader.find(member, 0)
    # The member is a contestant without votes, or was hidden after the visitor voted for it.
    is_off = page is None and key_fault(member) is None
    if is_off and (ballot.takes_back or await ledger.reader.entrant(member) is not None):
        page = await ledger.reader.read(1)
    if page is None:
        raise ProblemError("record_not_found", "only members on the board can be liked")
    if board.votes is None and (ballot.takes_back or ballot.replaces is not None):
        raise ProblemError("like_refused", "only votes can be taken back or changed, and the board has no votes")
    if ballot.replaces is not None and (fault := key_fault(ballot.replaces)):
        raise ProblemError("vote_unknown", f"`replaces`: {fault}")
    event = _event_of(ballot, page.period or "")
    answer = await live.intake.count(_PRODUCER, event)
    if not answer.rejected:
        return answer.accepted == 1
    code = answer.rejected[0].code
    if board.votes is not None:
        named = [member] if ballot.replaces is None else [member, ballot.replaces]
        given = (await read_given(ledger.state, visitor, named, page.slot)).by_member
        if given == ({} if ballot.takes_back else {member: 1}):
            return False  # the votes are as the visitor wants them
    raise ProblemError(_CODES.get(code, "like_refused"), REFUSALS[code])


def _event_of(ballot: _Ballot, period: str) -> IncomingEvent:
    """Return the event of a like.

    On a board with votes, `actor` decides whether it counts, in each period. On other boards, `source` and `id` decide,
    in the whole window.
    """
    member, visitor = ballot.member, ballot.visitor
    if ballot.board.votes is None:
        return IncomingEvent(key=member, board=ballot.board.id, actor=visitor, source=visitor, id=f"{period}\n{member}")
    return IncomingEvent(
        key=member,
        board=ballot.board.id,
        actor=visitor,
        amount=-1 if ballot.takes_back else 1,
        replaces=UNSET if ballot.replaces is None else ballot.replaces,
    )
