"""The HTML pages. The server renders them with their records, so they are readable without JavaScript."""

import asyncio
import hashlib
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from live.domain.board import Board
from live.domain.event import key_fault
from live.domain.ranking import Page
from live.domain.window import Periods
from live.errors import PROBLEMS, EpochLostError, ProblemError, StoreUnavailableError
from live.network.parameters import whole_number
from live.store.board.ledger import Ledger
from live.web.periods import period_of
from live.web.problems import as_problem
from live.web.security import EMBED_POLICY
from live.web.state import Live, assets, live_of
from live.web.words import (
    bar_width,
    gap_words,
    grouped,
    metadata_words,
    moment,
    moment_words,
    name_words,
    place_words,
    window_words,
)

log = structlog.get_logger()

_PAGE_SIZE: Final = 50
_SIDE_SIZE: Final = 20  # records per board, if a page shows several
_MOST_SIDES: Final = 6


class Link(msgspec.Struct, frozen=True):
    """A link to another period. `name` is the value for `?period=`. It is hidden until that period exists."""

    rel: str
    name: str
    text: str
    hidden: bool = False


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A board on a page. With a `period`, the page shows that period and does not change; without, it updates live.

    `viewers` is the number of viewers in all processes, None if it is unknown. `key` is the member whose rank the page
    shows, and `place` is that rank in words.
    """

    board: Board
    page: Page | None
    size: int
    period: str | None
    links: tuple[Link, ...]
    viewers: int | None
    key: str | None = None
    place: tuple[str, str] | None = None


@cache
def static_version() -> str:
    """A hash of all static files. It is part of their URLs, so browsers can cache them without a time limit."""
    digest = hashlib.sha256()
    folder = assets("static")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def make_templates(root: str) -> Environment:
    """The templates, with autoescaping. `root` is the root path of all links."""
    environment = Environment(
        loader=FileSystemLoader(assets("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["root"] = root
    environment.globals["static"] = lambda name: f"{root}/static/{static_version()}/{name}"
    environment.filters["words"] = window_words
    environment.filters["grouped"] = grouped
    environment.filters["moment"] = moment
    environment.filters["moment_words"] = moment_words
    environment.filters["metadata"] = metadata_words
    environment.filters["sides"] = sides
    environment.filters["name"] = name_words
    environment.globals.update(bar_width=bar_width, gap_words=gap_words)
    return environment


def sides(board: Board) -> str | None:
    """The path of the page that shows a union beside its parts; None without parts, or with too many."""
    return ",".join((board.id, *board.union)) if 0 < len(board.union) < _MOST_SIDES else None


async def index(request: Request) -> Response:
    """Show the list of boards, each with its first records."""
    live = live_of(request)
    ledgers = live.ledgers.values()
    pages = await asyncio.gather(*(_read(ledger, 3) for ledger in ledgers))
    boards = [(ledger.state.board, page) for ledger, page in zip(ledgers, pages, strict=True)]
    return _render(live, "index.html", boards=boards, theme=_theme(request))


async def board_page(request: Request) -> Response:
    """Show one board, or several side by side. The script continues from the rendered records."""
    return await _boards(request, "base.html")


async def embedded_board(request: Request) -> Response:
    """Show the same page without header and footer, for a frame on another page."""
    response = await _boards(request, "embed.html")
    response.headers["Content-Security-Policy"] = EMBED_POLICY
    return response


def problem_page(request: Request, error: Exception) -> Response:
    """An error as a page."""
    problem: ProblemError = as_problem(error)
    status, title = PROBLEMS[problem.code]
    return _render(live_of(request), "problem.html", status, title=title, detail=problem.detail)


async def _boards(request: Request, layout: str) -> Response:
    live = live_of(request)
    ids = request.path_params["board"].split(",")
    if len(ids) > _MOST_SIDES or len(set(ids)) < len(ids):
        raise ProblemError(
            "parameter_invalid", f"up to {_MOST_SIDES} boards can be shown side by side, each of them once"
        )
    ledgers = [live.ledgers[live.board(board).id] for board in ids]
    for ledger in ledgers:
        with suppress(StoreUnavailableError, EpochLostError):
            await ledger.state.use()
    most = live.settings.max_live_limit
    usual = min(_PAGE_SIZE if len(ids) == 1 else _SIDE_SIZE, most)
    size = whole_number(request.query_params, "limit", usual, 1, most)
    shown = await asyncio.gather(*(_show(request, ledger, size) for ledger in ledgers))
    status = HTTPStatus.OK if all(one.page for one in shown) else HTTPStatus.SERVICE_UNAVAILABLE
    return _render(live, "board.html", status, shown=shown, layout=layout, theme=_theme(request))


async def _show(request: Request, ledger: Ledger, size: int) -> Shown:
    """A board as the request selects it.

    Raises:
        ProblemError: the period is invalid, or is not kept.
    """
    name, key = request.query_params.get("period", "current"), request.query_params.get("key")
    page: Page | None = None
    viewers: int | None = None
    start: int | None = None
    links: tuple[Link, ...] = ()
    with suppress(StoreUnavailableError, EpochLostError):  # reported below
        await ledger.state.use()
    if name == "current":
        page, viewers = await asyncio.gather(_read(ledger, size), _count(live_of(request), ledger.state.board))
        links = _links_from_current(ledger.state.board, page)
    else:
        try:
            start = await period_of(request, ledger)
            page = await ledger.reader.read(size, period=start)
            links = _links_from(ledger.state.board, page, await ledger.reader.current())
        except (StoreUnavailableError, EpochLostError) as error:
            _note(ledger, error)
    period = None if name == "current" else name
    place = None
    if key is not None:
        place = ("not known", "") if page is None else await _place(ledger, key, start)
        key = key if key_fault(key) is None else None  # the script must not ask for an invalid key
    return Shown(
        board=ledger.state.board,
        page=page,
        size=size,
        period=period,
        links=links,
        viewers=viewers,
        key=key,
        place=place,
    )


async def _place(ledger: Ledger, key: str, period: int | None) -> tuple[str, str]:
    """The rank of a member in words. Packed scores have no gap."""
    try:
        page = await ledger.reader.find(key, 1, period=period)
    except (StoreUnavailableError, EpochLostError) as error:
        _note(ledger, error)
        return "not known", ""
    if page is None:
        return place_words(None, None)
    place = next(place for place, record in enumerate(page.records) if record.key == key)
    own = page.records[place]
    is_told = place > 0 and ledger.state.board.score is None
    return place_words(own.rank, abs(page.records[place - 1].score - own.score) if is_told else None)


def _links_from_current(board: Board, page: Page | None) -> tuple[Link, ...]:
    """The link to the previous period; it is hidden until the first period exists."""
    window = board.window
    if not isinstance(window, Periods) or not window.tables or not window.keep:
        return ()
    hidden = page is None or page.period is None
    return (Link("prev", "previous", f"Previous {window.unit}", hidden),)


def _links_from(board: Board, page: Page, newest: int | None) -> tuple[Link, ...]:
    """The links from a period to its neighbours that are kept, and to the current period."""
    window, start = board.window, page.slot
    if not isinstance(window, Periods) or start is None or newest is None:
        return ()
    calendar = window.calendar
    links = [Link("up", "current", f"Current {window.unit}, live")]
    if start > window.oldest(newest):
        name = calendar.before(calendar.at(start)).name
        links.insert(0, Link("prev", name, name))
    if start < newest:
        following = calendar.at(calendar.at(start).end)
        if following.start < newest:
            links.append(Link("next", following.name, following.name))
    return tuple(links)


async def _read(ledger: Ledger, limit: int) -> Page | None:
    """The top of a board, or None while the store is unavailable: the page is then marked as stale."""
    try:
        return await ledger.reader.read(limit)
    except (StoreUnavailableError, EpochLostError) as error:
        _note(ledger, error)
        return None


async def _count(live: Live, board: Board) -> int | None:
    """The number of viewers of a board, or None while the store is unavailable."""
    with suppress(StoreUnavailableError):
        return await live.presence.count(board.id)
    return None


def _theme(request: Request) -> str | None:
    """The theme that the address asks for; None for that of the system."""
    theme = request.query_params.get("theme")
    return theme if theme in {"light", "dark"} else None


def _note(ledger: Ledger, error: Exception) -> None:
    log.warning("serving a page without records", board=ledger.state.board.id, reason=str(error))


def _render(live: Live, template: str, status: int = HTTPStatus.OK, **values: object) -> HTMLResponse:
    html = live.templates.get_template(template).render(values)
    headers = {"Cache-Control": "no-cache"}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "2"
    return HTMLResponse(html, status, headers)
