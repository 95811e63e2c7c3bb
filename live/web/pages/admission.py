"""Moves viewer tokens from the address of a page into a cookie, so that nobody shares them with the address."""

import time
from collections.abc import Awaitable, Callable
from functools import wraps
from http import HTTPStatus
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.web.http.responses import NOT_STORED
from live.web.pages.parameters import VisitParameters
from live.web.pages.rendering import address_of, visit_of
from live.web.services import live_of

_P = TypeVar("_P", bound=VisitParameters)


def admitting(page: Callable[[Request, _P], Awaitable[Response]]) -> Callable[[Request, _P], Awaitable[Response]]:
    """Let a page take `?token=`.

    If the token is valid, the response redirects to the address without it, even if there is no such board. With any
    other token, private boards stay closed, and the page says why.
    """

    @wraps(page)
    async def show(request: Request, query: _P) -> Response:
        token = query.token
        if token is None:
            return await page(request, query)
        live, visit = live_of(request), visit_of(request)
        reader = live.authenticator.token_reader(token.encode())
        if reader.ends is None:
            return await page(request, query)
        response = RedirectResponse(address_of(visit, "token"), HTTPStatus.SEE_OTHER, NOT_STORED)
        root_path = live.settings.root_path
        response.set_cookie(
            visit.client.cookie("token", root_path),
            token,
            max_age=max(0, int(reader.ends - time.time())),
            **visit.client.cookie_attributes(root_path, "lax"),
        )
        return response

    return show
