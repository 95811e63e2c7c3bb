"""Which slots a batch goes to and which of its entries are refused: pure, given where the board's clock stands.

The script that applies a plan checks that the board stands where the plan took it to stand, and refuses the plan as a
whole otherwise; so a plan may be made from what was heard last, and be wrong, without harm.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from live.board import Board
from live.event import MAX_SCORE, Entry, Likes


class Plan(msgspec.Struct):
    """A batch made ready: for each slot the amount of each key, equal keys added up.

    `current` is the newest slot before the batch (None for none yet), `reached` the newest after it; `latest` is the
    newest event time in ms. `refused` maps the index of an entry to a code of `REFUSALS`, or to `duplicate`.
    `identities` are those of the entries that are counted, each with its index, in their order.
    """

    current: int | None
    reached: int | None
    latest: int | None = None
    slots: dict[int, dict[str, int]] = {}
    refused: dict[int, str] = {}
    identities: dict[bytes, int] = {}

    @property
    def too_large(self) -> bool:
        """Whether some sum of amounts is out of the range in which the script's numbers are exact."""
        return any(max(map(abs, amounts.values())) > MAX_SCORE for amounts in self.slots.values())

    def groups(self) -> list[str | int]:
        """The batch as the script takes it: for each slot its start, the number of keys, the keys, their amounts."""
        arguments: list[str | int] = []
        for start, amounts in self.slots.items():
            arguments += (start, len(amounts), *amounts, *amounts.values())
        return arguments


def make_plan(
    board: Board, entries: Sequence[Entry], indexes: Sequence[int], current: int | None, newest_time: int | None
) -> Plan:
    """Plan the entries at `indexes`, in that order; of equal identities the first is counted.

    Args:
        board: whose window and clock decide.
        entries: the batch.
        indexes: which of its entries to plan.
        current: the board's newest slot; None on an event clock that has seen no event.
        newest_time: the latest time (ms) that an event may have; None leaves that to the script.
    """
    plan = Plan(current, current)
    if isinstance(entries, Likes) and len(indexes) == len(entries) and current is not None and board.clock == "server":
        plan.slots[current] = Counter(entries.keys)
        return plan
    slots, refused, identities = plan.slots, plan.refused, plan.identities
    by_event = board.clock == "event"
    for index in indexes:
        key, amount, time, identity = entries[index]
        if identity in identities:
            refused[index] = "duplicate"
            continue
        slot: int | str | None = "time_required" if by_event else current
        if time is not None:
            slot = _slot_of(plan, board, time, newest_time)
        if isinstance(slot, str):
            refused[index] = slot
            continue
        assert slot is not None, "a server clock always has a newest slot"  # noqa: S101
        if identity is not None:
            identities[identity] = index
        amounts = slots.get(slot)
        if amounts is None:
            amounts = slots[slot] = {}
        amounts[key] = amounts.get(key, 0) + amount
    return plan


def _slot_of(plan: Plan, board: Board, time: int, newest_time: int | None) -> int | str:
    """The slot of an event that gives its time, or why it is refused; moves the clock that runs on such times."""
    window = board.window
    slot = window.slot_of(time // 1000)
    if plan.reached is not None and slot < window.oldest_live(plan.reached):
        return "late"
    if newest_time is not None and time > newest_time:
        return "early"
    if plan.latest is None or time > plan.latest:
        plan.latest = time
    if board.clock == "event" and (plan.reached is None or slot > plan.reached):
        plan.reached = slot
    return slot


def known_again(entries: Sequence[Entry], indexes: Sequence[int], plan: Plan, numbers: Sequence[int]) -> dict[int, str]:
    """The entries whose identity the store knows, by its number in the plan; all of them that stand in the batch."""
    planned = list(plan.identities)
    known = {planned[number - 1] for number in numbers}
    return {
        index: "duplicate"
        for index in indexes
        if entries[index][3] in known and plan.refused.get(index, "duplicate") == "duplicate"
    }
