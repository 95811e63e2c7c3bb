"""Read a board: consecutive records, or the records of some members, each read at one instant."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count as count_from
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from live.domain.board import Board
from live.domain.ranking import Page, Record, position, ranks_of
from live.domain.window import Periods
from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.requests import LookupRequest, ReadRequest, View, view_of
from live.store.board.state import MOST_REPLANS, BoardState
from live.store.connection.client import Store
from live.store.connection.scripts import Script, text

_MOST_WORK: Final = 1500  # records in one call, which blocks the store for a millisecond or two
_WORK: Final = 20  # records: finding a member costs as much as reading this many
_UNCHANGED: Final = 2  # words of the reply if the board is at the known position
_AT_ONCE: Final = 2  # calls in flight, so that the store need not wait for us; more would delay other clients
HIGH: Final = 40  # bits of the lower part of a total
_DIGITS: Final = 4  # digits of the reign in the epoch that clients see
TAG: Final = 14  # the bytes that stand before the member in a name if the board breaks ties by time
PLACE: Final = 8  # the bytes that stand before the amount in the name of an event of a sliding window

Mode = Literal["rank", "after", "before", "around", "score"]
Wanted = tuple[str, int]  # a member, and how many neighbours on each side
_R = TypeVar("_R", bound=msgspec.Struct)
_KeysOf = Callable[["ReadPlan"], list[str]]


class Selection(NamedTuple):
    """Consecutive records of a ranking; `mode`, `number`, `name` and `limit` mean the same as in `ReadRequest`."""

    mode: Mode
    number: int
    name: str | bytes
    limit: int
    period: int | None = None  # the start of a period, if each has a ranking; None for the current one


class PageResult(NamedTuple):
    """A page of a board, from any source."""

    board: Board  # the definition by which it was read
    page: Page
    viewers: int | None = None  # the number of viewers that the board had in all processes, if they were counted
    as_of: int | None = None  # the time of a page of the past, in milliseconds since 1970
    revision: int | None = None  # of a final period from the archive

    @property
    def is_past(self) -> bool:
        """Whether this is a page of the past. Such a page does not change."""
        return self.as_of is not None or self.revision is not None


class ReadPlan(msgspec.Struct, frozen=True):
    """A plan of a read."""

    board: Board
    slot: int | None  # the start of the period that is read; it has no meaning if the board has no periods
    known: int  # the highest offset that was known before the request
    keys: list[str]  # the store keys that the script needs
    view: View
    ruled: str | None

    def read(self, selection: Selection, known: Page | None = None) -> ReadRequest:
        """Return a request for consecutive records; it reads none if the board is still at the position of `known`."""
        mode, number, name, limit, _ = selection
        return ReadRequest(
            view=self.view,
            ruled=self.ruled,
            mode=mode,
            number=number,
            name=name if isinstance(name, str) else text(name),
            limit=limit,
            epoch=None if known is None else known.epoch,
            offset=None if known is None else known.offset,
        )

    def fits(self, held: PageResult) -> bool:
        """Return whether an earlier reading has the definition and the period of this plan."""
        return held.board is self.board and held.page.slot == (self.slot if self.board.window.tables else None)

    def look_up(self, wanted: Sequence[Wanted]) -> LookupRequest:
        """Return a request for the records of members."""
        return LookupRequest(
            view=self.view,
            ruled=self.ruled,
            members=[member for member, _ in wanted],
            neighbours=[neighbours for _, neighbours in wanted],
        )


class EncodedPage(msgspec.Struct, frozen=True):
    """A member's record and neighbours as the store sent them. They are decoded only if they have changed."""

    head: list[Any]
    place: list[Any]
    board: Board
    period: int | None

    @property
    def position(self) -> tuple[str, int]:
        """The epoch and offset of the board when the page was read."""
        return self.head[0].decode(), int(self.head[1])

    def is_same(self, other: "EncodedPage") -> bool:
        """Return whether nothing but the offset and the total differs."""
        ours, theirs = self.head, other.head
        return ours[0] == theirs[0] and ours[2] == theirs[2] and self.place == other.place


class BoardReader:
    """Read a board."""

    def __init__(self, state: BoardState) -> None:
        self.state = state

    async def read(self, limit: int, *, start: int = 0, period: int | None = None) -> Page:
        """Read `limit` records from `start`. `period` is as in `Selection`."""
        return (await self.select(Selection("rank", start, "", limit, period))).page

    async def find(self, member: str, around: int) -> Page | None:
        """Read a member's record with `around` neighbours on each side; None when the member is not on the board."""
        page = (await self.select(Selection("around", around, member, 0))).page
        return page if page.records else None

    async def entrant(self, member: str) -> bytes | None:
        """Return the metadata (JSON) of a contestant; None if the member is not registered, or is hidden."""
        keys = self.state.keys
        metadata, is_hidden = await self.state.client.calls(
            [(keys.entrants, ("HGET", keys.entrants, member)), (keys.hidden, ("HEXISTS", keys.hidden, member))]
        )
        return None if is_hidden else metadata

    async def places(self, wanted: Sequence[Wanted]) -> list[EncodedPage]:
        """Return the records of members in the order of `wanted`, each with as many neighbours as `wanted` says.

        Each of a few calls reads at one instant, so the pages may have different positions.
        """
        chunks: list[list[Wanted]] = [[]]
        work = 0
        for member, neighbours in wanted:
            more = _WORK + 2 * neighbours
            if work + more > _MOST_WORK:
                chunks.append([])
                work = 0
            chunks[-1].append((member, neighbours))
            work += more
        found: list[EncodedPage] = []
        for first in range(0, len(chunks), _AT_ONCE):
            for pages in await asyncio.gather(*(self._places(chunk) for chunk in chunks[first : first + _AT_ONCE])):
                found += pages
        return found

    def page(self, encoded: EncodedPage) -> Page:
        """Decode a member's record with its neighbours. The page has no records if the member is not on the board."""
        return page_of([*encoded.head, *encoded.place, None], encoded.board, encoded.period)

    async def find_all(self, members: Sequence[str], around: int, *, period: int | None = None) -> list[Page | None]:
        """Return the page of each member, or None, all at one instant, with `around` neighbours on each side."""
        return [page if page.records else None for page in await self.find_pages(members, around, period=period)]

    async def find_pages(self, members: Sequence[str], around: int, *, period: int | None = None) -> list[Page]:
        """Return the same as `find_all`, but a page without records for a member that is not on the board."""
        return [self.page(encoded) for encoded in await self._places([(member, around) for member in members], period)]

    def plan(self, period: int | None = None) -> ReadPlan:
        """Return the plan to read the current period, or the period that starts at `period`."""
        state = self.state
        board, clock = state.board, state.planned()
        slot = clock.current if period is None else period
        table = state.table(slot)
        return ReadPlan(
            board=board,
            slot=slot,
            known=state.known,
            keys=[*table.order, state.keys.meta, state.keys.entrants if board.votes else table.metadata],
            view=view_of(board, table.suffix, clock if board.window.tables and period is None else None),
            ruled=state.ruled,
        )

    def is_answered(self, reply: list[Any], known: int) -> bool:
        """Return whether a reply has records. Else ask again: the clock or the rules have changed, or after a failover.

        `known` is the highest offset that was known before the request.
        """
        state = self.state
        if reply[0] == b"replan":
            state.update_clock(*reply[1:])
            return False
        if reply[0] in {b"reign", b"ruled"}:
            return False  # the next attempt checks the board, or opens it again
        state.check_epoch(reply[0])
        state.check_offset(reply[1], known)
        return True

    async def select(self, selection: Selection, held: PageResult | None = None) -> PageResult:
        """Read a selection. If the board is still at the position of `held`, an earlier result, return `held`."""

        def request(plan: ReadPlan) -> ReadRequest:
            return plan.read(selection, held.page if held is not None and plan.fits(held) else None)

        reply, plan = await self.run(self.state.scripts.read, request, selection.period)
        if held is not None and len(reply) == _UNCHANGED:
            return held
        return PageResult(plan.board, page_of(reply, plan.board, plan.slot))

    async def _places(self, wanted: Sequence[Wanted], period: int | None = None) -> list[EncodedPage]:
        reply, plan = await self.run(self.state.scripts.places, lambda plan: plan.look_up(wanted), period)
        *head, places = reply
        return [EncodedPage(head, place, plan.board, plan.slot) for place in places]

    async def run(
        self, script: Script[_R], request: Callable[[ReadPlan], _R], period: int | None, keys: _KeysOf | None = None
    ) -> tuple[list[Any], ReadPlan]:
        """Run a script that reads, with a request made from a plan. `keys` chooses other store keys than the plan."""
        state = self.state
        await state.open()
        for _ in range(MOST_REPLANS):
            plan = self.plan(period)
            reply = await state.run(script, keys(plan) if keys else plan.keys, request(plan))
            if self.is_answered(reply, plan.known):
                return reply, plan
        raise state.moved_too_often()


async def read_positions(client: Store, boards: Sequence[BoardReader]) -> list[tuple[str, int] | Exception]:
    """Read the position (epoch and offset) of each board in one round trip. A board that fails has an error instead."""
    metas = [board.state.keys.meta for board in boards]
    replies = await client.outcomes([(meta, ("HMGET", meta, "epoch", "offset", "reign", "edition")) for meta in metas])
    return [reply if isinstance(reply, Exception) else (_shown(*reply), int(reply[1] or 0)) for reply in replies]


def _shown(epoch: bytes | None, _offset: bytes | None, reign: bytes | None, edition: bytes | None) -> str:
    """Return an epoch as clients see it: as the scripts show it (see `lib/reign`)."""
    return ((epoch or b"") + (reign or b"")[:_DIGITS] + (b"e" + edition if edition else b"")).decode()


async def read_tops(client: Store, wanted: Sequence[tuple[BoardReader, int]]) -> list[Page | Exception]:
    """Read the tops of several boards, each of its own size, with one round trip. A board that fails has an error."""
    plans = [board.plan() for board, _ in wanted]
    commands = [
        (
            board.state.keys.meta,
            board.state.scripts.read.command(plan.keys, plan.read(Selection("rank", 0, "", size))),
        )
        for (board, size), plan in zip(wanted, plans, strict=True)
    ]
    replies = await client.outcomes(commands)
    pages: list[Page | Exception] = []
    for (board, size), plan, reply in zip(wanted, plans, replies, strict=True):
        try:
            if isinstance(reply, StoreUnavailableError):
                pages.append(reply)
            elif isinstance(reply, list) and board.state.epoch is not None and board.is_answered(reply, plan.known):
                pages.append(page_of(reply, plan.board, plan.slot))
            else:  # there is no page in the reply: read the board again, alone
                pages.append(await board.read(size))
        except (StoreUnavailableError, EpochLostError) as error:
            pages.append(error)
    return pages


def total_of(text: bytes) -> int:
    """Parse the total of all scores: a number, which `+` and a second number in units of 2^40 may follow."""
    low, _, high = text.partition(b"+")
    return int(low) + (int(high or 0) << HIGH)


def page_of(reply: list[Any], board: Board, period: int | None) -> Page:
    """Decode a reply into a page. `board` has the settings at the time of the request."""
    epoch, offset, count, total, start, rank, rows, metadata, registered = reply
    names, numbers = rows[::2], rows[1::2]
    try:
        scores = list(map(int, numbers))
    except ValueError:  # the store has written a whole number in another form
        scores = [int(float(number)) for number in numbers]
    members = list(map(bytes.decode, names if board.tags == "key" else [name[TAG:] for name in names]))
    first = int(start or 0)
    if board.bare and board.ranks == "ordinal":
        records = tuple(map(Record, members, scores, count_from(first + 1)))
    else:
        ranks = ranks_of(scores, int(rank or 0), first, board.ranks)
        records = tuple(records_of(board, members, scores, ranks, metadata or [None] * len(members), first))
    slot = period if board.window.tables else None
    return Page(
        epoch=epoch.decode(),
        offset=int(offset),
        rank_count=int(count),
        total_score=total_of(total) if board.packing is None else None,
        start=first,
        records=records,
        names=tuple(names),
        entrants=None if board.votes is None else registered,
        slot=slot,
        period=period_name(board, slot),
    )


def records_of(
    board: Board,
    members: Sequence[str],
    scores: Sequence[int],
    ranks: Sequence[int],
    metadata: Sequence[bytes | None],
    start: int,
) -> Iterator[Record]:
    """Yield the records of consecutive members. `start` is the number of records before the first member."""
    packing, is_bare = board.packing, board.bare and board.ranks == "ordinal"
    columns = zip(members, scores, ranks, metadata, strict=True)
    for place, (member, score, rank, described) in enumerate(columns, start + 1):
        yield Record(
            member,
            score,
            rank,
            UNSET if packing is None else packing.unpack(score),
            UNSET if described is None else msgspec.Raw(described),
            UNSET if is_bare else position(rank, place),
        )


def period_name(board: Board, start: int | None) -> str | None:
    """Return the name of the period that begins at `start`. Return None if the board has no periods."""
    if start is None or not isinstance(board.window, Periods):
        return None
    return board.window.calendar.at(start).name
