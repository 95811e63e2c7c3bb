"""Plans of likes and votes, on boards whose clock the test sets."""

from collections.abc import Sequence
from typing import Any

from live.domain.board import Board
from live.domain.event import Entry, Extra, make_entry
from live.domain.window import Forever
from live.store.board.state import Clock
from live.store.board.write.slot_assignment import Plan, make_plan
from tests.harness.boards import built, rolling_board

SERVER = rolling_board("4h", "1h")
EVENT = rolling_board("4h", "1h", clock="event")
HOUR = 3600


def like(member: str, amount: int = 1, at: int | None = None, identity: bytes | None = None) -> Entry:
    """A like of a member; `at` is in seconds."""
    return make_entry(member, amount, None if at is None else at * 1000, identity)


def vote(member: str, actor: str | None, amount: int = 1, at: int | None = None) -> Entry:
    """A vote of an actor; `at` is in seconds."""
    return make_entry(member, amount, None if at is None else at * 1000, None, Extra(actor))


def clock_at(seconds: int | None) -> Clock:
    """The clock of a board whose newest slot has just begun; None before its first event."""
    return Clock(seconds, 0 if seconds is None else seconds * 1000, None if seconds is None else seconds * 1000)


def plan(entries: Sequence[Entry], current: int | None, *, by_event: bool = False, newest: int | None = None) -> Plan:
    """Plan all entries; `newest` is in milliseconds."""
    return make_plan(EVENT if by_event else SERVER, entries, range(len(entries)), clock_at(current), newest)


def plan_on(board: Board, entries: Sequence[Entry], now: int) -> Plan:
    """Plan all entries on `board`, whose clock is at `now` (seconds)."""
    newest = board.window.slot_at(now).start
    return make_plan(board, entries, range(len(entries)), Clock(newest, now * 1000, now * 1000), None)


def amounts(made: Plan) -> dict[int, dict[str, int]]:
    """Return what a plan adds to each slot."""
    return {start: dict(zip(group.members, group.amounts, strict=True)) for start, group in made.slots.items()}


def forever(**choices: Any) -> Board:
    """A board without a window."""
    return built(**{"id": "b", "title": "b", "window": Forever(), **choices})
