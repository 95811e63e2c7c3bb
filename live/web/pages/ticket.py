"""Viewer tokens in cookies: for the code of a ticket, at `/t`, and from the address of a page, which people share."""

import math
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from http import HTTPStatus
from typing import Annotated, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.auth.tickets import PROVEN, FoundTicket, find_ticket, letters_of
from live.auth.tokens import LONGEST_TOKEN, sign_token
from live.domain.limits import Client, digest_of_client
from live.domain.meaning import says
from live.domain.reader import SERVER
from live.errors import ProblemError
from live.web.middleware import requester_of
from live.web.pages.parameters import LookParameters, VisitParameters
from live.web.pages.rendering import address_of, addresses, draw_alone, visit_of
from live.web.parts import live_of
from live.web.requests import read_form, require_own_page
from live.web.responses import NOT_STORED

_P = TypeVar("_P", bound=VisitParameters)

_MOST_BODY = 1000  # bytes


class TicketParameters(LookParameters, frozen=True, kw_only=True):
    """A ticket."""

    code: Annotated[str, says("The code.")] = ""


async def show_ticket_form(request: Request, query: TicketParameters) -> Response:
    """Open a ticket, or show the form for its code.

    The QR code of a ticket has its whole code. A cookie then makes the browser the voter with this ticket.
    """
    return await _open(request, query.code)


async def open_ticket(request: Request, query: LookParameters) -> Response:  # noqa: ARG001 - the visit has it
    """Open a ticket by its code.

    A wrong code gets the form again, with 403 or 429.
    """
    if not live_of(request).settings.token_secret:
        return await _form(request, "ticket_off")
    require_own_page(request)
    form = await read_form(request, _MOST_BODY, "send the code of a ticket as `code`")
    return await _open(request, form.get("code", ""))


async def _open(request: Request, given: str) -> Response:
    live = live_of(request)
    if not live.settings.token_secret:
        return await _form(request, "ticket_off")
    letters = letters_of(given)
    if not letters:
        return await _form(request)
    # Only codes that can be guessed are limited, and a right one costs nothing. So a hall can open its QR codes at the
    # same time.
    guess = None
    if len(letters) != PROVEN:  # at most ten wrong codes a minute from a network, and thirty at once
        key = f"guessing:anonymous:{digest_of_client(requester_of(request).network)}"
        guess = Client(key, 10 / 60, 30, "an address without an API key", "events")
    if guess is not None:
        try:
            await live.rate_limiter.admit(guess)
        except ProblemError as problem:
            return await _form(request, "ticket_wait", wait=problem.retry_after or 1)
    # With many boards, this takes milliseconds.
    ticket = await live.drawings.draw(requester_of(request).network, _find(request, letters))
    if ticket is None:
        return await _form(request, "ticket_unknown")
    if guess is not None:
        live.rate_limiter.give_back(guess)
    return _admit(request, ticket)


async def _find(request: Request, letters: str) -> FoundTicket | None:
    live = live_of(request)
    boards = [ledger.state.board for ledger in live.registry.ledgers.all(SERVER)]
    named = [board.id for board in boards if board.votes is not None and board.votes.tickets]
    return find_ticket(live.settings.token_secret, named, letters)


async def _form(request: Request, error: str = "", wait: int = 0) -> Response:
    """Show the form. `error` is a name in the words of the pages, and `wait` is in seconds."""
    visit = visit_of(request)
    status = HTTPStatus.OK if not error else HTTPStatus.TOO_MANY_REQUESTS if wait else HTTPStatus.FORBIDDEN
    headers = {**NOT_STORED, **({"Retry-After": str(wait)} if wait else {})}
    return await draw_alone(visit, "ticket.html", status, headers, error=error, wait=wait)


def _admit(request: Request, ticket: FoundTicket) -> Response:
    live = live_of(request)
    settings, ledger = live.settings, live.registry.ledgers.find(ticket.board, SERVER)
    opened = (ticket.board,) if ledger is not None and ledger.state.board.is_private else ()
    token, ends = sign_token(settings, opened, f"{LONGEST_TOKEN}s", None, (ticket.board,), ticket.voter)
    path = addresses({name: request.query_params[name] for name in ("lang", "theme") if name in request.query_params})
    return _redirect(request, path(f"{settings.root_path}/boards/{ticket.board}"), token, ends)


def admitting(page: Callable[[Request, _P], Awaitable[Response]]) -> Callable[[Request, _P], Awaitable[Response]]:
    """Let a page take `?token=`.

    If the token is valid, the response redirects to the address without it, even if there is no such board. With any
    other token, private boards stay closed, and the page says why.
    """

    @wraps(page)
    async def show(request: Request, query: _P) -> Response:
        token = query.token
        ends = math.inf if token is None else live_of(request).authenticator.token_reader(token.encode()).ends
        if token is None or math.isinf(ends):
            return await page(request, query)
        return _redirect(request, address_of(visit_of(request), "token"), token, ends)

    return show


def _redirect(request: Request, to: str, token: str, ends: float) -> Response:
    """Put a viewer token, which ends at a time in seconds, into a cookie, and redirect."""
    requester, root = requester_of(request), live_of(request).settings.root_path
    response = RedirectResponse(to, HTTPStatus.SEE_OTHER, NOT_STORED)
    age, own = max(0, int(ends - time.time())), requester.cookie_attributes(root, "lax")
    response.set_cookie(requester.cookie("token", root), token, max_age=age, **own)
    return response
