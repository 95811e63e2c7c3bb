"""The routes of the admin page: signing in and out, and the checks before a page is shown or changes anything.

An admin API key begins a session, which belongs to a cookie. The API key comes in a form and never in an address. The
browser receives 128 random bits, and the store keeps their SHA-256.
"""

import re
import secrets
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from live.auth.sessions import page_fault, session_cookie, session_name
from live.domain.limits import Client, digest_of_client
from live.domain.producer import Principal, Secret, digest_of, parse_bearer
from live.domain.reader import Reader
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.registry.audit_trail import entry_of
from live.web.admin import boards, events, health, keys, log, members, new_board, void
from live.web.admin.admin_page import AdminPage, Desk, require_token
from live.web.api.admin import note_origin
from live.web.middleware import READER, requester_of
from live.web.pages.preferences import BACK
from live.web.pages.rendering import address_of, draw_alone, visit_of
from live.web.parts import live_of
from live.web.requests import read_form
from live.web.responses import NOT_STORED

_EXPECTED: Final = "send the fields of a form of the page, percent-encoded"
_MOST_FIELDS: Final = 40
_LONGEST_KEY: Final = 400
_MOST_BODY: Final = 8192  # bytes of the form to sign in
_REFRESH: Final = "x-refresh"  # the header field of requests that a script sends by itself; they prolong no session
_REFUSALS: Final = (ProblemError, StoreUnavailableError, EpochLostError)


async def _sign_out(desk: Desk) -> Response:
    """End the session, or all sessions of its API key."""
    live, requester = desk.live, desk.visit.requester
    if desk.form["act"] == "everywhere":
        count = await live.sessions.end_all(desk.producer.id)
        await live.trail.add(entry_of(desk.producer.id, "signed_out", before={"sessions": count}))
    else:
        await live.sessions.end(session_name(desk.cookie))
    response = await _go_home(desk)
    root = live.settings.root_path
    response.delete_cookie(requester.cookie("admin", root), **requester.cookie_attributes(root))
    return response


async def _go_home(desk: Desk) -> Response:
    return RedirectResponse(desk.path(""), HTTPStatus.SEE_OTHER, NOT_STORED)


PAGES: Final[tuple[AdminPage, ...]] = (
    *boards.PAGES, new_board.PAGE, *members.PAGES, void.PAGE, events.PAGE, keys.PAGE, health.PAGE, log.PAGE,
    AdminPage(path="session/end", show=_go_home, acts={"out": _sign_out, "everywhere": _sign_out}),
)  # fmt: skip
"""All pages for administrators. Pages with a name are in the navigation, in this order."""


def admin_routes(settings: Settings) -> list[BaseRoute]:
    """List the routes of the admin page: none if the page is off."""
    if settings.admin_page == "off":
        return []
    routes: list[BaseRoute] = [Route("/admin/session", _sign_in, methods=["POST"])]
    for page in PAGES:
        methods = ["GET", "POST"] if page.acts else ["GET"]
        routes.append(Route(f"/admin/{page.path}".rstrip("/"), partial(_serve, page), methods=methods))
    return routes


async def _serve(page: AdminPage, request: Request) -> Response:
    """Show a page, or run the act of its form. Show the sign-in form to anybody who is not signed in."""
    _require_page(request)
    if request.method == "POST":
        require_own_form(request)
    producer = await _signed_in(request)
    if producer is None:
        return await _show_sign_in(request)
    desk = Desk(request=request, visit=visit_of(request), producer=producer, cookie=_cookie_of(request), pages=PAGES)
    try:
        if page.needs_all_boards and desk.producer.is_limited:
            raise ProblemError("scope_forbidden", "this page is about all boards, and the API key is limited to some")
        if request.method != "POST":
            return await page.show(desk)
        desk = msgspec.structs.replace(desk, form=await read_form(request, page.most, _EXPECTED, _MOST_FIELDS))
        require_token(desk)
        if desk.form.get("act") not in page.acts:
            raise ProblemError("malformed_body", _EXPECTED)
        return await page.acts[desk.form["act"]](desk)
    except _REFUSALS as error:
        desk = msgspec.structs.replace(desk, error=error)
        if desk.form:
            try:
                return await page.show(desk)
            except _REFUSALS as another:
                desk = msgspec.structs.replace(desk, error=another)
        return await desk.show("problem")


def _require_page(request: Request) -> None:
    fault = page_fault(requester_of(request), live_of(request).settings)
    if fault:
        raise ProblemError("not_found", fault)


def require_own_form(request: Request) -> None:
    """Refuse a form that does not come from a page of this server.

    A browser names the site, or the origin, of every form. A request that names neither does not come from a browser.
    """
    requester, site = requester_of(request), request.headers.get("sec-fetch-site")
    is_own = site == "same-origin" if site is not None else requester.origin == f"{requester.scheme}://{requester.host}"
    if not is_own:
        raise ProblemError("origin_forbidden", "a form of the admin page must be sent from the admin page")


async def _show_sign_in(
    request: Request, error: str = "", status: int = HTTPStatus.UNAUTHORIZED, wait: int = 0
) -> Response:
    """Show the form to sign in. `error` is a name in the words of the pages, and `wait` is in seconds."""
    visit = visit_of(request)
    back = address_of(visit, "done") if request.method == "GET" else ""
    response = await draw_alone(visit, "admin/sign_in.html", status, error=error, wait=wait, return_to=back)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="Live Board"'
    if wait:
        response.headers["Retry-After"] = str(wait)
    return response


async def _sign_in(request: Request) -> Response:
    """Begin a session if the form has a valid admin API key, and redirect to the page that was asked for."""
    _require_page(request)
    require_own_form(request)
    live, requester = live_of(request), requester_of(request)
    form = await read_form(request, _MOST_BODY, "send the API key as `key`")
    # At most five API keys a minute from a network.
    key = f"signing-in:anonymous:{digest_of_client(requester.network)}"
    address = Client(key, 5 / 60, 5, "an address without an API key", "events")
    try:
        await live.rate_limiter.admit(address)
    except ProblemError as problem:
        wait = problem.retry_after or 1
        return await _show_sign_in(request, "admin_too_many_keys", HTTPStatus.TOO_MANY_REQUESTS, wait)
    authorization = b"Bearer " + form.get("key", "").strip()[:_LONGEST_KEY].encode()
    try:
        producer = live.authenticator.authorize(authorization, requester, "admin")
    except ProblemError as problem:
        if problem.code not in {"credentials_invalid", "scope_forbidden"}:
            raise
        return await _show_sign_in(request, f"admin_{problem.code}", HTTPStatus.FORBIDDEN)
    live.rate_limiter.give_back(address)  # only wrong API keys use up the rate
    _, secret = parse_bearer(authorization) or ("", b"")
    fingerprint, cookie = Secret(digest_of(secret), 0).fingerprint, secrets.token_urlsafe(16)
    if earlier := _cookie_of(request):
        await live.sessions.end(session_name(earlier))
    await live.sessions.add(session_name(cookie), producer.id, fingerprint)
    note_origin(request)
    await live.trail.add(entry_of(producer.id, "signed_in", after={"fingerprint": fingerprint}))
    root, back = live.settings.root_path, form.get("back", "")
    is_own = re.fullmatch(BACK, back) and back.startswith(f"{root}/admin")
    response = RedirectResponse(back if is_own else f"{root}/admin", HTTPStatus.SEE_OTHER, NOT_STORED)
    response.set_cookie(requester.cookie("admin", root), cookie, **requester.cookie_attributes(root))
    return response


def _cookie_of(request: Request) -> str:
    return session_cookie(request.headers.get("cookie", ""), requester_of(request), live_of(request).settings)


async def _signed_in(request: Request) -> Principal | None:
    """Find the administrator who is signed in, and admit the request at the price of one event of its API key."""
    live, cookie = live_of(request), _cookie_of(request)
    if not cookie:
        return None
    session = await live.sessions.find(session_name(cookie), is_use=_REFRESH not in request.headers)
    producer = None if session is None else live.authenticator.holder(session.id, session.fingerprint)
    if producer is None or "admin" not in producer.verbs:
        return None
    await live.rate_limiter.admit(producer)
    request.scope["extensions"][READER] = Reader(producer.opens)
    note_origin(request)
    return producer
