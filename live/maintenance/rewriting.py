"""Takes digests out of what the journal holds. Everything else in an entry stays as it was, byte for byte."""

from collections.abc import Sequence
from typing import Final

import msgspec

from live.domain.window import EVER
from live.journal.log.entries import Head, content, contents
from live.journal.state.snapshot import IDENTITY, Snapshot
from live.maintenance.erasure import Erasure
from live.store.connection.scripts import texts

Fields = dict[str, msgspec.Raw]

_FIELDS: Final = msgspec.msgpack.Decoder(Fields)
_GROUPS: Final = msgspec.msgpack.Decoder(list[Fields])
_NAMES: Final = msgspec.msgpack.Decoder(list[str])
_NUMBERS: Final = msgspec.msgpack.Decoder(list[int])
_RAWS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_TEXT: Final = msgspec.msgpack.Decoder(str)
_NUMBER: Final = msgspec.msgpack.Decoder(int)
_SLOTS: Final = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, list[msgspec.Raw]]])
_TABLES: Final = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw, list[msgspec.Raw]]])
_encode: Final = msgspec.msgpack.Encoder().encode


def rewrite(head: Head, body: bytes, erasure: Erasure) -> bytes:
    """The content of an entry without the digests that have to go."""
    step = {"add": _add, "adopt": _adopt, "mend": _mend}.get(head.kind)
    return body if step is None else step(head, body, erasure)


def clean(data: Snapshot, erasure: Erasure) -> bool:
    """Take the digests that have to go out of the contents of a board; whether there were any."""
    found = False
    for suffix, ranking in data.rankings.items():
        if erasure.among(ranking.votes, data.time):
            found = True  # the actor voted here, so there are digests of the actor with members too
            erasure.add_voted(data.slots.get(int(suffix[1:] or EVER.start), {}))
            for field in erasure.among(ranking.votes, data.time):
                del ranking.votes[field]
    if data.seen:
        for start, slot in data.slots.items():
            erasure.add_liked(slot, (None, start) if f":{start}" in data.rankings else (None,))
        erasure.add_liked({event.member for event in data.log}, (None,))
    for start, seen in data.seen.items():
        erased = erasure.among(seen, data.time)
        data.seen[start] = seen - erased
        found = found or bool(erased)
    return found


def _add(head: Head, body: bytes, erasure: Erasure) -> bytes:
    fields = _FIELDS.decode(body)
    if "identities" not in fields and b"\xa5votes" not in body:
        return body
    changed, groups = False, []
    for group in _GROUPS.decode(fields["groups"]) if "groups" in fields else []:
        if "identities" in fields:
            erasure.add_liked(_NAMES.decode(group["members"]), (None, _NUMBER.decode(group["start"])))
        found = "votes" in group and _rewrite_votes(head, group, erasure)
        changed = found or changed
        groups.append(group)
    if changed:
        fields["groups"] = _packed(groups)
    if "identities" in fields and _rewrite_identities(head, fields, erasure):
        changed = True
    return _encode(fields) if changed else body


def _rewrite_votes(head: Head, group: Fields, erasure: Erasure) -> bool:
    votes = _FIELDS.decode(group["votes"])
    actors = [content(actor) for actor in _RAWS.decode(votes["actors"])]
    erased = erasure.among(actors, head.time)
    if not erased:
        return False
    pairs = [content(pair) for pair in _RAWS.decode(votes["pairs"])]
    erasure.remember(pair for actor, pair in zip(actors, pairs, strict=True) if actor in erased)
    kept = [index for index, actor in enumerate(actors) if actor not in erased]
    if not kept:
        del group["votes"]
        return True
    for name, value in votes.items():
        if name in ("actors", "pairs"):
            raws = _RAWS.decode(value)
            votes[name] = _packed([raws[index] for index in kept])
        else:
            numbers = _NUMBERS.decode(value)
            votes[name] = _packed([numbers[index] for index in kept])
    group["votes"] = _packed(votes)
    return True


def _rewrite_identities(head: Head, fields: Fields, erasure: Erasure) -> bool:
    identities = _FIELDS.decode(fields["identities"])
    held = contents(identities["all"], IDENTITY)
    erased = erasure.among(held, head.time)
    if not erased:
        return False
    counted = _NUMBER.decode(identities["counted"]) if "counted" in identities else 0
    kept = [identity for identity in held if identity not in erased]
    if not kept:
        del fields["identities"]
        return True
    identities["all"] = texts(kept, IDENTITY)
    identities["counted"] = _packed(sum(1 for identity in held[:counted] if identity not in erased))
    fields["identities"] = _packed(identities)
    return True


def _adopt(head: Head, body: bytes, erasure: Erasure) -> bytes:
    fields, changed = _FIELDS.decode(body), False
    members = {
        int(content(start)): [content(member).decode() for member in held[::2]]
        for start, held in _SLOTS.decode(fields["slots"])
    }
    for start, names in members.items():
        erasure.add_liked(names, (None, start))
    tables = []
    for suffix, reached, metadata, votes in _TABLES.decode(fields["tables"]):
        if erasure.among([content(field) for field in votes[::2]], head.time):
            erasure.add_voted(members.get(int(content(suffix)[1:] or EVER.start), ()))
        erased = erasure.among([content(field) for field in votes[::2]], head.time)
        pairs = zip(votes[::2], votes[1::2], strict=True)
        kept = [raw for field, count in pairs if content(field) not in erased for raw in (field, count)]
        changed = changed or bool(erased)
        tables.append((suffix, reached, metadata, kept))
    seen = []
    for bucket, identities in _SLOTS.decode(fields["seen"]):
        erased = erasure.among([content(identity) for identity in identities], head.time)
        changed = changed or bool(erased)
        seen.append((bucket, [identity for identity in identities if content(identity) not in erased]))
    if not changed:
        return body
    fields["tables"], fields["seen"] = _packed(tables), _packed(seen)
    return _encode(fields)


def _mend(head: Head, body: bytes, erasure: Erasure) -> bytes:
    """A correction of votes."""
    fields = _FIELDS.decode(body)
    if _TEXT.decode(fields["kind"]) != "votes":
        return body
    names = _RAWS.decode(fields["names"])
    erased = erasure.among([content(name) for name in names], head.time)
    if not erased:
        return body
    kept = [index for index, name in enumerate(names) if content(name) not in erased]
    for field in ("names", "amounts"):
        values = _RAWS.decode(fields[field])
        fields[field] = _packed([values[index] for index in kept])
    return _encode(fields)


def _packed(value: Sequence[object] | Fields | int) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))
