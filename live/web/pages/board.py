"""The HTML pages. The server renders them with their records, so they are readable without JavaScript."""

import asyncio
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import key_fault, rfc3339
from live.domain.ranking import Page
from live.domain.window import Periods
from live.errors import PROBLEMS, EpochLostError, ProblemError, StoreUnavailableError
from live.ingest.replies import Reply
from live.network.parameters import time_of, whole_number
from live.store.board.ledger import Ledger
from live.store.board.read.reader import Selection
from live.store.board.read.single_flight import Watched
from live.web.http.middleware import client_of
from live.web.http.responses import as_problem, negotiated, reply_of
from live.web.kept_pages import cache_key_of, keep, kept_reply
from live.web.pages.language import Language
from live.web.pages.rendering import MOST_SIDES, language_for, render, takes_likes
from live.web.pages.sharing import site_of
from live.web.pages.surfaces import Surface, embed_of, overlay_of, page_of
from live.web.pages.trends import NO_TRENDS, Trends, trends_of
from live.web.pages.words import period_words, place_words
from live.web.periods import archived_period, period_of
from live.web.reads.history import archived_page, archived_record, past_top
from live.web.reads.items import items_of
from live.web.services import Live, live_of

log = structlog.get_logger()

MOST_PAGES: Final = 10**6  # of the list of boards
LONGEST_SEARCH: Final = 64  # characters

_MOST_CARDS: Final = 100  # boards on a page of the list
_CARD_SIZE: Final = 3  # records of each
_PAGE_SIZE: Final = 50
_STEPS: Final = (
    (-86_400, "day_earlier"), (-3600, "hour_earlier"), (-60, "minute_earlier"),
    (60, "minute_later"), (3600, "hour_later"), (86_400, "day_later"),
)  # fmt: skip
_SIDE_SIZE: Final = 20  # records per board, if a page shows several


class ListPlace(msgspec.Struct, frozen=True):
    """A page of the list of boards: its number, how many pages there are, and the text that selects boards."""

    number: int
    pages: int
    search: str

    @property
    def has_form(self) -> bool:
        """Whether the page has a form to search: not where all boards are on it."""
        return self.pages > 1 or self.number > 1 or bool(self.search)


class Link(msgspec.Struct, frozen=True):
    """A link to another period. `name` is the value for `?period=`. It is hidden until that period exists."""

    rel: str
    name: str
    text: str
    hidden: bool = False


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A board on a page. With a `period` or a time, the page shows that and does not change; without, it updates live.

    `as_of` is the time in milliseconds since 1970, and `steps` are links to other times. `viewers` is the number of
    viewers in all processes, None if it is unknown. `key` is the member whose rank the page shows, and `place` is that
    rank in words.
    """

    board: Board
    page: Page | None
    size: int
    period: str | None
    links: tuple[Link, ...]
    viewers: int | None
    key: str | None = None
    place: tuple[str, str] | None = None
    trends: Trends = NO_TRENDS
    as_of: int | None = None
    steps: tuple[Link, ...] = ()

    @property
    def is_still(self) -> bool:
        """Whether the page does not change."""
        return self.period is not None or self.as_of is not None


async def index(request: Request) -> Response:
    """Show a page of the list of boards, each with its first records."""
    live, language = live_of(request), language_for(request)
    key = ("index", request.scope["query_string"], (language.tag, live.hub.revision))
    return negotiated(request, await live.drawings.of(request, key, partial(_index, request)))


async def board_page(request: Request) -> Response:
    """Show one board, or several side by side. The script continues from the rendered records."""
    return negotiated(request, await reply_with_boards(request))


async def reply_with_boards(request: Request, top: Watched | Exception | None = None) -> Reply:
    """The reply with one board, or several. `top` is what was read of a single one already, or the error.

    Raises:
        ProblemError: a board does not exist, or a parameter is not valid.
    """
    return await _boards(request, page_of(request.query_params), top)


def page_size(query: Mapping[str, str], surface: Surface, boards: int, most: int) -> int:
    """How many records of each board a page shows.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    usual = min(surface.size or (_PAGE_SIZE if boards == 1 else _SIDE_SIZE), most)
    return whole_number(query, "limit", usual, 1, most)


async def embedded_board(request: Request) -> Response:
    """Show the same page without header and footer, for a frame on another page."""
    return negotiated(request, await _boards(request, embed_of(request.query_params)))


async def overlay(request: Request) -> Response:
    """Show only the rows, on a transparent background, for video software."""
    surface = overlay_of(request.query_params, live_of(request).settings.max_live_limit)
    return negotiated(request, await _boards(request, surface))


async def problem_page(request: Request, error: Exception) -> Response:
    """Return an error as a page.

    Raises:
        ProblemError: `overloaded`, when too many requests wait for a page.
    """
    problem: ProblemError = as_problem(error)
    status, code = PROBLEMS[problem.code].status, problem.code
    if f"problem: {code}" not in language_for(request).table:
        code = "store_unavailable" if status == HTTPStatus.SERVICE_UNAVAILABLE else "internal_error"
    async with live_of(request).drawings.turn(request):
        return await render(request, "problem.html", status, code=code, detail=problem.detail)


async def _index(request: Request) -> Reply:
    live, search = live_of(request), request.query_params.get("q", "")
    number = whole_number(request.query_params, "page", 1, 1, MOST_PAGES)
    if len(search) > LONGEST_SEARCH:
        raise ProblemError("parameter_invalid", f"`q` must have at most {LONGEST_SEARCH} characters")
    wanted = search.strip().casefold()
    found = [
        ledger
        for board, ledger in live.ledgers.items()
        if wanted in board or wanted in ledger.state.board.title.casefold()
    ]
    boards = await live.over_boards(_card, found[(number - 1) * _MOST_CARDS : number * _MOST_CARDS])
    items = await items_of(live, {record.key for _, page in boards if page for record in page.records})
    place = ListPlace(number, max(1, math.ceil(len(found) / _MOST_CARDS)), search.strip())
    return reply_of(
        await render(
            request, "index.html", items=items, has_forms=place.has_form,
            boards=boards, size=_CARD_SIZE, place=place, longest=LONGEST_SEARCH,
        )
    )  # fmt: skip


async def _card(ledger: Ledger) -> tuple[Board, Page | None]:
    """Read what the list of boards shows of one."""
    return ledger.state.board, await _read(ledger, _CARD_SIZE)


async def _boards(request: Request, surface: Surface, top: Watched | Exception | None = None) -> Reply:
    live = live_of(request)
    ids = request.path_params["board"].split(",")
    if len(ids) > MOST_SIDES or len(set(ids)) < len(ids):
        raise ProblemError(
            "parameter_invalid", f"up to {MOST_SIDES} boards can be shown side by side, each of them once"
        )
    ledgers = [live.ledgers[(await live.board(board)).id] for board in ids]
    for ledger in ledgers:
        with suppress(StoreUnavailableError, EpochLostError):
            await ledger.state.use()
    size = page_size(request.query_params, surface, len(ids), live.settings.max_live_limit)
    if "as_of" in request.query_params:
        shown = await asyncio.gather(*(_show_past(request, ledger, size) for ledger in ledgers))
    else:
        shown = await asyncio.gather(*(_show(request, ledger, size, top) for ledger in ledgers))
    page, viewers, cache_key = shown[0].page, shown[0].viewers, cache_key_of(request, surface)
    is_plain = len(shown) == 1 and not {"as_of", "key", "period"} & request.query_params.keys()
    if page is None or not is_plain:
        async with live.drawings.turn(request):
            return await _drawn(request, surface, shown)
    reply = kept_reply(page, cache_key, viewers)
    if reply is None:
        async with live.drawings.turn(request):
            reply = kept_reply(page, cache_key, viewers)  # another request may have drawn it meanwhile
            if reply is None:
                reply = keep(page, cache_key, viewers, await _drawn(request, surface, shown))
    return reply


async def _drawn(request: Request, surface: Surface, shown: Sequence[Shown]) -> Reply:
    status = HTTPStatus.OK if all(one.page for one in shown) else HTTPStatus.SERVICE_UNAVAILABLE
    curl = _curl(request, shown[0].board) if len(shown) == 1 else None
    site, most = site_of(request), live_of(request).settings.max_limit
    likes = surface.name == "page" and any(takes_likes(one.board) for one in shown if not one.is_still)
    items = await items_of(live_of(request), (record.key for one in shown if one.page for record in one.page.records))
    return reply_of(
        await render(
            request, "board.html", status, surface=surface, likes=likes, items=items,
            shown=shown, site=site, most=most, curl=curl, has_past=live_of(request).past is not None,
        )
    )  # fmt: skip


async def _show(request: Request, ledger: Ledger, size: int, top: Watched | Exception | None) -> Shown:
    """A board as the request selects it.

    Raises:
        ProblemError: the period is invalid, or is not kept.
    """
    name, key = request.query_params.get("period", "current"), request.query_params.get("key")
    live, language = live_of(request), language_for(request)
    page: Page | None = None
    viewers: int | None = None
    start: int | None = None
    archived: int | None = None
    links: tuple[Link, ...] = ()
    with suppress(StoreUnavailableError, EpochLostError):  # reported below
        await ledger.state.use()
    if name == "current":
        page, viewers = await _top(live, ledger, size, top)
        links = _links_from_current(language, ledger.state.board, page)
    else:
        try:
            archived = await archived_period(request.query_params, ledger, live.reads)
            if archived is None:
                start = await period_of(request.query_params, ledger, live.reads)
                page = await ledger.reader.read(size, period=start)
            else:
                page = (await archived_page(live, ledger, client_of(request).network, archived, 0, size)).page
            links = _links_from(language, ledger.state.board, page, await ledger.reader.current())
        except (StoreUnavailableError, EpochLostError) as error:
            _note(ledger, error)
    period = None if name == "current" else name
    place = None
    if key is not None:
        place = language.translate("place_unknown"), ""
        if page is not None:
            place = await _rank(request, ledger, key, start, archived)
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
        trends=NO_TRENDS if period else await trends_of(live, ledger, page),
    )


async def _show_past(request: Request, ledger: Ledger, size: int) -> Shown:
    """A board at a time. Raises as `past_top`."""
    found = await past_top(live_of(request), ledger, client_of(request).network, request.query_params, size)
    at, language, key = time_of(str(found.as_of), "as_of"), language_for(request), request.query_params.get("key")
    steps = [
        Link("prev" if seconds < 0 else "next", rfc3339(at + seconds * 1000), language.translate(words))
        for seconds, words in _STEPS
        if at + seconds * 1000 <= time.time() * 1000
    ]
    return Shown(
        board=found.board,
        page=found.page,
        size=size,
        period=None,
        links=(),
        viewers=None,
        key=key if key is None or key_fault(key) is None else None,
        as_of=at,
        steps=tuple(steps),
    )


def _curl(request: Request, board: Board) -> str | None:
    """The command that posts a first event to a board, as the client can run it; None if it can't."""
    live, now = live_of(request), datetime.now(UTC).isoformat(timespec="seconds")
    if live.settings.role == "viewers":
        return None
    needs_key = live.authenticator.needs_key(client_of(request))
    return curl_of(live.boards.by_id, board, site_of(request), now, needs_key=needs_key)


async def _rank(
    request: Request, ledger: Ledger, key: str, period: int | None, archived: int | None
) -> tuple[str, str]:
    """Say the rank of a member in a period, or in an archived one, in words. Packed scores have no gap."""
    live, language = live_of(request), language_for(request)
    try:
        if archived is None:
            page = await ledger.reader.find(key, 1, period=period)
        else:
            past = await archived_record(live, ledger, client_of(request).network, archived, key, 1)
            page = None if past is None else past.page
    except (StoreUnavailableError, EpochLostError) as error:
        _note(ledger, error)
        return language.translate("place_unknown"), ""
    if page is None:
        return place_words(language, None, None)
    place = next(place for place, record in enumerate(page.records) if record.key == key)
    own = page.records[place]
    has_gap = place > 0 and ledger.state.board.score is None
    return place_words(language, own.rank, abs(page.records[place - 1].score - own.score) if has_gap else None)


def _links_from_current(language: Language, board: Board, page: Page | None) -> tuple[Link, ...]:
    """The link to the previous period; it is hidden until the first period exists."""
    window = board.window
    if not isinstance(window, Periods) or not window.tables or not window.keep:
        return ()
    hidden = page is None or page.period is None
    return (Link("prev", "previous", language.translate(f"previous_{window.unit}"), hidden),)


def _links_from(language: Language, board: Board, page: Page, newest: int | None) -> tuple[Link, ...]:
    """The links from a period to its neighbours that are kept, and to the current period."""
    window, start = board.window, page.slot
    if not isinstance(window, Periods) or start is None or newest is None:
        return ()
    calendar = window.calendar
    links = [Link("up", "current", language.translate(f"current_{window.unit}"))]
    if start > window.oldest(newest):
        name = calendar.before(calendar.at(start)).name
        links.insert(0, Link("prev", name, period_words(language, window.unit, name)))
    if start < newest:
        following = calendar.at(calendar.at(start).end)
        if following.start < newest:
            links.append(Link("next", following.name, period_words(language, window.unit, following.name)))
    return tuple(links)


async def _read(ledger: Ledger, limit: int) -> Page | None:
    """The top of a board, or None while the store is unavailable: the page is then marked as stale."""
    try:
        return await ledger.reader.read(limit)
    except (StoreUnavailableError, EpochLostError) as error:
        _note(ledger, error)
        return None


async def _top(
    live: Live, ledger: Ledger, size: int, found: Watched | Exception | None
) -> tuple[Page | None, int | None]:
    """The top of a board with its viewers, unless it was found already.

    They are None while the store is unavailable: the page is then marked as stale.
    """
    if found is None:
        try:
            found = await live.reads.watch(ledger.reader, Selection("rank", 0, "", size))
        except (StoreUnavailableError, EpochLostError) as error:
            found = error
    if isinstance(found, Exception):
        _note(ledger, found)
        return None, None
    return found.reading.page, found.viewers


def _note(ledger: Ledger, error: Exception) -> None:
    log.warning("serving a page without records", board=ledger.state.board.id, reason=str(error))


def curl_of(boards: Mapping[str, Board], board: Board, site: str, now: str, *, needs_key: bool) -> str | None:
    """Return the command that posts a first event to a board.

    None if no single event can start the board: it is frozen, or registers its members first.

    `site` is the address of the server, and `now` the time of the event on boards that use the time of events.
    """
    target = boards[next(iter(board.union))] if board.union else board
    if target.union or board.frozen or target.frozen or (target.votes is not None and target.votes.registered):
        return None
    event: dict[str, object] = {"board": target.id, "key": "Ada"}
    if target.score is not None:
        event["fields"] = {field.name: field.high for field in target.score.fields}
    if target.votes is not None:
        event["actor"] = "you"
    if target.clock == "event":
        event["time"] = now
    headers = ["Content-Type: application/json", *(["Authorization: Bearer <id>.<secret>"] if needs_key else [])]
    body = msgspec.json.encode(event).decode()
    options = [f"-H {shlex.quote(header)}" for header in headers]
    return " ".join(["curl", f"{site}/v1/events", *options, "-d", shlex.quote(body)])
