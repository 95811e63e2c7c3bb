"""Moves the amounts of one member to another as one batch. Viewers see an ordinary change."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from live.domain.board import Board
from live.domain.window import EVER, Sliding
from live.errors import REFUSALS, SetupError, StoreUnavailableError
from live.store.board.read.reader import PLACE
from live.store.board.state import BoardState
from live.store.board.write.correction import CODES, read_held
from live.store.board.write.slot_assignment import Plan, SlotPlan, begin_plan
from live.store.board.write.writer import BoardWriter

MERGER: Final = ":merge"
"""The producer of merges in the journal. No API key can have this id."""

_ATTEMPTS: Final = 100  # each failed attempt means that a member received something between reading and writing


class Value(NamedTuple):
    """The value of a member in a slot of a board with the best or the last amount, and its metadata (JSON)."""

    value: int
    metadata: bytes = b""


class Move(msgspec.Struct):
    """The changes of a merge on a board, computed from the last read amounts of its members.

    Attributes:
        old: the member that gives everything up.
        new: the member that gets it.
        reason: the reason that the journal keeps.
        held: what each member held in each slot.
        amounts: on boards that add up amounts, what moves in each slot. In a sliding window, what moves of each time
            (milliseconds).
        values: on boards with the best or the last amount, what the new member has in each slot afterwards.
        is_whole: whether the move is of everything that the old member has. Then it fails if the members have changed.
        slots: in how many slots the last plan changes something.
    """

    old: str
    new: str
    reason: str
    held: Mapping[str, Mapping[int, bytes]]
    amounts: Mapping[int, int] = {}
    values: Mapping[int, Value] = {}
    is_whole: bool = True
    slots: int = 0

    def fill(self, board: Board, plan: Plan) -> None:
        """Plan the amounts of the move that still count by the board's clock."""
        plan.producers, plan.reason, plan.held = [MERGER], self.reason, self.held if self.is_whole else None
        if isinstance(board.window, Sliding):
            length = board.window.length * 1000
            events = [event for event in sorted(self.amounts.items()) if event[0] > plan.now - length]
            if events:
                plan.hold_till(events[0][0] + length)
                for time, amount in events:
                    plan.events += [(time, -amount, self.old), (time, amount, self.new)]
                plan.slots = {EVER.start: self._added(board, sum(amount for _, amount in events))}
        elif plan.current is not None:
            oldest = board.window.oldest(plan.current)
            added = {start: self._added(board, amount) for start, amount in self.amounts.items() if start >= oldest}
            put = {start: self._put(board, start, value) for start, value in self.values.items() if start >= oldest}
            plan.slots = added | put
        self.slots = len(plan.slots)

    def _added(self, board: Board, amount: int) -> SlotPlan:
        orders = {self.new: -1 if amount or board.zeros else 0, self.old: -2 if amount else 0}
        planned = SlotPlan({self.new: amount, self.old: -amount}, orders if board.ties != "key" else {})
        # Events stay in the log of a sliding window until they have left the window.
        if board.zeros and not isinstance(board.window, Sliding):
            planned.drops.append(self.old)
        return planned

    def _put(self, board: Board, start: int, value: Value) -> SlotPlan:
        held = self.held[self.new][start]
        planned = SlotPlan({self.new: value.value, self.old: int(self.held[self.old][start])})
        planned.orders = {self.new: 0 if held and int(held) == value.value else -1, self.old: 0}
        if board.described:
            planned.metadata = {self.new: value.metadata, self.old: b""}
        planned.drops.append(self.old)
        return planned


def merged(
    board: Board,
    members: tuple[str, str],
    reason: str,
    held: Mapping[str, Mapping[int, bytes]],
    *,
    events: Mapping[int, int],
    metadata: Mapping[str, Mapping[int, bytes]],
) -> Move:
    """Return the move that gives everything of the first of two members to the second one.

    Args:
        board: the board.
        members: both members.
        reason: see `Move`.
        held: what each member holds in each slot.
        events: in a sliding window, the sum of the first member's events at each time.
        metadata: the metadata of each member in each slot.
    """
    old, new = members
    move = Move(old, new, reason, held)
    if isinstance(board.window, Sliding):
        move.amounts = {time: amount for time, amount in events.items() if amount or board.zeros}
        return move
    starts = [start for start, value in held[old].items() if value]
    if board.operator == "incr":
        move.amounts = {start: int(held[old][start]) for start in starts}
        return move
    values: dict[int, Value] = {}
    for start in starts:
        first, second = (Value(int(held[one][start] or 0), metadata[one][start]) for one in members)
        is_better = first.value > second.value if board.sort_order == "desc" else first.value < second.value
        takes = not held[new][start] or (board.operator == "best" and is_better)
        values[start] = first if takes else second
    move.values = values
    return move


async def read_metadata(
    state: BoardState, members: Sequence[str], starts: Sequence[int]
) -> dict[str, dict[int, bytes]]:
    """Read the metadata (JSON) of members in each slot; empty for none."""
    keys = [state.table(start).metadata for start in starts]
    rows = await state.client.calls([(key, ("HMGET", key, *members)) for key in keys])
    return {
        member: {start: row[place] or b"" for start, row in zip(starts, rows, strict=True)}
        for place, member in enumerate(members)
    }


async def read_events(state: BoardState, members: Collection[str]) -> dict[str, dict[int, int]]:
    """Return the sum of each member's events in a sliding window, for each time (in milliseconds)."""
    found: dict[bytes, tuple[str, int, int]] = {}
    sums: dict[str, dict[int, int]] = {member: {} for member in members}
    async for events in state.client.elements("ZSCAN", state.keys.log):
        for event, time in zip(events[::2], events[1::2], strict=True):
            amount, _, owner = event[PLACE:].partition(b" ")
            if (member := owner.decode()) in sums:
                found[event] = member, int(float(time)), int(amount)
    for member, at, number in found.values():
        sums[member][at] = sums[member].get(at, 0) + number
    return sums


async def read_move(state: BoardState, members: tuple[str, str], reason: str) -> Move:
    """Return the move that merges two members as they are now. See `merged`."""
    old = members[0]
    events = (await read_events(state, [old]))[old] if isinstance(state.board.window, Sliding) else {}
    held = await read_held(state, members)
    metadata = await read_metadata(state, members, list(held[members[0]]))
    return merged(state.board, members, reason, held, events=events, metadata=metadata)


async def put_move(writer: BoardWriter, make: Callable[[], Awaitable[Move]], *, dry: bool = False) -> Move:
    """Apply a move exactly once, even if other processes change the members meanwhile.

    `make` computes the move from the present amounts.

    Raises:
        SetupError: the board refuses the move.
        StoreUnavailableError, JournalBehindError, EpochLostError: as `BoardWriter.add`.
    """
    state = writer.state
    for _ in range(_ATTEMPTS):
        move = await make()
        if dry:
            move.fill(state.board, begin_plan(state.board, state.clock))
            return move
        match await writer.put(move.fill):
            case [b"ok", offset, *_]:
                if not await writer.is_in_sql(int(offset)):
                    raise StoreUnavailableError(f"board {state.board.id}: another server took over", unknown=True)
                return move
            case [b"nothing"]:
                return move
            case [b"changed"]:
                continue
            case [reason, *_]:
                raise SetupError(REFUSALS[CODES[reason]])
    raise StoreUnavailableError(f"board {state.board.id}: the scores changed {_ATTEMPTS} times in a row")
