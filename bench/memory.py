"""`id-memory`: memory that the store needs to recognize duplicate ids."""

from contextlib import ExitStack
from typing import Final

from bench.board import BATCH, Board
from bench.plans import Load, Members, Posts
from bench.processes import used_memory
from bench.table import Report, Row, Scale

_PARTS: Final = 4
_GOAL: Final = 100  # bytes
_MEMBERS: Final = 1_000  # few, so that ids take almost all of the memory


def id_memory(scale: Scale, report: Report) -> list[Row]:
    """Subtract the memory of a store after events without ids from that of another store after as many events with ids.

    Bytes vary less than times, so one round is enough. A hash table grows in leaps, so the memory of an id depends on
    how full the table is. The benchmark therefore measures at several points and reports the worst.
    """
    steps = [scale.ids * part // _PARTS for part in range(1, _PARTS + 1)]
    report("events without ids")
    without = _growth(scale, ids=False)
    report("events with ids")
    with_ids = _growth(scale, ids=True)
    each = [(more - less) / count for count, more, less in zip(steps, with_ids, without, strict=True)]
    return [
        Row(
            work=f"id-memory: {scale.ids:,} ids of 26 characters",
            measured=f"{max(each):.0f} bytes per id at most, {each[-1]:.0f} at the end",
            against=f"the goal: {_GOAL} bytes",
            ratio=max(each) / _GOAL,
            goal=f"≤ {_GOAL} bytes",
            figures={"bytes": dict(zip(map(str, steps), each, strict=True))},
        )
    ]


def _growth(scale: Scale, *, ids: bool) -> list[int]:
    load = Load(requests=scale.ids // _PARTS // BATCH, connections=8)
    grown = []
    with ExitStack() as stack:
        board = Board(stack)
        before = used_memory(board.store)
        for part in range(_PARTS):
            board.send(Posts(members=Members(count=_MEMBERS, seed=part), events=BATCH, ids=ids), load)
            grown.append(used_memory(board.store) - before)
    return grown
