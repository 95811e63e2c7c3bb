"""/boards/{board}/likes: the like button of the pages.

A like is an event of the server's own producer, so it is counted, synced and sent to viewers like any other event.
"""

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from hmac import compare_digest
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.auth.client import Client
from live.domain.board import Board
from live.domain.event import MAX_KEY_BYTES, IncomingEvent, key_fault
from live.domain.producer import LIKES, Principal
from live.domain.reader import Reader
from live.errors import PROBLEMS, REFUSALS, ProblemError, StoreUnavailableError
from live.network.parameters import require_known
from live.web.http.forms import read_form, require_own_page
from live.web.http.middleware import client_of
from live.web.http.responses import NOT_STORED, as_problem, problem_response
from live.web.pages.rendering import addresses, record_path, render, visit_of
from live.web.pages.words import name_words
from live.web.reads.items import items_of
from live.web.services import Live, live_of, reader_of

_COOKIE_AGE: Final = 400 * 86_400  # seconds; browsers keep no cookie for longer
_MOST_BODY: Final = 3 * MAX_KEY_BYTES + 100  # bytes: every byte of the member can be percent-encoded
_CODES: Final = {
    "frozen": "likes_closed", "closed": "likes_closed", "not_open": "likes_closed",
    "quota_exceeded": "votes_used", "entrant_unknown": "record_not_found",
}  # fmt: skip
_MOST_COOKIES: Final = 16  # cookies that are read; a browser has several only if its first requests overlapped
_JSON: Final = "application/json"
_SECOND: Final = "visitor"  # query parameter of a request that the browser repeats with its new cookie
_UNTIL, _SIGNATURE = "until", "signature"  # query parameters of a like that waits
_KNOWN: Final = frozenset({"key", "page", _UNTIL, _SIGNATURE, "lang", "theme"})
_PATIENCE: Final = 600  # seconds after its time in which a like that waits can be repeated
_SPREAD: Final = 3  # seconds over which the repetitions of likes are spread
_PRODUCER: Final = Principal(LIKES, None, frozenset({"post"}), 0, 1, LIKES)


class Liked(msgspec.Struct, frozen=True):
    """The result of a like. `counted` is false if the visitor had liked the member before."""

    board: str
    key: str
    counted: bool


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
        """The member that is liked."""
        return self.fields.get("key", "")


async def like(request: Request) -> Response:
    """Count the like of a visitor, and redirect a form to its page. A script receives JSON."""
    if request.method != "POST":
        return await _like_again(request)
    is_script = request.headers.get("accept", "") == _JSON
    try:
        return await _like(request, is_script=is_script)
    except (ProblemError, StoreUnavailableError) as error:
        if is_script:
            return problem_response(error)
        raise


async def _like_again(request: Request) -> Response:
    """Count a like that had to wait, for a browser without script, whose page can only be reloaded with `GET`.

    The address has a signature of the like and its visitor, which only the refusal of that like contains. So no other
    address counts a like, and no other page can make a visitor like.
    """
    live, query = live_of(request), request.query_params
    require_known(query, _KNOWN)
    board, voter = await _board_of(request)
    visitor, others = await _visitor_of(request) if voter is None else (voter.voter, ())
    ballot = _Ballot(board, visitor or "", voter, query, others)
    until, signature = query.get(_UNTIL, ""), query.get(_SIGNATURE, "")
    if visitor is None or not until.isdecimal() or int(until) < time.time():
        return _back(request, ballot)
    if not compare_digest((await _sign(live, ballot, until)).encode(), signature.encode()):
        return _back(request, ballot)
    return await _answer(request, ballot, is_script=False)


async def _like(request: Request, *, is_script: bool) -> Response:
    board, voter = await _board_of(request)
    if "authorization" not in request.headers:
        # Only a page of this server may send this request. Browsers send `Origin` and `Sec-Fetch-Site` with requests
        # of a page.
        if client_of(request).origin is None:
            raise ProblemError("origin_forbidden", "likes come from the pages of this server; programs post events")
        require_own_page(request)
    form = await read_form(request, _MOST_BODY, "send the member as `key`, percent-encoded UTF-8")
    visitor, others = await _visitor_of(request) if voter is None else (voter.voter, ())
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
    response.set_cookie(_cookie_name(request), visitor, max_age=_COOKIE_AGE, **client.cookie_attributes(""))
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
        return _back(request, ballot, "#liked")
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
    place = {name: ballot.fields[name] for name in ("key", "page") if name in ballot.fields}
    path = f"{live.settings.root_path}/boards/{ballot.board.id}/likes"
    signed = {**place, _UNTIL: until, _SIGNATURE: await _sign(live, ballot, until)}
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
    return await live.visitors.sign((ballot.visitor, ballot.board.id, ballot.member, until))


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


async def _visitor_of(request: Request) -> tuple[str | None, Sequence[str]]:
    """Find the visitor of a request, or None, and the names of the cookies that do not count.

    A browser that sends several requests before it has a cookie receives a cookie for each, under different names. The
    first cookie in a request counts. Browsers send the oldest cookie first (RFC 6265, section 5.4), so the oldest is
    in every request that has a cookie at all, and no later cookie takes its place.
    """
    prefix = _cookie_prefix(request)
    # A cookie with another name is not from this server, which could not delete it.
    own = re.compile(re.escape(prefix) + "[0-9a-f]{8}")
    names = [name for name in request.cookies if own.fullmatch(name)][:_MOST_COOKIES]
    for name in names:
        visitor = await live_of(request).visitors.read(request.cookies[name])
        if visitor is not None:
            return visitor, [other for other in names if other != name]
    return None, names


def _cookie_name(request: Request) -> str:
    """Make a name that no other cookie has, so that a later cookie does not replace this one."""
    return _cookie_prefix(request) + secrets.token_hex(4)


def _cookie_prefix(request: Request) -> str:
    """Make the prefix of the names of visitors' cookies on this server."""
    return client_of(request).cookie("visitor", live_of(request).settings.root_path) + "."


async def _count(request: Request, ballot: _Ballot) -> bool:
    """Count a like. Return False if it was counted before.

    Raises:
        ProblemError: `record_not_found`, `likes_closed`, `votes_used`, `like_refused` or `overloaded`.
        EpochLostError: the store lost the board.
    """
    live, board, member, visitor = live_of(request), ballot.board, ballot.member, ballot.visitor
    ledger = await live.use(board.id, reader_of(request))
    page = None if key_fault(member) else await ledger.reader.find(member, 0)
    if page is None and key_fault(member) is None and await ledger.reader.entrant(member) is not None:
        page = await ledger.reader.read(1)  # the member is a contestant without votes
    if page is None:
        raise ProblemError("record_not_found", "only members on the board can be liked")
    # On a board with votes, `actor` decides whether the like counts, in each period. On other boards, `source` and
    # `id` decide, in the whole window.
    event = IncomingEvent(
        key=member, board=board.id, actor=visitor, source=visitor, id=f"{page.period or ''}\n{member}"
    )
    answer = await live.intake.count(_PRODUCER, event)
    if not answer.rejected:
        return answer.accepted == 1
    code = answer.rejected[0].code
    if code == "quota_exceeded" and board.votes is not None and board.votes.per_actor is None:
        return False  # the visitor has given its one vote for this member before
    raise ProblemError(_CODES.get(code, "like_refused"), REFUSALS[code])
