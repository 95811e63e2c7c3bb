"""Charts of a record: its sparkline, and on its page the lines of its score and its rank on one time axis."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from live.domain.window import EVER, Slot
from live.errors import ProblemError, SetupError, StoreUnavailableError
from live.journal.past.history import read_history
from live.journal.past.pool import Past
from live.journal.past.queries import NoPastError, Step
from live.journal.past.rankings import read_reach
from live.store.board.ledger import Ledger

_PATIENCE: Final = 0.5  # seconds; after this, the page is shown without the chart
_KEPT: Final = 1000  # records whose history a process remembers; it forgets the oldest result first
_MOST_STEPS: Final = 4  # maximum number of steps between the lowest and the highest value of an axis
_LEAST_POINTS: Final = 2
_TOP: Final = 10
_LEAST_MOVE: Final = 3  # ranks; a smaller move is not listed
_MOST_EVENTS: Final = 6  # changes of a record that are listed; as many as `KEPT` in `stories.js`
_MARGIN: Final = 5  # percent of a chart above the best and below the worst value
_MINUTE: Final = 60  # seconds
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


class Line(NamedTuple):
    """The points of a sparkline, and its lowest, highest and newest value."""

    points: str
    low: int
    high: int
    now: int


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


class Histories:
    """Reads scores and ranks of records at the ends of slots, and remembers them: the past does not change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str, int], History] = OrderedDict()

    async def of(self, past: Past | None, client: str, ledger: Ledger, member: str, slots: Sequence[Slot]) -> History:
        """Return the score and rank of a record at the end of each slot but the open one, for a client's network.

        A window without slots gets slots of the last day. Return no steps without a journal, or if it does not know the
        record then.
        """
        state, now = ledger.state, int(time.time())
        is_endless = EVER in slots
        if past is None or not (is_endless or len(slots) >= _LEAST_POINTS):
            return History((), ()) if is_endless else History(slots, ())
        key = (state.board.id, state.epoch or "", member, now // _MINUTE if is_endless else slots[-1].start)
        known = self._known.get(key)
        if known is None:
            try:
                async with asyncio.timeout(_PATIENCE):
                    if is_endless:
                        reach = await past.run(client, read_reach, state.board, state.epoch or "", ())
                        slots = recent_slots(now if reach.since is None else reach.since // 1000, now)
                    known = History(slots, await self._steps(past, client, ledger, member, slots))
            except (NoPastError, TimeoutError, StoreUnavailableError, SetupError, ProblemError):
                return History((), ()) if is_endless else History(slots, ())
            self._known[key] = known
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known

    async def _steps(
        self, past: Past, client: str, ledger: Ledger, member: str, slots: Sequence[Slot]
    ) -> Sequence[Step]:
        state, epoch = ledger.state, ledger.state.epoch or ""
        times = [slot.end * 1000 - 1 for slot in slots[:-1]]
        link = await state.call("HGET", state.keys.meta, "journal")
        if link is None or not times:
            return ()
        await past.wait(client, state.board, epoch, link.decode(), times[-1])
        found = await state.call("HKEYS", state.keys.hidden)
        hidden = frozenset(name.decode() for name in found)
        (steps,) = await past.run(client, read_history, state.board, epoch, hidden, [member], times)
        return steps


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
    if len(known) < _LEAST_POINTS:
        return None
    low, high = min(known), max(known)
    if 0 <= low - least <= high - low:  # the axis begins at its natural end if that leaves half of it to the line
        low = least
    ticks = [value for value in round_values(low, high) if value <= high]
    if low_best and low == least and ticks[:1] != [low]:
        ticks = [low, *ticks]
    ticks = ticks if len(ticks) >= _LEAST_POINTS else sorted({low, high})
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
    step = ticks[-1] - ticks[-2] if len(ticks) >= _LEAST_POINTS else 1
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
    """Return the values of an axis: a few multiples of 1, 2, 5, 10 and so on.

    The first value is at least `low`, and only the last value is above `high`.
    """
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
