"""Fold corrections: entries that give the journal the values of the store, after a comparison found differences."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from live.domain.board import Shape
from live.journal.log.entries import Mend, content
from live.journal.state.snapshot import Logged, Reached, Snapshot

_Name = TypeVar("_Name", str, bytes)
_Value = TypeVar("_Value")

_MEND: Final = msgspec.msgpack.Decoder(Mend)
_OFFSET: Final = 5  # bytes of an offset in a tag and in the name of an event of a log


def correct(data: Snapshot, body: bytes) -> None:
    """Apply a correction. A correction of the store alone changes nothing, because the journal was right."""
    mend = _MEND.decode(body)
    if not mend.teach:
        return
    names = [content(name) for name in mend.names]
    if mend.amounts is not None:
        _grow(data, mend, dict(zip(names, mend.amounts, strict=True)))
    else:
        _replace(data, mend, {name: content(value) for name, value in zip(names, mend.values, strict=True)})


def _grow(data: Snapshot, mend: Mend, amounts: Mapping[bytes, int]) -> None:
    """Add amounts to what a slot holds, or to votes."""
    if mend.kind == "votes":
        _add(data.ranking(mend.suffix).votes, amounts)
    elif mend.start is not None:
        slot = data.slots.setdefault(mend.start, {})
        _add(slot, {name.decode(): amount for name, amount in amounts.items()})


def _replace(data: Snapshot, mend: Mend, values: Mapping[bytes, bytes]) -> None:
    """Replace values that do not add up. An empty text means no value."""
    ranking = data.ranking(mend.suffix)
    texts = {name.decode(): value for name, value in values.items() if mend.kind != "log"}
    match mend.kind:
        case "slot" if mend.start is not None:
            _put(
                data.slots.setdefault(mend.start, {}), {name: int(text) for name, text in texts.items() if text}, texts
            )
        case "metadata":
            _put(ranking.metadata, texts, texts)
        case "entrants":
            _put(data.entrants, texts, texts)
        case "reached":
            tags = {name: reached_of(data.shape, tag) for name, tag in texts.items() if tag}
            _put(ranking.reached, tags, texts)
        case "hidden":
            data.hidden = (data.hidden - texts.keys()) | {name for name, text in texts.items() if text}
        case "log":
            removed = {logged_of(name, 0) for name in values}
            kept = [event for event in data.log if msgspec.structs.replace(event, time=0) not in removed]
            data.log = kept + [logged_of(name, int(float(time))) for name, time in values.items() if time]


def _add(held: dict[_Name, int], amounts: Mapping[_Name, int]) -> None:
    for name, amount in amounts.items():
        value = held.get(name, 0) + amount
        if value:
            held[name] = value
        else:
            held.pop(name, None)


def _put(held: dict[str, _Value], values: Mapping[str, _Value], names: Mapping[str, bytes]) -> None:
    """Set the values of names. An empty text means no value."""
    for name, text in names.items():
        if text:
            held[name] = values[name]
        else:
            held.pop(name, None)


def reached_of(shape: str, tag: bytes) -> Reached:
    """Return the offset and the number in a tag. Tags fall where the last to reach a score comes first."""
    offset, number = int.from_bytes(tag[:_OFFSET]), int.from_bytes(tag[_OFFSET:])
    if msgspec.json.decode(shape, type=Shape).tags == "falling":
        return 2**40 - 1 - offset, 2**24 - 1 - number
    return offset, number


def logged_of(name: bytes, time: int) -> Logged:
    """Parse the name of an event in the store's log."""
    amount, _, member = name[8:].partition(b" ")
    return Logged(time, int.from_bytes(name[:_OFFSET]), int.from_bytes(name[_OFFSET:8]), member.decode(), int(amount))


def name_of(event: Logged) -> bytes:
    """Return the name of an event in the store's log."""
    return event.offset.to_bytes(_OFFSET) + event.number.to_bytes(3) + f"{event.amount} {event.member}".encode()
