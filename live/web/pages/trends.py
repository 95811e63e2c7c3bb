"""The parts of a board's page that change seldom: the baseline for movement and pace, and the sparklines."""

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from live.domain.ranking import Page, Record
from live.domain.window import MOST_FOLDED, Periods, Rolling, Window
from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.board.read.baseline import Baseline
from live.store.board.read.slots import SlotValues
from live.web.pages.words import Line, differs_clearly, scaled, trend_points, trend_scale
from live.web.parts import Live


class Trends(msgspec.Struct, frozen=True):
    """The trends that the rows of a board show beside their scores.

    `before` is the baseline, and `since` is its time in milliseconds; both are None where ranks can't be compared.
    `scores` are the scores in the baseline, and `age` is the time since the baseline in milliseconds. `has_pace` says
    whether the board shows how fast scores change, and `lines` has the sparklines by member. `until` is when the
    sparklines get another point, in milliseconds; 0 if that is not known.
    """

    before: Baseline | None = None
    since: int | None = None
    scores: Mapping[str, int] = {}
    age: int = 0
    has_pace: bool = False
    lines: Mapping[str, Line] = {}
    until: int = 0

    def rank_before(self, record: Record) -> int | None:
        """Return the rank of a record in the baseline; None if it is new; its present rank if nobody knows."""
        return None if self.before is None else self.before.rank_of(record.member, record.rank)

    def pace(self, record: Record) -> int | None:
        """Return by how much a score changes in an hour, measured since the baseline; None if that is not known."""
        before = self.scores.get(record.member)
        if not self.has_pace or before is None or self.age < _LEAST_SPAN:
            return None
        return scaled(record.score - before, self.age, _HOUR)

    def rising(self, records: Sequence[Record]) -> list[tuple[Record, int]]:
        """Return the records that rise fastest, each with its pace."""
        paces = [(record, pace) for record in records if (pace := self.pace(record) or 0) > 0]
        return sorted(paces, key=lambda one: -one[1])[:_RISING]


NO_TRENDS: Final = Trends()
_LEAST_SPAN: Final = 300_000  # milliseconds; a baseline that is younger gives no pace
_HOUR: Final = 3_600_000  # milliseconds
_RISING: Final = 3  # members that rise fastest


def has_trends(window: Window) -> bool:
    """Tell whether scores are sums over several slots, so that a row has a sparkline of these slots."""
    return isinstance(window, Rolling | Periods) and not window.tables and window.live <= MOST_FOLDED


async def trends_of(live: Live, ledger: Ledger, page: Page | None, *, has_lines: bool = True) -> Trends:
    """Read the trends for a page; none while the store is unavailable, and no sparklines without `has_lines`."""
    baseline: Baseline | None = None
    slots: SlotValues | None = None
    with suppress(StoreUnavailableError, EpochLostError):
        baseline = await live.baselines.of(ledger.baseline)
        if has_lines and has_trends(ledger.state.board.window):
            slots = await live.top_slots.of(ledger.reader)
    lines = {} if slots is None else live.trend_lines.of(slots, lambda: _lines_of(slots))
    until = slots.slots[-1].end * 1000 if slots is not None and slots.slots else 0
    if page is None or baseline is None or not baseline.ranks:
        return Trends(lines=lines, until=until)
    if (baseline.epoch, baseline.slot) != (page.epoch, page.slot):
        return Trends(lines=lines, until=until)
    return Trends(
        before=baseline,
        since=baseline.time,
        scores=baseline.scores,
        age=int(time.time() * 1000) - baseline.time,
        has_pace=ledger.state.board.has_pace,
        lines=lines,
        until=until,
    )


def _lines_of(slots: SlotValues) -> dict[str, Line]:
    """Draw members that count clearly faster or slower than usual. Leave out the open slot."""
    # The scores here are sums, so a slot without an event has the value 0.
    ended = [[value or 0 for value in (values or ())[:-1]] for values in slots.values]
    scale = trend_scale(itertools.chain.from_iterable(ended))
    points = [trend_points(values, scale) for values in ended]
    return {
        member: Line(line, min(values), max(values), values[-1])
        for member, values, line in zip(slots.members, ended, points, strict=True)
        if line and differs_clearly(values)
    }
