"""The parts that all pages for administrators share: who is signed in, the tokens of forms, and requests to the API.

A page is an `AdminPage`: a function that shows it, and a function for each act of its forms. Forms send to the address
of their page, with the name of the act and a token. After an act, the page is shown again.
"""

import hmac
import math
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlencode

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Message

from live.auth.requester import EXTENSION
from live.domain.producer import Principal
from live.domain.text import ScoreFormat
from live.errors import PROBLEMS, EpochLostError, ProblemError, StoreUnavailableError
from live.http.parameters import whole_number
from live.http.reply import as_problem
from live.store.board.ledger import Ledger
from live.web.api.admin import ACTING
from live.web.middleware import READER
from live.web.pages.language import grouped
from live.web.pages.rendering import Visit, draw_alone, site_of
from live.web.parts import Live
from live.web.responses import NOT_STORED

_T = TypeVar("_T")
_MOST_PAGES: Final = 10**6
_KEPT: Final = (b"x-request-id",)  # header fields that a page's request passes on to its requests to the API
_LARGE: Final = 10  # from here on, a figure has no digits after the point
_UNIT: Final = 1024


class ApiCall(msgspec.Struct, frozen=True):
    """A request to the API of this server: its method, its path below the root path as clients send it, and its JSON.

    A page carries out the request that it shows, which a person can also send with `curl`. So the routes of the API
    check each action and add its entry to the audit log.
    """

    method: str
    path: str
    body: Any = UNSET

    def curl(self, site: str) -> str:
        """Write the request as a command, with `$KEY` for the API key."""
        parts = ["curl", "-X", self.method, shlex.quote(f"{site}{self.path}"), '-H "Authorization: Bearer $KEY"']
        if self.body is not UNSET:
            body = shlex.quote(msgspec.json.encode(self.body).decode())
            parts += ["-H 'Content-Type: application/json'", f"-d {body}"]
        return " \\\n  ".join([" ".join(parts[:4]), *parts[4:]])

    async def send(self, request: Request, producer: Principal) -> Response:
        """Carry out the request for an administrator who is signed in."""
        body = b"" if self.body is UNSET else msgspec.json.encode(self.body)
        outer = request.scope
        path, _, query = self.path.partition("?")
        scope = {
            **outer,
            "method": self.method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [
                (b"content-type", b"application/json"),
                *((name, value) for name, value in outer["headers"] if name in _KEPT),
            ],
            "extensions": {**{name: outer["extensions"][name] for name in (EXTENSION, READER)}, ACTING: producer},
        }

        is_read = False

        async def receive() -> Message:
            nonlocal is_read
            if is_read:
                return await request.receive()  # this waits until the browser disconnects
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        for route in request.app.routes:
            match, found = route.matches(scope)
            if match is Match.FULL and isinstance(route, Route):
                response: Response = await route.endpoint(Request({**scope, **found}, receive))
                return response
        raise ProblemError("not_found", f"no process with this role takes {self.method} {path}")


Form = Mapping[str, str]
"""The fields of a form, without empty fields."""


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """The request of an administrator who is signed in.

    `cookie` proves the session, and `pages` are the pages in the navigation. `form` has the fields of the form that was
    sent. If its act failed, the page shows the form with its `error`.
    """

    request: Request
    visit: Visit
    producer: Principal
    cookie: str
    pages: tuple["AdminPage", ...]
    form: Form = {}
    error: Exception | None = None

    @property
    def live(self) -> Live:
        """The running parts of the process."""
        return self.visit.live

    def may(self, board: str) -> bool:
        """Tell whether the API key includes a board."""
        return self.producer.boards is None or board in self.producer.boards

    def ledgers(self) -> list[Ledger]:
        """Return the boards that the API key includes."""
        return [ledger for ledger in self.live.ledgers(self.visit.reader) if self.may(ledger.state.board.id)]

    def board_ids(self) -> list[str]:
        """Return the ids of these boards in alphabetical order."""
        return sorted(ledger.state.board.id for ledger in self.ledgers())

    async def ledger(self, board: str) -> Ledger:
        """Find a board that the API key includes."""
        self.producer.require_board(board)
        return await self.live.ledger(board, self.visit.reader)

    def score_format(self, board: str) -> ScoreFormat | None:
        """Say how people read scores of a board. Return None for whole numbers, and for a board that is gone."""
        ledger = self.live.registry.ledgers.find(board, self.visit.reader)
        return None if ledger is None else ledger.state.board.score_format

    async def send(self, call: ApiCall) -> bytes:
        """Carry out a request to the API for the administrator, and return the body of the response."""
        return bytes((await call.send(self.request, self.producer)).body)

    async def from_journal(self, read: Awaitable[_T]) -> tuple[_T | None, str]:
        """Await a read of the journal. If it fails, return None and the reason."""
        try:
            return await read, ""
        except ProblemError as problem:
            return None, problem.detail
        except (StoreUnavailableError, EpochLostError):
            return None, "the journal does not answer"

    def path(self, page: str) -> str:
        """Make the address of a page for administrators."""
        return f"{self.live.settings.root_path}/admin{f'/{page}' if page else ''}"

    def token(self, act: str, page: str | None = None) -> str:
        """Make the token of a form. It is bound to the session, the act, and the page, by default this one."""
        path = self.visit.path if page is None else f"/admin/{page}"
        return hmac.digest(self.cookie.encode(), f"{path} {act}".encode(), "sha256").hex()[:32]

    def done(self, act: str, page: str | None = None, **query: str) -> Response:
        """Redirect to a page after an act: by default to the same page, which then says that the act is done."""
        path = f"{self.live.settings.root_path}{self.visit.path}" if page is None else self.path(page)
        return RedirectResponse(f"{path}?{urlencode({'done': act, **query})}", HTTPStatus.SEE_OTHER, NOT_STORED)

    def page_of(self, rows: Sequence[_T], size: int) -> tuple[Sequence[_T], int, int]:
        """Return the rows of the page that the query names, the number of this page, and the number of pages."""
        number = whole_number(self.visit.query.get("page", "1"), "page", 1, _MOST_PAGES)
        return rows[(number - 1) * size : number * size], number, max(1, math.ceil(len(rows) / size))

    async def show(self, template: str, **values: Any) -> Response:  # noqa: ANN401 - what the template takes
        """Show a page, with the status of the error that it shows."""
        problem, site, done = None if self.error is None else as_problem(self.error), site_of(self.visit), ""
        if problem is None and f"admin_done_{self.visit.query.get('done')}" in self.visit.language.table:
            done = f"admin_done_{self.visit.query['done']}"
        return await draw_alone(
            self.visit,
            f"admin/{template}.html",
            HTTPStatus.OK if problem is None else PROBLEMS[problem.code].status,
            desk=self,
            problem=problem,
            done=done,
            curl=lambda call: call.curl(site),
            figure=figure,
            size=size_words,
            as_json=lambda value: msgspec.json.encode(value).decode(),
            **values,
        )


class AdminPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page for administrators."""

    path: str  # its path below `/admin/`; may have parameters
    # Its name in the navigation, `admin_page_<name>` in the words; empty for a page that the navigation does not show.
    name: str = ""
    show: Callable[[Desk], Awaitable[Response]]  # the function that shows the page
    # The functions of its forms, by name. Each returns a redirect, mostly `Desk.done`.
    acts: Mapping[str, Callable[[Desk], Awaitable[Response]]] = {}
    needs_all_boards: bool = False  # whether only an API key for all boards may open it
    most: int = 16_384  # the maximum number of bytes of a form


def require_token(desk: Desk) -> None:
    """Check that a form was sent from a page of this session, and for the act that the page offered."""
    act = desk.form.get("act", "")
    token = desk.form.get(f"token_{act}", desk.form.get("token", ""))  # a form with several acts has a token for each
    if not hmac.compare_digest(token.encode(), desk.token(act).encode()):
        raise ProblemError(
            "origin_forbidden", "the form is from an earlier session or another page; load the page again"
        )


def board_path(board: str, member: str | None = None) -> str:
    """Make the path of a board, or of the record of a member, in the API."""
    return f"/v1/boards/{board}" + ("" if member is None else f"/records/{quote(member, safe='')}")


def item_path(member: str) -> str:
    """Make the path of the title of a member in the API."""
    return f"/v1/items/{quote(member, safe='')}"


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
