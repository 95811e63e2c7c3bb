"""Divide a batch of a board with an event clock at a time, so that the past can be read between two of its events."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from live.errors import SetupError
from live.journal.log.entries import Add, EntryDelta, EntryEvents, EntryRules

_ADD: Final = msgspec.msgpack.Decoder(Add)
_ENCODER: Final = msgspec.msgpack.Encoder()
_NO_METADATA: Final = msgspec.Raw(msgspec.msgpack.encode(""))


class UndatedError(SetupError):
    """A batch does not say when its events were, so it can't be divided."""


class _Moment(NamedTuple):
    """An event of a batch: its time (ms), its number in the batch, the index of its member, and its amount."""

    time: int
    number: int
    place: int
    amount: int


class _Combined(NamedTuple):
    """What the events of a member add up to, as in `SlotPlan`, and the number of the event whose metadata counts."""

    amount: int
    order: int
    time: int
    teller: int


def divide(body: bytes, time: int) -> tuple[bytes, bytes]:
    """Return the events of a batch before a time (ms), and the others, each as the body of an `add` entry.

    The first part is empty if there is no such event. The parts have no votes and no identities: no record depends on
    them. Metadata of an event that a later event of the same batch has replaced is not known.

    Raises:
        UndatedError: the entry does not say when its events were.
    """
    add = _ADD.decode(body)
    if not all(group.moments for group in add.groups):
        raise UndatedError("the journal does not say when the events of a batch were, so it has no table of that time")
    first = _part(add, lambda at: at < time)
    return _ENCODER.encode(first) if first.groups else b"", _ENCODER.encode(_part(add, lambda at: at >= time))


def first_time(body: bytes) -> int | None:
    """Return the time (ms) of the earliest event of a batch; None if no event has a time."""
    return min((min(group.moments[::4]) for group in _ADD.decode(body).groups if group.moments), default=None)


def _part(add: Add, wanted: Callable[[int], bool]) -> Add:
    groups = [group for each in add.groups if (group := _part_of_group(each, wanted, add.rules)) is not None]
    events = add.events
    if events is not None:
        rows = zip(events.times, events.amounts, events.members, strict=True)
        kept = [row for row in rows if wanted(int(row[0]))]
        events = EntryEvents([row[0] for row in kept], [row[1] for row in kept], [row[2] for row in kept])
    return msgspec.structs.replace(
        add,
        groups=groups,
        events=events,
        latest=max((max(group.moments[::4]) for group in groups), default=None),
        reached=max((group.start for group in groups), default=None),
        identities=None,
        producers=[],
    )


def _part_of_group(group: EntryDelta, wanted: Callable[[int], bool], rules: EntryRules) -> EntryDelta | None:
    words = group.moments
    whole = [_Moment(*words[first : first + 4]) for first in range(0, len(words), 4)]
    moments = [moment for moment in whole if wanted(moment.time)]
    if not moments:
        return None
    part = _combine(moments, rules)
    metadata: list[msgspec.Raw] = []
    if group.metadata:
        tellers = {place: combined.teller for place, combined in _combine(whole, rules).items()}
        metadata = [
            group.metadata[place] if combined.teller == tellers[place] else _NO_METADATA
            for place, combined in part.items()
        ]
    places = {place: index for index, place in enumerate(part)}
    return msgspec.structs.replace(
        group,
        members=[group.members[place] for place in part],
        amounts=[combined.amount for combined in part.values()],
        orders=[combined.order for combined in part.values()] if group.orders else [],
        times=[combined.time for combined in part.values()] if group.orders else [],
        metadata=metadata,
        votes=None,
        parts=[],
        moments=[word for at, number, place, amount in moments for word in (at, number, places[place], amount)],
    )


def _combine(moments: Sequence[_Moment], rules: EntryRules) -> Mapping[int, _Combined]:
    """Combine the events of each member, as `live.store.board.write.slot_assignment` does."""
    operation, found = rules.operation, dict[int, _Combined]()
    for moment in moments:
        old, (time, number, place, amount) = found.get(moment.place), moment
        if operation == "incr":
            before = _Combined(0, 0, time, number) if old is None else old
            moves = (amount or rules.zeros) and (not before.order or time >= before.time)
            order, at = (-number, time) if moves else (before.order, before.time)
            found[place] = _Combined(before.amount + amount, order, at, number)
        elif old is None:
            found[place] = _Combined(amount, number, time, number)
        elif operation == "set":
            order, at = (old.order, old.time) if amount == old.amount else (-number, time)
            found[place] = _Combined(amount, order, at, number)
        elif amount > old.amount if operation == "max" else amount < old.amount:
            found[place] = _Combined(amount, number, time, number)
        elif amount == old.amount and time < old.time:
            found[place] = old._replace(order=number, time=time)
    return found
