"""Strict decoding of bodies into events, with the index of each mistake.

`msgspec` decodes a body in one pass. JSON allows repeated fields, and `msgspec` silently keeps the last one. So every
body is checked for repeated fields, which costs one encoding (see `_doubled`).
"""

import json
from collections.abc import Generator, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from live.domain.event import MAX_DETAIL, MAX_KEY_BYTES, Event, Rejection, event_fault
from live.domain.json_text import MOST_EVENT, SPACE, STEP, end_of_value, past_blank, split, text_of
from live.errors import ProblemError

_one = msgspec.json.Decoder(Event)
_many = msgspec.json.Decoder(list[Event])
_encode = msgspec.json.Encoder().encode


_QUOTES_OF_A_LIKE: Final = 4  # `{"key":"p1"}`; every other field adds quotes
_WHOLE: Final = 262_144  # bytes of a body that is decoded in one piece
_BRACES: Final = 4  # per event; a body with more may have too many events to decode in one piece
_CHECKED: Final = 16  # members checked per step, because normalizing a member can be slow
_OVERSIZED: Final = Rejection(0, "event_invalid", f"the event is longer than {MOST_EVENT:,} bytes")


class Body(msgspec.Struct, frozen=True):
    """A decoded body: the valid events with their indexes in the body, and the rejections of the others.

    `likes` holds the members if all events are valid and contain nothing but a member, which is the most frequent case.
    """

    events: Sequence[Event]
    indexes: Sequence[int]
    rejections: list[Rejection]
    likes: list[str] | None = None


# Decoding a large body runs in steps of about a millisecond. Most bodies need none.
Steps: TypeAlias = Generator[None, None, Body]


def decode_plain(body: bytes) -> Event | None:
    """The event of a body that is one valid JSON object, the most frequent case.

    Returns None if it needs a closer check.
    """
    if len(body) > MOST_EVENT:
        return None
    try:
        event = _one.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if _doubled(body, event) or event_fault(event) is not None else event


def decode_json(body: bytes, max_events: int) -> Steps:
    """Decode one JSON object or an array of them.

    Raises:
        ProblemError: `malformed_body` or `too_many_events`. Nothing of the body counts.
    """
    if not body.lstrip(SPACE.encode()).startswith(b"["):
        return (yield from _decode_object(body))
    if len(body) > _WHOLE or body.count(b"{") > _BRACES * max_events:
        return (yield from _decode_array(body, max_events))
    try:
        events = _many.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return (yield from _decode_array(body, max_events))
    limit(len(events), max_events)
    if _doubled(body, events):
        return (yield from _decode_array(body, max_events))
    return (yield from _checked(events, bare=body.count(b'"') == _QUOTES_OF_A_LIKE * len(events)))


def decode_ndjson(body: bytes, max_events: int) -> Steps:
    """Decode one JSON object per line. Blank lines are ignored and have no index.

    Raises:
        ProblemError: `malformed_body` if the body is not UTF-8 or has no event, or `too_many_events`.
    """
    text_of(body)
    parts: list[Event | Rejection] = []
    position = done = 0
    while True:
        position = yield from past_blank(body, position)
        if position == len(body):
            break
        limit(len(parts) + 1, max_events)
        end = body.find(b"\n", position)
        end = len(body) if end < 0 else end
        parts.append(_decode_part(body[position:end]) if end - position <= MOST_EVENT else _OVERSIZED)
        if len(parts) % STEP == 0 or end - done > MOST_EVENT:
            done = end
            yield
        position = end
    if not parts:
        raise ProblemError("malformed_body", "the body is empty")
    return (yield from check_parts(parts))


def finish(steps: Steps) -> Body:
    """Run all steps at once, for small bodies."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            body: Body = end.value
            return body


def _decode_object(body: bytes) -> Steps:
    """Decode a body that is one object.

    Invalid JSON is a problem of the body, anything else a rejection of the event.
    """
    if len(body) > MOST_EVENT:
        return (yield from check_parts([_OVERSIZED]))
    event = decode_plain(body)
    if event is not None:
        return Body([event], (0,), [])
    text = text_of(body).strip(SPACE)
    if not text:
        raise ProblemError("malformed_body", "the body is empty")
    if end_of_value(text, 0) != len(text):
        raise ProblemError("malformed_body", "more than one JSON value; send an array, or application/x-ndjson")
    return (yield from check_parts([_decode_part(body)]))


def _decode_array(body: bytes, max_events: int) -> Steps:
    """Decode an array, event by event."""
    parts: list[Event | Rejection] = []
    for part in split(body):
        if part is None:
            yield
            continue
        limit(len(parts) + 1, max_events)
        parts.append(_decode_part(part.encode()))
    return (yield from check_parts(parts))


def _decode_part(part: bytes) -> Event | Rejection:
    """Decode one event. A mistake becomes a rejection; `check_parts` sets its index."""
    try:
        event = _one.decode(part)
        # The second parser has another depth limit, so it can fail where the first one did not.
        name = _doubled_name(part) if _doubled(part, event) else None
    except msgspec.ValidationError as error:
        return Rejection(0, "event_invalid", str(error)[:MAX_DETAIL])
    except msgspec.DecodeError as error:
        return Rejection(0, "event_invalid", f"the event's JSON can't be parsed: {error}"[:MAX_DETAIL])
    except RecursionError:
        return Rejection(0, "event_invalid", "JSON is nested too deeply")
    if name is not None:
        return Rejection(0, "field_duplicate", f"the field `{name}` is repeated"[:MAX_DETAIL])
    return event


def _checked(events: Sequence[Event], *, bare: bool) -> Steps:
    """Check the members of events that are otherwise valid: all at once, and one by one if that finds a mistake."""
    keys = [event.key for event in events]
    together = "".join(keys)
    is_valid = together.isascii() and together.isprintable() and "" not in keys
    is_valid = is_valid and (bare or all(event.metadata is UNSET and _is_valid_actor(event.actor) for event in events))
    if is_valid and max(map(len, keys), default=0) <= MAX_KEY_BYTES:
        return Body(events, range(len(events)), [], keys if bare else None)
    return (yield from check_parts(events))


def _is_valid_actor(actor: str | UnsetType) -> bool:
    """Whether an actor needs no closer check."""
    return actor is UNSET or actor.isprintable()


def check_parts(parts: Sequence[Event | Rejection]) -> Steps:
    """Separate valid events from rejections, check the members of the valid ones, and set the indexes."""
    events: list[Event] = []
    indexes: list[int] = []
    rejections: list[Rejection] = []
    for index, part in enumerate(parts):
        if index % _CHECKED == _CHECKED - 1:
            yield
        if isinstance(part, Rejection):
            rejections.append(Rejection(index, part.code, part.detail))
        elif (fault := event_fault(part)) is not None:
            rejections.append(Rejection(index, *fault))
        else:
            events.append(part)
            indexes.append(index)
    return Body(events, indexes, rejections)


def _doubled(source: bytes, decoded: Event | Sequence[Event]) -> bool:
    """Whether `source` may contain a repeated field. False is certain.

    Every field has the quotes of its name. Without backslashes no string contains a quote. So encoding the decoded
    events gives the same number of quotes if, and only if, no field was dropped. Four quotes are a name and a member.
    """
    quotes = source.count(b'"')
    return b"\\" in source or (quotes != _QUOTES_OF_A_LIKE and quotes != _encode(decoded).count(b'"'))


def _doubled_name(part: bytes) -> str | None:
    """The first repeated field of one event, found with the slow and exact parser."""
    doubled: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                doubled.append(name)
            seen.add(name)

    json.loads(part, object_pairs_hook=check, parse_int=str)
    return doubled[0] if doubled else None


def limit(number: int, max_events: int) -> None:
    """Refuse a body with too many events.

    Raises:
        ProblemError: `too_many_events`.
    """
    if number > max_events:
        detail = f"more than {max_events} events in one body; the setting max_events allows {max_events}"
        raise ProblemError("too_many_events", detail)
