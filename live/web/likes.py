"""POST /boards/{board}/likes: the like button of the pages.

A like is an event of the server's own producer, so it is counted, synced and sent to viewers like any other.
"""

from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.domain.board import Board
from live.domain.event import MAX_KEY_BYTES, Event, key_fault
from live.domain.producer import LIKES, Producer, liking
from live.errors import REFUSALS, ProblemError
from live.ingest.posting import Answer
from live.web.clients import client_of
from live.web.problems import problem_response
from live.web.rendering import addresses, record_path
from live.web.responses import NOT_STORED
from live.web.state import Live, live_of

_COOKIE_AGE: Final = 400 * 86_400  # seconds; browsers keep no cookie for longer
_MOST_BODY: Final = 3 * MAX_KEY_BYTES + 100  # bytes: every byte of the member can be percent-encoded
_FORM: Final = "application/x-www-form-urlencoded"
_CLOSED: Final = frozenset({"frozen", "closed", "not_open"})
_SECOND: Final = "visitor"  # in the query of a request that is repeated with the cookie
_PRODUCER: Final = Producer(LIKES, None, frozenset({"post"}), 0, 1, LIKES)


class Liked(msgspec.Struct, frozen=True):
    """A like that counts. `counted` is false if the visitor had liked the member before."""

    board: str
    key: str
    counted: bool


async def like(request: Request) -> Response:
    """Count the like of a visitor, and lead a form back to its page. A script receives JSON."""
    is_script = request.headers.get("accept", "") == "application/json"
    try:
        return await _like(request, is_script=is_script)
    except ProblemError as problem:
        if is_script:
            return problem_response(problem)
        raise


async def _like(request: Request, *, is_script: bool) -> Response:
    live = live_of(request)
    board = live.board(request.path_params["board"])
    _require_own_page(request)
    if not board.like_button:
        raise ProblemError("likes_not_allowed", "set `like_button` in the definition of the board")
    settings = live.settings
    await live.rate_limiter.admit(liking(client_of(request).address, settings.like_rate, settings.like_burst))
    form = await _form(request)
    visitor = await live.visitors.read(request.cookies.get(_cookie_name(request), ""))
    if visitor is None:
        return await _with_cookie(request)
    member = form.get("key", "")
    counted = await _count(live, board, member, visitor)
    if is_script:
        return Response(msgspec.json.encode(Liked(board.id, member, counted)), headers=NOT_STORED)
    record = record_path(board.id, member) if form.get("page") == "record" else None
    page = addresses(request)(f"{settings.root_path}{record or f'/boards/{board.id}'}")
    return RedirectResponse(f"{page}#liked", HTTPStatus.SEE_OTHER, NOT_STORED)


def _require_own_page(request: Request) -> None:
    """Refuse everything that no page of this server sends: browsers put both fields on every such request.

    Raises:
        ProblemError: `origin_forbidden`.
    """
    client = client_of(request)
    client.require_origin()
    if client.origin is None or request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise ProblemError("origin_forbidden", "likes come from the pages of this server; programs post events")


async def _form(request: Request) -> dict[str, str]:
    """The fields of the form.

    Raises:
        ProblemError: `unsupported_media_type`, `body_too_large` or `malformed_body`.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise ProblemError("unsupported_media_type", f"send {_FORM}")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BODY:
            raise ProblemError("body_too_large", f"a like has at most {_MOST_BODY} bytes")
    try:
        return dict(parse_qsl(body.decode("ascii"), strict_parsing=True, errors="strict", max_num_fields=4))
    except ValueError:
        raise ProblemError("malformed_body", "send the member as `key`, percent-encoded UTF-8") from None


async def _with_cookie(request: Request) -> Response:
    """Let the browser repeat a request with a cookie. Only then the like counts, so a lost response counts once.

    Raises:
        ProblemError: `cookie_required`.
    """
    if _SECOND in request.query_params:
        raise ProblemError("cookie_required", "a cookie tells visitors apart, so that a like counts once")
    live = live_of(request)
    path = f"{live.settings.root_path}/boards/{request.path_params['board']}/likes"
    again = addresses(request)(path, **{_SECOND: "new"})
    response = RedirectResponse(again, HTTPStatus.TEMPORARY_REDIRECT, NOT_STORED)
    response.set_cookie(
        _cookie_name(request),
        await live.visitors.make(),
        max_age=_COOKIE_AGE,
        secure=client_of(request).scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def _cookie_name(request: Request) -> str:
    """The name of the cookie. With TLS, its prefix keeps other hosts of the same domain from setting it."""
    name = "live-visitor" + live_of(request).settings.root_path.replace("/", "-")
    return f"__Host-{name}" if client_of(request).scheme == "https" else name


async def _count(live: Live, board: Board, member: str, visitor: str) -> bool:
    """Count the like of a visitor for a member of the board; False if it was counted before.

    Raises:
        ProblemError: `record_not_found`, `likes_closed`, `like_refused` or `overloaded`.
        StoreUnavailableError: the store is unavailable.
        EpochLostError: the store lost the board.
    """
    ledger = await live.use(board.id)
    page = None if key_fault(member) else await ledger.reader.find(member, 0)
    if page is None:
        raise ProblemError("record_not_found", "only members on the board can be liked")
    # Where likes are votes, the actor decides in each period; elsewhere the identity decides in the whole window.
    event = Event(key=member, board=board.id, actor=visitor, source=visitor, id=f"{page.period or ''}\n{member}")
    return _is_counted(board, await live.intake.count(_PRODUCER, event))


def _is_counted(board: Board, answer: Answer) -> bool:
    if not answer.rejected:
        return answer.accepted == 1
    code = answer.rejected[0].code
    if code == "quota_exceeded" and board.votes is not None and board.votes.per_actor is None:
        return False  # the only limit is one vote for each member
    if code in _CLOSED:
        raise ProblemError("likes_closed", REFUSALS[code])
    raise ProblemError("like_refused", REFUSALS[code])
