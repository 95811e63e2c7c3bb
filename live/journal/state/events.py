"""The single events of a batch, and the batch that a board would have planned from only some of them.

So `batch_of(batch, [event for event in events_of(batch) if keep(event)])` is a batch without some events.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, count, repeat
from typing import Final

import msgspec

from live.domain.board import Board
from live.domain.event import Extra, make_entry
from live.domain.producer import LIKES
from live.domain.window import Sliding
from live.errors import SetupError
from live.journal.log.entries import content, contents
from live.journal.state.snapshot import IDENTITY
from live.store.board.batch import (
    NO_METADATA,
    Batch,
    BatchVotes,
    LogEvents,
    SlotDelta,
    SlotEvents,
    decode_batch,
    encode_batch,
)
from live.store.board.state import Clock
from live.store.board.write.slot_assignment import assign_slot, begin_plan
from live.store.connection.scripts import text, texts

_UNTOLD: Final = "the journal does not say which events a batch has"


class UntoldError(SetupError):
    """An entry of the journal does not say which events it counts, or when they were."""


class CountedEvent(msgspec.Struct, frozen=True):
    """An event that a batch counts, or a vote. An erased member has an empty name."""

    start: int  # the start of its slot
    suffix: str  # the suffix of its ranking
    member: str  # the member
    amount: int  # the amount. For a vote, the change to the counts of its digests
    time: int | None  # its time in ms; None if it has none, and counts when it arrives
    # Its number in the batch. Of likes that were added up at once, only that of a member's last like is known, and only
    # if time breaks ties.
    number: int
    identity: bytes | None  # its identity, if it has one
    producer: str  # the id of its producer; empty if it is not known
    metadata: bytes = b""  # its metadata (JSON); empty for none
    actor: bytes = b""  # the digest of the actor of a vote
    pair: bytes = b""  # the digest of actor and member of a vote


def events_of(batch: Batch) -> list[CountedEvent]:
    """Return the events of a batch: slot by slot, and in each slot in the order in which they count.

    A vote that replaces another one is two events. Keep or drop both: they have the same actor, producer and identity.

    Raises:
        UntoldError: the batch does not say which events it has, for example because it corrects scores.
    """
    if (changer := _changer_of(batch)) is not None:
        raise UntoldError(f"a batch of {changer!r} changes scores, and has no events of its own")
    return _events_of(batch)


def _changer_of(batch: Batch) -> str | None:
    """Return who corrects or merges scores with a batch; None if the batch counts events."""
    return next((name for name in batch.producers if name.startswith(":") and name != LIKES), None)


def batch_of(batch: Batch, events: Sequence[CountedEvent], *, clock_stays: bool = False) -> Batch:
    """Return the batch that a board would have planned from only these of the events of a batch.

    `clock_stays` says whether the clock of the board still counts the others.
    """
    made = _planned(batch, events, logs=batch.events is not None, clock_stays=clock_stays)
    if not any(group.metadata for group in batch.groups):  # a correction leaves the metadata as it is
        for group in made.groups:
            group.metadata = []
    counted_at_once = {group.start for group in batch.groups if group.events is not None and group.events.ones}
    for group in made.groups:
        if group.start in counted_at_once:
            is_single = sum(group.amounts) == len(group.members)
            group.events = None if is_single else SlotEvents(ones=True)
            if made.events is not None:
                made.events = LogEvents([False] * len(group.members), group.amounts, group.members)
    return made


def batch_under(batch: Batch, time: int, old: Board, new: Board, latest: int | None = None) -> Batch:
    """Return the batch that a board with other choices would have planned from the events of a batch.

    `time` is that of the entry, in microseconds. `latest` is the newest event time before, in ms, if the clock of the
    board shows that. What the board has refused or not kept stays unknown: late events, and metadata of sums.

    Raises:
        UntoldError: the batch does not say enough.
    """
    if old.clock != new.clock:
        raise UntoldError("with another clock, other events would have been late")
    if (old.votes is None) != (new.votes is None):
        raise UntoldError("with votes, other events would have been refused")
    if batch.since is not None and all(batch.groups[0].members):  # the fold moves what there is by the new rules
        rules = msgspec.structs.replace(new.rules, operation="incr" if new.operation == "incr" else "set")
        reached = None if batch.by_event else new.window.slot_at(time // 1_000_000).start
        return msgspec.structs.replace(batch, rules=rules, reached=reached)
    if _changer_of(batch) is not None:
        return _changed_under(batch, time // 1000, old, new)
    events, window = sorted(events_of(batch), key=lambda event: event.number), new.window
    newest = None if latest is None else window.slot_at(latest // 1000).start
    plan, moved = begin_plan(new, Clock(newest, time // 1000, latest)), list[CountedEvent]()
    for event in events:
        amount = amount_under(event.amount, old, new)
        entry = make_entry(event.member, amount, event.time, None, Extra("known" if event.pair else None))
        start = assign_slot(plan, new, entry, None)
        if not isinstance(start, str):  # otherwise it would have been late
            suffix = f":{start}" if window.tables else ""
            moved.append(msgspec.structs.replace(event, start=start, suffix=suffix, amount=amount))
    batch = msgspec.structs.replace(batch, rules=new.rules)
    made = _planned(batch, moved, logs=isinstance(window, Sliding), clock_stays=True)
    made.reached = plan.batch.reached
    if batch.by_event and batch.latest is not None:  # also of events that were taken back
        made.reached = window.slot_at(batch.latest // 1000).start
    return made


def _changed_under(batch: Batch, time: int, old: Board, new: Board) -> Batch:
    """Return what a correction or a merge at a time (ms) does to the scores of a board with other choices."""
    window, rules = new.window, new.rules
    if (old.operation, old.packing) != (new.operation, new.packing):
        raise UntoldError("scores were corrected or merged, and no event says so")
    if old.window == window:
        made = msgspec.structs.replace(batch, rules=msgspec.structs.replace(rules, operation=batch.rules.operation))
        if new.ties != "key":  # the members of a batch count in their order
            numbers = count(1)
            made.groups = [group if group.orders else _marked(group, batch, numbers) for group in batch.groups]
        return made
    if new.operation != "incr" or (new.zeros and any(group.drops for group in batch.groups)):
        raise UntoldError("scores were corrected or merged in the slots of another window")
    current, moved = old.window.slot_at(time // 1000).start, list[CountedEvent]()
    for event in _events_of(batch):
        at = event.time if event.time is not None else time if event.start == current else event.start * 1000
        start = window.slot_at(at // 1000).start
        suffix = f":{start}" if window.tables else ""
        moved.append(msgspec.structs.replace(event, start=start, suffix=suffix, time=at))
    made = _planned(msgspec.structs.replace(batch, rules=rules), moved, logs=isinstance(window, Sliding))
    made.reached = max(made.reached or 0, window.slot_at(time // 1000).start) if not batch.by_event else made.reached
    return made


def _marked(group: SlotDelta, batch: Batch, numbers: Iterator[int]) -> SlotDelta:
    """Return the changes of scores in a slot with what decides ties."""
    times = [False if row.time is None else row.time for row in group.rows(batch)]
    return msgspec.structs.replace(group, orders=[-next(numbers) for _ in times], times=times)


def amount_under(amount: int, old: Board, new: Board) -> int:
    """Return an amount as a board with other choices packs it."""
    if old.packing == new.packing:
        return amount
    if old.packing is None or new.packing is None:
        raise UntoldError("the score has other fields")
    names = {field.name for field in new.packing.fields}
    try:
        return new.packing.pack({name: value for name, value in old.packing.unpack(amount).items() if name in names})
    except ValueError as error:
        raise UntoldError(f"the score has other fields: {error}") from None


def _planned(batch: Batch, events: Sequence[CountedEvent], *, logs: bool, clock_stays: bool = False) -> Batch:
    rules, slots, log = batch.rules, dict[int, tuple[SlotDelta, list[CountedEvent]]](), LogEvents()
    for event in events:
        group, own = slots.setdefault(event.start, (SlotDelta.of(event.start, event.suffix, {}), []))
        own.append(event)
        amount = event.amount if event.member else 0
        metadata = text(event.metadata) if event.metadata else NO_METADATA
        place = group.add(rules, event.member, amount, event.time, event.number, metadata)
        if event.pair:
            _vote(group, own, place)
        elif logs and (amount or rules.zeros or not event.member):  # later events keep their numbers
            log.times.append(False if event.time is None else event.time)
            log.amounts.append(amount)
            log.members.append(event.member)
    identities, senders = {event.identity for event in events}, {event.producer for event in events}
    made = msgspec.structs.replace(
        batch,
        groups=[group for group, _ in slots.values()],
        events=log if log.times else None,
        producers=[name for name in batch.producers if name in senders],
    )
    if not clock_stays:
        made.latest = max((event.time for event in events if event.time is not None), default=None)
        made.reached = max(slots, default=None) if batch.by_event else batch.reached
    left = [identity for identity in _identities_of(batch) if identity in identities]
    if batch.identities is not None:
        made.identities = msgspec.structs.replace(batch.identities, all=texts(left, IDENTITY)) if left else None
    producers = {name: index for index, name in enumerate(made.producers)} if len(made.producers) > 1 else {}
    in_order = len(slots) == 1 and len(left) == _places(made.groups[0], len(events))[-1]
    numbers: dict[bytes | None, int] = {} if in_order else {identity: number for number, identity in enumerate(left, 1)}
    for group, own in slots.values():
        entries = [
            make_entry(event.member, event.amount, event.time, event.identity, Extra(metadata=event.metadata))
            for event in own
        ]
        sent = [producers[event.producer] for event in own] if producers else []
        group.tell(made, entries, [event.number for event in own], numbers, sent)
    return made


def _vote(group: SlotDelta, events: Sequence[CountedEvent], place: int) -> None:
    votes = group.votes = group.votes or BatchVotes()
    vote = events[-1]
    votes.actors.append(text(vote.actor))
    votes.pairs.append(text(vote.pair))
    votes.changes.append(vote.amount)
    votes.members.append(place)
    # A vote has an even number. The vote that it replaces has the number before.
    if vote.number % 2 == 0 and len(events) > 1 and events[-2].number == vote.number - 1:
        votes.replaced.append(len(events) - 1)


def divide(body: bytes, time: int) -> tuple[bytes, bytes]:
    """Return the events of a batch before a time (ms), and the others, each as the body of an `add` entry.

    The first part is empty if there is no such event.

    Raises:
        UntoldError: the entry does not say when its events were.
    """
    batch = decode_batch(body)
    events = [(event, _time_of(event)) for event in _events_of(batch)]
    first = batch_of(batch, [event for event, at in events if at < time])
    rest = batch_of(batch, [event for event, at in events if at >= time])
    return encode_batch(first) if first.groups else b"", encode_batch(rest)


def first_time(body: bytes) -> int | None:
    """Return the time (ms) of the earliest event of a batch; None if no event has a time."""
    return min((event.time for event in _events_of(decode_batch(body)) if event.time is not None), default=None)


def _time_of(event: CountedEvent) -> int:
    if event.time is None:
        raise UntoldError("the journal does not say when the events of a batch were, so it has no table of that time")
    return event.time


def _events_of(batch: Batch) -> list[CountedEvent]:
    known, names, found = _identities_of(batch), batch.producers or [""], list[CountedEvent]()
    try:
        for group in batch.groups:
            rows, votes = group.rows(batch), group.votes
            numbers = [row.identity for row in rows]
            if known and len(batch.groups) == 1 and not any(numbers):
                numbers = _places(group, len(rows))  # each event has an identity, in the same order
                if numbers[-1] != len(known):
                    raise UntoldError(_UNTOLD)
            digests = repeat((b"", b""), len(rows)) if votes is None else _digests_of(votes)
            found += [
                CountedEvent(
                    group.start,
                    group.suffix,
                    row.member,
                    row.amount,
                    row.time,
                    row.number,
                    known[number - 1] if number else None,
                    names[row.producer],
                    content(row.metadata),
                    *digests_of_row,
                )
                for row, number, digests_of_row in zip(rows, numbers, digests, strict=True)
            ]
    except (ValueError, LookupError):  # columns of another length, or an index that they lack
        raise UntoldError(_UNTOLD) from None
    if len(names) > 1 and not all(group.events is not None and group.events.producers for group in batch.groups):
        raise UntoldError(_UNTOLD)
    return found


def _places(group: SlotDelta, rows: int) -> list[int]:
    """Return for each row the number (from 1) of its event in a group. A vote and the one it replaces are one event."""
    replaced = () if group.votes is None else group.votes.replaced
    return list(accumulate(row not in replaced for row in range(rows)))


def _identities_of(batch: Batch) -> list[bytes]:
    return [] if batch.identities is None else contents(batch.identities.all, IDENTITY)


def _digests_of(votes: BatchVotes) -> Iterator[tuple[bytes, bytes]]:
    return zip(map(content, votes.actors), map(content, votes.pairs), strict=True)
