"""Fold the entries of a journal into the contents of a board, by the same rules as the Lua scripts but without a store.

The script checked each batch before it applied the batch, so the fold applies it without checks. The fold does not
rotate the window, because the clock decides on rotation, and not an entry. So the contents can have slots that have
left the window. `ranking.py` adds up only the slots in the window.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Final

import msgspec

from live.domain.board import Shape
from live.errors import SetupError
from live.journal.erasures import digests_in, hidden, member_digest, take_out, take_out_members
from live.journal.log.entries import (
    Add,
    Adopt,
    Begin,
    Enter,
    EntryDelta,
    EntryRules,
    Erase,
    Head,
    Hide,
    Left,
    Tags,
    Withdraw,
    arrival_of,
    content,
    marks_of,
)
from live.journal.log.entries import contents as contents_of
from live.journal.state.ranking import order_of
from live.journal.state.snapshot import IDENTITY, NEVER, Logged, Snapshot, add, logged_of, reached_of


def apply(data: Snapshot, head: Head, body: bytes) -> None:
    """Apply the next entry of the journal.

    Raises:
        SetupError: this version does not know the kind of the entry.
    """
    if data.log:
        _leave(data, head, body)
    match head.kind:
        case "add":
            _add(data, _ADD.decode(body), head)
        case "hide":
            _hide(data, _HIDE.decode(body))
        case "tags":
            for suffix, member, time, number in _TAGS.decode(body):
                if number:
                    data.ranking(suffix).reached[member] = (time, head.offset, number)
                elif suffix in data.rankings:
                    data.rankings[suffix].reached.pop(member, None)
        case "enter":
            entrant = _ENTER.decode(body)
            data.entrants[entrant.member] = content(entrant.metadata)
        case "withdraw":
            data.entrants.pop(_WITHDRAW.decode(body).member, None)
        case "begin":
            begun = _BEGIN.decode(body)
            data.shape, data.secret = begun.shape, content(begun.secret)
        case "renew" | "left":  # the contents stay; after `renew`, they belong to another epoch
            pass
        case "adopt":
            _adopt(data, _ADOPT.decode(body))
        case "erase" | "forget":
            _erase(data, _ERASE.decode(body))
        case _:
            raise SetupError(f"the journal has an entry {head.kind!r}: a newer version has written it")
    data.offset, data.time, data.link = head.offset, head.time, head.link


def _erase(data: Snapshot, entry: Erase) -> None:
    """Delete from the contents the digests and the member that the store deleted with this entry."""
    if gone := set(entry.digests):
        take_out(data, {digest for digest in digests_in(data) if hidden(entry.key, digest) in gone})
    if entry.member:  # earlier entries may already have an empty name in place of the member
        take_out_members(data, lambda name: not name or member_digest(entry.key, name) == entry.member)


def _leave(data: Snapshot, head: Head, body: bytes) -> None:
    """Forget the events that have left a sliding window for good.

    An entry `left` names the last event that has left. A rebuild (`renew`) writes only the events that are in the
    window at the last entry. With an event clock, only events make other events leave.
    """
    if head.kind == "left":
        last = _LEFT.decode(body)
        data.log = [event for event in data.log if event.place > last]
    elif head.kind == "renew":
        shape = msgspec.json.decode(data.shape, type=Shape)
        if shape.window["kind"] == "sliding" and shape.clock != "event":
            least = data.time // 1000 - int(shape.window["length"] or 0) * 1000
            data.log = [event for event in data.log if event.time > least]


def _add(data: Snapshot, request: Add, head: Head) -> None:
    rules = request.rules
    arrival = arrival_of(head, request.reached, data.latest if request.clock.by_event else None)
    for group in request.groups:
        marks = marks_of(group, rules, arrival) if rules.ties else []
        if request.events is None:
            _count(data, group, rules, head.offset, marks)
        # If time breaks ties, a board that adds amounts up records the latest event of each member.
        if rules.operation == "incr" and rules.ties:
            reached = data.ranking(group.suffix).reached
            for member, (time, order) in zip(group.members, marks, strict=True):
                if order and member:  # an erased member has an empty name
                    reached[member] = max((time, head.offset, abs(order)), reached.get(member, NEVER))
        if (votes := group.votes) is not None:
            held = data.ranking(group.suffix).votes
            for actor, pair, change in zip(votes.actors, votes.pairs, votes.changes, strict=True):
                add(held, content(actor), change)
                add(held, content(pair), change)
        if rules.cap is not None:
            trim(data, group.start, group.suffix, rules)
    if (events := request.events) is not None:
        now, fields = head.time // 1000, zip(events.times, events.amounts, events.members, strict=True)
        for number, (time, amount, member) in enumerate(fields, 1):
            if member:  # an erased member has an empty name
                data.log.append(Logged(now if time is False else int(time), head.offset, number, member, amount))
    if request.identities is not None and request.identities.counted:
        counted = contents_of(request.identities.all, IDENTITY)[: request.identities.counted]
        data.seen.setdefault(request.identities.bucket, set()).update(counted)
        data.kept = request.identities.kept
    data.span = request.span
    if request.reached is not None:
        data.newest = max(request.reached, request.reached if data.newest is None else data.newest)
    if request.latest is not None:
        data.latest = max(request.latest, data.latest or request.latest)


def _count(data: Snapshot, group: EntryDelta, rules: EntryRules, offset: int, marks: Sequence[tuple[int, int]]) -> None:
    slot = data.slots.setdefault(group.start, {})
    if rules.operation == "incr":
        for member, amount in zip(group.members, group.amounts, strict=True):
            value = slot.get(member, 0) + amount
            if value or (rules.zeros and member):
                slot[member] = value
            else:
                slot.pop(member, None)
        for index in group.drops:
            if not slot.get(member := group.members[index - 1]):
                slot.pop(member, None)
        return
    better = _BETTER[rules.operation]
    ranking = data.ranking(group.suffix)
    for index, (member, amount) in enumerate(zip(group.members, group.amounts, strict=True)):
        if not member:  # an erased member has an empty name
            continue
        if group.drops and index + 1 in group.drops:  # a merge has moved the member's score to another member
            for held in (slot, ranking.reached, ranking.metadata):
                held.pop(member, None)
            continue
        old = slot.get(member)
        value = amount if old is None or better(amount, old) else old
        slot[member] = value
        if rules.ties:
            time, order = marks[index]
            place, before = (time, offset, abs(order)), ranking.reached.get(member)
            is_earlier = rules.operation != "set" and order and amount == old and before is not None and place < before
            if order < 0 or (order > 0 and value != old) or before is None or is_earlier:
                ranking.reached[member] = place
        if group.metadata and (value != old or rules.operation == "set"):
            metadata = content(group.metadata[index])
            if metadata:
                ranking.metadata[member] = metadata
            else:
                ranking.metadata.pop(member, None)


def trim(data: Snapshot, start: int, suffix: str, rules: EntryRules) -> None:
    """Delete the last records of a ranking that is over its limit, with their metadata and tags."""
    slot = data.slots.get(start, {})
    shown = [member for member in slot if member not in data.hidden] if data.hidden else slot
    excess = len(shown) - (rules.cap or 0)
    if excess <= 0:
        return
    ranking = data.ranking(suffix)
    for member in nlargest(excess, shown, key=order_of(rules, slot, ranking.reached)):
        del slot[member]
        ranking.metadata.pop(member, None)
        ranking.reached.pop(member, None)


def _hide(data: Snapshot, request: Hide) -> None:
    if request.hide:
        data.hidden.add(request.member)
        return
    data.hidden.discard(request.member)
    if request.rules.cap is not None:
        for start in data.slots:
            suffix = f":{start}" if f":{start}" in data.rankings else ""
            trim(data, start, suffix, request.rules)


def _adopt(data: Snapshot, held: Adopt) -> None:
    """Set the contents to what the board held when its journal began."""
    data.shape, data.secret = held.shape, content(held.secret)
    data.newest = int(held.newest) if held.newest else None
    data.latest = int(held.latest) if held.latest else None
    data.span = int(held.span or 0)
    data.slots = {
        int(start): {member: int(value) for member, value in zip(fields[::2], fields[1::2], strict=True)}
        for start, fields in held.slots
    }
    data.rankings, data.seen = {}, {int(start): {content(one) for one in all_} for start, all_ in held.seen}
    for suffix, reached, metadata, votes in held.tables:
        ranking = data.ranking(suffix)
        ranking.reached = {
            content(member).decode(): reached_of(held.shape, content(tag)) for member, tag in _pairs(reached)
        }
        ranking.metadata = {content(member).decode(): content(text) for member, text in _pairs(metadata)}
        ranking.votes = {content(digest): int(content(count)) for digest, count in _pairs(votes)}
    data.entrants = {content(member).decode(): content(text) for member, text in _pairs(held.entrants)}
    data.hidden = set(held.hidden)
    data.log = [logged_of(content(event), int(content(time))) for event, time in _pairs(held.log)]
    data.log.sort(key=lambda event: (event.offset, event.number))
    if data.log:
        data.slots = {}


def _pairs(fields: list[msgspec.Raw]) -> Iterator[tuple[msgspec.Raw, msgspec.Raw]]:
    return zip(fields[::2], fields[1::2], strict=True)


_ADD: Final = msgspec.msgpack.Decoder(Add)
_HIDE: Final = msgspec.msgpack.Decoder(Hide)
_LEFT: Final = msgspec.msgpack.Decoder(Left)
_TAGS: Final = msgspec.msgpack.Decoder(Tags)
_ENTER: Final = msgspec.msgpack.Decoder(Enter)
_WITHDRAW: Final = msgspec.msgpack.Decoder(Withdraw)
_BEGIN: Final = msgspec.msgpack.Decoder(Begin)
_ADOPT: Final = msgspec.msgpack.Decoder(Adopt)
_ERASE: Final = msgspec.msgpack.Decoder(Erase)

_BETTER: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "set": lambda new, old: True,  # noqa: ARG005 - the last amount counts
    "max": lambda new, old: new > old,
    "min": lambda new, old: new < old,
}
