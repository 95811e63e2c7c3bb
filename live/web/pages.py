"""The pages: rendered whole on the server, with their records, so that they read well without script."""

import hashlib
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import Final

import structlog
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from live.board import Board
from live.errors import PROBLEMS, EpochLostError, ProblemError, StoreUnavailableError
from live.ranking import Page
from live.web.problems import as_problem
from live.web.security import EMBED_POLICY
from live.web.state import Live, assets, live_of
from live.window import Periods, Rolling, Sliding, Window

log = structlog.get_logger()

_PAGE_SIZE: Final = 50
_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@cache
def static_version() -> str:
    """A word that changes with any static file; part of their path, so that browsers may keep them for ever."""
    digest = hashlib.sha256()
    for path in sorted(assets("static").iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def span(seconds: int) -> str:
    """A length of time in words: `24 hours`, `90 seconds`."""
    for unit, name in _UNITS:
        if seconds % unit == 0 and (seconds // unit > 1 or unit in {1, 60, 3600}):
            count = seconds // unit
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    raise AssertionError("every whole number is a multiple of one")


def window_words(window: Window, period: str | None = None) -> str:
    """What a board covers, in words: `over the last 24 hours`, `week 2026-W47`."""
    match window:
        case Rolling(length) | Sliding(length):
            return f"over the last {span(length)}"
        case Periods(unit=unit, last=int(last)):
            return f"over the last {last} {unit}s"
        case Periods(unit=unit, timezone=timezone):
            return f"{unit} {period or ''} in {timezone}"
        case _:
            return "of all time"


def grouped(number: int | None) -> str:
    """A number with its thousands apart, as the page's script writes them too; none is a dash."""
    return "\u2013" if number is None else f"{number:,}"


def make_templates() -> Environment:
    """The templates, with everything escaped."""
    environment = Environment(
        loader=FileSystemLoader(assets("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["static"] = lambda name: f"/static/{static_version()}/{name}"
    environment.filters["words"] = window_words
    environment.filters["grouped"] = grouped
    return environment


async def index(request: Request) -> Response:
    """The list of boards, each with its leaders."""
    live = live_of(request)
    boards = [(board, await _read(live, board, 3)) for board in live.boards.by_id.values()]
    return _render(live, "index.html", boards=boards)


async def board_page(request: Request) -> Response:
    """One board; its script goes on from the records that it was rendered with."""
    return await _board(request, "base.html")


async def embedded_board(request: Request) -> Response:
    """One board without the site around it, for a frame on any other page."""
    response = await _board(request, "embed.html")
    response.headers["Content-Security-Policy"] = EMBED_POLICY
    return response


def problem_page(request: Request, error: Exception) -> Response:
    """A refusal, for people."""
    problem: ProblemError = as_problem(error)
    status, title = PROBLEMS[problem.code]
    return _render(live_of(request), "problem.html", status, title=title, detail=problem.detail)


async def _board(request: Request, layout: str) -> Response:
    live = live_of(request)
    board = live.board(request.path_params["board"])
    size = min(_PAGE_SIZE, live.settings.max_live_limit)
    with suppress(StoreUnavailableError, EpochLostError):
        await live.use(board.id)
    page = await _read(live, board, size)
    status = HTTPStatus.OK if page else HTTPStatus.SERVICE_UNAVAILABLE
    return _render(live, "board.html", status, board=board, page=page, size=size, layout=layout)


async def _read(live: Live, board: Board, limit: int) -> Page | None:
    """The top of a board, or None while the store is away: a page is then served as stale, not refused."""
    ledger = live.ledgers.get(board.id)
    if ledger is None:  # it was removed a moment ago
        return None
    try:
        return await ledger.read(limit)
    except (StoreUnavailableError, EpochLostError) as error:
        log.warning("a page is served without records", board=board.id, reason=str(error))
        return None


def _render(live: Live, template: str, status: int = HTTPStatus.OK, **values: object) -> HTMLResponse:
    html = live.templates.get_template(template).render(values)
    headers = {"Cache-Control": "no-cache"}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "2"
    return HTMLResponse(html, status, headers)
