"""Moves the amounts of one member to another as one batch. Viewers see an ordinary change."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from live.domain.board import Board, Rules
from live.domain.window import EVER, Sliding
from live.errors import REFUSALS, SetupError, StoreUnavailableError
from live.store.board.batch import NO_METADATA, LogEvents, SlotDelta
from live.store.board.keys import Keys
from live.store.board.read.reader import PLACE
from live.store.board.state import BoardState
from live.store.board.write.correction import CODES, read_fields, read_held
from live.store.board.write.slot_assignment import Plan, begin_plan
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import Store
from live.store.connection.scripts import text

MERGER: Final = ":merge"
"""The producer of merges in the journal. No API key can have this id."""

_OLD: Final = 2  # in the groups of a merge, the number of the member that is given up
_ATTEMPTS: Final = 100  # each failed attempt means that a member received something between reading and writing


NO_TAGS: Final[Mapping[str, bytes]] = MappingProxyType({})


class Value(NamedTuple):
    """The value of a member in a slot of a board with the best or the last amount, and its metadata (JSON)."""

    value: int
    metadata: bytes = b""


class Move(msgspec.Struct):
    """The changes of a merge on a board, computed from the last read amounts of its members."""

    old: str
    new: str
    reason: str  # for the journal
    held: Mapping[str, Mapping[int, bytes]]  # what each member held in each slot
    # On boards that add up amounts, what moves in each slot. In a sliding window, what moves of each time
    # (milliseconds).
    amounts: Mapping[int, int] = {}
    # On boards with the best or the last amount, what the new member has in each slot afterwards.
    values: Mapping[int, Value] = {}
    # Whether the move is of everything that the old member has. Then it fails if the members have changed.
    is_whole: bool = True
    # If the old member is renamed, its tag in each ranking, by the suffix of the ranking; empty for none. The new
    # member takes it over, unless it has one.
    tags: Mapping[str, bytes] = NO_TAGS
    slots: int = 0  # in how many slots the last plan changes something

    def fill(self, board: Board, plan: Plan) -> None:
        """Plan the amounts of the move that still count by the board's clock."""
        batch, both, rules = plan.batch, (self.new, self.old), board.rules
        batch.producers, batch.reason, oldest = [MERGER], self.reason, 0
        plan.held = self.held if self.is_whole else None
        if isinstance(board.window, Sliding):
            length = board.window.length * 1000
            oldest = plan.now - length
            events = [event for event in sorted(self.amounts.items()) if event[0] > oldest]
            if events:
                plan.hold_till(events[0][0] + length)
                batch.events = logged(both, events)
                amount = sum(amount for _, amount in events)
                plan.slots[EVER.start] = sum_moved(rules, EVER.start, "", both, amount, in_log=True)
        elif plan.current is not None:
            oldest = board.window.oldest(plan.current)
            for start in sorted(self.amounts.keys() | self.values.keys()):
                if start < oldest:
                    continue
                suffix = f":{start}" if board.window.tables else ""
                if board.operator == "incr":
                    plan.slots[start] = sum_moved(rules, start, suffix, both, self.amounts[start])
                else:
                    held = [int(self.held[one][start]) if self.held[one][start] else None for one in both]
                    plan.slots[start] = value_moved(rules, start, suffix, both, held, self.values[start])
        suffixes = {group.suffix for group in plan.slots.values()}
        batch.since = oldest if self.is_whole else None
        batch.tags = {suffix: text(tag) for suffix, tag in self.tags.items() if suffix in suffixes}
        self.slots = len(plan.slots)


def sum_moved(
    rules: Rules, start: int, suffix: str, both: tuple[str, str], amount: int, *, in_log: bool = False
) -> SlotDelta:
    """Return the change that moves an amount in a slot to the first of two members."""
    new, old = both
    group = SlotDelta.of(start, suffix, {new: amount, old: -amount})
    if rules.ties:
        group.orders = [-1 if amount or rules.zeros else 0, -2 if amount else 0]
    # Events stay in the log of a sliding window until they have left the window.
    if rules.zeros and not in_log:
        group.drops = [_OLD]
    return group


def value_moved(
    rules: Rules, start: int, suffix: str, both: tuple[str, str], held: Sequence[int | None], value: Value
) -> SlotDelta:
    """Return the change after which the first of two members has a value in a slot, and the second one has none."""
    group = SlotDelta.of(start, suffix, {both[0]: value.value, both[1]: held[1] or 0})
    if rules.ties:
        group.orders = [0 if held[0] == value.value else -1, 0]
    group.metadata = [text(value.metadata), NO_METADATA]
    group.drops = [_OLD]
    return group


def chosen(operation: str, new: Value | None, old: Value) -> Value:
    """Return which of two values the first of two members keeps."""
    if new is None or (operation == "max" and old.value > new.value) or (operation == "min" and old.value < new.value):
        return old
    return new


def logged(both: tuple[str, str], amounts: Sequence[tuple[int, int]]) -> LogEvents:
    """Return the events that move amounts in a sliding window, each with its time, to the first of two members."""
    log = LogEvents()
    for time, amount in amounts:
        log.times += [time, time]
        log.amounts += [-amount, amount]
        log.members += [both[1], both[0]]
    return log


def merged(
    board: Board,
    members: tuple[str, str],
    reason: str,
    held: Mapping[str, Mapping[int, bytes]],
    *,
    events: Mapping[int, int],
    metadata: Mapping[str, Mapping[int, bytes]],
    tags: Mapping[str, bytes] = NO_TAGS,
) -> Move:
    """Return the move that gives everything of the first of two members to the second one.

    `events` are, in a sliding window, the sums of the first member's events at each time. `held` and `metadata` have
    what each member holds in each slot.
    """
    old, new = members
    move = Move(old, new, reason, held, tags=tags)
    if isinstance(board.window, Sliding):
        move.amounts = {time: amount for time, amount in events.items() if amount or board.zeros}
        return move
    starts = [start for start, value in held[old].items() if value]
    if board.operator == "incr":
        move.amounts = {start: int(held[old][start]) for start in starts}
        return move
    move.values = {
        start: chosen(
            board.operation,
            Value(int(held[new][start]), metadata[new][start]) if held[new][start] else None,
            Value(int(held[old][start]), metadata[old][start]),
        )
        for start in starts
    }
    return move


async def read_events(client: Store, keys: Keys, members: Collection[str]) -> dict[str, dict[int, int]]:
    """Return the sum of each member's events in a sliding window, for each time (in milliseconds)."""
    found: dict[bytes, tuple[str, int, int]] = {}
    sums: dict[str, dict[int, int]] = {member: {} for member in members}
    async for events in client.elements("ZSCAN", keys.log):
        for event, time in zip(events[::2], events[1::2], strict=True):
            amount, _, owner = event[PLACE:].partition(b" ")
            if (member := owner.decode()) in sums:
                found[event] = member, int(float(time)), int(amount)
    for member, at, number in found.values():
        sums[member][at] = sums[member].get(at, 0) + number
    return sums


async def read_tags(state: BoardState, members: tuple[str, str], starts: Iterable[int]) -> dict[str, bytes]:
    """Return the tag that the second of two members takes over from the first one in each ranking; empty for none."""
    tables = {table.suffix: table.reached for table in map(state.table, starts)}
    tags = await state.client.calls([(key, ("HMGET", key, *members)) for key in tables.values()])
    return {suffix: b"" if own else tag or b"" for suffix, (tag, own) in zip(tables, tags, strict=True)}


async def read_move(state: BoardState, members: tuple[str, str], reason: str, *, renames: bool = False) -> Move:
    """Return the move that merges two members as they are now. See `merged`.

    If it `renames` a member, the new member takes over the place among ties, unless it has one.
    """
    old = members[0]
    events = (
        (await read_events(state.client, state.keys, [old]))[old] if isinstance(state.board.window, Sliding) else {}
    )
    held = await read_held(state, members)
    metadata = await read_fields(state, members, {start: state.table(start).metadata for start in held[old]})
    tags = await read_tags(state, members, held[old]) if renames else NO_TAGS
    return merged(state.board, members, reason, held, events=events, metadata=metadata, tags=tags)


async def put_move(writer: BoardWriter, make: Callable[[], Awaitable[Move]], *, dry: bool = False) -> Move:
    """Apply a move exactly once, even if other processes change the members meanwhile.

    `make` computes the move from the present amounts.
    """
    state = writer.state
    for _ in range(_ATTEMPTS):
        move = await make()
        if dry:
            move.fill(state.board, begin_plan(state.board, state.clock))
            return move
        match await writer.put(move.fill):
            case [b"ok" | b"nothing", *_]:
                return move
            case [b"changed"]:
                continue
            case [reason, *_]:
                raise SetupError(REFUSALS[CODES[reason]])
    raise StoreUnavailableError(f"board {state.board.id}: the scores changed {_ATTEMPTS} times in a row")
