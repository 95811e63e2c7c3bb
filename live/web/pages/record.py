"""The page of one record: its rank and score, the records next to it, and how it came there."""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import key_fault
from live.domain.ranking import Page, Record
from live.domain.window import Periods
from live.errors import ProblemError
from live.store.board.ledger import Ledger
from live.store.board.read.slots import SlotValues, read_slots
from live.web.http.responses import negotiated, reply_of
from live.web.pages.ballot import given_of
from live.web.pages.charts import History, LineChart, RankEvent, TimeTick, events_of, line_of, time_ticks
from live.web.pages.language import Language, grouped
from live.web.pages.parameters import VisitParameters
from live.web.pages.rendering import format_of, render, takes_likes, visit_of
from live.web.pages.trends import trends_of
from live.web.pages.words import moment, moment_words, name_words, period_words, short
from live.web.reads.items import items_of

MOST_SLOTS: Final = 200

_LEAST_SLOTS: Final = 2
_LONG: Final = 100_000
_DIGITS: Final = 1000  # values below this number of steps have at most three digits that are not zero
_LETTER: Final = 0.62  # the width of a digit, of the size of the text


class Neighbour(msgspec.Struct, frozen=True):
    """The record before or after a record, and how far it is away."""

    record: Record
    gap: int


class Point(msgspec.Struct, frozen=True):
    """What a record had at the end of a slot. `start` is None for a period, which has only a name."""

    start: datetime | None
    name: str
    score: str
    rank: int | None
    is_open: bool


class Chart(msgspec.Struct, frozen=True):
    """The lines of a record on one time axis, and the same as a table, the oldest slot first.

    `has_sums` says that the scores are those of each slot alone. `width` is the room for the labels of the vertical
    axes, in parts of their size. `events` have what happened, the newest first.
    """

    points: Sequence[Point]
    score: LineChart | None
    ranks: LineChart | None
    has_sums: bool
    times: Sequence[TimeTick]
    width: str
    events: Sequence[RankEvent]


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
    page, slots = await asyncio.gather(ledger.reader.find(member, 1), read_slots(ledger.state, [member], MOST_SLOTS))
    if page is None:
        own, place, history = await _contestant(ledger, member), 0, History((), ())
        page = msgspec.structs.replace(await ledger.reader.read(1), records=())
    else:
        place = next(place for place, record in enumerate(page.records) if record.member == member)
        own = page.records[place]
        history = await live.histories.of(live.past, client, ledger, member, slots.slots)
    items = await items_of(live, (member, *(record.member for record in page.records)))
    trends = await trends_of(live, ledger, page, has_lines=False)
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
            ahead=_neighbour(page, place, -1),
            behind=_neighbour(page, place, 1),
            chart=chart_of(language, board, slots, history, own, int(time.time())),
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


def chart_of(
    language: Language, board: Board, slots: SlotValues, history: History, own: Record, now: int
) -> Chart | None:
    """Draw the chart of a record: the first member in `slots`. `now` is in seconds.

    Without steps from the journal, draw what the record had in each slot alone. Return None if there is no line,
    because fewer than two values are known.
    """
    window, shown, steps = board.window, history.slots, history.steps
    if all(step.rank is None for step in steps):
        steps = ()
    values = slots.values[0] if slots.values else None
    if len(shown) < _LEAST_SLOTS or (not steps and (values is None or shown != slots.slots)):
        return None
    has_sums = not steps and not (isinstance(window, Periods) and window.tables)
    scores = [*(step.score for step in steps), own.score] if steps else [*(values or ())]
    ranks = [*(step.rank for step in steps), own.rank] if steps else [None] * len(scores)
    first = next((at for at, known in enumerate(zip(scores, ranks, strict=True)) if known != (None, None)), len(scores))
    scores, ranks, times = scores[first:], ranks[first:], shown[first:]
    if len(scores) < _LEAST_SLOTS:
        return None
    if has_sums and board.operator == "incr":
        scores = [score or 0 for score in scores]
    start, end = times[0].start, max(times[-1].start + 1, min(now, times[-1].end))
    places = [100 * (slot.start - start) / (end - start) for slot in times] + [100.0]
    score_format = format_of(language, board, has_unit=False)

    def write(value: int, step: int) -> str:
        is_long = abs(value) >= _LONG and abs(value) < _DIGITS * step
        return short(language, value, score_format) if is_long else grouped(value, score_format)

    # An open slot is not over, so its sum is not comparable to the others.
    drawn = [*scores[:-1], None] if has_sums and board.operator == "incr" else scores
    low_best = board.sort_order == "asc"
    score_line = None if board.score is not None else line_of(drawn, places, write, 0, low_best=low_best)
    rank_line = line_of(ranks, places, lambda value, _: grouped(value), 1, low_best=True)
    if score_line is None and rank_line is None:
        return None
    labels = [tick.text for line in (score_line, rank_line) if line is not None for tick in line.ticks]
    points = [
        Point(
            None if isinstance(window, Periods) else moment(slot.start * 1000),
            period_words(language, window.unit, window.calendar.at(slot.start).name)
            if isinstance(window, Periods)
            else moment_words(language, moment(slot.start * 1000)),
            "" if board.score is not None or score is None else grouped(score, format_of(language, board)),
            rank,
            at == len(times) - 1,
        )
        for at, (slot, score, rank) in enumerate(zip(times, scores, ranks, strict=True))
    ]
    width = f"{max(len(label) for label in labels) * _LETTER:.1f}"
    return Chart(points, score_line, rank_line, has_sums, time_ticks(start, end), width, events_of(ranks))


def _neighbour(page: Page, place: int, step: int) -> Neighbour | None:
    """Return the record before or after the record at a place. Return None if there is no such record."""
    other = place + step
    if not 0 <= other < len(page.records):
        return None
    return Neighbour(page.records[other], page.records[place].score - page.records[other].score)
