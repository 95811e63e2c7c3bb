"""The ranking of a board at an instant, computed from its contents."""

from collections.abc import Iterable, Mapping

import msgspec

from live.domain.board import Board
from live.domain.window import EVER, Sliding, Window
from live.journal.contents import Contents, Reached
from live.journal.entries import Rules
from live.journal.order import order_of


class Standing(msgspec.Struct, frozen=True):
    """A ranking: the start of its period (None without periods), the scores, and the members in order."""

    period: int | None
    scores: Mapping[str, int]
    members: list[str]


def standing(board: Board, data: Contents, now: int, period: int | None = None) -> Standing:
    """The ranking at a time (milliseconds since 1970), which must not be before the last entry.

    By I2 a slot counts while any part of it is inside the window, whatever rotation has subtracted by then. `period` is
    the start of a period, on a board with a ranking for each period; None for the current one.
    """
    newest = newest_slot(board, data, now)
    if newest is None:
        return Standing(period, {}, [])
    suffix = ""
    if board.window.tables:
        period = newest if period is None else period
        suffix = f":{period}"
    scores = scores_of(board, data, newest, now, period)
    reached: Mapping[str, Reached] = data.ranking(suffix).reached if suffix in data.rankings else {}
    rules = Rules(operation=board.operation, order=board.reading, ties=None if board.tags == "key" else board.tags)
    shown = [member for member in scores if member not in data.hidden]
    return Standing(period, scores, sorted(shown, key=order_of(rules, scores, reached)))


def newest_slot(board: Board, data: Contents, now: int) -> int | None:
    """The start of the newest slot at a time; None before the first event of an event clock."""
    if board.clock == "event":
        return data.newest
    current = board.window.slot_at(now // 1000).start
    return current if data.newest is None else max(current, data.newest)


def scores_of(board: Board, data: Contents, newest: int, now: int, period: int | None) -> dict[str, int]:
    """The scores at a time, those of hidden members included. A sum of zero is no score."""
    window: Window = board.window
    if isinstance(window, Sliding):
        moment = now if board.clock == "server" else data.latest or 0
        return _summed((event.member, event.amount) for event in data.log if event.time > moment - window.length * 1000)
    if window.tables:
        return dict(data.slots.get(newest if period is None else period, {}))
    if window.live == 1:
        return dict(data.slots.get(EVER.start, {}))
    oldest = window.oldest(newest)
    live = [slot for start, slot in data.slots.items() if start >= oldest]
    return _summed(item for slot in live for item in slot.items())


def _summed(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for member, amount in amounts:
        sums[member] = sums.get(member, 0) + amount
    return {member: score for member, score in sums.items() if score}
