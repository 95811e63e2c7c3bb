"""Fold the entries of a journal into the contents of a board, by the same rules as the Lua scripts but without a store.

The script checked each batch before it applied the batch, so the fold applies it without checks. The fold does not
rotate the window, because the clock decides on rotation, and not an entry. So the contents can have slots that have
left the window. `ranking.py` adds up only the slots in the window.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from typing import Final

import msgspec

from live.domain.board import Rules, Shape
from live.domain.window import EVER
from live.errors import SetupError
from live.journal.log.entries import (
    NIL,
    Adopt,
    Begin,
    Enter,
    Erase,
    Head,
    Hide,
    Swap,
    Tags,
    Withdraw,
    content,
    marks_of,
)
from live.journal.log.entries import contents as contents_of
from live.journal.state.conversion import base_of, keeps_tags
from live.journal.state.events import UntoldError, batch_of, batch_under, events_of
from live.journal.state.ranking import order_of, summed
from live.journal.state.ruled import Ruled
from live.journal.state.snapshot import IDENTITY, NEVER, Logged, Snapshot, add, logged_of, reached_of
from live.journal.state.taken import NOTHING, Taken
from live.store.board.batch import (
    NO_METADATA,
    Batch,
    BatchIdentities,
    BatchVotes,
    SlotDelta,
    decode_batch,
    encode_batch,
)
from live.store.board.write.merging import MERGER, Value, chosen, logged, sum_moved, value_moved


def apply(data: Snapshot, head: Head, body: bytes) -> Batch | None:
    """Apply the next entry of the journal. If it counts a batch, return what that did to the contents."""
    counted = None
    match head.kind:
        case "hide" | "tags" | "enter" | "withdraw" if data.ahead.undoes(head):
            pass
        case "add":
            batch = decode_batch(body)
            left = left_of(data.ahead, head, batch) if data.ahead else batch
            identities = None if data.ahead.undoes(head) else batch.identities
            counted = _add(data, batch_by_rules(data, head, left) if data.origin else left, identities, head)
        case "hide":
            request = _HIDE.decode(body)
            _hide(data, request, data.ruled.board.rules if data.origin else request.rules)
        case "tags":
            _tag(data, head, _TAGS.decode(body))
        case "enter":
            entrant = _ENTER.decode(body)
            data.entrants[entrant.member] = content(entrant.metadata)
        case "withdraw":
            data.entrants.pop(_WITHDRAW.decode(body).member, None)
        case "begin":
            _begin(data, _BEGIN.decode(body))
        case "renew":  # the contents stay; after `renew`, they belong to another epoch
            data.edition = 0
        case "swap":
            _swap(data, head, body)
        case "adopt":
            _adopt(data, _ADOPT.decode(body))
        case "erase" | "forget":
            erase = _ERASE.decode(body)
            data.forget_digests(erase.digests)
            if head.kind == "forget":
                data.forget_members({"", erase.member})  # earlier entries may already have an empty name
        case _:
            raise SetupError(f"the journal has an entry {head.kind!r}: a newer version has written it")
    data.offset, data.time, data.link = head.offset, head.time, head.link
    return counted


def _begin(data: Snapshot, begun: Begin) -> None:
    data.secret, data.shape = content(begun.secret), begun.shape
    if data.ruled:
        data.origin, data.shape = begun.shape, data.ruled.board.shape.encode()


def _swap(data: Snapshot, head: Head, body: bytes) -> None:
    if needs_rereading(data, body):
        raise ValueError("the contents are other ones before this swap: read the entries before it again")
    data.edition = _SWAP.decode(body).edition
    if taken := taken_by(body):
        data.taken, data.ahead = Taken.all_of([data.taken, taken]), data.ahead.without(taken)
    if ruled := ruled_by(body):
        data.ruled_at = head.offset
        if data.origin:
            data.origin = "" if ruled.name == data.ruled.name else ruled.board.shape.encode()
    if not data.origin or keeps_tags(data.ruled.board_of(data.origin), data.ruled.board):
        _retag(data, _SWAP.decode(body))


def _retag(data: Snapshot, swap: Swap) -> None:
    """Keep the tags that a swap has written (`difference.py`), and no others.

    When members received or lost tags only because of events that were taken back, no entry says so.
    """
    oldest, left, shape = swap.oldest, swap.left, msgspec.json.decode(data.shape, type=Shape)
    if oldest is None or shape.tags == "key" or shape.tables:
        return
    amounts = chain.from_iterable(slot.items() for start, slot in data.slots.items() if start >= oldest)
    if left is not None:
        amounts = chain((event.member, event.amount) for event in data.log if event.time > left)
    scores, reached = summed(amounts, zeros=shape.zeros or shape.operation != "incr"), data.ranking("").reached
    for member in [one for one in reached if one not in scores and one not in data.hidden]:
        reached.pop(member)
    for member in [one for one in scores if one not in reached and one not in data.hidden]:
        reached[member] = NEVER


def taken_by(body: bytes) -> Taken:
    """Return the events that a swap takes back."""
    packed = _SWAP.decode(body).taken
    return msgspec.msgpack.decode(content(packed), type=Taken) if bytes(packed) != NIL else NOTHING


def ruled_by(body: bytes) -> Ruled:
    """Return the rules from a swap on."""
    return msgspec.msgpack.decode(_SWAP.decode(body).ruled, type=Ruled | None) or Ruled()


def needs_rereading(data: Snapshot, body: bytes) -> bool:
    """Return whether a swap leaves out more events than some contents do, or counts earlier events by other rules."""
    is_counted_anew = bool(ruled := ruled_by(body)) and not data.origin and ruled.name != data.ruled.name
    return is_counted_anew or not data.lacks(taken_by(body))


def left_of(taken: Taken, head: Head, batch: Batch) -> Batch:
    """Return what a batch does without the events that were taken back. The board's clock does not go back."""
    if not taken.touches(head, batch):
        return batch
    if taken.undoes(head):
        return msgspec.structs.replace(batch_of(batch, [], clock_stays=True), since=None, tags={})
    events = events_of(batch)
    if head.link in taken.events and taken.events[head.link].count != len(events):
        return batch  # they are left out already: it is a part of the batch
    kept = [event for place, event in enumerate(events) if not taken.takes(head, place, event.producer)]
    return batch_of(batch, kept, clock_stays=True)


def rest_of(taken: Taken, head: Head, body: bytes) -> bytes:
    """Return the content of an entry without the events that were taken back."""
    if not taken or head.kind != "add" or not taken.touches(head, batch := decode_batch(body)):
        return body
    return encode_batch(left_of(taken, head, batch))


def batch_by_rules(data: Snapshot, head: Head, batch: Batch) -> Batch:
    """Return a batch as it counts by the rules of later entries."""
    latest = data.latest if batch.by_event else None
    return batch_under(batch, head.time, data.ruled.board_of(data.origin), data.ruled.board, latest)


def _add(data: Snapshot, batch: Batch, identities: BatchIdentities | None, head: Head) -> Batch:
    """Count a batch, and return it as it counts.

    `identities` are those of all its events, so an event that was taken back stays a duplicate.
    """
    if data.ahead or data.origin:
        batch = _without_impossible(batch, data)
    rules, arrival, batch = batch.rules, _arrival(data, batch, head), _merge(data, batch, head)
    for group in batch.groups:
        marks = marks_of(group, rules, arrival) if rules.ties else []
        if batch.events is None:
            _count(data, group, rules, head.offset, marks)
        # If time breaks ties, a board that adds amounts up records the latest event of each member.
        if rules.operation == "incr" and rules.ties:
            reached = data.ranking(group.suffix).reached
            for member, (time, order) in zip(group.members, marks, strict=True):
                if order and member:  # an erased member has an empty name
                    reached[member] = max((time, head.offset, abs(order)), reached.get(member, NEVER))
            _untag(data, rules, group.suffix, group.members)
        if group.votes is not None:
            _vote(data.ranking(group.suffix).votes, group.votes)
        if rules.cap is not None:
            trim(data, group.start, group.suffix, rules)
    if (events := batch.events) is not None:
        now, fields = head.time // 1000, zip(events.times, events.amounts, events.members, strict=True)
        for number, (time, amount, member) in enumerate(fields, 1):
            if member:  # an erased member has an empty name
                data.log.append(Logged(now if time is False else int(time), head.offset, number, member, amount))
    if identities is not None and (counted := contents_of(identities.all, IDENTITY)):
        data.seen.setdefault(identities.bucket, set()).update(counted)
        data.kept = identities.kept
    data.span = batch.span
    if batch.reached is not None:
        data.newest = max(batch.reached, batch.reached if data.newest is None else data.newest)
    if batch.latest is not None:
        data.latest = max(batch.latest, data.latest or batch.latest)
    return batch


def _merge(data: Snapshot, batch: Batch, head: Head) -> Batch:
    """Return what a batch does to the contents if it is a merge. Give a renamed member its tags under its new name."""
    is_other = bool(data.ahead or data.origin)  # without some events, or by other rules
    if batch.since is not None and is_other:
        batch = _moved(data, batch, batch.since)
    elif batch.since is None and MERGER in batch.producers and data.ahead.reaches(NOTHING, head.time):
        raise UntoldError("events came while members of this union were merged, so earlier ones can't be taken back")
    if batch.tags:
        _rename(data, batch, is_other=is_other)
    return batch


def _moved(data: Snapshot, batch: Batch, since: int) -> Batch:
    """Return a merge that moves what its member has now, and not what it had in the store.

    If one of the members was erased, the amounts of the store are all that is left.
    """
    new, old = both = (batch.groups[0].members[0], batch.groups[0].members[1])
    if not (new and old):
        return batch
    rules, shape = batch.rules, msgspec.json.decode(data.shape, type=Shape)
    if shape.window["kind"] == "sliding":
        sums = Counter[int]()
        for event in data.log:
            if event.member == old:
                sums[event.time] += event.amount
        times = sorted(time for time in sums if time > since or data.origin)
        moved = [(time, sums[time]) for time in times if sums[time] or rules.zeros]
        amount = sum(amount for _, amount in moved)
        groups = [sum_moved(rules, EVER.start, "", both, amount, in_log=True)] if moved else []
        return msgspec.structs.replace(batch, groups=groups, events=logged(both, moved))
    groups = []
    for start, slot in data.slots.items():
        if old not in slot or (start < since and not data.origin):
            continue
        suffix = f":{start}" if shape.tables else ""
        if rules.operation == "incr":
            groups.append(sum_moved(rules, start, suffix, both, slot[old]))
            continue
        texts = data.ranking(suffix).metadata
        held = Value(slot[new], texts.get(new, b"")) if new in slot else None
        value = chosen(shape.operation, held, Value(slot[old], texts.get(old, b"")))
        groups.append(value_moved(rules, start, suffix, both, [slot.get(new), slot[old]], value))
    return msgspec.structs.replace(batch, groups=groups, events=None)


def _rename(data: Snapshot, batch: Batch, *, is_other: bool) -> None:
    renamed = set[str]()
    for group in batch.groups:
        (new, old), reached = group.members, data.ranking(group.suffix).reached
        held = content(batch.tags.get(group.suffix, NO_METADATA))
        tag = reached_of(data.origin or data.shape, held) if held else None
        if is_other and old:  # otherwise it was erased later
            tag = None if new in reached else reached.get(old)
        if new and tag:
            reached[new] = tag
            renamed.add(group.suffix)
        if group.orders and group.suffix in renamed:
            group.orders[0] = 0


def _vote(held: dict[bytes, int], votes: BatchVotes) -> None:
    for actor, pair, change in zip(votes.actors, votes.pairs, votes.changes, strict=True):
        add(held, content(actor), change)
        add(held, content(pair), change)


def _tag(data: Snapshot, head: Head, tags: Tags) -> None:
    if data.origin and not keeps_tags(data.ruled.board_of(data.origin), data.ruled.board):
        return  # by these rules, other members get or lose tags
    reached = data.ranking("").reached
    for member, time, number in tags:
        if number:
            reached[member] = (time, head.offset, number)
        else:
            reached.pop(member, None)


def _arrival(data: Snapshot, batch: Batch, head: Head) -> int:
    """Return when an event of a batch arrived that has no time (ms)."""
    return head.time // 1000 if data.latest is None or not batch.by_event else data.latest


def _without_impossible(batch: Batch, data: Snapshot) -> Batch:
    """Return a batch of a contest without the votes that only votes which were taken back made possible."""
    gone = [_impossible(group, batch.rules, data.ranking(group.suffix).votes) for group in batch.groups]
    if not any(gone):
        return batch
    is_gone = [
        index in places
        for group, places in zip(batch.groups, gone, strict=True)
        for index in range(len(group.votes.changes if group.votes else ()))
    ]
    kept = [event for event, is_out in zip(events_of(batch), is_gone, strict=True) if not is_out]
    return batch_of(batch, kept, clock_stays=True)


def _impossible(group: SlotDelta, rules: Rules, held: Mapping[bytes, int]) -> set[int]:
    """Return the places of votes that withdraw a vote which does not count, or that are one too many.

    `held` has the votes of each actor, and of each actor for each member. This is the algorithm of
    `store/lua/lib/votes.lua`.
    """
    votes = group.votes
    if votes is None:
        return set()
    actors, pairs = [content(one) for one in votes.actors], [content(one) for one in votes.pairs]
    counts = {digest: held.get(digest, 0) for digest in {*actors, *pairs}}
    first_of_two, gone, waiting = {number - 1 for number in votes.replaced}, set[int](), list[int]()

    def fault_of(index: int, *, replaces: bool = False) -> str:
        change = votes.changes[index]
        by_actor, for_member = counts[actors[index]] + change, counts[pairs[index]] + change
        is_over = (not replaces and by_actor > (rules.per_actor or by_actor)) or for_member > (
            rules.per_key or for_member
        )
        if change > 0 and is_over:
            return "over"
        if for_member < 0:
            return "missing"
        counts[actors[index]], counts[pairs[index]] = by_actor, for_member
        return ""

    def fault_of_all(index: int) -> str:
        fault = fault_of(index)
        if not fault and index in first_of_two and (fault := fault_of(index + 1, replaces=True)):
            counts[actors[index]] -= votes.changes[index]
            counts[pairs[index]] -= votes.changes[index]
        return fault

    seconds = {index + 1 for index in first_of_two}
    for index in range(len(votes.changes)):
        if index not in seconds and (fault := fault_of_all(index)):
            if fault == "over":  # tried again after the others, because a later one may take a vote back
                waiting.append(index)
            else:
                gone.add(index)
    gone.update(index for index in waiting if fault_of_all(index))
    gone |= {index + 1 for index in gone & first_of_two}
    return gone


def _count(data: Snapshot, group: SlotDelta, rules: Rules, offset: int, marks: Sequence[tuple[int, int]]) -> None:
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


def trim(data: Snapshot, start: int, suffix: str, rules: Rules) -> None:
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


def _hide(data: Snapshot, request: Hide, rules: Rules) -> None:
    if request.hide:
        data.hidden.add(request.member)
        return
    data.hidden.discard(request.member)
    for suffix in data.rankings:
        _untag(data, rules, suffix, [request.member])
    if rules.cap is not None:
        for start in data.slots:
            suffix = f":{start}" if f":{start}" in data.rankings else ""
            trim(data, start, suffix, rules)


def _untag(data: Snapshot, rules: Rules, suffix: str, members: Iterable[str]) -> None:
    """Take their tags from members whose amounts add up to zero, unless a score adds up several slots."""
    if rules.told or rules.ties is None or rules.operation != "incr":
        return
    slot, reached = data.slots.get(int(suffix[1:]) if suffix else EVER.start, {}), data.ranking(suffix).reached
    for member in members:
        if member not in slot and member not in data.hidden:
            reached.pop(member, None)


def _adopt(data: Snapshot, held: Adopt) -> None:
    ruled = data.ruled if data.origin or not data.shape else Ruled()
    data.shape, data.secret, data.edition = held.shape, content(held.secret), int(held.edition or 0)
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
    if ruled and base_of(data, ruled) is None:
        raise UntoldError(
            "the journal began again with contents of the board, which do not say enough about its events"
        )


def _pairs(fields: list[msgspec.Raw]) -> Iterator[tuple[msgspec.Raw, msgspec.Raw]]:
    return zip(fields[::2], fields[1::2], strict=True)


_HIDE: Final = msgspec.msgpack.Decoder(Hide)
_TAGS: Final = msgspec.msgpack.Decoder(Tags)
_ENTER: Final = msgspec.msgpack.Decoder(Enter)
_WITHDRAW: Final = msgspec.msgpack.Decoder(Withdraw)
_BEGIN: Final = msgspec.msgpack.Decoder(Begin)
_ADOPT: Final = msgspec.msgpack.Decoder(Adopt)
_SWAP: Final = msgspec.msgpack.Decoder(Swap)
_ERASE: Final = msgspec.msgpack.Decoder(Erase)

_BETTER: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "set": lambda new, old: True,  # noqa: ARG005 - the last amount counts
    "max": lambda new, old: new > old,
    "min": lambda new, old: new < old,
}
