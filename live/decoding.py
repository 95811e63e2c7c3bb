"""Strict decoding of bodies into events, each fault named by index.

Decoding is one pass of `msgspec` over the whole body. JSON allows a field to stand twice, and `msgspec` keeps the
last without a word; so every body is checked for that, at the price of encoding it again (see `_doubled`).
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from live.errors import ProblemError
from live.event import MAX_DETAIL, MAX_KEY_BYTES, Event, Rejection, event_fault

_one = msgspec.json.Decoder(Event)
_many = msgspec.json.Decoder(list[Event])
_encode = msgspec.json.Encoder().encode


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Reads the grammar alone: numbers stay text, so that no long integer is ever worked out.
_grammar = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)
_QUOTES_OF_A_LIKE: Final = 4  # `{"key":"p1"}`; any other field has quotes of its own
_SPACE: Final = " \t\r\n"
_SPACES: Final = frozenset(_SPACE)


class Body(msgspec.Struct, frozen=True):
    """A decoded body: the good events, the index of each in the body, and the bad ones as rejections.

    `likes` are the keys, where the events are sound and say no more than that; most bodies are such.
    """

    events: Sequence[Event]
    indexes: Sequence[int]
    rejections: list[Rejection]
    likes: list[str] | None = None


def decode_plain(body: bytes) -> Event | None:
    """The event of a body that is one sound JSON object, which most are; None for one that takes a closer look."""
    try:
        event = _one.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if _doubled(body, event) or event_fault(event) is not None else event


def decode_json(body: bytes, max_events: int) -> Body:
    """Decode one JSON object or an array of them.

    Raises:
        ProblemError: `malformed_body` or `too_many_events`; nothing of the body counts.
    """
    if not body.lstrip(_SPACE.encode()).startswith(b"["):
        return _decode_object(body)
    try:
        events = _many.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_array(body, max_events)
    _limit(len(events), max_events)
    if _doubled(body, events):
        return _decode_array(body, max_events)
    return _checked(events, bare=body.count(b'"') == _QUOTES_OF_A_LIKE * len(events))


def decode_ndjson(body: bytes, max_events: int) -> Body:
    """Decode a JSON object a line; blank lines are passed over and have no index.

    Raises:
        ProblemError: `malformed_body` when the body is not UTF-8 or has no event, or `too_many_events`.
    """
    _text(body)
    lines = [line for line in body.split(b"\n") if line.strip(b" \t\r")]
    if not lines:
        raise ProblemError("malformed_body", "the body is empty")
    _limit(len(lines), max_events)
    return check_parts([_decode_part(line) for line in lines])


def _decode_object(body: bytes) -> Body:
    """Decode a body that is one object; what is not JSON is the body's fault, the rest the event's."""
    event = decode_plain(body)
    if event is not None:
        return Body([event], (0,), [])
    text = _text(body).strip(_SPACE)
    if not text:
        raise ProblemError("malformed_body", "the body is empty")
    if _parse(text, 0) != len(text):
        raise ProblemError("malformed_body", "more than one JSON value; send an array, or application/x-ndjson")
    return check_parts([_decode_part(body)])


def _decode_array(body: bytes, max_events: int) -> Body:
    """Decode an array of which at least one event is bad: each for itself."""
    parts = _split(_text(body).strip(_SPACE))
    _limit(len(parts), max_events)
    return check_parts([_decode_part(part.encode()) for part in parts])


def _split(text: str) -> list[str]:
    """The elements of a JSON array, each as it stands; the grammar is all that is checked."""
    parts: list[str] = []
    position = _past_space(text, 1)
    last = len(text) - 1
    if position == last and text[last] == "]":
        return parts
    while True:
        end = _parse(text, position)
        parts.append(text[position:end])
        position = _past_space(text, end)
        if position == last and text[last] == "]":
            return parts
        if text[position : position + 1] != ",":
            raise ProblemError("malformed_body", f"JSON is malformed: `,` or `]` is missing at character {position}")
        position = _past_space(text, position + 1)


def _parse(text: str, position: int) -> int:
    """Where the JSON value that begins at `position` ends."""
    try:
        return _grammar.raw_decode(text, position)[1]
    except RecursionError:
        raise ProblemError("malformed_body", "JSON is nested too deeply") from None
    except ValueError as error:
        raise ProblemError("malformed_body", f"JSON is malformed: {error}"[:MAX_DETAIL]) from None


def _past_space(text: str, position: int) -> int:
    while text[position : position + 1] in _SPACES:
        position += 1
    return position


def _decode_part(part: bytes) -> Event | Rejection:
    """Decode one event; a fault becomes a rejection whose index is set by `check_parts`."""
    try:
        event = _one.decode(part)
    except msgspec.ValidationError as error:
        return Rejection(0, "event_invalid", str(error)[:MAX_DETAIL])
    except msgspec.DecodeError as error:
        return Rejection(0, "event_invalid", f"the event's JSON can't be read: {error}"[:MAX_DETAIL])
    except RecursionError:
        return Rejection(0, "event_invalid", "JSON is nested too deeply")
    if _doubled(part, event):
        name = _doubled_name(part)
        if name is not None:
            return Rejection(0, "field_duplicate", f"the field `{name}` stands twice"[:MAX_DETAIL])
    return event


def _checked(events: Sequence[Event], *, bare: bool) -> Body:
    """Check the keys of events that are good but for that: all at once, and one by one where that finds a fault."""
    keys = [event.key for event in events]
    together = "".join(keys)
    sound = together.isascii() and together.isprintable() and "" not in keys
    sound = sound and (bare or all(event.metadata is UNSET for event in events))
    if sound and max(map(len, keys), default=0) <= MAX_KEY_BYTES:
        return Body(events, range(len(events)), [], keys if bare else None)
    return check_parts(events)


def check_parts(parts: Sequence[Event | Rejection]) -> Body:
    """Part good from bad, check the keys of the good ones, and give each its index."""
    events: list[Event] = []
    indexes: list[int] = []
    rejections: list[Rejection] = []
    for index, part in enumerate(parts):
        if isinstance(part, Rejection):
            rejections.append(Rejection(index, part.code, part.detail))
        elif (fault := event_fault(part)) is not None:
            rejections.append(Rejection(index, *fault))
        else:
            events.append(part)
            indexes.append(index)
    return Body(events, indexes, rejections)


def _doubled(source: bytes, decoded: Event | Sequence[Event]) -> bool:
    """Whether a field may stand twice in `source`; False is certain.

    Every field costs the quotes of its name. Without a backslash no string holds a quote, so encoding what was
    decoded gives as many quotes if, and only if, no field was dropped.
    """
    return b"\\" in source or source.count(b'"') != _encode(decoded).count(b'"')


def _doubled_name(part: bytes) -> str | None:
    """The first field that does stand twice in one event, read with the slow and exact parser."""
    doubled: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                doubled.append(name)
            seen.add(name)

    json.loads(part, object_pairs_hook=look, parse_int=str)
    return doubled[0] if doubled else None


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise ProblemError("malformed_body", f"not UTF-8: byte {error.start} can't be read") from None


def _limit(count: int, max_events: int) -> None:
    if count > max_events:
        detail = f"{count} events in one body; the setting max_events allows {max_events}"
        raise ProblemError("too_many_events", detail)
