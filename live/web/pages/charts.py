"""What is drawn of a record: its sparkline, and its rank over the window, from the journal, on its page."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from live.domain.window import EVER, Slot
from live.errors import ProblemError, SetupError, StoreUnavailableError
from live.journal.past.history import read_history
from live.journal.past.pool import Past
from live.journal.past.queries import NoPastError
from live.store.board.ledger import Ledger

_PATIENCE: Final = 0.5  # seconds; the page is shown without the chart then
_KEPT: Final = 1000  # records whose ranks a process remembers until the next slot begins


class Line(NamedTuple):
    """The points of a sparkline, and its lowest, highest and newest value."""

    points: str
    low: int
    high: int
    now: int


class RankChart(msgspec.Struct, frozen=True):
    """The ranks at the ends of the slots, None where the record was not on the board.

    `points` are those of a line on a scale of 100, with the best rank on top; there may be several lines.
    """

    ranks: Sequence[int | None]
    best: int
    worst: int
    lines: Sequence[str]


class RankCharts:
    """Reads ranks and remembers them, because ranks of the past do not change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str, int], Sequence[int | None]] = OrderedDict()

    async def of(
        self, past: Past | None, client: str, ledger: Ledger, member: str, slots: Sequence[Slot], rank: int
    ) -> RankChart | None:
        """Return the chart of a record with the current rank `rank`, for the network of a client.

        Return None without a journal, or if the journal tells nothing yet.
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
                    (steps,) = await past.run(client, read_history, state.board, hidden, [member], times)
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
    lines: list[list[str]] = [[]]
    for place, rank in enumerate(ranks):
        if rank is None:
            lines.append([])
        else:
            lines[-1].append(f"{place + 0.5:g},{5 + (rank - best) * scale:.2f}")
    return RankChart(ranks, best, worst, [" ".join(line) for line in lines if line])
