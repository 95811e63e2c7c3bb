"""The parts that all pages for administrators share: who is signed in, the tokens of forms, and showing a page.

A page is one module with an `AdminPage`: a function that shows it, and a function for each act of its forms. Forms send
to the address of their page, with the name of the act and a token. After an act, the page is shown again.
"""

import hmac
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from live.domain.producer import Principal
from live.domain.score_format import ScoreFormat
from live.errors import PROBLEMS, ProblemError
from live.ingest.replies import as_problem
from live.network.parameters import whole_number
from live.store.board.ledger import Ledger
from live.web.admin.calls import ApiCall
from live.web.http.responses import NOT_STORED
from live.web.pages.language import grouped
from live.web.pages.rendering import Visit, render, site_of
from live.web.services import Live

_T = TypeVar("_T")
_MOST_PAGES: Final = 10**6


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """The request of an administrator who is signed in.

    `cookie` proves the session, and `pages` are the pages in the navigation.
    """

    request: Request
    visit: Visit
    producer: Principal
    cookie: str
    pages: tuple["AdminPage", ...]

    @property
    def live(self) -> Live:
        """The running parts of the process."""
        return self.visit.live

    @property
    def who(self) -> str:
        """The id of the API key."""
        return self.producer.id

    @property
    def is_limited(self) -> bool:
        """Whether the API key is limited to some boards."""
        return self.producer.is_limited

    def may(self, board: str) -> bool:
        """Tell whether the API key includes a board."""
        return self.producer.boards is None or board in self.producer.boards

    def ledgers(self) -> list[Ledger]:
        """Return the boards that the API key includes.

        Raises:
            StoreUnavailableError: the API keys can't be checked now.
        """
        return [ledger for ledger in self.live.ledgers(self.visit.reader) if self.may(ledger.state.board.id)]

    async def ledger(self, board: str) -> Ledger:
        """Find a board that the API key includes.

        Raises:
            ProblemError: `scope_forbidden` or `board_not_found`.
        """
        self.producer.require_board(board)
        return await self.live.ledger(board, self.visit.reader)

    def score_format(self, board: str) -> ScoreFormat | None:
        """Say how people read scores of a board. Return None for whole numbers, and for a board that is gone."""
        ledger = self.live.registry.ledgers.find(board, self.visit.reader)
        return None if ledger is None else ledger.state.board.score_format

    async def send(self, call: ApiCall) -> Response:
        """Carry out a request to the API for the administrator.

        Raises the errors of the route that answers the request.
        """
        return await call.send(self.request, self.producer)

    def path(self, page: str) -> str:
        """Make the address of a page for administrators."""
        return f"{self.live.settings.root_path}/admin{f'/{page}' if page else ''}"

    def token(self, act: str, page: str | None = None) -> str:
        """Make the token of a form, by default on this page.

        The token is bound to the session, to the address of the page and to the act.
        """
        path = self.visit.path if page is None else f"/admin/{page}"
        return hmac.digest(self.cookie.encode(), f"{path} {act}".encode(), "sha256").hex()[:32]

    def done(self, act: str, page: str | None = None, **query: str) -> Response:
        """Redirect to a page after an act: by default to the same page, which then says that the act is done."""
        path = f"{self.live.settings.root_path}{self.visit.path}" if page is None else self.path(page)
        return RedirectResponse(self.address(path, done=act, **query), HTTPStatus.SEE_OTHER, NOT_STORED)

    def address(self, path: str, **query: str) -> str:
        """Make an address with a query."""
        return f"{path}?{urlencode(query)}" if query else path

    def page_of(self, rows: Sequence[_T], size: int) -> tuple[Sequence[_T], int, int]:
        """Return the rows of the page that the query names, the number of this page, and the number of pages.

        Raises:
            ProblemError: `parameter_invalid`.
        """
        number = whole_number(self.visit.query.get("page", "1"), "page", 1, _MOST_PAGES)
        return rows[(number - 1) * size : number * size], number, max(1, math.ceil(len(rows) / size))

    async def show(
        self,
        template: str,
        error: Exception | None = None,
        status: int = HTTPStatus.OK,
        **values: Any,  # noqa: ANN401 - what the template takes
    ) -> Response:
        """Show a page. `error` is the error of an act: the page shows it, and has its status."""
        problem, site, done = None if error is None else as_problem(error), site_of(self.visit), ""
        if problem is None and f"admin_done_{self.visit.query.get('done')}" in self.visit.language.table:
            done = f"admin_done_{self.visit.query['done']}"
        async with self.live.drawings.turn(self.visit.client.network):
            response = await render(
                self.visit,
                f"admin/{template}.html",
                status if problem is None else PROBLEMS[problem.code].status,
                desk=self,
                problem=problem,
                done=done,
                curl=lambda call: call.curl(site),
                figure=figure,
                size=size_words,
                as_json=as_json,
                **values,
            )
        response.headers.update(NOT_STORED)
        return response


Form = Mapping[str, str]
"""The fields of a form, without empty fields."""

_LARGE: Final = 10  # from here on, a figure has no digits after the point
_UNIT: Final = 1024
NO_FORM: Final[Form] = {}
Act = Callable[[Desk, Form], Awaitable[Response]]


class AdminPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page for administrators.

    Attributes:
        path: its path below `/admin/`; may have parameters.
        name: its name in the navigation, `admin_page_<name>` in the words; empty for a page that the navigation does
            not show.
        show: the function that shows the page. After an act that failed, it gets the error and the form.
        acts: the functions of its forms, by name. Each returns a redirect, mostly `Desk.done`.
        needs_all_boards: whether only an API key for all boards may open it.
        most: the maximum number of bytes of a form.
    """

    path: str
    name: str = ""
    show: Callable[..., Awaitable[Response]]
    acts: Mapping[str, Act] = {}
    needs_all_boards: bool = False
    most: int = 16_384


def require_token(desk: Desk, form: Form) -> None:
    """Check that a form was sent from a page of this session, and for the act that the page offered.

    Raises:
        ProblemError: `origin_forbidden`.
    """
    act = form.get("act", "")
    token = form.get(f"token_{act}", form.get("token", ""))  # a form with several acts has a token for each
    if not hmac.compare_digest(token.encode(), desk.token(act).encode()):
        raise ProblemError(
            "origin_forbidden", "the form is from an earlier session or another page; load the page again"
        )


def figure(number: float) -> str:
    """Write a number with at most one digit after the point."""
    return grouped(round(number)) if number >= _LARGE or number == round(number) else f"{number:.1f}"


def size_words(size: int) -> str:
    """Write a number of bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _UNIT or unit == "GiB":
            break
        size = -(-size // _UNIT)
    return f"{grouped(size)} {unit}"


def as_json(value: object) -> str:
    """Write a value as JSON."""
    return msgspec.json.encode(value).decode()
