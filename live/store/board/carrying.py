"""Which notices carry the change itself, so that processes that show the board need not read it."""

import asyncio
from collections.abc import Mapping
from typing import Final

from live.store.board.plan import Group, Plan

MOST_MEMBERS: Final = 8
_MOST_BYTES: Final = 1000  # of all members
MOST_NOTICES: Final = 4  # that carry a change, in the interval of a frame


class Carrying:
    """Decides for the batches of one writer.

    A notice carries a change if a process receives it, if the change is small, and if the board changes so rarely that
    a read for each frame costs more. `receivers` is the number of processes that received the last notice.
    """

    def __init__(self) -> None:
        self.receivers = 0
        self._until = 0.0
        self._left = 0

    def take(self, plan: Plan, interval: float) -> bool:
        """Whether the notice of a plan carries the change. `interval` is the time between two frames, in seconds."""
        if not self.receivers or not _is_small(plan.slots):
            return False
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self._until, self._left = now + interval, MOST_NOTICES
        self._left -= 1
        return self._left >= 0


def _is_small(slots: Mapping[int, Group]) -> bool:
    """Whether a plan changes few members of one slot, and no metadata."""
    if len(slots) != 1:
        return False
    (group,) = slots.values()
    if len(group.amounts) > MOST_MEMBERS or any(group.metadata.values()):
        return False
    return sum(map(len, group.amounts)) <= _MOST_BYTES
