"""Everything that a board has accepted, as a list, which is counted again from its beginning.

A plain reference model counts it, by the rules of now and without the events that were taken back.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from live.domain.board import Board
from live.domain.event import Entry
from live.maintenance.void import Criteria
from tests.harness.board_machine import FUTURE
from tests.harness.board_model import Reference

DAY: Final = 86_400_000  # ms


@dataclass
class Step:
    """Something that has changed the board, at a time."""

    clock: int
    do: Callable[[Reference], object]
    stays: bool = False  # if the board is set back


@dataclass
class Batch:
    """Accepted events, with their producers; `gone` are the places of those that were taken back."""

    clock: int
    events: list[tuple[Entry, str]]
    gone: set[int] = field(default_factory=set)
    is_undone: bool = False


class Past:
    """Everything that a board has accepted, in order."""

    def __init__(self) -> None:
        self.steps: list[Batch | Step] = []
        self.kept = 0  # the journal has everything from this step on
        self.goals = set[int]()  # the times to which the board was set back

    def voided(self, criteria: Criteria) -> list[tuple[Batch, int]]:
        """The events that a void takes back."""
        since, until = criteria.since or 0, criteria.until
        return [
            (batch, place)
            for batch in self.steps[self.kept :]
            if isinstance(batch, Batch) and batch.clock >= since and (until is None or batch.clock < until)
            for place, (entry, producer) in enumerate(batch.events)
            if place not in batch.gone
            and criteria.producer in (None, producer)
            and (criteria.actor is None or (entry[4] is not None and entry[4].actor == criteria.actor))
            and criteria.identity in (None, entry[3])
        ]

    def set_back(self, at: int) -> None:
        """Undo everything since a time. The second time, undo nothing that came later."""
        if at in self.goals:
            return
        self.goals.add(at)
        self.steps = [step for step in self.steps if step.clock < at or isinstance(step, Batch) or step.stays]
        for step in self.steps:
            if isinstance(step, Batch) and step.clock >= at:
                step.gone, step.is_undone = set(range(len(step.events))), True

    def recount(self, board: Board) -> Reference:
        """Count everything again. What was taken back stays a duplicate, and the clock stays where it is."""
        reference, seen = Reference(board, FUTURE * 1000), dict[bytes, int]()
        for step in self.steps:
            if isinstance(step, Step):
                step.do(reference)
                continue
            left = [entry for place, (entry, _) in enumerate(step.events) if place not in step.gone]
            reference.add(left, step.clock)
            if not step.is_undone:
                seen |= {entry[3]: step.clock // DAY for entry, _ in step.events if entry[3] is not None}
            if board.clock == "event":
                times = [entry[2] for entry, _ in step.events if entry[2] is not None]
                reference.newest = max([*times, reference.newest or times[0]])
        reference.seen = seen
        return reference


def is_limit(step: Batch | Step) -> bool:
    """Whether a step changes limits."""
    return isinstance(step, Step) and step.stays
