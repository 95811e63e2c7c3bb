"""An audience: viewers of one board that receive the same frames, in cohorts or alone."""

from collections.abc import Iterator
from typing import Protocol

from live.fanout.cohort import MOST, Cohort
from live.fanout.position import Position


class Loose(Protocol):
    """A viewer that is in no cohort."""

    @property
    def position(self) -> Position:
        """Its position."""

    def wake(self) -> None:
        """Check whether there is something to send."""


class Audience:
    """Viewers that receive the same frames when they are at the same position.

    `viewers` is how many there are, and `loose` are those that are in no cohort.
    """

    __slots__ = ("cohorts", "loose", "viewers")

    def __init__(self) -> None:
        self.viewers = 0
        self.cohorts: list[Cohort] = []
        self.loose: set[Loose] = set()

    @property
    def positions(self) -> Iterator[Position]:
        """The positions of all viewers."""
        yield from (cohort.position for cohort in self.cohorts)
        yield from (viewer.position for viewer in self.loose)

    def cohort_at(self, position: Position) -> Cohort:
        """A cohort at a position that has room for one more."""
        for cohort in self.cohorts:
            if len(cohort) < MOST and cohort.position.state() == position.state():
                return cohort
        cohort = Cohort(position)
        self.cohorts.append(cohort)
        return cohort

    def merge_cohorts(self) -> None:
        """Join cohorts that have come to the same state, and remove those without members."""
        if len(self.cohorts) == 1 and self.cohorts[0]:
            return
        kept: dict[tuple[object, ...], Cohort] = {}
        for cohort in self.cohorts:
            other = kept.setdefault(cohort.position.state(), cohort)
            if other is not cohort and len(other) + len(cohort) <= MOST:
                cohort.move_all(other)
            elif len(cohort) < len(other):
                kept[cohort.position.state()] = cohort  # the one with more room
        self.cohorts = [cohort for cohort in self.cohorts if cohort]
