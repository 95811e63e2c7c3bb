"""Assigns each entry of a batch to a slot, or refuses it, for example as `late`, by the last known clock.

The script that applies a plan checks the board's clock, and refuses the whole plan if the clock has moved. So a plan
made from an old state of the clock does no harm.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import chain, repeat
from operator import gt, lt
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.domain.choices import Votes
from live.domain.event import MAX_SCORE, Entry, make_entry, members_of_likes
from live.domain.window import Sliding, closes_at
from live.store.board.batch import NO_METADATA, Batch, BatchVotes, LogEvents, SlotDelta, SlotEvents
from live.store.board.state import Clock, planned_clock
from live.store.connection.scripts import text

_VOTER: Final = b"voter"
_PAIR: Final = b"pair"

Senders = Sequence[tuple[str, int]]
"""The pieces of a batch in order: the id of the producer of each, and how many entries it has."""


class Plan(msgspec.Struct):
    """A planned batch."""

    batch: Batch  # what the batch does to the board
    current: int | None  # the newest slot before the batch; None if there is none yet
    now: int  # the board's time, in ms
    till: int | None = None  # the plan is valid before this time of the board, in ms; None means no limit
    slots: dict[int, SlotDelta] = {}  # what the batch does to each slot: its `groups`, by the starts of the slots
    refused: dict[int, str] = {}  # the index of each refused entry, with a code of `REFUSALS` or `duplicate`
    identities: dict[bytes, int] = {}  # the identities of the counted entries, each with its index, in order
    # The identities of refused entries. If the store knows one of them, its event was counted before.
    refused_identities: dict[bytes, None] = {}
    senders: list[int] = []  # the number of the producer of each entry; empty unless there are several producers
    cast: dict[int, list[int]] = {}  # for each slot, the index of the entry of each of its votes
    # What each member of a correction or a merge holds in each slot; None for other plans.
    held: Mapping[str, Mapping[int, bytes]] | None = None

    @property
    def voters(self) -> list[int]:
        """The index of the entry of each vote, in the order in which the script numbers votes: slot by slot."""
        return [index for start in self.slots for index in self.cast.get(start, ())]

    @property
    def looked_up(self) -> list[bytes]:
        """The identities that only refused entries have."""
        return [identity for identity in self.refused_identities if identity not in self.identities]

    def hold_till(self, time: int) -> None:
        """Make the plan valid only before this time of the board, in ms."""
        self.till = time if self.till is None else min(self.till, time)

    def slot(self, board: Board, start: int) -> SlotDelta:
        """Return what the batch does to a slot."""
        group = self.slots.get(start)
        return self.put(board, start, {}) if group is None else group

    def put(self, board: Board, start: int, amounts: Mapping[str, int]) -> SlotDelta:
        """Add these amounts to a slot, and nothing else. Return what the batch does to the slot."""
        suffix = f":{start}" if board.window.tables else ""
        group = self.slots[start] = SlotDelta.of(start, suffix, amounts)
        return group

    def log(self, time: int | None, amount: int, member: str) -> None:
        """Add an event to the log of a sliding window. Without a time (ms), it happens when the batch arrives."""
        events = self.batch.events
        if events is None:
            events = self.batch.events = LogEvents()
        events.times.append(False if time is None else time)
        events.amounts.append(amount)
        events.members.append(member)

    def vote(self, group: SlotDelta, digests: tuple[bytes, bytes], change: int, place: int, index: int) -> BatchVotes:
        """Add a vote for the member at `place`, which the entry at `index` gives. Return all votes in the slot."""
        votes = group.votes
        if votes is None:
            votes = group.votes = BatchVotes()
        votes.actors.append(text(digests[0]))
        votes.pairs.append(text(digests[1]))
        votes.changes.append(change)
        votes.members.append(place)
        self.cast.setdefault(group.start, []).append(index)
        return votes


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

    `newest_time` is the latest time (ms) that an event may have; None leaves the check to the script. `secret` is the
    key of the digests of voters. `senders` have sent the batch; empty if they are not known.
    """
    plan = begin_plan(board, clock)
    producers = plan.batch.producers = list(dict.fromkeys([name for name, _ in senders]))
    # The journal tells what each producer sent, so that an operator can void the events of one producer. Few batches
    # have several producers.
    if len(producers) > 1:
        numbers = {name: number for number, name in enumerate(producers)}
        plan.senders = list(chain.from_iterable(repeat(numbers[name], count) for name, count in senders))
    is_whole = board.bare and board.clock == "server" and len(indexes) == len(entries)
    if is_whole and (members := members_of_likes(entries)) is not None:
        _plan_likes(plan, board, members)
        return plan
    _plan_entries(plan, board, entries, indexes, newest_time, secret)
    return plan


def begin_plan(board: Board, clock: Clock) -> Plan:
    """Return an empty plan by the board's clock."""
    planned, by_event = planned_clock(board, clock), board.clock == "event"
    now = clock.latest if by_event and clock.latest is not None else clock.now
    return Plan(
        Batch(rules=board.rules, by_event=by_event, reached=planned.current), planned.current, now, planned.till
    )


def _plan_likes(plan: Plan, board: Board, members: list[str]) -> None:
    """Add up all likes of a member at once: they consist of a member only."""
    assert plan.current is not None, "a server clock always has a newest slot"  # noqa: S101
    group = plan.put(board, plan.current, Counter(members))
    if board.ties != "key":
        group.orders = list({member: -number for number, member in enumerate(members, 1)}.values())
    is_single, is_logged = len(members) == len(group.members), isinstance(board.window, Sliding)
    if plan.senders:
        group.events = SlotEvents(producers=plan.senders)
        if not (is_single or is_logged):
            group.events.members = [group.places[member] for member in members]
    elif not is_single:
        group.events = SlotEvents(ones=True)
    if is_logged:
        if plan.senders:
            plan.batch.events = LogEvents([False] * len(members), [1] * len(members), members)
        else:
            plan.batch.events = LogEvents([False] * len(group.members), group.amounts, group.members)


def _plan_entries(
    plan: Plan, board: Board, entries: Sequence[Entry], indexes: Sequence[int], newest_time: int | None, secret: bytes
) -> None:
    batch, senders = plan.batch, plan.senders
    rules, logs = batch.rules, isinstance(board.window, Sliding)
    starts: list[int] = []
    for index in indexes:
        entry = entries[index]
        member, amount, time, identity, extra = entry
        if identity in plan.identities:
            plan.refused[index] = "duplicate"
            continue
        slot = assign_slot(plan, board, entry, newest_time)
        if isinstance(slot, str):
            plan.refused[index] = slot
            if identity is not None:
                plan.refused_identities[identity] = None
            continue
        if identity is not None:
            plan.identities[identity] = index
        starts.append(slot)
        group = plan.slots.get(slot)
        if group is None:
            group = plan.put(board, slot, {})
        if board.votes is not None:
            _plan_vote(plan, group, entry, index, secret)
            continue
        metadata = NO_METADATA if extra is None or extra.metadata is None else text(extra.metadata)
        group.add(rules, member, amount, time, index + 1, metadata)
        if logs and (amount or rules.zeros):
            plan.log(time, amount, member)
    # The batch tells everything of a single event.
    if starts and (len(entries) > 1 or senders):
        _tell(plan, entries, indexes, starts)


def _tell(plan: Plan, entries: Sequence[Entry], indexes: Sequence[int], starts: Sequence[int]) -> None:
    """Record in each group what its sums do not say about its events. `starts` has the slot of each counted entry."""
    batch, known, slots, senders = plan.batch, plan.identities, plan.slots, plan.senders
    in_order = len(slots) == 1 and (not known or len(known) == len(starts))
    numbers: dict[bytes | None, int] = (
        {} if in_order else {identity: number for number, identity in enumerate(known, 1)}
    )
    counted = [index for index in indexes if index not in plan.refused] if plan.refused else indexes
    for start, group in slots.items():
        own = counted if len(slots) == 1 else [index for index, at in zip(counted, starts, strict=True) if at == start]
        events, places = entries, list[int]()
        if group.votes is not None:
            events, places, own = _rows_of_votes(entries, own)
        elif len(own) < len(entries):
            events, places = [entries[index] for index in own], [index + 1 for index in own]
        group.tell(batch, events, places, numbers, [senders[index] for index in own] if senders else [])


def _rows_of_votes(entries: Sequence[Entry], indexes: Sequence[int]) -> tuple[list[Entry], list[int], list[int]]:
    """Return each vote of some entries as an entry of its own, with its number and with the index of its entry."""
    events, numbers, own = [], [], []
    for index in indexes:
        _, _, time, identity, _ = entry = entries[index]
        changes = changes_of(entry)
        for number, (member, change) in enumerate(changes, 2 * index + 3 - len(changes)):
            events.append(make_entry(member, change, time, identity))
            numbers.append(number)
            own.append(index)
    return events, numbers, own


def _plan_vote(plan: Plan, group: SlotDelta, entry: Entry, index: int, secret: bytes) -> None:
    """Plan a vote. A vote that replaces another one takes that one back with the number before, or neither counts."""
    time, extra, changes = entry[2], entry[4], changes_of(entry)
    for number, (member, change) in enumerate(changes, 2 * index + 3 - len(changes)):
        place = group.add(plan.batch.rules, member, change, time, number, NO_METADATA)
        digests = voter_digests(secret, "" if extra is None else extra.actor or "", member)
        votes = plan.vote(group, digests, change, place, index)
    if len(changes) > 1:
        votes.replaced.append(len(votes.changes) - 1)


def assign_slot(plan: Plan, board: Board, entry: Entry, newest_time: int | None) -> int | str:
    """Return the slot in which an entry counts, or the code of its refusal. Refused entries do not move the clock."""
    member, amount, time, _, extra = entry
    batch = plan.batch
    if extra is not None and (extra.refused is not None or (extra.replaces is not None and board.votes is None)):
        return extra.refused or "replaces_invalid"
    if time is None:
        if board.clock == "event" or plan.current is None:
            return "time_required"
        start = plan.current
    else:
        slot = board.window.slot_at(time // 1000)
        start = slot.start
        closes = None if batch.reached is None else closes_at(board.window, slot, time, batch.reached)
        if closes is not None:
            if board.votes is not None and slot.start >= board.window.oldest(batch.reached or 0):
                closes = max(closes, board.votes.final_in(slot.start * 1000, slot.end * 1000))
            if plan.now >= closes:
                return "late"
            plan.hold_till(closes)
    fault = None if board.votes is None else _vote_fault(plan, board.votes, board.clock, entry, start)
    if fault is None and newest_time is not None and time is not None and time > newest_time:
        fault = "early"
    if fault is None and board.operator == "incr":
        group = plan.slots.get(start)
        place = None if group is None else group.places.get(member)
        if group is not None and place is not None and not _can_add(board, group.amounts[place], amount):
            fault = "score_out_of_range"
    if fault is not None:
        return fault
    if time is not None:
        if batch.latest is None or time > batch.latest:
            batch.latest = time
        if board.clock == "event":  # the event moves the clock
            plan.now = max(plan.now, time) if batch.reached is not None else time
            if batch.reached is None or start > batch.reached:
                batch.reached = start
    return start


def _can_add(board: Board, first: int, second: int) -> bool:
    """Tell whether the script can read the sum exactly, and so check the value of the slot."""
    return abs(first + second) <= MAX_SCORE if board.sums is None else board.sums.can_add(first, second)


def _vote_fault(plan: Plan, votes: Votes, clock: str, entry: Entry, start: int) -> str | None:
    _, amount, time, _, extra = entry
    if extra is None or extra.actor is None:
        return "actor_required"
    if not votes.changes and (amount < 0 or extra.replaces is not None):
        return "votes_final"
    group = None if extra.replaces is None else plan.slots.get(start)
    place = None if group is None else group.places.get(extra.replaces or "")
    if group is not None and place is not None and abs(group.amounts[place] - amount) > MAX_SCORE:
        return "score_out_of_range"  # Lua could not read the sum exactly
    return _time_fault(plan, votes, time, by_event=clock == "event" and time is not None)


def _time_fault(plan: Plan, votes: Votes, time: int | None, *, by_event: bool) -> str | None:
    """Return why voting is not open. A vote with a time may arrive in the grace after the end."""
    opens, closes, ends = votes.opens_at, votes.closes_at, votes.closes_at if time is None else votes.final_at
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


def voter_digests(secret: bytes, actor: str, member: str) -> tuple[bytes, bytes]:
    """Return the digest of a voter, and the digest of a voter and a member. Nobody can forge them without the secret.

    Each has 16 bytes. The second one also covers the length of the actor, so that no two pairs have the same bytes.
    """
    name = actor.encode()
    voter = blake2b(name, digest_size=16, key=secret, person=_VOTER)
    pair = blake2b(b"%d:%s%s" % (len(name), name, member.encode()), digest_size=16, key=secret, person=_PAIR)
    return voter.digest(), pair.digest()


def changes_of(entry: Entry) -> Sequence[tuple[str, int]]:
    """Return the members that an entry changes, each with its amount."""
    member, amount, _, _, extra = entry
    if extra is None or extra.replaces is None:
        return ((member, amount),)
    return (extra.replaces, -amount), (member, amount)


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
                if any(
                    (slot_of(board, plan, entries[index]), member) in places for member, _ in changes_of(entries[index])
                )
            }
        case [b"range", *words]:  # members whose entries together leave the range, with their amounts in slots
            triples = zip(words[::3], words[1::3], words[2::3], strict=True)
            held: dict[tuple[int | None, str], _Held] = {
                (int(start), member.decode()): _Held(board, value) for start, member, value in triples
            }
            for index in planned:  # the entries of these members are checked one by one, in order
                slot = slot_of(board, plan, entries[index])
                changes = [
                    (held[slot, member], by) for member, by in changes_of(entries[index]) if (slot, member) in held
                ]
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
        """Return by how much an amount changes the value: a log sums absolute amounts."""
        is_log = isinstance(self._board.window, Sliding) and self._board.sums is None
        return abs(amount) if is_log else amount


class Placement(msgspec.Struct, frozen=True):
    """Where an entry counted."""

    slot: int | None  # the start of its slot
    # Whether it was a new best of its member. None on boards that keep no best value, and if a reply was lost.
    is_best: bool | None


def placements_of(
    board: Board, plan: Plan, entries: Sequence[Entry], indexes: Sequence[int], beaten: Sequence[bytes]
) -> dict[int, Placement]:
    """Return the placement of each entry that a plan has counted, by its index.

    `beaten` has the value that a new best had to beat, or empty, for each member of each slot in the order of the plan.
    """
    counted = [index for index in indexes if index not in plan.refused]
    if board.operator != "best" or not beaten:
        return {index: Placement(slot_of(board, plan, entries[index]), None) for index in counted}
    members = [(start, member) for start, group in plan.slots.items() for member in group.members]
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
