"""/t: the code of a ticket makes a browser the voter with this ticket."""

import time
from http import HTTPStatus
from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.auth.signing import LONGEST_TOKEN, sign_token
from live.auth.tickets import PROVEN, FoundTicket, find_ticket, letters_of
from live.domain.producer import guessing
from live.domain.reader import SERVER
from live.errors import ProblemError
from live.web.http.forms import read_form, require_own_page
from live.web.http.middleware import client_of
from live.web.http.responses import NOT_STORED
from live.web.pages.parameters import LookParameters
from live.web.pages.rendering import addresses, render, visit_of
from live.web.services import live_of

_MOST_BODY = 1000  # bytes


class TicketParameters(LookParameters, frozen=True, kw_only=True):
    """A ticket."""

    code: Annotated[str, Meta(description="The code.")] = ""


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
    guess = None if len(letters) == PROVEN else guessing(client_of(request).network)
    if guess is not None:
        try:
            await live.rate_limiter.admit(guess)
        except ProblemError as problem:
            return await _form(request, "ticket_wait", wait=problem.retry_after or 1)
    async with live.drawings.turn(client_of(request).network):  # with many boards, this takes milliseconds
        ticket = _find(request, letters)
    if ticket is None:
        return await _form(request, "ticket_unknown")
    if guess is not None:
        live.rate_limiter.give_back(guess)
    return _admit(request, ticket)


def _find(request: Request, letters: str) -> FoundTicket | None:
    live = live_of(request)
    boards = [ledger.state.board for ledger in live.registry.ledgers.all(SERVER)]
    named = [board.id for board in boards if board.votes is not None and board.votes.tickets]
    return find_ticket(live.settings.token_secret, named, letters)


async def _form(request: Request, error: str = "", wait: int = 0) -> Response:
    """Show the form. `error` is a name in the words of the pages, and `wait` is in seconds."""
    visit = visit_of(request)
    status = HTTPStatus.OK if not error else HTTPStatus.TOO_MANY_REQUESTS if wait else HTTPStatus.FORBIDDEN
    async with visit.live.drawings.turn(visit.client.network):
        page = await render(visit, "ticket.html", status, error=error, wait=wait)
    page.headers.update({**NOT_STORED, **({"Retry-After": str(wait)} if wait else {})})
    return page


def _admit(request: Request, ticket: FoundTicket) -> Response:
    """Put the viewer token of a ticket into a cookie, and redirect to its board."""
    live, client = live_of(request), client_of(request)
    settings, ledger = live.settings, live.registry.ledgers.find(ticket.board, SERVER)
    opened = (ticket.board,) if ledger is not None and ledger.state.board.is_private else ()
    length = f"{LONGEST_TOKEN}s"
    token, ends = sign_token(settings, opened, length, None, (ticket.board,), ticket.voter)
    path = addresses({name: request.query_params[name] for name in ("lang", "theme") if name in request.query_params})
    to = path(f"{settings.root_path}/boards/{ticket.board}")
    response = RedirectResponse(to, HTTPStatus.SEE_OTHER, NOT_STORED)
    age, own = max(0, int(ends - time.time())), client.cookie_attributes(settings.root_path, "lax")
    response.set_cookie(client.cookie("token", settings.root_path), token, max_age=age, **own)
    return response
