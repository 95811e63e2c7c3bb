"""Fold the entries of a journal into the contents of a board: the rules of the scripts, without a store.

A batch in the journal was applied as a whole: the script had checked everything before. So the fold only repeats what
the script did. It knows nothing of rotation, which follows from the clock: the contents keep slots until they have left
the window, and `scores` adds up those that are in it.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from typing import Final

import msgspec

from live.domain.board import Board, Shape
from live.errors import SetupError
from live.journal.corrections import correct, logged_of, reached_of
from live.journal.erasures import digests_in, hidden, take_out
from live.journal.log.entries import (
    Add,
    Adopt,
    Begin,
    Enter,
    EntryDelta,
    EntryRules,
    EntryVotes,
    Erase,
    Head,
    Hide,
    Tags,
    Withdraw,
    content,
)
from live.journal.log.entries import contents as contents_of
from live.journal.state.ranking import order_of
from live.journal.state.snapshot import IDENTITY, Logged, Reached, Snapshot


def apply(data: Snapshot, head: Head, body: bytes) -> None:
    """Apply the next entry of the journal.

    Raises:
        SetupError: this version does not know such an entry.
    """
    step = _STEPS.get(head.kind)
    if step is None:
        raise SetupError(f"the journal has an entry {head.kind!r}: a newer version has written it")
    if head.time < data.time and data.log:
        _expire(data)
    step(data, head, body)
    data.offset, data.time, data.link = head.offset, head.time, head.link


def _expire(data: Snapshot) -> None:
    """Forget the events that left a sliding window before the store's clock was set back.

    The store has subtracted them for good. With an event clock, only events make others leave.
    """
    shape = msgspec.json.decode(data.shape, type=Shape)
    if shape.window["kind"] == "sliding" and shape.clock != "event":
        least = data.time // 1000 - int(shape.window["length"] or 0) * 1000
        data.log = [event for event in data.log if event.time > least]


def _add(data: Snapshot, head: Head, body: bytes) -> None:
    request = _ADD.decode(body)
    rules = request.rules
    for group in request.groups:
        if request.events is None:
            _count(data, group, rules, head.offset)
        if rules.operation == "incr" and rules.ties:
            _tag(data, group, head.offset)
        if group.votes is not None:
            _vote(data.ranking(group.suffix).votes, group.votes)
        if rules.cap is not None:
            trim(data, group.start, group.suffix, rules)
    if request.events is not None:
        _log(data, request, head)
    if request.identities is not None and request.identities.counted:
        counted = contents_of(request.identities.all, IDENTITY)[: request.identities.counted]
        data.seen.setdefault(request.identities.bucket, set()).update(counted)
    data.span = request.span
    if request.reached is not None:
        data.newest = request.reached
    if request.latest is not None:
        data.latest = max(request.latest, data.latest or request.latest)


def _count(data: Snapshot, group: EntryDelta, rules: EntryRules, offset: int) -> None:
    slot = data.slots.setdefault(group.start, {})
    if rules.operation == "incr":
        for member, amount in zip(group.members, group.amounts, strict=True):
            value = slot.get(member, 0) + amount
            if value:
                slot[member] = value
            else:
                slot.pop(member, None)
        return
    better = _BETTER[rules.operation]
    ranking = data.ranking(group.suffix)
    for index, (member, amount) in enumerate(zip(group.members, group.amounts, strict=True)):
        old = slot.get(member)
        value = amount if old is None or better(amount, old) else old
        slot[member] = value
        if rules.ties:
            order = group.orders[index]
            if order < 0 or (order > 0 and value != old) or member not in ranking.reached:
                ranking.reached[member] = (offset, abs(order))
        if group.metadata and (value != old or rules.operation == "set"):
            metadata = content(group.metadata[index])
            if metadata:
                ranking.metadata[member] = metadata
            else:
                ranking.metadata.pop(member, None)


def _tag(data: Snapshot, group: EntryDelta, offset: int) -> None:
    """Record the event with which each member reached its score."""
    reached = data.ranking(group.suffix).reached
    for member, order in zip(group.members, group.orders, strict=True):
        if order:
            reached[member] = (offset, abs(order))


def _vote(held: dict[bytes, int], votes: EntryVotes) -> None:
    for actor, pair, change in zip(votes.actors, votes.pairs, votes.changes, strict=True):
        for field in (content(actor), content(pair)):
            count = held.get(field, 0) + change
            if count:
                held[field] = count
            else:
                held.pop(field, None)


def trim(data: Snapshot, start: int, suffix: str, rules: EntryRules) -> None:
    """Delete the last records of a ranking that is over its limit, with everything that belongs to them."""
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


def _log(data: Snapshot, request: Add, head: Head) -> None:
    assert request.events is not None, "the caller has checked"  # noqa: S101
    now = head.time // 1000
    events = request.events
    for number, (time, amount, member) in enumerate(zip(events.times, events.amounts, events.members, strict=True), 1):
        data.log.append(Logged(now if time is False else int(time), head.offset, number, member, amount))


def _hide(data: Snapshot, head: Head, body: bytes) -> None:
    del head
    request = _HIDE.decode(body)
    if request.hide:
        data.hidden.add(request.member)
        return
    data.hidden.discard(request.member)
    if request.rules.cap is not None:
        for start in data.slots:
            suffix = f":{start}" if f":{start}" in data.rankings else ""
            trim(data, start, suffix, request.rules)


def _tags(data: Snapshot, head: Head, body: bytes) -> None:
    for suffix, member, number in _TAGS.decode(body):
        if number:
            data.ranking(suffix).reached[member] = (head.offset, number)
        elif suffix in data.rankings:
            data.rankings[suffix].reached.pop(member, None)


def _enter(data: Snapshot, head: Head, body: bytes) -> None:
    del head
    request = _ENTER.decode(body)
    data.entrants[request.member] = content(request.metadata)


def _withdraw(data: Snapshot, head: Head, body: bytes) -> None:
    del head
    data.entrants.pop(_WITHDRAW.decode(body).member, None)


def _begin(data: Snapshot, head: Head, body: bytes) -> None:
    del head
    request = _BEGIN.decode(body)
    data.shape, data.secret = request.shape, content(request.secret)


def _renew(data: Snapshot, head: Head, body: bytes) -> None:
    """Do nothing: the contents continue under another epoch."""


def _adopt(data: Snapshot, head: Head, body: bytes) -> None:
    """Take what the board held when its journal began."""
    del head
    held = _ADOPT.decode(body)
    data.shape, data.secret = held.shape, content(held.secret)
    data.newest = int(held.newest) if held.newest else None
    data.latest = int(held.latest) if held.latest else None
    data.span = int(held.span or 0)
    data.slots = {int(start): _numbers(fields) for start, fields in held.slots}
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


def _numbers(fields: list[str]) -> dict[str, int]:
    return {member: int(value) for member, value in zip(fields[::2], fields[1::2], strict=True)}


def tag_of(board: Board, reached: Reached) -> bytes:
    """Return the tag of a name in a ranking."""
    offset, number = reached
    if board.tags == "falling":
        offset, number = 2**40 - 1 - offset, 2**24 - 1 - number
    return offset.to_bytes(5) + number.to_bytes(3)


def _mend(data: Snapshot, head: Head, body: bytes) -> None:
    del head
    correct(data, body)


def _erase(data: Snapshot, head: Head, body: bytes) -> None:
    """Take out the digests that the store deleted."""
    del head
    entry = _ERASE.decode(body)
    gone = set(entry.digests)
    take_out(data, {digest for digest in digests_in(data) if hidden(entry.key, digest) in gone})


_ADD: Final = msgspec.msgpack.Decoder(Add)
_HIDE: Final = msgspec.msgpack.Decoder(Hide)
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

_STEPS: Final[Mapping[str, Callable[[Snapshot, Head, bytes], None]]] = {
    "add": _add, "hide": _hide, "tags": _tags, "enter": _enter, "withdraw": _withdraw, "begin": _begin,
    "renew": _renew, "adopt": _adopt, "mend": _mend, "erase": _erase,
}  # fmt: skip
