"""Chooses the lives that the keeper checks: those that have changed, and a few quiet ones in each round."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from live.domain.board import Board
from live.domain.journaling import Journaling

HOUR: Final = 3600  # seconds
_QUIET: Final = 6 * HOUR  # seconds between two checks of a life that does not change
_MOST_QUIET: Final = 50  # lives that have not changed, in one round


class KnownTimeline(NamedTuple):
    """A life, how far SQL has it, and its board as it is defined now, if this process knows it."""

    life: int
    drained: str
    board: Board | None


class _Check(NamedTuple):
    """What the keeper saw of a life, and when it checks an unchanged life again, in microseconds."""

    drained: str
    journal: Journaling | None
    again: int


class Rounds:
    """Remembers what the keeper has checked. Checking thousands of quiet boards every minute would take seconds."""

    def __init__(self) -> None:
        self._checks: dict[int, _Check] = {}

    def choose(self, lives: Iterable[KnownTimeline], now: int) -> Collection[int]:
        """The lives to check now (microseconds). They count as checked."""
        checks, chosen, quiet = self._checks, [], []
        self._checks = {}
        for life in lives:
            check, journal = checks.get(life.life), None if life.board is None else life.board.journal
            if check is not None and (check.drained, check.journal) != (life.drained, journal):
                chosen.append((life, journal, check))
            elif check is None or now >= check.again:
                quiet.append((life, journal, check))
            else:
                self._checks[life.life] = check
        quiet.sort(key=lambda found: found[2] is None)  # lives that may have something due come first
        for life, _, check in quiet[_MOST_QUIET:]:
            if check is not None:
                self._checks[life.life] = check
        for life, journal, _ in chosen + quiet[:_MOST_QUIET]:
            has_periods = life.board is not None and life.board.window.tables
            # A period ends with an hour, and is archived then.
            again = (now // 1_000_000 // HOUR + 1) * HOUR * 1_000_000 if has_periods else now + _QUIET * 1_000_000
            self._checks[life.life] = _Check(life.drained, journal, again)
        return {life.life for life, _, _ in chosen + quiet[:_MOST_QUIET]}
