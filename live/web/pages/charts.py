"""Charts of a record: its sparkline, and on its page a chart of its rank over the window, from the journal."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from live.domain.window import EVER, Slot
from live.errors import ProblemError, SetupError, StoreUnavailableError
from live.journal.past.history import read_history
from live.journal.past.pool import Past
from live.journal.past.queries import NoPastError
from live.store.board.ledger import Ledger

_PATIENCE: Final = 0.5  # seconds; after this, the page is shown without the chart
_KEPT: Final = 1000  # records whose ranks a process remembers; it forgets the oldest result first
_MOST_STEPS: Final = 4  # maximum number of steps between the lowest and the highest value of an axis
_TOP: Final = 10
_LEAST_MOVE: Final = 3  # ranks; a smaller move is not listed
_MOST_EVENTS: Final = 6  # changes of a record that are listed; as many as `KEPT` in `stories.js`


class Line(NamedTuple):
    """The points of a sparkline, and its lowest, highest and newest value."""

    points: str
    low: int
    high: int
    now: int


class AxisTick(NamedTuple):
    """A value on an axis, and its place in percent from the top."""

    value: int
    y: str


class RankEvent(NamedTuple):
    """A change in the history of a record: the number of its slot, and the name of its sentence in the words."""

    slot: int
    name: Literal[
        "takes_first", "loses_first", "enters_top", "leaves_top", "climbs", "falls", "joins_board", "leaves_board"
    ]
    rank: int
    by: int


class RankChart(msgspec.Struct, frozen=True):
    """The ranks at the ends of the slots, None where the record was not on the board.

    `lines` have their points on a scale of 100, with the best rank on top. `end` is the point of the newest rank.
    `events` have what happened, the newest first.
    """

    ranks: Sequence[int | None]
    best: int
    worst: int
    lines: Sequence[str]
    ticks: Sequence[AxisTick]
    end: str
    events: Sequence[RankEvent]


class RankCharts:
    """Reads ranks and remembers them, because ranks of the past do not change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str, int], Sequence[int | None]] = OrderedDict()

    async def of(
        self, past: Past | None, client: str, ledger: Ledger, member: str, slots: Sequence[Slot], rank: int
    ) -> RankChart | None:
        """Return the chart of a record with the current rank `rank`, for the network of a client.

        Return None without a journal, or if the journal has no ranks of the record yet.
        """
        if past is None or len(slots) < 2 or EVER in slots:  # noqa: PLR2004 - a line has two ends
            return None
        state = ledger.state
        key = (state.board.id, state.epoch or "", member, slots[-1].start)
        ranks = self._known.get(key)
        if ranks is None:
            times = [slot.end * 1000 for slot in slots[:-1]]
            try:
                async with asyncio.timeout(_PATIENCE):
                    link = await state.call("HGET", state.keys.meta, "journal")
                    if link is None:
                        return None
                    await past.wait(client, state.board, state.epoch or "", link.decode(), times[-1])
                    found = await state.call("HKEYS", state.keys.hidden)
                    hidden = frozenset(name.decode() for name in found)
                    read = partial(past.run, client, read_history, state.board, state.epoch or "")
                    (steps,) = await read(hidden, [member], times)
            except (NoPastError, TimeoutError, StoreUnavailableError, SetupError, ProblemError):
                return None
            ranks = self._known[key] = [step.rank for step in steps]
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return chart_of_ranks([*ranks, rank])


def chart_of_ranks(ranks: Sequence[int | None]) -> RankChart | None:
    """Draw a chart of ranks. Return None if fewer than two ranks are known."""
    known = [rank for rank in ranks if rank is not None]
    if len(known) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    best, worst = min(known), max(known)
    scale = 90 / ((worst - best) or 1)
    steps = round_values(best, worst)
    if steps[0] - best > (steps[1] - steps[0]) / 2:  # show the best rank too, unless it is close to a value
        steps = [best, *steps]
    lines: list[list[str]] = [[]]
    for place, rank in enumerate(ranks):
        if rank is None:
            lines.append([])
        else:
            lines[-1].append(f"{place + 0.5:g},{5 + (rank - best) * scale:.2f}")
    ticks = [AxisTick(value, f"{5 + (value - best) * scale:.2f}") for value in steps if value <= worst]
    drawn = [" ".join(line) for line in lines if line]
    return RankChart(ranks, best, worst, drawn, ticks, lines[-1][-1] if lines[-1] else "", events_of(ranks))


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
