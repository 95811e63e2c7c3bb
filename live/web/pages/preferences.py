"""POST /preferences: the theme, the language and the size of rows that a visitor chooses at the foot of a page.

Cookies keep these choices, so the server can draw each page accordingly.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.errors import ProblemError
from live.web.middleware import requester_of
from live.web.pages.language import TAGS
from live.web.parts import live_of
from live.web.requests import read_form, require_own_page
from live.web.responses import NOT_STORED

THEMES: Final = ("auto", "light", "dark")  # `auto` means the theme of the system
ROWS: Final = ("normal", "compact")
BACK: Final = r"/([!-.0-\[\]-~][!-\[\]-~]*)?"  # a path of this server, not `//other.example`

_CHOICES: Final = {"theme": THEMES, "lang": TAGS, "rows": ROWS}
_COOKIE: Final = "live-{}"
_COOKIE_AGE: Final = 400 * 86_400  # seconds; browsers keep no cookie for longer
_MOST_BODY: Final = 8192  # bytes


def preference(name: str, query: Mapping[str, str], cookies: Mapping[str, str]) -> str | None:
    """Return the `theme`, `lang` or `rows` that an address names, or else the visitor's earlier choice."""
    return query.get(name, cookies.get(_COOKIE.format(name)))


async def choose_preferences(request: Request) -> Response:
    """Choose the theme or the language of the pages.

    The form at the foot of each page uses this. Cookies remember the choice.
    """
    require_own_page(request)
    form = await read_form(request, _MOST_BODY, "send `theme`, `lang` or `rows`, and the page to return to as `back`")
    back = form.get("back", "")
    if not re.fullmatch(BACK, back):
        raise ProblemError("parameter_invalid", "`back` must be a path of this server, such as /boards/posts")
    response = RedirectResponse(back, HTTPStatus.SEE_OTHER, NOT_STORED)
    for name, choices in _CHOICES.items():
        if name not in form:
            continue
        if form[name] not in choices:
            raise ProblemError("parameter_invalid", f"`{name}` must be one of {', '.join(choices)}")
        response.set_cookie(
            _COOKIE.format(name),
            form[name],
            max_age=_COOKIE_AGE,
            path=live_of(request).settings.root_path or "/",
            secure=requester_of(request).scheme == "https",
            httponly=True,
            samesite="lax",
        )
    return response
