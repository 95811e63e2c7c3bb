"""`id-memory`: what the store keeps to know an event again."""

from contextlib import ExitStack
from typing import Final

from bench.board import BATCH, Board
from bench.plans import Keys, Load, Posts
from bench.processes import used_memory
from bench.table import Row, Scale, Tell

_PARTS: Final = 4
_GOAL: Final = 100  # bytes
_KEYS: Final = 1_000  # few, so that hardly anything but ids takes room


def id_memory(scale: Scale, tell: Tell) -> list[Row]:
    """Memory of the store after events with ids, less that after as many without, on a fresh store each.

    It is a count of bytes and no time, so once is enough. A hash table grows by leaps: what an id takes depends on how
    full it is just then. So it is looked at several times on the way, and the worst is what counts.
    """
    steps = [scale.ids * part // _PARTS for part in range(1, _PARTS + 1)]
    tell("events without ids")
    without = _growth(scale, ids=False)
    tell("events with ids")
    with_ids = _growth(scale, ids=True)
    each = [(more - less) / count for count, more, less in zip(steps, with_ids, without, strict=True)]
    return [
        Row(
            work=f"id-memory: {scale.ids:,} ids of 26 characters",
            measured=f"{max(each):.0f} bytes an id at the most, {each[-1]:.0f} in the end",
            against=f"the goal: {_GOAL} bytes",
            ratio=max(each) / _GOAL,
            goal=f"≤ {_GOAL} bytes",
            figures={"bytes": dict(zip(map(str, steps), each, strict=True))},
        )
    ]


def _growth(scale: Scale, *, ids: bool) -> list[int]:
    """By how much the store has grown after each part of the events."""
    load = Load(requests=scale.ids // _PARTS // BATCH, connections=8)
    grown = []
    with ExitStack() as stack:
        board = Board(stack)
        before = used_memory(board.store)
        for part in range(_PARTS):
            board.send(Posts(keys=Keys(count=_KEYS, seed=part), events=BATCH, ids=ids), load)
            grown.append(used_memory(board.store) - before)
    return grown
