"""Where a board's clock stands, as far as this process knows."""

import msgspec

from live.domain.board import Board
from live.domain.window import Periods, Rolling
from live.store.board.requests import PlannedClock


class Clock(msgspec.Struct):
    """Where a board's clock stood when the store last told: `newest` slot (None for none), and the store's `now` (ms).

    `latest` is the newest event time (ms) that the board has seen, on boards that run on such times.
    """

    newest: int | None
    now: int
    latest: int | None = None


def planned_clock(board: Board, clock: Clock) -> PlannedClock:
    """Where the clock stands now, if it has not moved since, and until when."""
    if board.clock == "event":
        return PlannedClock(by_event=True, current=clock.newest)
    window = board.window
    slot = window.slot_at(clock.now // 1000)
    if clock.newest is not None and clock.newest > slot.start:  # a slot never goes backward
        slot = window.slot_at(clock.newest)
    return PlannedClock(current=slot.start, till=slot.end * 1000 if isinstance(window, Rolling | Periods) else None)
