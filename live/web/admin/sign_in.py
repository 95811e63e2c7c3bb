"""Signing in to the admin page and out of it: an admin API key begins a session, which belongs to a cookie.

The API key comes in a form and never in an address. The browser receives 128 random bits, and the store keeps their
SHA-256.
"""

import re
import secrets
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.auth.signed_in import page_fault, session_cookie, session_name
from live.domain.producer import Principal, Secret, digest_of, parse_bearer, signing_in
from live.domain.reader import Reader
from live.errors import ProblemError
from live.store.registry.audit_trail import entry_of
from live.web.http.forms import read_form
from live.web.http.middleware import READER, client_of
from live.web.http.responses import NOT_STORED
from live.web.pages.preferences import BACK
from live.web.pages.rendering import address_of, render, visit_of
from live.web.services import live_of
from live.web.writes.admin import note_origin

REFRESH: Final = "x-refresh"
"""The header field of requests that the script of a page sends by itself. They do not prolong a session."""

_LONGEST_KEY: Final = 400
_MOST_BODY: Final = 8192  # bytes


def require_page(request: Request) -> None:
    """Refuse a client that may not open the admin page.

    Raises:
        ProblemError: `not_found`.
    """
    fault = page_fault(client_of(request), live_of(request).settings)
    if fault:
        raise ProblemError("not_found", fault)


def require_own_form(request: Request) -> None:
    """Refuse a form that does not come from a page of this server.

    A browser names the site, or the origin, of every form. A request that names neither does not come from a browser.

    Raises:
        ProblemError: `origin_forbidden`.
    """
    client, site = client_of(request), request.headers.get("sec-fetch-site")
    is_own = site == "same-origin" if site is not None else client.origin == f"{client.scheme}://{client.host}"
    if not is_own:
        raise ProblemError("origin_forbidden", "a form of the admin page must be sent from the admin page")


async def show_sign_in(
    request: Request, error: str = "", status: int = HTTPStatus.UNAUTHORIZED, wait: int = 0
) -> Response:
    """Show the form to sign in. `error` is a name in the words of the pages, and `wait` is in seconds."""
    visit = visit_of(request)
    back = address_of(visit, "done") if request.method == "GET" else ""
    async with visit.live.drawings.turn(visit.client.network):
        response = await render(visit, "admin/sign_in.html", status, error=error, wait=wait, return_to=back)
    response.headers.update(NOT_STORED)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="Live Board"'
    if wait:
        response.headers["Retry-After"] = str(wait)
    return response


async def sign_in(request: Request) -> Response:
    """Begin a session if the form has a valid admin API key, and redirect to the page that was asked for."""
    require_page(request)
    require_own_form(request)
    live, client = live_of(request), client_of(request)
    form = await read_form(request, _MOST_BODY, "send the API key as `key`")
    address = signing_in(client.network)
    try:
        await live.rate_limiter.admit(address)
    except ProblemError as problem:
        wait = problem.retry_after or 1
        return await show_sign_in(request, "admin_too_many_keys", HTTPStatus.TOO_MANY_REQUESTS, wait)
    authorization = b"Bearer " + form.get("key", "").strip()[:_LONGEST_KEY].encode()
    try:
        producer = live.authenticator.authorize(authorization, client, "admin")
    except ProblemError as problem:
        if problem.code not in {"credentials_invalid", "scope_forbidden"}:
            raise
        return await show_sign_in(request, f"admin_{problem.code}", HTTPStatus.FORBIDDEN)
    live.rate_limiter.give_back(address)  # only wrong API keys use up the rate
    _, secret = parse_bearer(authorization) or ("", b"")
    fingerprint, cookie = Secret(digest_of(secret), 0).fingerprint, secrets.token_urlsafe(16)
    if earlier := cookie_of(request):
        await live.sessions.end(session_name(earlier))
    await live.sessions.add(session_name(cookie), producer.id, fingerprint)
    note_origin(request)
    await live.trail.add(entry_of(producer.id, "signed_in", after={"fingerprint": fingerprint}))
    root = live.settings.root_path
    back = form.get("back", "")
    is_own = re.fullmatch(BACK, back) and back.startswith(f"{root}/admin")
    response = RedirectResponse(back if is_own else f"{root}/admin", HTTPStatus.SEE_OTHER, NOT_STORED)
    response.set_cookie(client.cookie("admin", root), cookie, **client.cookie_attributes(root))
    return response


def cookie_of(request: Request) -> str:
    """Return the cookie of a session, or an empty text."""
    return session_cookie(request.headers.get("cookie", ""), client_of(request), live_of(request).settings)


async def signed_in(request: Request) -> Principal | None:
    """Find the administrator who is signed in, and admit the request at the price of one event of its API key.

    Raises:
        ProblemError: `rate_exceeded` or `epoch_lost`.
        StoreUnavailableError: the session, or its API key, can't be checked now.
    """
    live, cookie = live_of(request), cookie_of(request)
    if not cookie:
        return None
    session = await live.sessions.find(session_name(cookie), is_use=REFRESH not in request.headers)
    producer = None if session is None else live.authenticator.holder(session.id, session.fingerprint)
    if producer is None or "admin" not in producer.verbs:
        return None
    await live.rate_limiter.admit(producer)
    request.scope["extensions"][READER] = Reader(producer.opens)
    note_origin(request)
    return producer


async def sign_out(request: Request, producer: Principal, *, everywhere: bool) -> Response:
    """End the session of a request, or all sessions of its API key."""
    live, client = live_of(request), client_of(request)
    if everywhere:
        count = await live.sessions.end_all(producer.id)
        await live.trail.add(entry_of(producer.id, "signed_out", before={"sessions": count}))
    else:
        await live.sessions.end(session_name(cookie_of(request)))
    root = live.settings.root_path
    response = RedirectResponse(f"{root}/admin", HTTPStatus.SEE_OTHER, NOT_STORED)
    response.delete_cookie(client.cookie("admin", root), **client.cookie_attributes(root))
    return response
