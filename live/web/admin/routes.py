"""The routes of the admin page, and their checks before a page is shown or changes anything."""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.settings import Settings
from live.web.admin import board, boards, events, health, keys, log, member, members, new_board, void
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form, require_token
from live.web.admin.sign_in import (
    cookie_of,
    require_own_form,
    require_page,
    show_sign_in,
    sign_in,
    sign_out,
    signed_in,
)
from live.web.http.forms import read_form
from live.web.http.responses import NOT_STORED
from live.web.pages.rendering import visit_of

_EXPECTED: Final = "send the fields of a form of the page, percent-encoded"
_MOST_FIELDS: Final = 40
_REFUSALS: Final = (ProblemError, StoreUnavailableError, EpochLostError)


async def _leave(desk: Desk, form: Form) -> Response:
    return await sign_out(desk.request, desk.producer, everywhere=form["act"] == "everywhere")


async def _home(desk: Desk, _error: Exception | None = None, _form: Form = NO_FORM) -> Response:
    return RedirectResponse(desk.path(""), 303, NOT_STORED)


_SIGN_OUT: Final = AdminPage(path="session/end", show=_home, acts={"out": _leave, "everywhere": _leave})

PAGES: Final[tuple[AdminPage, ...]] = (
    boards.PAGE, board.PAGE, new_board.PAGE, members.PAGE, member.PAGE, void.PAGE, events.PAGE,
    keys.PAGE,
    health.PAGE,
    log.PAGE, _SIGN_OUT,
)  # fmt: skip
"""All pages for administrators. Pages with a name are in the navigation, in this order."""


def admin_routes(settings: Settings) -> list[BaseRoute]:
    """List the routes of the admin page. Return no routes if the page is off."""
    if settings.admin_page == "off":
        return []
    routes: list[BaseRoute] = [Route("/admin/session", sign_in, methods=["POST"])]
    for page in PAGES:
        methods = ["GET", "POST"] if page.acts else ["GET"]
        routes.append(Route(f"/admin/{page.path}".rstrip("/"), partial(_serve, page), methods=methods))
    return routes


async def _serve(page: AdminPage, request: Request) -> Response:
    """Show a page to an administrator who is signed in, or run the act of its form.

    Show the sign-in form to anybody else.
    """
    require_page(request)
    if request.method == "POST":
        require_own_form(request)
    producer = await signed_in(request)
    if producer is None:
        return await show_sign_in(request)
    desk = Desk(request=request, visit=visit_of(request), producer=producer, cookie=cookie_of(request), pages=PAGES)
    form: Form = NO_FORM
    try:
        if page.needs_all_boards and desk.is_limited:
            raise ProblemError("scope_forbidden", "this page is about all boards, and the API key is limited to some")
        if request.method != "POST":
            return await page.show(desk)
        form = await read_form(request, page.most, _EXPECTED, _MOST_FIELDS)
        require_token(desk, form)
        if form.get("act") not in page.acts:
            raise ProblemError("malformed_body", _EXPECTED)
        return await page.acts[form["act"]](desk, form)
    except _REFUSALS as error:
        if form:
            try:
                return await page.show(desk, error, form)
            except _REFUSALS as another:
                error = another
        return await desk.show("problem", error)
