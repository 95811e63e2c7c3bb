"""The HTML pages of boards. The server renders them with their records, so they are readable without JavaScript."""

import asyncio
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import key_fault, rfc3339
from live.domain.ranking import Page
from live.domain.reader import NOBODY, BoardScope
from live.domain.views import definition_tag
from live.domain.window import Periods
from live.errors import PROBLEMS, EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.subscription import MOST_WATCHED
from live.ingest.replies import Reply
from live.journal.past.history import read_history
from live.journal.past.rankings import read_reach
from live.network.hosts import is_own_name
from live.store.board.ledger import Ledger
from live.store.board.read.reader import Selection
from live.web.http.responses import as_problem, negotiated, problem_response, reply_of
from live.web.pages.ballot import Ballot, ballot_of
from live.web.pages.display_modes import Surface, problem_surface
from live.web.pages.followed import Followed, followed_of
from live.web.pages.language import Language
from live.web.pages.parameters import (
    LONGEST_SEARCH,
    EmbedParameters,
    IndexParameters,
    OverlayParameters,
    PageParameters,
    SurfaceParameters,
)
from live.web.pages.rendering import MOST_SIDES, Visit, render, site_of, takes_likes, visit_of
from live.web.pages.trends import NO_TRENDS, Trends, trends_of
from live.web.pages.words import period_words
from live.web.reads.boards import parts_of
from live.web.reads.items import items_of
from live.web.reads.records import find_records
from live.web.reads.search import LONGEST_PREFIX, MemberSearch, SearchPlace
from live.web.reads.sources import MOST_RECORDS, BoardPast, When, read_page

log = structlog.get_logger()

_MOST_CARDS: Final = 100  # boards on a page of the list
_CARD_SIZE: Final = 3  # records on each card
_STEPS: Final = (
    (-86_400, "day_earlier"), (-3600, "hour_earlier"), (-60, "minute_earlier"),
    (60, "minute_later"), (3600, "hour_later"), (86_400, "day_later"),
)  # fmt: skip
_HTML: Final = "html"
_MOST: Final = 8  # replies that are kept for one `Page`; they differ in language, theme and so on
_LONGEST_QUERY: Final = 256  # bytes; the links on the pages have shorter queries
_MOST_FOUND: Final = 10  # members that a page lists for a search
_SERVES: Final = 1.0  # seconds for which a reply is kept: its trends change with time, even if the board does not
# A page with one of these parameters is drawn for one request, and not kept for other requests.
_OWN: Final = frozenset({"as_of", "contestants", "find", "key", "start", "token"})


class ListPlace(msgspec.Struct, frozen=True):
    """A page of the list of boards: its number, how many pages there are, and the text that selects boards."""

    number: int
    pages: int
    search: str

    @property
    def has_form(self) -> bool:
        """Whether the page has a form to search. It has none if it shows all boards."""
        return self.pages > 1 or self.number > 1 or bool(self.search)


class Card(NamedTuple):
    """A board in the list, and the tag of its definition. `page` is None if the store does not answer."""

    board: Board
    definition: str
    page: Page | None = None
    trends: Trends = NO_TRENDS


class FoundMember(NamedTuple):
    """A member that a search found. `rank` is None for a contestant without votes."""

    member: str
    rank: int | None


class FoundMembers(NamedTuple):
    """The result of a search. `next_cursor` is None if all names were searched."""

    records: Sequence[FoundMember]
    next_cursor: str | None


class Link(msgspec.Struct, frozen=True):
    """A link to another period, another time, or other records of the board.

    `name` is the value of the parameter `period`, `as_of` or `start`. With `hidden`, the link is hidden until that
    period or those records exist.
    """

    rel: str
    name: str
    text: str
    hidden: bool = False


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A board on a page.

    With a `period` or `as_of`, the page shows the past and does not change. Other pages update live if they begin with
    the first record.

    `as_of` is the time in milliseconds since 1970, and `steps` are links to other times. `start` is the number of
    records before the first record of the page, and `ranges` are links to the records before and after, which keep the
    parameters in `kept`. `ballot` has what only contests show. `viewers` is the number of viewers in all processes,
    None if it is unknown. `key` is the member that the reader follows, and `place` its row, if it has none in `page`.
    """

    board: Board
    page: Page | None
    size: int
    period: str | None
    links: tuple[Link, ...]
    viewers: int | None
    key: str | None = None
    place: Followed | None = None
    trends: Trends = NO_TRENDS
    as_of: int | None = None
    steps: tuple[Link, ...] = ()
    start: int = 0
    ranges: tuple[Link, ...] = ()
    ballot: Ballot | None = None
    kept: Mapping[str, str] = {}

    @property
    def members(self) -> Iterator[str]:
        """All members on the page."""
        yield from (record.member for record in (self.page.records if self.page else ()))
        if self.place is not None:
            yield self.place.member
        if self.ballot is not None:
            yield from (record.member for record in (*self.ballot.contestants, *self.ballot.podium))

    @property
    def is_past(self) -> bool:
        """Whether the page shows a period or a time, and not the present."""
        return self.period is not None or self.as_of is not None

    @property
    def is_still(self) -> bool:
        """Whether the page stays as it is. Only a page of the first records at present updates live."""
        return self.is_past or self.start > 0


async def show_index(request: Request, query: IndexParameters) -> Response:
    """Show the list of boards.

    Each board has its first records, which update live. The most active boards come first.
    """
    visit = visit_of(request)
    live = visit.live
    key = ("index", visit.text, (visit.language.tag, visit.theme, live.hub.revision, visit.reader.opens))
    return negotiated(request, await live.drawings.of(visit.client.network, key, partial(_index, visit, query)))


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


class CacheKey(NamedTuple):
    """The key of a drawn page: everything on which the HTML depends besides the board and its viewers."""

    surface: Surface
    language: str
    theme: str | None
    rows: str
    query: bytes
    site: str
    needs_key: bool
    scopes: tuple[BoardScope, BoardScope] | None


class _Kept(NamedTuple):
    """A kept reply, with the number of viewers that it shows. It is valid `until` a time of `time.monotonic`."""

    reply: Reply
    viewers: int | None
    until: float


async def problem_page(visit: Visit, error: Exception) -> Response:
    """Return an error as a page, or as a problem document if there are no words for it.

    Raises:
        ProblemError: `overloaded`, when too many requests wait for a page.
    """
    problem: ProblemError = as_problem(error)
    status, code = PROBLEMS[problem.code].status, problem.code
    if f"problem: {code}" not in visit.language.table:
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return problem_response(problem)  # its sentence is better than words about another problem
        code = "store_unavailable" if status == HTTPStatus.SERVICE_UNAVAILABLE else "internal_error"
    surface = problem_surface(visit.path, visit.query)
    async with visit.live.drawings.turn(visit.client.network):
        says = {"parameter_invalid": problem.detail, "board_not_found": visit.reader.fault}.get(code, "")
        return await render(visit, "problem.html", status, surface=surface, code=code, says=says, near=problem.near)


async def _index(visit: Visit, query: IndexParameters) -> Reply:
    live, search, number = visit.live, query.q.strip(), query.page
    wanted = search.casefold()
    found = [
        ledger
        for ledger in live.ledgers(visit.reader)
        if wanted in ledger.state.board.id or wanted in ledger.state.board.title.casefold()
    ]

    found.sort(key=lambda ledger: -(ledger.baseline.per_minute or 0))  # this figure needs no call to the store

    async def card(ledger: Ledger) -> Card:
        board, definition = ledger.state.board, definition_tag(ledger.state.board)
        if board.union and board.is_private:  # show only the parts that the visitor may know
            board = msgspec.structs.replace(board, union=parts_of(board, live.registry.ledgers, visit.reader))
        try:
            page = await ledger.reader.read(_CARD_SIZE)
        except (StoreUnavailableError, EpochLostError) as error:  # the card is marked as stale
            _note(ledger, error)
            return Card(board, definition)
        return Card(board, definition, page, await trends_of(live, ledger, page, has_lines=False))

    shown = found[(number - 1) * _MOST_CARDS : number * _MOST_CARDS]
    boards = await live.over_boards(card, shown, visit.reader)
    items = await items_of(live, {record.member for one in boards if one.page for record in one.page.records})
    place = ListPlace(number, max(1, math.ceil(len(found) / _MOST_CARDS)), search)
    return reply_of(
        await render(
            visit, "index.html", items=items,
            boards=boards, size=_CARD_SIZE, place=place, longest=LONGEST_SEARCH,
        )
    )  # fmt: skip


def _size_of(wanted: SurfaceParameters, boards: int) -> int:
    """Return how many records of each board a page shows."""
    return wanted.limit or min(wanted.surface.size_of(boards), MOST_WATCHED)


async def _boards(visit: Visit, boards: str, wanted: SurfaceParameters) -> Reply:
    """Show boards by their ids."""
    live, ids = visit.live, boards.split(",")
    if len(ids) > MOST_SIDES or len(set(ids)) < len(ids):
        detail = f"up to {MOST_SIDES} boards can be shown side by side, each of them once"
        raise ProblemError("parameter_invalid", detail)
    ledgers = [await live.ledger(board, visit.reader) for board in ids]
    surface, size, when = wanted.surface, _size_of(wanted, len(ids)), wanted.when
    start = wanted.start if isinstance(wanted, PageParameters) and len(ids) == 1 else 0
    stretch = Stretch(surface, size, start, when)
    shown = await asyncio.gather(*(_show(visit, ledger, stretch) for ledger in ledgers))
    has_tools = len(ids) == 1 and surface.name == "page" and not shown[0].is_still
    has_find = has_tools or (
        len(ids) == 1 and surface.name == "page" and when.as_of is not None and when.period == "current"
    )
    found = await _find(visit, ledgers[0], when.as_of) if has_find else None
    page, viewers, cache_key = shown[0].page, shown[0].viewers, _cache_key(visit, surface)
    has_votes = any(one.ballot and one.ballot.given and one.ballot.given.is_own for one in shown)
    is_own = visit.reader.member is not None or has_votes or bool((_OWN | {"period"}) & visit.query.keys())
    if page is None or len(shown) > 1 or is_own:
        async with live.drawings.turn(visit.client.network):
            own = await _drawn(visit, surface, shown, found)
            return own.private if has_votes else own
    reply = _kept_reply(page, cache_key, viewers)
    if reply is None:
        async with live.drawings.turn(visit.client.network):
            reply = _kept_reply(page, cache_key, viewers)  # another request may have drawn the page meanwhile
            if reply is None:
                reply = await _drawn(visit, surface, shown)
                if len(cache_key.query) <= _LONGEST_QUERY:  # longer queries hardly ever repeat
                    kept = _kept(page)
                    if len(kept) >= _MOST:
                        del kept[next(iter(kept))]
                    kept[cache_key] = _Kept(reply, viewers, time.monotonic() + _SERVES)
                    page.made.keep(_HTML, kept, sum(one.reply.most_memory for one in kept.values()))
    return reply


def _cache_key(visit: Visit, surface: Surface) -> CacheKey:
    needs_key = visit.live.authenticator.needs_key(visit.client)
    scopes = None if visit.reader is NOBODY else (visit.reader.opens, visit.reader.likes)
    language = visit.language.tag
    return CacheKey(surface, language, visit.theme, visit.rows, visit.text, site_of(visit), needs_key, scopes)


def _kept_reply(page: Page, cache_key: CacheKey, viewers: int | None) -> Reply | None:
    """Find the reply that was made from a page up to a second ago, with the same number of viewers."""
    kept = _kept(page).get(cache_key)
    return kept.reply if kept is not None and kept.viewers == viewers and time.monotonic() < kept.until else None


def _kept(page: Page) -> dict[CacheKey, _Kept]:
    replies: dict[CacheKey, _Kept] = page.made.get(_HTML) or {}
    return replies


async def _find(visit: Visit, ledger: Ledger, as_of: int | None) -> FoundMembers | None:
    """Find the members that `find` asks for. Return None without `find`, or while the store is unavailable."""
    text = visit.query.get("find", "").strip()
    if not text:
        return None
    with suppress(StoreUnavailableError, EpochLostError):
        wanted = MemberSearch(text, _MOST_FOUND, SearchPlace(), None)
        found = await find_records(visit.live, ledger, visit.client.network, wanted)
        members = [FoundMember(record.member, record.rank) for record in found.records]
        if as_of is not None:
            # The journal has everything up to `as_of`, because `_show` waited for that when it read the page.
            past = await BoardPast.of(visit.live, ledger, visit.client.network)
            known = [
                member
                for member in dict.fromkeys([*(one.member for one in members), text])
                if key_fault(member) is None
            ]
            steps = await past.run(read_history, past.board, past.epoch, past.hidden, known, [as_of])
            then = [FoundMember(member, step.rank) for member, (step,) in zip(known, steps, strict=True)]
            members = sorted((one for one in then if one.rank is not None), key=lambda one: one.rank or 0)
        return FoundMembers(members, found.next_cursor or None)
    return None


async def _drawn(visit: Visit, surface: Surface, shown: Sequence[Shown], found: FoundMembers | None = None) -> Reply:
    live = visit.live
    status = HTTPStatus.OK if all(one.page for one in shown) else HTTPStatus.SERVICE_UNAVAILABLE
    curl = None
    if len(shown) == 1 and live.settings.role != "viewers":
        now, board = datetime.now(UTC).isoformat(timespec="seconds"), shown[0].board
        needs_key = board.is_private or live.authenticator.needs_key(visit.client)
        readable = [ledger.state.board for ledger in live.ledgers(visit.reader)] if board.union else [board]
        boards = {each.id: each for each in readable}
        curl = curl_of(boards, board, site_of(visit), now, needs_key=needs_key)
    likes = surface.name == "page" and any(takes_likes(one.board) for one in shown if not one.is_past)
    members = {member for one in shown for member in one.members}
    members |= {record.member for record in (found.records if found else ())}
    items = await items_of(live, members)
    return reply_of(
        await render(
            visit, "board.html", status, surface=surface, likes=likes, items=items, shown=shown, site=site_of(visit),
            most=MOST_RECORDS, curl=curl, has_past=live.past is not None, found=found,
            find=visit.query.get("find", "").strip(), longest=LONGEST_PREFIX,
            is_local=is_own_name(urlsplit(site_of(visit)).hostname or ""),
        )
    )  # fmt: skip


class Stretch(NamedTuple):
    """Which records of a board a page shows: how many (`size`), after how many others (`start`), and at which time."""

    surface: Surface
    size: int
    start: int
    when: When


async def _show(visit: Visit, ledger: Ledger, stretch: Stretch) -> Shown:
    """Read a board. While the store is unavailable, a page without `as_of` has no records, and is marked as stale.

    Raises:
        ProblemError: the time or the period is invalid, or no source has it.
        StoreUnavailableError, EpochLostError: the page has an `as_of`, and the store is unavailable.
    """
    live, language, board = visit.live, visit.language, ledger.state.board
    surface, size, start, when = stretch
    key = visit.query.get("key", visit.reader.member if surface.name == "page" else None)
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
            past = await BoardPast.of(live, ledger, visit.client.network)
            found = await past.page(when, what)
            steps = await _steps_from(language, past, when.as_of)
        else:
            found = await read_page(live, ledger, what, when, visit.client.network, is_counted=when.is_now)
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
    key = key if key is None or key_fault(key) is None else None
    place = None
    if key is not None and page is not None and when.as_of is None and start == 0:
        place = await followed_of(visit, ledger, key, when, page)
    return Shown(
        board=board,
        page=page,
        size=size,
        period=None if when.as_of is not None or when.is_now else str(when.period),
        links=_links_of(language, board, page, newest, is_now=when.is_now),
        viewers=viewers,
        key=key,
        place=place,
        start=start,
        ranges=_ranges_of(language, page, stretch),
        ballot=ballot,
        kept={name: visit.query[name] for name in ("limit", "period", "as_of", "key") if name in visit.query},
        trends=await trends_of(live, ledger, page) if when.is_now else NO_TRENDS,
        as_of=when.as_of,
        steps=steps,
    )


async def _steps_from(language: Language, past: BoardPast, as_of: int) -> tuple[Link, ...]:
    """Link from a time to other times that the journal has."""
    times = [as_of + seconds * 1000 for seconds, _ in _STEPS]
    reach = await past.run(read_reach, past.board, past.epoch, times)
    return tuple(
        Link("prev" if at < as_of else "next", rfc3339(at), language.translate(words))
        for (_, words), at, is_covered in zip(_STEPS, times, reach.covered, strict=True)
        if is_covered and at <= past.now
    )


def _ranges_of(language: Language, page: Page | None, stretch: Stretch) -> tuple[Link, ...]:
    """Link to the records before and after. On a live page, the second link is hidden while no records come after."""
    surface, size, start, when = stretch
    if surface.name != "page" or page is None:
        return ()

    def link(rel: str, first: int) -> Link:
        text = language.translate("page_range", first=first + 1, last=first + size)
        return Link(rel, str(first), text, rel == "next" and page.rank_count <= first)

    links = [link("prev", min(max(0, start - size), max(0, page.rank_count - 1) // size * size))] if start else []
    if page.rank_count > start + size or (start == 0 and when.is_now):
        links.append(link("next", start + size))
    return tuple(links)


def _links_of(
    language: Language, board: Board, page: Page | None, newest: int | None, *, is_now: bool
) -> tuple[Link, ...]:
    """Link from a period to its neighbours that are kept, and to the current period, which begins at `newest`."""
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


def curl_of(boards: Mapping[str, Board], board: Board, site: str, now: str, *, needs_key: bool) -> str | None:
    """Return the command that posts a first event to a board.

    Return None if no single event can start the board, because it is frozen, registers its members first or needs
    tickets. The event of a union goes to its first part. If that part is not among `boards`, also return None.

    `site` is the address of the server, and `now` the time of the event on boards that use the time of events.
    """
    target = boards.get(next(iter(board.union))) if board.union else board
    if (
        target is None
        or target.union
        or board.frozen
        or target.frozen
        or (target.votes is not None and (target.votes.registered or target.votes.tickets))
    ):
        return None
    event: dict[str, object] = {"board": target.id, "key": "Ada"}
    if target.score is not None:
        event["fields"] = {field.name: max(field.low, min(1, field.high)) for field in target.score.fields}
    if target.votes is not None:
        event["actor"] = "you"
    if target.clock == "event":
        event["time"] = now
    headers = ["Content-Type: application/json", *(["Authorization: Bearer <id>.<secret>"] if needs_key else [])]
    body = msgspec.json.encode(event).decode()
    options = [f"-H {shlex.quote(header)}" for header in headers]
    return " ".join(["curl", f"{site}/v1/events", *options, "-d", shlex.quote(body)])
