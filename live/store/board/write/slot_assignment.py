"""Assigns each entry of a batch to a slot, or refuses it, for example as `late`, by the last known clock.

The script that applies a plan checks the board's clock, and refuses the whole plan if the clock has moved. So a plan
made from an old state of the clock does no harm.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import chain, repeat
from operator import gt, lt
from typing import Any, Final, Literal

import msgspec

from live.domain.board import Board, Votes
from live.domain.event import MAX_SCORE, Entry, keys_of_likes
from live.domain.window import Sliding, closes_at
from live.store.board.state import Clock, planned_clock

_VOTER: Final = b"voter"
_PAIR: Final = b"pair"

Senders = Sequence[tuple[str, int]]
"""The pieces of a batch in order: the id of the producer of each, and how many entries it has."""


class SlotPlan(msgspec.Struct):
    """The changes of a plan in one slot.

    Attributes:
        amounts: the amount of each member.
        orders: for each member, the number of the event without a time with which it reached its amount; see
            `SlotDelta`.
        timed: for each member, the time (ms) and the number of the event with a time with which it reached its amount.
        metadata: the metadata (JSON) of each member; empty to delete it.
        votes: the digests of each vote, and the change to their counts.
        voted: for each vote its member, and the number of its producer in the batch.
        voters: for each vote the index of its entry.
        parts: what each producer but the first added, if the board adds up amounts and the batch has several producers.
        drops: the members that leave the slot.
        moments: on a board with an event clock, each event: its time (ms), its number, its member and its amount.
        replaced: the number of each vote that is taken back only together with the vote after it.
    """

    amounts: dict[str, int] = {}
    orders: dict[str, int] = {}
    metadata: dict[str, bytes] = {}
    votes: list[tuple[bytes, bytes, int]] = []
    voted: list[tuple[str, int]] = []
    parts: dict[int, dict[str, int]] = {}
    drops: list[str] = []
    moments: list[tuple[int, int, str, int]] = []
    replaced: list[int] = []
    timed: dict[str, tuple[int, int]] = {}
    voters: list[int] = []

    def marks(self) -> tuple[list[int], list[int | Literal[False]], list[int]]:
        """Return `orders`, `times` and `arrivals` as in `SlotDelta`."""
        orders, timed = self.orders, self.timed
        if not timed:
            return [orders.get(member, 0) for member in self.amounts], [], []
        both = [(place, member) for place, member in enumerate(self.amounts, 1) if member in timed] if orders else []
        arrivals = [word for place, member in both if member in orders for word in (place, orders[member])]
        marks = [timed.get(member) or (False, orders.get(member, 0)) for member in self.amounts]
        return [number for _, number in marks], [time for time, _ in marks], arrivals


class Plan(msgspec.Struct):
    """A planned batch.

    Attributes:
        current: the newest slot before the batch; None if there is none yet.
        reached: the newest slot after the batch.
        now: the board's time, in ms.
        till: the plan is valid before this time of the board, in ms; None means no limit.
        latest: the newest event time in the batch, in ms.
        slots: what the batch does to each slot.
        refused: the index of each refused entry, with a code of `REFUSALS` or `duplicate`.
        identities: the identities of the counted entries, each with its index, in order.
        refused_identities: the identities of refused entries. If the store knows one of them, its event was counted
            before.
        events: the events for the log of a sliding window.
        producers: the producers of the batch; empty if they are not known.
        senders: the number of the producer of each entry; empty unless there are several producers.
        event_senders: the number of the producer of each of `events`; empty unless there are several producers.
        held: what each member of a correction or a merge holds in each slot; None for other plans.
        reason: why an administrator corrects or merges scores.
    """

    current: int | None
    reached: int | None
    now: int
    till: int | None = None
    latest: int | None = None
    slots: dict[int, SlotPlan] = {}
    refused: dict[int, str] = {}
    identities: dict[bytes, int] = {}
    refused_identities: dict[bytes, None] = {}
    events: list[tuple[int | None, int, str]] = []
    producers: list[str] = []
    senders: list[int] = []
    event_senders: list[int] = []
    held: Mapping[str, Mapping[int, bytes]] | None = None
    reason: str = ""

    @property
    def voters(self) -> list[int]:
        """The index of the entry of each vote, in the order in which the script numbers votes: slot by slot."""
        return [index for group in self.slots.values() for index in group.voters]

    @property
    def looked_up(self) -> list[bytes]:
        """The identities that only refused entries have."""
        return [identity for identity in self.refused_identities if identity not in self.identities]

    def hold_till(self, time: int) -> None:
        """Make the plan valid only before this time of the board, in ms."""
        self.till = time if self.till is None else min(self.till, time)


def make_plan(
    board: Board,
    entries: Sequence[Entry],
    indexes: Sequence[int],
    clock: Clock,
    newest_time: int | None,
    secret: bytes = b"",
    senders: Senders = (),
) -> Plan:
    """Plan the entries at `indexes`, in that order. If entries have the same identity, only the first counts.

    Args:
        board: the board.
        entries: the batch.
        indexes: the indexes of the entries to plan.
        clock: the board's clock.
        newest_time: the latest time (ms) that an event may have; None leaves the check to the script.
        secret: the board's secret, the key of the digests of voters.
        senders: who sent the batch; empty if that is not known.
    """
    plan = begin_plan(board, clock)
    plan.producers = list(dict.fromkeys([name for name, _ in senders]))
    # The journal tells what each producer sent, so that an operator can void the events of one producer. Few batches
    # have several producers.
    if len(plan.producers) > 1:
        numbers = {name: number for number, name in enumerate(plan.producers)}
        plan.senders = list(chain.from_iterable(repeat(numbers[name], count) for name, count in senders))
    is_whole = board.bare and board.clock == "server" and len(indexes) == len(entries)
    if is_whole and (keys := keys_of_likes(entries)) is not None:
        _plan_likes(plan, board, keys)
        return plan
    for index in indexes:
        _plan_entry(plan, board, entries, index, newest_time, secret)
    return plan


def begin_plan(board: Board, clock: Clock) -> Plan:
    """Return an empty plan by the board's clock."""
    planned = planned_clock(board, clock)
    now = clock.now if board.clock == "server" or clock.latest is None else clock.latest
    return Plan(planned.current, planned.current, now, planned.till)


def _plan_likes(plan: Plan, board: Board, keys: list[str]) -> None:
    """Plan likes that consist of a member only, and add up all likes of a member at once."""
    assert plan.current is not None, "a server clock always has a newest slot"  # noqa: S101
    group = plan.slots[plan.current] = SlotPlan(dict(Counter(keys)))
    if board.ties != "key":
        group.orders = {key: -number for number, key in enumerate(keys, 1)}
    if plan.senders:
        for sender, key in zip(plan.senders, keys, strict=True):
            _share(group, sender, key, 1)
    if isinstance(board.window, Sliding):
        if plan.senders:
            plan.events, plan.event_senders = [(None, 1, key) for key in keys], plan.senders
        else:
            plan.events = [(None, amount, key) for key, amount in group.amounts.items()]


def _plan_entry(
    plan: Plan, board: Board, entries: Sequence[Entry], index: int, newest_time: int | None, secret: bytes
) -> None:
    key, amount, time, identity, extra = entries[index]
    if identity in plan.identities:
        plan.refused[index] = "duplicate"
        return
    slot = assign_slot(plan, board, entries[index], newest_time)
    if isinstance(slot, str):
        plan.refused[index] = slot
        if identity is not None:
            plan.refused_identities[identity] = None
        return
    if identity is not None:
        plan.identities[identity] = index
    group = plan.slots.get(slot)
    if group is None:
        group = plan.slots[slot] = SlotPlan({}, {}, {}, [], [], {})
    number = index + 1
    if board.votes is not None:
        number *= 2  # a vote that replaces another one takes that one back with the number before
        if extra is not None and extra.replaces is not None:
            _take_back(plan, board, group, entries[index], index, secret)
    if board.clock == "event" and time is not None:
        group.moments.append((time, number, key, amount))
    sender = plan.senders[index] if plan.senders else 0
    if sender and board.operator == "incr":
        _share(group, sender, key, amount)
    if _count(group, board, key, amount, time, number):
        group.metadata[key] = b"" if extra is None or extra.metadata is None else extra.metadata
    if board.votes is not None and extra is not None and extra.actor is not None:
        group.votes.append((*voter_digests(secret, extra.actor, key), amount))
        group.voted.append((key, sender))
        group.voters.append(index)
    if isinstance(board.window, Sliding) and (amount or board.zeros):
        plan.events.append((time, amount, key))
        if plan.senders:
            plan.event_senders.append(sender)


def _take_back(plan: Plan, board: Board, group: SlotPlan, entry: Entry, index: int, secret: bytes) -> None:
    """Plan to take back the vote that an entry replaces. The new vote follows it, and the script judges both as one."""
    _, amount, time, _, extra = entry
    assert extra is not None, "it replaces a vote"  # noqa: S101
    key, actor, sender = extra.replaces or "", extra.actor or "", plan.senders[index] if plan.senders else 0
    number = 2 * index + 1
    if board.clock == "event" and time is not None:
        group.moments.append((time, number, key, -amount))
    _share(group, sender, key, -amount)
    _count(group, board, key, -amount, time, number)
    group.votes.append((*voter_digests(secret, actor, key), -amount))
    group.voted.append((key, sender))
    group.replaced.append(len(group.votes))
    group.voters.append(index)


def _share(group: SlotPlan, sender: int, key: str, amount: int) -> None:
    """Record what a producer added, unless it is the first producer of the batch."""
    if sender:
        part = group.parts.setdefault(sender, {})
        part[key] = part.get(key, 0) + amount


def assign_slot(plan: Plan, board: Board, entry: Entry, newest_time: int | None) -> int | str:
    """Return the slot in which an entry counts, or the code of its refusal. Refused entries do not move the clock."""
    key, amount, time, _, extra = entry
    if extra is not None and (extra.refused is not None or (extra.replaces is not None and board.votes is None)):
        return extra.refused or "replaces_invalid"
    if time is None:
        if board.clock == "event" or plan.current is None:
            return "time_required"
        start = plan.current
    else:
        slot = board.window.slot_at(time // 1000)
        start = slot.start
        closes = None if plan.reached is None else closes_at(board.window, slot, time, plan.reached)
        if closes is not None:
            if board.votes is not None and slot.start >= board.window.oldest(plan.reached or 0):
                closes = max(closes, board.votes.final_in(slot.start * 1000, slot.end * 1000))
            if plan.now >= closes:
                return "late"
            plan.hold_till(closes)
    fault = None if board.votes is None else _vote_fault(plan, board.votes, board.clock, entry, start)
    if fault is None and newest_time is not None and time is not None and time > newest_time:
        fault = "early"
    if fault is None and board.operator == "incr":
        group = plan.slots.get(start)
        if group is not None and key in group.amounts and not _can_add(board, group.amounts[key], amount):
            fault = "score_out_of_range"
    if fault is not None:
        return fault
    if time is not None:
        if plan.latest is None or time > plan.latest:
            plan.latest = time
        if board.clock == "event":  # the event moves the clock
            plan.now = max(plan.now, time) if plan.reached is not None else time
            if plan.reached is None or start > plan.reached:
                plan.reached = start
    return start


def _can_add(board: Board, first: int, second: int) -> bool:
    """Tell whether the script can read the sum of two amounts exactly, and so check the value of the slot."""
    return abs(first + second) <= MAX_SCORE if board.sums is None else board.sums.can_add(first, second)


def _count(group: SlotPlan, board: Board, key: str, amount: int, time: int | None, number: int) -> bool:
    """Combine an amount with earlier amounts of the same member, and record which event decides its order.

    Return whether the metadata of the event replaces the metadata of earlier events.
    """
    amounts, operator = group.amounts, board.operator
    before = amounts.get(key)
    if operator == "incr":
        amounts[key] = (before or 0) + amount
        if board.ties != "key" and (amount or board.zeros):
            if time is None:
                group.orders[key] = -number
            else:
                _mark(group, board, key, time, -number)
        return False
    if before == amount:
        if operator == "best":
            _mark(group, board, key, time, number)
        return operator == "set"
    if before is not None and operator == "best" and (amount < before) == (board.sort_order == "desc"):
        return False
    amounts[key] = amount
    group.orders.pop(key, None)
    group.timed.pop(key, None)
    _mark(group, board, key, time, number if before is None or operator == "best" else -number)
    return True


def _mark(group: SlotPlan, board: Board, key: str, time: int | None, number: int) -> None:
    """Record an event if it is the latest one of its member; for the best amount, if it is the earliest one."""
    if board.ties == "key":
        return
    is_best = board.operator == "best"
    if time is None:
        if not is_best or key not in group.orders:
            group.orders[key] = number
        return
    held = group.timed.get(key)
    if held is None or (time < held[0] if is_best else time >= held[0]):
        group.timed[key] = time, number


def _vote_fault(plan: Plan, votes: Votes, clock: str, entry: Entry, start: int) -> str | None:
    """Return why an event is not a valid vote, or None if it is valid."""
    _, amount, time, _, extra = entry
    if extra is None or extra.actor is None:
        return "actor_required"
    if not votes.changes and (amount < 0 or extra.replaces is not None):
        return "votes_final"
    group = None if extra.replaces is None else plan.slots.get(start)
    if group is not None and abs(group.amounts.get(extra.replaces or "", 0) - amount) > MAX_SCORE:
        return "score_out_of_range"  # Lua could not read the sum exactly
    return _time_fault(plan, votes, time, by_event=clock == "event" and time is not None)


def _time_fault(plan: Plan, votes: Votes, time: int | None, *, by_event: bool) -> str | None:
    """Return why voting is not open for a vote, or None if it is.

    A vote with a time may arrive in the grace after the end. With an event clock, only the time counts (`by_event`).
    """
    opens, closes, ends = votes.opens, votes.closes, votes.closes if time is None else votes.final_at
    if opens is not None and time is not None and time < opens:
        return "not_open"
    if closes is not None and time is not None and time >= closes:
        return "closed"
    if by_event:
        return None
    if opens is not None and plan.now < opens:
        plan.hold_till(opens)
        return "not_open"
    if ends is not None:
        if plan.now >= ends:
            return "closed"
        plan.hold_till(ends)
    return None


def voter_digests(secret: bytes, actor: str, key: str) -> tuple[bytes, bytes]:
    """Return the digest of a voter, and the digest of a voter and a member. Nobody can forge them without the secret.

    Each has 16 bytes. The second one also covers the length of the actor, so that no two pairs have the same bytes.
    """
    name = actor.encode()
    voter = blake2b(name, digest_size=16, key=secret, person=_VOTER)
    pair = blake2b(b"%d:%s%s" % (len(name), name, key.encode()), digest_size=16, key=secret, person=_PAIR)
    return voter.digest(), pair.digest()


def changes_of(entry: Entry) -> Sequence[tuple[str, int]]:
    """Return the members that an entry changes, each with its amount."""
    key, amount, _, _, extra = entry
    if extra is None or extra.replaces is None:
        return ((key, amount),)
    return (extra.replaces, -amount), (key, amount)


def slot_of(board: Board, plan: Plan, entry: Entry) -> int | None:
    """Return the start of the slot of an entry that a plan does not refuse."""
    time = entry[2]
    return plan.current if time is None else board.window.slot_at(time // 1000).start


def refused_by_store(
    board: Board, reply: list[Any], entries: Sequence[Entry], indexes: Sequence[int], plan: Plan
) -> dict[int, str]:
    """Return the entries that `add.lua` refuses, with a code for each. The other entries can be planned again.

    A reply numbers identities and votes from 1.
    """
    planned = [index for index in indexes if index not in plan.refused]
    refused: dict[int, str] = {}
    match reply:
        case [b"seen", *numbers]:
            looked_up = [*plan.identities, *plan.looked_up]
            known = {looked_up[number - 1] for number in numbers}
            refused = {index: "duplicate" for index in indexes if entries[index][3] in known}
        case [b"frozen"]:
            refused = dict.fromkeys(indexes, "frozen")
        case [b"votes", *words]:
            codes = zip(words[::2], words[1::2], strict=True)
            voters = plan.voters
            refused = {voters[int(number) - 1]: code.decode() for number, code in codes}
        case [b"unregistered", *members]:
            unknown = {member.decode() for member in members}
            refused = {
                index: "entrant_unknown"
                for index in planned
                if not unknown.isdisjoint(member for member, _ in changes_of(entries[index]))
            }
        case [b"crowded", *words]:  # new members in slots that are full
            places = {(int(start), member.decode()) for start, member in zip(words[::2], words[1::2], strict=True)}
            refused = {
                index: "board_full"
                for index in planned
                if any((slot_of(board, plan, entries[index]), key) in places for key, _ in changes_of(entries[index]))
            }
        case [b"range", *words]:  # members whose entries together leave the range, with their amounts in slots
            triples = zip(words[::3], words[1::3], words[2::3], strict=True)
            held: dict[tuple[int | None, str], _Held] = {
                (int(start), member.decode()): _Held(board, value) for start, member, value in triples
            }
            for index in planned:  # the entries of these members are checked one by one, in order
                slot = slot_of(board, plan, entries[index])
                changes = [(held[slot, key], by) for key, by in changes_of(entries[index]) if (slot, key) in held]
                if all(value.has_room(by) for value, by in changes):
                    for value, by in changes:
                        value.add(by)
                else:
                    refused[index] = "score_out_of_range"
    return refused


class _Held:
    """What a member holds in a slot, as a reply `range` of the script says."""

    def __init__(self, board: Board, reply: bytes) -> None:
        value, _, below = reply.decode().partition(" ")
        self._board = board
        self._value = int(value)
        self._below = int(below) if below else None  # where fields add up in a sliding window; see `SumPacking.within`

    def has_room(self, amount: int) -> bool:
        """Tell whether the value stays in its range with one more amount."""
        if (sums := self._board.sums) is not None:
            return sums.within(self._value, amount, self._below)
        return abs(self._value + self._size(amount)) <= self._board.most

    def add(self, amount: int) -> None:
        """Add an amount."""
        self._value += self._size(amount)
        if self._below is not None:
            self._below += self._board.below_zero(amount)

    def _size(self, amount: int) -> int:
        """Return by how much an amount changes the value: the sum of a log is of absolute amounts."""
        is_log = isinstance(self._board.window, Sliding) and self._board.sums is None
        return abs(amount) if is_log else amount


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
    best: dict[tuple[int | None, str], int | None] = {
        place: int(value) if value else None for place, value in zip(members, beaten, strict=True)
    }
    beats, found = gt if board.sort_order == "desc" else lt, {}
    for index in counted:  # in order, because an entry can beat an earlier one of the batch
        slot, amount = slot_of(board, plan, entries[index]), entries[index][1]
        place = (slot, entries[index][0])
        held = best[place]
        is_best = held is None or beats(amount, held)
        if is_best:
            best[place] = amount
        found[index] = Placement(slot, is_best)
    return found
