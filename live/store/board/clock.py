"""A board's clock, as far as this process knows."""

import msgspec

from live.domain.board import Board
from live.domain.window import Periods, Rolling
from live.store.board.requests.write import PlannedClock


class Clock(msgspec.Struct):
    """A board's clock, as last read from the store.

    Attributes:
        newest: the newest slot; None for none.
        now: the store's time, in ms.
        latest: the newest event time, in ms, on boards with an event clock.
        plan: what `planned_clock` returned last, and for which board and newest slot.
    """

    newest: int | None
    now: int
    latest: int | None = None
    plan: tuple[Board, int | None, PlannedClock] | None = None


def planned_clock(board: Board, clock: Clock) -> PlannedClock:
    """Return the newest slot by a clock, and until when it is the newest."""
    if clock.plan is None or clock.plan[0] is not board or clock.plan[1] != clock.newest:
        clock.plan = (board, clock.newest, _planned(board, clock))
    return clock.plan[2]


def _planned(board: Board, clock: Clock) -> PlannedClock:
    if board.clock == "event":
        return PlannedClock(by_event=True, current=clock.newest)
    window = board.window
    slot = window.slot_at(clock.now // 1000)
    if clock.newest is not None and clock.newest > slot.start:  # a slot never goes backward
        slot = window.slot_at(clock.newest)
    return PlannedClock(current=slot.start, till=slot.end * 1000 if isinstance(window, Rolling | Periods) else None)
