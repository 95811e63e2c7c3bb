"""POST /boards/{board}/likes: the like button of the pages.

A like is an event of the server's own producer, so it is counted, synced and sent to viewers like any other event.
"""

import re
import secrets
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.auth.client import Client
from live.domain.board import Board
from live.domain.event import MAX_KEY_BYTES, IncomingEvent, key_fault
from live.domain.producer import LIKES, Principal, liking
from live.domain.reader import Reader
from live.errors import REFUSALS, ProblemError
from live.web.http.forms import read_form, require_own_page
from live.web.http.middleware import client_of
from live.web.http.responses import NOT_STORED, problem_response
from live.web.pages.rendering import addresses, record_path
from live.web.services import live_of, reader_of

_COOKIE_AGE: Final = 400 * 86_400  # seconds; browsers keep no cookie for longer
_MOST_BODY: Final = 3 * MAX_KEY_BYTES + 100  # bytes: every byte of the member can be percent-encoded
_CODES: Final = {
    "frozen": "likes_closed", "closed": "likes_closed", "not_open": "likes_closed",
    "quota_exceeded": "votes_used", "entrant_unknown": "record_not_found",
}  # fmt: skip
_MOST_COOKIES: Final = 16  # cookies that are read; a browser has several only if its first requests overlapped
_SECOND: Final = "visitor"  # query parameter of a request that the browser repeats with its new cookie
_PRODUCER: Final = Principal(LIKES, None, frozenset({"post"}), 0, 1, LIKES)


class Liked(msgspec.Struct, frozen=True):
    """The result of a like. `counted` is false if the visitor had liked the member before."""

    board: str
    key: str
    counted: bool


async def like(request: Request) -> Response:
    """Count the like of a visitor, and redirect a form to its page. A script receives JSON."""
    is_script = request.headers.get("accept", "") == "application/json"
    try:
        return await _like(request, is_script=is_script)
    except ProblemError as problem:
        if is_script:
            return problem_response(problem)
        raise


async def _like(request: Request, *, is_script: bool) -> Response:
    live, reader = live_of(request), reader_of(request)
    board = (await live.ledger(request.path_params["board"], reader)).state.board
    client = client_of(request)
    if "authorization" in request.headers:
        _require_token(reader, board, client, live.settings.allowed_origins)
    else:
        # Only a page of this server may send this request. Browsers send `Origin` and `Sec-Fetch-Site` with requests
        # of a page.
        client.require_origin()
        if client.origin is None:
            raise ProblemError("origin_forbidden", "likes come from the pages of this server; programs post events")
        require_own_page(request)
    voter = reader.voter if board.id in reader.likes else None
    # A board with one vote per member counts each voter once. Other boards remember likes only if they have a like
    # button.
    counts_voters = voter is not None and board.votes is not None and board.votes.per_key == 1
    if not (board.like_button or counts_voters):
        raise ProblemError("likes_not_allowed", "set `like_button` in the definition of the board")
    settings = live.settings
    response: Response
    await live.rate_limiter.admit(liking(client.network, settings.like_rate, settings.like_burst))
    form = await read_form(request, _MOST_BODY, "send the member as `key`, percent-encoded UTF-8")
    visitor, others = await _visitor_of(request) if voter is None else (voter, ())
    if visitor is None:
        # The browser repeats the request with its new cookie. The like counts only then, so it counts once even if a
        # response is lost.
        if _SECOND in request.query_params:
            raise ProblemError("cookie_required", "a cookie tells visitors apart, so that a like counts once")
        path = f"{settings.root_path}/boards/{request.path_params['board']}/likes"
        again = addresses(request.query_params)(path, **{_SECOND: "new"})
        response = RedirectResponse(again, HTTPStatus.TEMPORARY_REDIRECT, NOT_STORED)
        visitor = await live.visitors.make()
        response.set_cookie(_cookie_name(request), visitor, max_age=_COOKIE_AGE, **client.cookie_attributes(""))
        return response
    member = form.get("key", "")
    counted = await _count(request, board, member, visitor)
    if is_script:
        response = Response(msgspec.json.encode(Liked(board.id, member, counted)), headers=NOT_STORED)
    else:
        record = record_path(board.id, member) if form.get("page") == "record" else None
        page = addresses(request.query_params)(f"{settings.root_path}{record or f'/boards/{board.id}'}")
        response = RedirectResponse(f"{page}#liked", HTTPStatus.SEE_OTHER, NOT_STORED)
    for name in others:
        response.delete_cookie(name, **client.cookie_attributes(""))
    return response


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


async def _count(request: Request, board: Board, member: str, visitor: str) -> bool:
    """Count the like of a visitor for a member of the board. Return False if it was counted before.

    Raises:
        ProblemError: `record_not_found`, `likes_closed`, `votes_used`, `like_refused` or `overloaded`.
        EpochLostError: the store lost the board.
    """
    live = live_of(request)
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
