"""The page of one record: its score over the window, its rank, and its neighbours."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import key_fault
from live.domain.ranking import Page, Record
from live.domain.window import EVER, MOST_FOLDED, Periods
from live.errors import ProblemError
from live.store.board.ledger import Ledger
from live.store.board.read.slots import SlotValues, read_slots
from live.web.http.responses import negotiated, reply_of
from live.web.pages.ballot import given_of
from live.web.pages.charts import AxisTick, round_values
from live.web.pages.language import Language, grouped
from live.web.pages.parameters import VisitParameters
from live.web.pages.rendering import format_of, render, takes_likes, visit_of
from live.web.pages.trends import trends_of
from live.web.pages.words import moment, moment_words, name_words, period_words, window_words
from live.web.reads.items import items_of

NEIGHBOURS: Final = 5  # records on each side of the member
MOST_SLOTS: Final = 200

_LEAST_SLOTS: Final = 2
_PARTS: Final = 4  # parts into which grid lines divide the time of a chart


class Bar(msgspec.Struct, frozen=True):
    """The score in one slot of the window. `y` is the top of its bar, and `height` the height, on a scale of 100.

    `name` is the time or the period in words. `start` is None for a period.
    """

    start: datetime | None
    name: str
    score: str
    y: str
    height: str
    is_open: bool


class Chart(msgspec.Struct, frozen=True):
    """The scores in the slots of the window, the oldest first. `highest` is the highest score.

    `ticks` are values on the axis of scores. `marks` are the numbers of the bars that come right after a grid line.
    """

    title: str
    highest: str
    bars: Sequence[Bar]
    ticks: Sequence[AxisTick]
    marks: Sequence[int]


async def show_record(request: Request, query: VisitParameters) -> Response:  # noqa: ARG001 - the visit has it
    """Show one record.

    Shows the score of the member in each slot of the window, its rank and its neighbours. The page updates live.
    """
    visit = visit_of(request)
    live, client, language = visit.live, visit.client.network, visit.language
    ledger = await live.use(request.path_params["board"], visit.reader)
    board, member = ledger.state.board, request.path_params["key"]
    if key_fault(member) is not None:
        raise ProblemError("record_not_found", "no member can have this name")
    page, slots = await asyncio.gather(
        ledger.reader.find(member, NEIGHBOURS), read_slots(ledger.state, [member], MOST_SLOTS)
    )
    if page is None:
        own, place, ranks = await _contestant(ledger, member), 0, None
        page = msgspec.structs.replace(await ledger.reader.read(1), records=())
    else:
        place = next(place for place, record in enumerate(page.records) if record.member == member)
        own = page.records[place]
        ranks = await live.rank_charts.of(live.past, client, ledger, member, slots.slots, own.rank)
    items = await items_of(live, (member, *(record.member for record in page.records)))
    trends = await trends_of(live, ledger, page)
    given = await given_of(visit, ledger, [member], page.slot)
    async with live.drawings.turn(client):
        page_of_record = await render(
            visit,
            "record.html",
            items=items,
            board=board,
            page=page,
            record=own,
            item=items.get(member),
            name=items[member].title if member in items else name_words(language, member),
            ahead=_distance(page, place, -1),
            behind=_distance(page, place, 1),
            around=NEIGHBOURS,
            chart=chart_of(language, board, slots),
            ranks=ranks,
            trends=trends,
            likes=takes_likes(board),
            given=given,
        )
    reply = reply_of(page_of_record)
    return negotiated(request, reply.private if given is not None and given.is_own else reply)


async def _contestant(ledger: Ledger, member: str) -> Record:
    """Return the record of a contestant without votes.

    Raises:
        ProblemError: `record_not_found`.
    """
    metadata = await ledger.reader.entrant(member)
    if metadata is None:
        raise ProblemError("record_not_found", "the member has no score on the board now, or is hidden")
    return Record(member=member, score=0, rank=0, metadata=msgspec.Raw(metadata))


def chart_of(language: Language, board: Board, slots: SlotValues) -> Chart | None:
    """Draw the chart of the first member in `slots`.

    Return None without values, for a window of one slot, or if a score has several fields.
    """
    values = slots.values[0] if slots.values else None
    if board.score is not None or values is None or len(slots.slots) < _LEAST_SLOTS or EVER in slots.slots:
        return None
    empty = 0 if board.operator == "incr" else None
    scores = [empty if value is None else value for value in values]
    known = [score for score in scores if score is not None]
    top, low = max(0, *known, 0), min(0, *known, 0)
    scale = 100 / ((top - low) or 1)
    ticks = [AxisTick(value, f"{(top - value) * scale:.2f}") for value in round_values(low, top) if value <= top]
    window = board.window
    bars = [
        Bar(
            None if isinstance(window, Periods) else moment(slot.start * 1000),
            period_words(language, window.unit, window.calendar.at(slot.start).name)
            if isinstance(window, Periods)
            else moment_words(language, moment(slot.start * 1000)),
            grouped(score, format_of(language, board)),
            f"{(top - max(0, score or 0)) * scale:.2f}",
            f"{abs(score or 0) * scale:.2f}",
            place == len(scores) - 1,
        )
        for place, (slot, score) in enumerate(zip(slots.slots, scores, strict=True))
    ]
    if window.tables and len(bars) == MOST_SLOTS:
        title = language.translate("chart_newest", n=MOST_SLOTS)
    elif window.live > MOST_FOLDED:
        title = language.translate("chart_newest", n=MOST_FOLDED)
    else:
        title = language.translate("chart", window=window_words(language, board))
    marks = [round(len(bars) * part / _PARTS) for part in range(1, _PARTS)] if len(bars) >= _PARTS else []
    return Chart(title, grouped(max(known, default=None), format_of(language, board)), bars, ticks, marks)


def _distance(page: Page, place: int, step: int) -> int | None:
    """Return the points between a record and the one before or after it. Return None if there is no such record."""
    other = place + step
    if not 0 <= other < len(page.records):
        return None
    return abs(page.records[other].score - page.records[place].score)
