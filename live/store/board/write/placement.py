"""Tell where the entries of a batch counted, and which of them were a new best of their members."""

from collections.abc import Sequence

import msgspec

from live.domain.board import Board
from live.domain.event import Entry
from live.store.board.write.plan import Plan, slot_of


class Placement(msgspec.Struct, frozen=True):
    """Where an entry counted: the start of its slot, and whether it was a new best of its member.

    `is_best` is None on boards that keep no best value, and if a reply of the store was lost.
    """

    slot: int | None
    is_best: bool | None


def placements_of(
    board: Board, plan: Plan, entries: Sequence[Entry], indexes: Sequence[int], beaten: Sequence[bytes]
) -> dict[int, Placement]:
    """Return the placement of each entry that a plan has counted, by its index.

    `beaten` has, for each member of each slot in the order of the plan, the value that a new best had to beat; empty
    for none.
    """
    counted = [index for index in indexes if index not in plan.refused]
    if board.operator != "best" or not beaten:
        return {index: Placement(slot_of(board, plan, entries[index]), None) for index in counted}
    members = [(start, member) for start, group in plan.slots.items() for member in group.amounts]
    best = {place: int(value) if value else None for place, value in zip(members, beaten, strict=True)}
    sign, found = 1 if board.sort_order == "desc" else -1, {}
    for index in counted:  # in order, because an entry can beat an earlier one of the batch
        slot, amount = slot_of(board, plan, entries[index]), entries[index][1]
        place = (slot if slot is not None else 0, entries[index][0])
        held = best[place]
        is_best = held is None or sign * amount > sign * held
        if is_best:
            best[place] = amount
        found[index] = Placement(slot, is_best)
    return found
