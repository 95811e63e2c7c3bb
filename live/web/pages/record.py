"""The page of one record: its rank and score, the records next to it, and the lines of its score and its rank."""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.board import Board
from live.domain.event import member_fault
from live.domain.ranking import Page, Record
from live.domain.window import EVER, Periods, Slot
from live.errors import EpochLostError, ProblemError, SetupError, StoreUnavailableError
from live.http.reply import Reply
from live.journal.past.history import read_history
from live.journal.past.queries import NoPastError, Step
from live.journal.past.rankings import read_reach
from live.store.board.ledger import Ledger
from live.store.board.read.slots import SlotValues, read_slots
from live.web.api.items import items_of
from live.web.api.records import find_contestant
from live.web.api.sources import BoardPast
from live.web.pages.language import Language, grouped
from live.web.pages.likes import given_of
from live.web.pages.parameters import VisitParameters
from live.web.pages.rendering import render, takes_likes, visit_of
from live.web.pages.trends import trends_of
from live.web.pages.words import format_of, moment, moment_words, name_words, period_words, short
from live.web.parts import Live
from live.web.responses import negotiated

MOST_SLOTS: Final = 200

_LEAST_SLOTS: Final = 2
_LONG: Final = 100_000
_DIGITS: Final = 1000  # values below this number of steps have at most three digits that are not zero
_LETTER: Final = 0.62  # the width of a digit, of the size of the text
_PATIENCE: Final = 0.5  # seconds; after this, the page is shown without the chart
_KEPT: Final = 1000  # results that a process remembers; it forgets the oldest first
_MOST_STEPS: Final = 4  # maximum number of steps between the lowest and the highest value of an axis
_TOP: Final = 10
_LEAST_MOVE: Final = 3  # ranks; a smaller move is not listed
_MOST_EVENTS: Final = 6  # changes of a record that are listed; as many as `KEPT` in `stories.js`
_MARGIN: Final = 5  # percent of a chart above the best and below the worst value
_DAY: Final = 86_400  # seconds
_LENGTHS: Final = (10, 30, 60, 300, 900, 1800)  # seconds of a slot, where the window has none
_MOST_RECENT: Final = 60  # such slots
_TIMES: Final = (  # steps of the time axis in seconds, with the form of its labels
    *((seconds, "clock") for seconds in (60, 300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)),
    *((days * _DAY, "day") for days in (1, 2, 7, 14, 28, 56)),
    *((days * _DAY, "month") for days in (91, 182, 365, 730, 3650)),
)
_MOST_TIMES: Final = 5
_LAST_TIME: Final = 0.88  # a label beyond this part of the axis would touch "now"


class AxisTick(NamedTuple):
    """A value on an axis in words, and its place in percent from the top."""

    text: str
    y: str


class TimeTick(NamedTuple):
    """A time on the axis in seconds since 1970, its place in percent from the start, and the form of its label."""

    time: int
    x: str
    form: str


class RankEvent(NamedTuple):
    """A change in the history of a record: the number of its slot, and the name of its sentence in the words."""

    slot: int
    name: Literal[
        "takes_first", "loses_first", "enters_top", "leaves_top", "climbs", "falls", "joins_board", "leaves_board"
    ]
    rank: int
    by: int


class History(NamedTuple):
    """Slots, the oldest first, and the score and rank of a record at the end of each slot but the last, if known."""

    slots: Sequence[Slot]
    steps: Sequence[Step]


class LineChart(msgspec.Struct, frozen=True):
    """A line on a scale of 100, with better values higher. `end` is the place of its newest value, or empty."""

    path: str
    ticks: Sequence[AxisTick]
    end: str
    best: int
    worst: int


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
    live, client, language = visit.live, visit.requester.network, visit.language
    ledger = await live.use(request.path_params["board"], visit.reader)
    board, member = ledger.state.board, request.path_params["key"]
    if member_fault(member) is not None:
        raise ProblemError("record_not_found", "no member can have this name")
    page, slots = await asyncio.gather(ledger.reader.find(member, 1), read_slots(ledger.state, [member], MOST_SLOTS))
    if page is None:
        own, place, history = await find_contestant(ledger, member), 0, History((), ())
        page = msgspec.structs.replace(await ledger.reader.read(1), records=())
    else:
        place = next(place for place, record in enumerate(page.records) if record.member == member)
        own = page.records[place]
        history = await history_of(live, client, ledger, member, slots.slots)
    items = await items_of(live, (member, *(record.member for record in page.records)))
    trends = await trends_of(live, ledger, page, has_lines=False)
    given = await given_of(visit, ledger, [member], page.slot)

    async def draw() -> Reply:
        return await render(
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

    reply = await live.drawings.draw(client, draw())
    return negotiated(request, reply.private if given is not None and given.is_own else reply)


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
    score_line = None if board.packing is not None else line_of(drawn, places, write, 0, low_best=low_best)
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
            "" if board.packing is not None or score is None else grouped(score, format_of(language, board)),
            rank,
            at == len(times) - 1,
        )
        for at, (slot, score, rank) in enumerate(zip(times, scores, ranks, strict=True))
    ]
    width = f"{max(len(label) for label in labels) * _LETTER:.1f}"
    return Chart(points, score_line, rank_line, has_sums, time_ticks(start, end), width, events_of(ranks))


def _neighbour(page: Page, place: int, step: int) -> Neighbour | None:
    other = place + step
    if not 0 <= other < len(page.records):
        return None
    return Neighbour(page.records[other], page.records[place].score - page.records[other].score)


async def history_of(live: Live, client: str, ledger: Ledger, member: str, slots: Sequence[Slot]) -> History:
    """Return the score and rank of a record at the end of each slot but the open one, for a client's network.

    A window without slots gets slots of the last day. Return no steps without a journal, or if it does not know the
    record then. The process remembers what it has read, because the past does not change.
    """
    board, epoch, now, known = ledger.state.board.id, ledger.state.epoch or "", int(time.time()), live.histories
    is_endless = EVER in slots
    nothing = History((), ()) if is_endless else History(slots, ())
    if live.past is None or len(slots) < (1 if is_endless else _LEAST_SLOTS):
        return nothing
    try:
        async with asyncio.timeout(_PATIENCE):
            if is_endless:
                slots = recent_slots(await _since(live, client, ledger, now), now)
            key = (board, epoch, member, slots[-1].start)
            if key not in known:
                past, times = await BoardPast.of(live, ledger, client), [slot.end * 1000 - 1 for slot in slots[:-1]]
                steps: Sequence[Step] = ()
                if past.link is not None and times:
                    await past.wait(times[-1])
                    try:
                        (steps,) = await past.past.run(
                            client, read_history, past.board, epoch, past.hidden, [member], times
                        )
                    except NoPastError:
                        if is_endless:  # the journal has dropped its beginning
                            known.pop((board, epoch), None)
                            return nothing
                        # Otherwise, remember that there are no steps: the journal will not cover these slots later.
                _keep(known, key, History(slots, steps))
            found: History = known[key]
    except (ProblemError, TimeoutError, StoreUnavailableError, EpochLostError, SetupError):
        return nothing
    return found


async def _since(live: Live, client: str, ledger: Ledger, now: int) -> int:
    """Return the first time that the journal covers, in seconds, or `now` without one."""
    key, known = (ledger.state.board.id, ledger.state.epoch or ""), live.histories
    if key not in known:
        past = await BoardPast.of(live, ledger, client)
        reach = await past.run(read_reach, past.board, past.epoch, ())
        if reach.since is None:
            return now
        _keep(known, key, reach.since // 1000)
    since: int = known[key]
    return since


def _keep(known: dict[Hashable, Any], key: Hashable, value: object) -> None:
    known[key] = value
    if len(known) > _KEPT:
        del known[next(iter(known))]


def recent_slots(since: int, now: int) -> list[Slot]:
    """Divide the last day into slots, or the time since `since` if that is shorter. The last slot is open."""
    begin = max(since, now - _DAY)
    length = next((one for one in _LENGTHS if now - begin <= one * _MOST_RECENT), _LENGTHS[-1])
    return [Slot(start, start + length) for start in range(begin // length * length, now + 1, length)]


def line_of(
    values: Sequence[int | None],
    places: Sequence[float],
    write: Callable[[int, int], str],
    least: int,
    *,
    low_best: bool,
) -> LineChart | None:
    """Draw the value of each slot as a step from its place to the next. There is one more place than values.

    `write` puts a value of the axis into words, given the step of the axis. `least` is the least value that is usual.
    With `low_best`, low values are drawn high. Return None if fewer than two values are known.
    """
    known = [value for value in values if value is not None]
    if len(known) < _LEAST_SLOTS:
        return None
    low, high = min(known), max(known)
    if 0 <= low - least <= high - low:  # the axis begins at its natural end if that leaves half of it to the line
        low = least
    ticks = [value for value in round_values(low, high) if value <= high]
    if low_best and low == least and ticks[:1] != [low]:
        ticks = [low, *ticks]
    ticks = ticks if len(ticks) >= _LEAST_SLOTS else sorted({low, high})
    scale = (100 - 2 * _MARGIN) / (high - low) if high > low else 0

    def y(value: int) -> str:
        distance = (value - low if low_best else high - value) * scale
        return f"{_MARGIN + distance if scale else 50:.2f}"

    path, is_drawn = "", False
    for value, (start, end) in zip(values, pairwise(places), strict=True):
        if value is not None:
            path += f"V{y(value)}" if is_drawn else f"M{start:.2f},{y(value)}"
            path += f"H{end:.2f}"
        is_drawn = value is not None
    step = ticks[-1] - ticks[-2] if len(ticks) >= _LEAST_SLOTS else 1
    newest = values[-1]
    return LineChart(
        path,
        [AxisTick(write(value, step), y(value)) for value in ticks],
        "" if newest is None else y(newest),
        *((min(known), max(known)) if low_best else (max(known), min(known))),
    )


def time_ticks(start: int, end: int) -> list[TimeTick]:
    """Return a few round times between two times, in seconds since 1970."""
    length = max(1, end - start)
    step, form = next((one for one in _TIMES if length / one[0] <= _MOST_TIMES), _TIMES[-1])
    times = range(-(-start // step) * step, round(start + length * _LAST_TIME), step)
    return [TimeTick(time, f"{100 * (time - start) / length:.2f}", form) for time in times]


def round_values(low: int, high: int) -> list[int]:
    """Return the values of an axis: a few multiples of 1, 2, 5, 10 and so on, from `low` to just above `high`."""
    least = max(1, math.ceil((high - low) / _MOST_STEPS))
    unit = 10 ** (len(str(least)) - 1)
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= least)
    first = -(-low // step) * step
    return list(range(first, max(high, first) + step + 1, step))


def events_of(ranks: Sequence[int | None]) -> list[RankEvent]:
    """List how a record moved from slot to slot, the newest change first."""
    found = [_event(slot, *both) for slot, both in enumerate(pairwise(ranks), 1)]
    return [event for event in reversed(found) if event is not None][:_MOST_EVENTS]


def _event(slot: int, before: int | None, rank: int | None) -> RankEvent | None:
    if rank is None:
        return None if before is None else RankEvent(slot, "leaves_board", before, 0)
    if before is None:
        return RankEvent(slot, "takes_first" if rank == 1 else "joins_board", rank, 0)
    by = abs(rank - before)
    if 1 in {before, rank} and by:
        return RankEvent(slot, "takes_first" if rank == 1 else "loses_first", rank, by)
    if (before <= _TOP) != (rank <= _TOP):
        return RankEvent(slot, "enters_top" if rank <= _TOP else "leaves_top", rank, by)
    return RankEvent(slot, "climbs" if rank < before else "falls", rank, by) if by >= _LEAST_MOVE else None
