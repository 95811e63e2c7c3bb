"""Which lives the keeper looks at: those that have changed, and a few of the quiet ones in each round."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from live.domain.board import Board
from live.domain.journaling import Journaling
from live.journal.cells import HOUR

_QUIET: Final = 6 * HOUR  # seconds between two looks at a life to which nothing happens
_MOST_QUIET: Final = 50  # lives to which nothing has happened, in one round


class Standing(NamedTuple):
    """A life, how far SQL has it, and its board as it is defined now, if this process knows it."""

    life: int
    drained: str
    board: Board | None


class _Look(NamedTuple):
    """What the keeper saw of a life, and when it looks again even if nothing happens, in microseconds."""

    drained: str
    journal: Journaling | None
    again: int


class Rounds:
    """Remembers what the keeper has looked at. To look at thousands of quiet boards each minute would take seconds."""

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}

    def choose(self, lives: Iterable[Standing], now: int) -> Collection[int]:
        """The lives to look at now (microseconds). It counts as done."""
        looks, chosen, quiet = self._looks, [], []
        self._looks = {}
        for life in lives:
            look, journal = looks.get(life.life), None if life.board is None else life.board.journal
            if look is not None and (look.drained, look.journal) != (life.drained, journal):
                chosen.append((life, journal, look))
            elif look is None or now >= look.again:
                quiet.append((life, journal, look))
            else:
                self._looks[life.life] = look
        quiet.sort(key=lambda found: found[2] is None)  # those first of which it knows that something may be due
        for life, _, look in quiet[_MOST_QUIET:]:
            if look is not None:
                self._looks[life.life] = look
        for life, journal, look in chosen + quiet[:_MOST_QUIET]:
            has_periods = life.board is not None and life.board.window.tables
            is_quiet = look is not None and look.drained == life.drained and not has_periods
            # Totals of an hour are added up when it has ended, and so are periods archived.
            again = now + _QUIET * 1_000_000 if is_quiet else (now // 1_000_000 // HOUR + 1) * HOUR * 1_000_000
            self._looks[life.life] = _Look(life.drained, journal, again)
        return {life.life for life, _, _ in chosen + quiet[:_MOST_QUIET]}
