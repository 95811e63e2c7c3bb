"""Which slots a batch goes to and which of its entries are refused: pure, given where the board's clock stands.

The script that applies a plan checks that the board stands where the plan took it to stand, and refuses the plan as a
whole otherwise; so a plan may be made from what was heard last, and be wrong, without harm.
"""

from collections.abc import Sequence

import msgspec

from live.board import Board
from live.event import MAX_SCORE, Entry


class Plan(msgspec.Struct):
    """A batch made ready: for each slot the amount of each key, equal keys added up.

    `current` is the newest slot before the batch (None for none yet), `reached` the newest after it; `latest` is the
    newest event time in ms. `refused` maps the index of an entry to a code of `REFUSALS`.
    """

    current: int | None
    reached: int | None
    latest: int | None = None
    slots: dict[int, dict[str, int]] = {}
    refused: dict[int, str] = {}

    @property
    def too_large(self) -> bool:
        """Whether some sum of amounts is out of the range in which the script's numbers are exact."""
        return any(abs(amount) > MAX_SCORE for amounts in self.slots.values() for amount in amounts.values())

    def groups(self) -> list[str | int]:
        """The batch as the script takes it: for each slot its start, the number of keys, then key, amount."""
        arguments: list[str | int] = []
        for start, amounts in self.slots.items():
            arguments += (start, len(amounts))
            for pair in amounts.items():
                arguments += pair
        return arguments


def make_plan(
    board: Board, entries: Sequence[Entry], indexes: Sequence[int], current: int | None, newest_time: int | None
) -> Plan:
    """Plan the entries at `indexes`, in that order.

    Args:
        board: whose window and clock decide.
        entries: the batch.
        indexes: which of its entries to plan.
        current: the board's newest slot; None on an event clock that has seen no event.
        newest_time: the latest time (ms) that an event may have; None leaves that to the script.
    """
    window, by_event = board.window, board.clock == "event"
    plan = Plan(current, current)
    for index in indexes:
        key, amount, time = msgspec.structs.astuple(entries[index])
        if time is None:
            if by_event:
                plan.refused[index] = "time_required"
                continue
            slot = current
        else:
            slot = window.slot_of(time // 1000)
            if plan.reached is not None and slot < window.oldest_live(plan.reached):
                plan.refused[index] = "late"
                continue
            if newest_time is not None and time > newest_time:
                plan.refused[index] = "early"
                continue
            if plan.latest is None or time > plan.latest:
                plan.latest = time
            if by_event and (plan.reached is None or slot > plan.reached):
                plan.reached = slot
        assert slot is not None, "a server clock always has a newest slot"  # noqa: S101
        amounts = plan.slots.setdefault(slot, {})
        amounts[key] = amounts.get(key, 0) + amount
    return plan
