"""The HTML pages of boards. The server renders them with their records, so they are readable without JavaScript."""

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import member_fault, rfc3339
from live.domain.item import Item
from live.domain.ranking import Page
from live.domain.window import Periods
from live.errors import PROBLEMS, EpochLostError, ProblemError, StoreUnavailableError
from live.http.reply import Reply
from live.journal.past.history import read_history
from live.journal.past.rankings import read_reach
from live.store.board.ledger import Ledger
from live.store.board.read.reader import Selection
from live.web.api.boards import parts_of
from live.web.api.items import items_of
from live.web.api.records import MemberSearch, find_records
from live.web.api.sources import BoardPast, When, read_page
from live.web.pages.drawing import (
    Followed,
    FoundMember,
    FoundMembers,
    Link,
    Shown,
    draw_page,
    followed_page,
    shared_page,
)
from live.web.pages.language import Language
from live.web.pages.likes import ballot_of
from live.web.pages.parameters import (
    LONGEST_SEARCH,
    EmbedParameters,
    IndexParameters,
    OverlayParameters,
    PageParameters,
    Surface,
    problem_surface,
)
from live.web.pages.rendering import MOST_SIDES, Visit, draw_alone, render, visit_of
from live.web.pages.rows import TableRows
from live.web.pages.trends import NO_TRENDS, Trends, trends_of
from live.web.pages.words import format_of, gap_words, period_words
from live.web.parts import search
from live.web.responses import as_problem, negotiated, problem_response

log = structlog.get_logger()

_MOST_CARDS: Final = 100  # boards on a page of the list
_CARD_SIZE: Final = 3  # records on each card
_STEPS: Final = (
    (-86_400, "day_earlier"), (-3600, "hour_earlier"), (-60, "minute_earlier"),
    (60, "minute_later"), (3600, "hour_later"), (86_400, "day_later"),
)  # fmt: skip
_MOST_FOUND: Final = 10  # members that a page lists for a search
# A page with one of these parameters is drawn for one request, and not kept for other requests.
_OWN: Final = frozenset({"as_of", "contestants", "find", "period", "token"})


class Card(NamedTuple):
    """A board in the list, and the tag of its definition. `page` is None if the store does not answer."""

    board: Board
    definition: str
    page: Page | None = None
    trends: Trends = NO_TRENDS


async def show_index(request: Request, query: IndexParameters) -> Response:
    """Show the list of boards.

    Each board has its first records, which update live. The most active boards come first.
    """
    visit = visit_of(request)
    live = visit.live
    key = ("index", visit.text, (visit.language.tag, visit.theme, visit.rows, live.hub.revision, visit.reader.opens))
    return negotiated(request, await live.drawings.of(visit.requester.network, key, partial(_index, visit, query)))


async def show_board(request: Request, query: PageParameters) -> Response:
    """Show a board, or several side by side.

    The page updates live.
    """
    return negotiated(request, await _boards(visit_of(request), request.path_params["board"], query))


async def embed_board(request: Request, query: EmbedParameters) -> Response:
    """Show a board in a frame of another page.

    Shows the page without header, footer and controls. The frame sends its height to the outer page, as a message
    `{"type": "live-board:height", "height": 480}`.
    """
    return negotiated(request, await _boards(visit_of(request), request.path_params["board"], query))


async def overlay_board(request: Request, query: OverlayParameters) -> Response:
    """Show only the rows, on a transparent background, for video software.

    The overlay has no controls. It says when it is not live.
    """
    return negotiated(request, await _boards(visit_of(request), request.path_params["board"], query))


async def problem_page(visit: Visit, error: Exception) -> Response:
    """Return an error as a page, or as a problem document if there are no words for it."""
    problem: ProblemError = as_problem(error)
    status, code = PROBLEMS[problem.code].status, problem.code
    if f"problem: {code}" not in visit.language.table:
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return problem_response(problem)  # its sentence is better than words about another problem
        code = "store_unavailable" if status == HTTPStatus.SERVICE_UNAVAILABLE else "internal_error"
    surface = problem_surface(visit.path, visit.query)
    says = {"parameter_invalid": problem.detail, "board_not_found": visit.reader.fault}.get(code, "")
    return await draw_alone(visit, "problem.html", status, {}, surface=surface, code=code, says=says, near=problem.near)


async def _index(visit: Visit, query: IndexParameters) -> Reply:
    live, text, number = visit.live, query.q.strip(), query.page
    found = search(live.ledgers(visit.reader), text)
    found.sort(key=lambda ledger: -(ledger.baseline.per_minute or 0))  # this figure needs no call to the store

    async def card(ledger: Ledger) -> Card:
        board, definition = ledger.state.board, ledger.state.board.definition_tag
        if board.union and board.is_private:  # show only the parts that the visitor may know
            parts = parts_of(board, live.registry.ledgers, visit.reader)
            board = msgspec.structs.replace(board, union=tuple(parts), weights=tuple(parts.values()))
        try:
            page = await ledger.reader.read(_CARD_SIZE)
        except (StoreUnavailableError, EpochLostError) as error:  # the card is marked as stale
            _note(ledger, error)
            return Card(board, definition)
        return Card(board, definition, page, await trends_of(live, ledger, page, has_lines=False))

    shown = found[(number - 1) * _MOST_CARDS : number * _MOST_CARDS]
    boards = await live.over_boards(card, shown, visit.reader)
    items = await items_of(live, {record.member for one in boards if one.page for record in one.page.records})
    return await render(
        visit, "index.html", items=items, boards=boards, size=_CARD_SIZE, longest=LONGEST_SEARCH,
        number=number, page_count=max(1, math.ceil(len(found) / _MOST_CARDS)), search=text,
        tables={one.board.id: _rows_of(visit, one, items) for one in boards},
    )  # fmt: skip


async def _boards(visit: Visit, boards: str, surface: Surface) -> Reply:
    live, ids = visit.live, boards.split(",")
    if len(ids) > MOST_SIDES or len(set(ids)) < len(ids):
        detail = f"up to {MOST_SIDES} boards can be shown side by side, each of them once"
        raise ProblemError("parameter_invalid", detail)
    ledgers = [await live.ledger(board, visit.reader) for board in ids]
    size, when = surface.size_of(len(ids)), surface.when
    start = surface.start if isinstance(surface, PageParameters) and len(ids) == 1 else 0
    shown = await asyncio.gather(*(_show(visit, ledger, surface, start, size) for ledger in ledgers))
    is_found = not shown[0].is_still or (when.as_of is not None and when.period == "current")
    has_find = len(ids) == 1 and surface.name == "page" and is_found
    found = await _find(visit, ledgers[0], when.as_of) if has_find else None
    has_votes = any(one.ballot and one.ballot.given and one.ballot.given.is_own for one in shown)
    is_own = visit.reader.member is not None or has_votes or not _OWN.isdisjoint(visit.query)
    if len(shown) == 1 and shown[0].page is not None and not is_own:
        if "key" not in visit.query:
            return await shared_page(visit, surface, shown[0], shown[0].page)
        if shown[0].member is not None:
            reply = await followed_page(visit, surface, shown[0], shown[0].page, shown[0].member)
            if reply is not None:
                return reply
    own = await live.drawings.draw(visit.requester.network, draw_page(visit, surface, shown, found))
    return own.private if has_votes else own


def _rows_of(visit: Visit, card: Card, items: Mapping[str, Item]) -> TableRows:
    return TableRows(
        language=visit.language,
        root=visit.live.settings.root_path,
        board=card.board,
        items=items,
        trends=card.trends,
        has_pictures=any(item.image for item in items.values()),
        total=card.page.total_score if card.page is not None and card.board.votes is not None else None,
    )


async def _find(visit: Visit, ledger: Ledger, as_of: int | None) -> FoundMembers | None:
    """Find the members that `find` asks for. Return None while the store is unavailable."""
    text = visit.query.get("find", "").strip()
    if not text:
        return None
    with suppress(StoreUnavailableError, EpochLostError):
        wanted = MemberSearch(text, _MOST_FOUND)
        found = await find_records(visit.live, ledger, visit.requester.network, wanted)
        members = [FoundMember(record.member, record.rank) for record in found.records]
        if as_of is not None:
            # The journal has everything up to `as_of`, because `_show` waited for that when it read the page.
            past = await BoardPast.of(visit.live, ledger, visit.requester.network)
            known = [
                member
                for member in dict.fromkeys([*(one.member for one in members), text])
                if member_fault(member) is None
            ]
            steps = await past.run(read_history, past.board, past.epoch, past.hidden, known, [as_of])
            then = [FoundMember(member, step.rank) for member, (step,) in zip(known, steps, strict=True)]
            members = sorted((one for one in then if one.rank is not None), key=lambda one: one.rank or 0)
        return FoundMembers(members, found.next_cursor or None)
    return None


async def _show(visit: Visit, ledger: Ledger, surface: Surface, start: int, size: int) -> Shown:
    """Read `size` records of a board, after `start` others.

    While the store is unavailable, a page without `as_of` has no records, and is marked as stale.
    """
    live, language, board = visit.live, visit.language, ledger.state.board
    when = surface.when
    member = visit.query.get("key", visit.reader.member if surface.name == "page" else None)
    page: Page | None = None
    viewers: int | None = None
    newest: int | None = None
    ballot = None
    steps: tuple[Link, ...] = ()
    with suppress(StoreUnavailableError, EpochLostError):  # reported below
        await ledger.state.use()
    try:
        what = Selection("rank", start, "", size)
        if when.as_of is not None:
            past = await BoardPast.of(live, ledger, visit.requester.network)
            found = await past.page(when, what)
            steps = await _steps_from(language, past, when.as_of)
        else:
            found = await read_page(live, ledger, what, when, visit.requester.network, is_counted=when.is_now)
        board, page, viewers = found[:3]
        if when.as_of is None and not when.is_now:
            newest = await live.reads.newest(ledger.reader)
        if surface.name in {"page", "wall"} and board.votes is not None and when.is_now:
            ballot = await ballot_of(visit, ledger, page, size if surface.name == "wall" else None)
    except (StoreUnavailableError, EpochLostError) as error:
        if when.as_of is not None:
            raise
        _note(ledger, error)
    # The script must not ask for a `key` that is no valid member.
    member = member if member is None or member_fault(member) is None else None
    place = None
    if member is not None and page is not None and when.as_of is None and start == 0:
        place = await _followed_of(visit, ledger, member, when, page)
    return Shown(
        board=board,
        page=page,
        size=size,
        period=None if when.as_of is not None or when.is_now else str(when.period),
        links=_links_of(language, board, page, newest, is_now=when.is_now),
        viewers=viewers,
        member=member,
        place=place,
        start=start,
        ranges=_ranges_of(language, page, surface, start, size),
        ballot=ballot,
        kept={name: visit.query[name] for name in ("limit", "period", "as_of", "key") if name in visit.query},
        trends=await trends_of(live, ledger, page) if when.is_now else NO_TRENDS,
        as_of=when.as_of,
        steps=steps,
    )


async def _followed_of(visit: Visit, ledger: Ledger, member: str, when: When, page: Page) -> Followed | None:
    """Read the row of a member that the reader follows. Return None if the page has it already, or it is unknown."""
    if any(record.member == member for record in page.records):
        return None
    try:
        around = Selection("around", 1, member, 0)
        records = (await read_page(visit.live, ledger, around, when, visit.requester.network)).page.records
    except (StoreUnavailableError, EpochLostError) as error:
        log.warning("serving a page without its followed member", board=ledger.state.board.id, reason=str(error))
        return None
    place = next((place for place, record in enumerate(records) if record.member == member), None)
    if place is None:
        return Followed(member)
    above, board = records[place - 1] if place else None, ledger.state.board
    score_format = format_of(visit.language, board)
    gap = "" if board.packing else gap_words(visit.language, records[place], above, None, score_format)
    return Followed(member, records[place], gap)


async def _steps_from(language: Language, past: BoardPast, as_of: int) -> tuple[Link, ...]:
    times = [as_of + seconds * 1000 for seconds, _ in _STEPS]
    reach = await past.run(read_reach, past.board, past.epoch, times)
    return tuple(
        Link("prev" if at < as_of else "next", rfc3339(at), language.translate(words))
        for (_, words), at, is_covered in zip(_STEPS, times, reach.covered, strict=True)
        if is_covered and at <= past.now
    )


def _ranges_of(language: Language, page: Page | None, surface: Surface, start: int, size: int) -> tuple[Link, ...]:
    """Link to the records before and after; on a live page, hide the second link while none come after."""
    if surface.name != "page" or page is None:
        return ()

    def link(rel: str, first: int) -> Link:
        text = language.translate("page_range", first=first + 1, last=first + size)
        return Link(rel, str(first), text, rel == "next" and page.rank_count <= first)

    links = [link("prev", min(max(0, start - size), max(0, page.rank_count - 1) // size * size))] if start else []
    if page.rank_count > start + size or (start == 0 and surface.when.is_now):
        links.append(link("next", start + size))
    return tuple(links)


def _links_of(
    language: Language, board: Board, page: Page | None, newest: int | None, *, is_now: bool
) -> tuple[Link, ...]:
    """Link to the neighbours that are kept, and to the current period, which begins at `newest`."""
    window, start = board.window, None if page is None else page.slot
    if not isinstance(window, Periods):
        return ()
    if is_now:  # link only to the previous period; the link is hidden until the first period exists
        hidden = page is None or page.period is None
        words = language.translate(f"previous_{window.unit}")
        return (Link("prev", "previous", words, hidden),) if window.tables and window.keep else ()
    if start is None or newest is None:
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


def _note(ledger: Ledger, error: Exception) -> None:
    log.warning("serving a page without records", board=ledger.state.board.id, reason=str(error))
