"""What changes seldom on a page of a board: the ranks that movement is measured against, and the sparklines."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from live.domain.ranking import Page
from live.domain.window import MOST_FOLDED, Periods, Rolling, Window
from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.board.read.baseline import Baseline
from live.store.board.read.slots import SlotValues
from live.web.pages.charts import Line
from live.web.pages.words import trend_points
from live.web.services import Live


class Trends(msgspec.Struct, frozen=True):
    """What the rows of a board show beside their scores.

    `before` has the ranks in the baseline, and `since` is its time in milliseconds; both are None where ranks cannot be
    compared. `lines` has the sparklines by member.
    """

    before: Mapping[str, int] | None = None
    since: int | None = None
    lines: Mapping[str, Line] = {}


NO_TRENDS: Final = Trends()


def has_trends(window: Window) -> bool:
    """Tell whether the scores of a board add up several slots, so that a row has a sparkline of all of them."""
    return isinstance(window, Rolling | Periods) and not window.tables and window.live <= MOST_FOLDED


async def trends_of(live: Live, ledger: Ledger, page: Page | None) -> Trends:
    """Read the trends for a page. While the store is unavailable there are none."""
    baseline: Baseline | None = None
    slots: SlotValues | None = None
    with suppress(StoreUnavailableError, EpochLostError):
        baseline = await live.baselines.of(ledger.baseline)
        if has_trends(ledger.state.board.window):
            slots = await live.top_slots.of(ledger.reader)
    lines = {} if slots is None else live.trend_lines.of(slots, lambda: _lines_of(slots))
    if page is None or baseline is None or not baseline.ranks:
        return Trends(lines=lines)
    if (baseline.epoch, baseline.slot) != (page.epoch, page.slot):
        return Trends(lines=lines)
    return Trends(baseline.ranks, baseline.time, lines)


def _lines_of(slots: SlotValues) -> dict[str, Line]:
    """Draw the sparklines, without the slot that is still open."""
    lines = {}
    for member, values in zip(slots.members, slots.values, strict=True):
        ended = [value or 0 for value in (values or ())[:-1]]  # amounts add up here, so no event is zero
        points = trend_points(ended)
        if points:
            lines[member] = Line(points, min(ended), max(ended), ended[-1])
    return lines
