"""The parameter `period` (`current`, `previous`, `2026-W47`): the period of a calendar board that a request selects."""

from collections.abc import Mapping

from live.domain.calendar import FIRST, LAST
from live.domain.window import Periods
from live.errors import ProblemError
from live.store.board.ledger import Ledger
from live.store.board.read.single_flight import SharedPages


async def period_of(query: Mapping[str, str], ledger: Ledger, reads: SharedPages) -> int | None:
    """The start of the period that a request selects; None for the current one, and on boards without periods.

    Raises:
        ProblemError: `parameter_invalid` or `period_not_found`.
        EpochLostError: the store lost the board.
    """
    selected = await _selected(query, ledger, reads)
    return None if selected is None else _kept(*selected)


async def archived_period(query: Mapping[str, str], ledger: Ledger, reads: SharedPages) -> int | None:
    """The start of the period that a request selects, if the board does not keep it any more. Raises as `period_of`."""
    selected = await _selected(query, ledger, reads)
    if selected is None:
        return None
    window, newest, start = selected
    return start if start < window.oldest(newest) else None


async def _selected(query: Mapping[str, str], ledger: Ledger, reads: SharedPages) -> tuple[Periods, int, int] | None:
    """The window, the newest period, and the one that a request selects; None for the current one."""
    name = query.get("period", "current")
    if name == "current":
        return None
    window = ledger.state.board.window
    if not isinstance(window, Periods) or not window.tables:
        raise ProblemError(
            "parameter_invalid", f"`period`: board {ledger.state.board.id} does not have a ranking for each period"
        )
    newest = await _newest(ledger, reads)
    try:
        period = (
            window.calendar.before(window.calendar.at(newest)) if name == "previous" else window.calendar.parse(name)
        )
    except (ValueError, OverflowError) as error:
        raise ProblemError("parameter_invalid", f"`period` must be current, previous or a name: {error}") from None
    return window, newest, period.start


async def period_of_cursor(start: int | None, ledger: Ledger, reads: SharedPages) -> int | None:
    """The start of the period in a cursor, if that period is valid and still kept.

    Raises:
        ProblemError: `cursor_invalid` or `period_not_found`.
        EpochLostError: the store lost the board.
    """
    if start is None:
        return None
    window = ledger.state.board.window
    if (
        not isinstance(window, Periods)
        or not window.tables
        or not FIRST <= start < LAST
        or window.slot_at(start).start != start
    ):
        raise ProblemError(
            "cursor_invalid", f"the period in the cursor is not a period of board {ledger.state.board.id}"
        )
    return _kept(window, await _newest(ledger, reads), start)


async def _newest(ledger: Ledger, reads: SharedPages) -> int:
    newest = await reads.newest(ledger.reader)
    if newest is None:
        raise ProblemError("period_not_found", "the board has no events yet")
    return newest


def _kept(window: Periods, newest: int, start: int) -> int:
    if not window.oldest(newest) <= start <= newest:
        raise ProblemError("period_not_found", f"the board keeps the current period and the {window.keep} before it")
    return start
