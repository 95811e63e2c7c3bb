"""Draws the pages of boards: each for one request, or once for all readers who share it."""

import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
from markupsafe import escape
from msgspec import UNSET
from starlette.datastructures import QueryParams

from live.domain.board import Board
from live.domain.item import Item
from live.domain.ranking import Page, Record
from live.domain.reader import NOBODY
from live.http.networks import is_own_name
from live.http.reply import Reply
from live.web.api.items import items_of
from live.web.api.records import LONGEST_PREFIX
from live.web.api.sources import MOST_RECORDS
from live.web.pages.likes import Ballot
from live.web.pages.parameters import Surface
from live.web.pages.rendering import Visit, addresses, is_closed, needs_ticket, render, site_of, takes_likes
from live.web.pages.rows import TableRows
from live.web.pages.trends import NO_TRENDS, Trends
from live.web.pages.words import trend_words

_ANYBODY: Final = secrets.token_hex(16)  # stands for the followed member in pages that are drawn for all who follow one


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


class Followed(NamedTuple):
    """The row of a member that the reader follows. `record` is None if it has no rank, and `gap` the words about it."""

    member: str
    record: Record | None = None
    gap: str = ""


class Shown(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A board on a page.

    With a `period` or `as_of`, the page shows the past and does not change. Other pages update live if they begin with
    the first record.

    `as_of` is the time in milliseconds since 1970, and `steps` are links to other times. `start` is the number of
    records before the first record of the page, and `ranges` are links to the records before and after, which keep the
    parameters in `kept`. `ballot` has what only contests show. `viewers` is the number of viewers in all processes,
    None if it is unknown. The reader follows `member`; `place` is its row, if it has none in `page`.
    """

    board: Board
    page: Page | None
    size: int
    period: str | None
    links: tuple[Link, ...]
    viewers: int | None
    member: str | None = None
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
    def has_metadata(self) -> bool:
        """Whether a record has metadata."""
        return self.page is not None and any(record.metadata is not UNSET for record in self.page.records)

    @cached_property
    def rising(self) -> Sequence[tuple[Record, int]]:
        """The records that rise fastest, each with its pace, on a page that updates live."""
        if self.page is None or self.is_still or is_closed(self.board):
            return ()
        return self.trends.rising(self.page.records)

    @property
    def is_past(self) -> bool:
        """Whether the page shows a period or a time, and not the present."""
        return self.period is not None or self.as_of is not None

    @property
    def is_still(self) -> bool:
        """Whether the page stays as it is. Only a page of the first records at present updates live."""
        return self.is_past or self.start > 0


class DrawnPage(Reply, frozen=True):
    """A drawn page, and the rows of its boards."""

    tables: Sequence[TableRows] = ()


async def draw_page(
    visit: Visit, surface: Surface, shown: Sequence[Shown], found: FoundMembers | None = None
) -> DrawnPage:
    """Draw a page of boards. `found` is the result of a search."""
    live = visit.live
    status = HTTPStatus.OK if all(one.page for one in shown) else HTTPStatus.SERVICE_UNAVAILABLE
    curl = None
    if len(shown) == 1 and live.settings.role != "viewers":
        now, board = datetime.now(UTC).isoformat(timespec="seconds"), shown[0].board
        needs_key = board.is_private or live.authenticator.needs_key(visit.requester)
        readable = [ledger.state.board for ledger in live.ledgers(visit.reader)] if board.union else [board]
        boards = {each.id: each for each in readable}
        curl = curl_of(boards, board, site_of(visit), now, needs_key=needs_key)
    likes = surface.name == "page" and any(takes_likes(one.board) for one in shown if not one.is_past)
    members = {member for one in shown for member in one.members}
    members |= {record.member for record in (found.records if found else ())}
    items = await items_of(live, members)
    tables = [_rows_of(visit, surface, one, items, "" if len(shown) == 1 else f"-{one.board.id}") for one in shown]
    reply = await render(
        visit, "board.html", status, surface=surface, likes=likes, items=items, shown=shown, site=site_of(visit),
        tables={table.board.id: table for table in tables}, most=MOST_RECORDS, curl=curl,
        has_past=live.past is not None, found=found, find=visit.query.get("find", "").strip(),
        longest=LONGEST_PREFIX, is_local=is_own_name(urlsplit(site_of(visit)).hostname or ""),
    )  # fmt: skip
    return DrawnPage(**msgspec.structs.asdict(reply), tables=tables)


async def shared_page(visit: Visit, surface: Surface, shown: Shown, page: Page) -> DrawnPage:
    """Return the page that was drawn up to a second ago for all readers, or else draw it."""
    board, reader = shown.board, visit.reader
    # Besides the query, the page depends on the state of the board, on how it looks, and on what the reader may know.
    state = (board.id, board.definition_tag, page.epoch, page.offset, page.slot, shown.viewers)
    looks = (surface, visit.language.tag, visit.theme, visit.rows)
    rights = (visit.live.authenticator.needs_key(visit.requester), reader is NOBODY, reader.opens, reader.likes)
    key = ("board", b"%b?%b" % (site_of(visit).encode(), visit.text), (state, looks, rights))
    return await visit.live.drawings.of(visit.requester.network, key, partial(draw_page, visit, surface, [shown]))


async def followed_page(visit: Visit, surface: Surface, shown: Shown, page: Page, member: str) -> Reply | None:
    """Make the page of a reader who follows a member of the page that all who follow one share.

    Return None if only the followed member has a picture, because then the other pages have no column for it.
    """
    query = QueryParams([(name, _ANYBODY if name == "key" else value) for name, value in visit.query.multi_items()])
    anybody = msgspec.structs.replace(
        shown, member=_ANYBODY, place=Followed(_ANYBODY), kept={**shown.kept, "key": _ANYBODY}
    )
    text = urlencode(query.multi_items()).encode()
    drawn = await shared_page(
        visit._replace(query=query, text=text), msgspec.structs.replace(surface, member=_ANYBODY), anybody, page
    )
    html, (table,), place = drawn.body.decode(), drawn.tables, shown.place
    items = {} if place is None else await items_of(visit.live, [member])
    if not table.has_pictures and any(item.image for item in items.values()):
        return None
    own = msgspec.structs.replace(table, own=member, items={**table.items, **items})
    first = page.records[0].score if page.records else 0
    pinned = "" if place is None else f"{own.pinned(member, place.record, place.gap, first)}\n"
    html = html.replace(f"{table.pinned(_ANYBODY, None, '', first)}\n", pinned, 1)
    for at in (at for at, record in enumerate(page.records) if record.member == member):
        html = html.replace(table.row(page.records, at), own.row(page.records, at), 1)
    for one in (one for one in (shown.ballot.contestants if shown.ballot else ()) if one.member == member):
        html = html.replace(table.voteless([one]), own.voteless([one]), 1)
    html = html.replace(f"key={_ANYBODY}", f"key={quote_plus(member)}").replace(_ANYBODY, escape(member))
    return msgspec.structs.replace(drawn, body=html.encode())


def _rows_of(visit: Visit, surface: Surface, shown: Shown, items: Mapping[str, Item], tail: str) -> TableRows:
    """Say how rows look. `tail` is the end of the ids of their section."""
    board, page = shown.board, shown.page
    is_linked = surface.name == "page" and not shown.is_past
    has_likes = is_linked and takes_likes(board) and not needs_ticket(visit.reader, board)
    given = None if shown.ballot is None else shown.ballot.given
    return TableRows(
        language=visit.language,
        root=visit.live.settings.root_path,
        suffix=addresses(visit.query)(""),
        board=board,
        items=items,
        trends=shown.trends,
        is_top=not shown.start,
        is_linked=is_linked,
        has_bars=board.packing is None and board.sort_order == "desc" and not shown.start,
        has_pictures=any(item.image for item in items.values()),
        span="" if board.packing or shown.is_past else trend_words(visit.language, board.window),
        own=shown.member,
        likes=f"likes{tail}" if has_likes else "",
        given=None if given is None else given.members,
        total=page.total_score if page is not None and board.votes is not None else None,
    )


def curl_of(boards: Mapping[str, Board], board: Board, site: str, now: str, *, needs_key: bool) -> str | None:
    """Return the command that posts a first event to a board, or for a union to its first part.

    Return None if no single event can start it: it is frozen, registers its members first, needs tickets, or is not
    among `boards`. `site` is the address of the server, and `now` the time of the event on boards that use the time of
    events.
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
    if target.packing is not None:
        event["fields"] = {field.name: max(field.low, min(1, field.high)) for field in target.packing.fields}
    if target.votes is not None:
        event["actor"] = "you"
    if target.clock == "event":
        event["time"] = now
    headers = ["Content-Type: application/json", *(["Authorization: Bearer <id>.<secret>"] if needs_key else [])]
    body = msgspec.json.encode(event).decode()
    options = [f"-H {shlex.quote(header)}" for header in headers]
    return " ".join(["curl", f"{site}/v1/events", *options, "-d", shlex.quote(body)])
