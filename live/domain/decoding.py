"""Decode bodies strictly into events, and report the index of each mistake.

`msgspec` decodes a body in one pass. Only if an event of an array has a mistake, the array is split, and its events are
decoded one by one. JSON allows repeated fields: the last one counts.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec import UNSET

from live.domain.event import MAX_DETAIL, MAX_KEY_BYTES, IncomingEvent, Rejection, event_fault
from live.domain.validation_messages import in_words
from live.errors import ProblemError

SPACE: Final = b" \t\r\n"
_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")  # a line that is not blank, from its first character
_QUOTES_OF_A_LIKE: Final = 4  # quotes in `{"key":"p1"}`; every other field adds more
_IN_WORDS: Final = {  # for words of msgspec, the words that replace them
    "Input data was truncated": "it is cut short",
    "trailing characters": "send several events as an array or as lines; more follows",
}
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")

_one = msgspec.json.Decoder(IncomingEvent)
_many = msgspec.json.Decoder(list[IncomingEvent])
_elements = msgspec.json.Decoder(list[msgspec.Raw])


class DecodedBody(msgspec.Struct, frozen=True):
    """A decoded body: the valid events with their indexes in the body, and the rejections of the invalid events.

    `likes` has the members if all events are valid and contain only a member. Such bodies are frequent.
    """

    events: Sequence[IncomingEvent]
    indexes: Sequence[int]
    rejections: list[Rejection]
    likes: list[str] | None = None


def decode_plain(body: bytes) -> IncomingEvent | None:
    """Decode a body that is one valid JSON object. This is the most frequent case.

    Return None if the body needs a closer check.
    """
    try:
        event = _one.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if event_fault(event) is not None else event


def decode_json(body: bytes, max_events: int) -> DecodedBody:
    """Decode one JSON object or an array of them.

    Raises:
        ProblemError: `malformed_body` or `too_many_events`. Nothing of the body counts.
    """
    if not body.lstrip(SPACE).startswith(b"["):  # one object
        event = decode_plain(body)
        if event is not None:
            return DecodedBody([event], (0,), [])
        return checked([decoded(body, _one.decode)])
    try:
        events = _many.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_each(elements_of(body, max_events), _one.decode)
    limit(len(events), max_events)
    # Check the members of these events all at once. If this finds a mistake, check them one by one.
    bare = body.count(b'"') == _QUOTES_OF_A_LIKE * len(events)
    keys = [event.key for event in events]
    together = "".join(keys)
    is_valid = together.isascii() and together.isprintable() and "" not in keys
    is_valid = is_valid and (" " not in together or all(key == key.strip() for key in keys))
    is_valid = is_valid and (
        bare
        or all(
            event.metadata is UNSET
            and event.replaces is UNSET
            and (event.actor is UNSET or (event.actor.isprintable() and event.actor == event.actor.strip()))
            for event in events
        )
    )
    if is_valid and max(map(len, keys), default=0) <= MAX_KEY_BYTES:
        return DecodedBody(events, range(len(events)), [], keys if bare else None)
    return checked(events)


def decode_ndjson(body: bytes, max_events: int) -> DecodedBody:
    """Decode one JSON object per line. Ignore blank lines, which have no index.

    Raises:
        ProblemError: `malformed_body` if the body has no event, or `too_many_events`.
    """
    lines = [found[0] for found in islice(_LINE.finditer(body), max_events + 1)]
    limit(len(lines), max_events)
    if not lines:
        raise ProblemError("malformed_body", "the body is empty")
    return decode_each(lines, _one.decode)


def decode_each(parts: Iterable[bytes], decode: Callable[[bytes], IncomingEvent]) -> DecodedBody:
    """Decode events one by one. An event that is not JSON is refused alone."""
    found: list[IncomingEvent | Rejection] = []
    for part in parts:
        try:
            found.append(decoded(part, decode))
        except ProblemError as problem:
            found.append(Rejection(0, "event_invalid", problem.detail))
    return checked(found)


def decoded(part: bytes, decode: Callable[[bytes], IncomingEvent]) -> IncomingEvent | Rejection:
    """Decode one event. Return a rejection if its fields are invalid. `checked` sets the index of the rejection.

    Raises:
        ProblemError: `malformed_body`: it is not JSON.
    """
    try:
        return decode(part)
    except msgspec.ValidationError as error:
        return Rejection(0, "event_invalid", in_words(error, IncomingEvent.__struct_fields__)[:MAX_DETAIL])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(part, error) from None


def elements_of(body: bytes, max_events: int) -> list[bytes]:
    """Split a JSON array.

    Raises:
        ProblemError: `malformed_body` or `too_many_events`.
    """
    try:
        body.decode()  # `msgspec.Raw` does not check UTF-8
        elements = _elements.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(body, error) from None
    limit(len(elements), max_events)
    return list(map(bytes, elements))


def _malformed(body: bytes, error: Exception) -> ProblemError:
    """Say why a body is not JSON."""
    if not body.strip(SPACE):
        return ProblemError("malformed_body", "the body is empty")
    if isinstance(error, RecursionError):
        return ProblemError("malformed_body", "JSON is nested too deeply")
    try:
        body.decode()
    except UnicodeDecodeError as fault:
        return ProblemError("malformed_body", f"not UTF-8: byte {fault.start} can't be read")
    detail = str(error).removeprefix("JSON is malformed: ")
    for words, plain in _IN_WORDS.items():
        detail = detail.replace(words, plain)
    if _SURROGATE.search(body):
        detail = "the text contains half of a surrogate pair"
    return ProblemError("malformed_body", f"JSON is malformed: {detail}")


def checked(parts: Sequence[IncomingEvent | Rejection]) -> DecodedBody:
    """Separate valid events from rejections, check the members of the valid events, and set the indexes."""
    events: list[IncomingEvent] = []
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
    return DecodedBody(events, indexes, rejections)


def limit(number: int, max_events: int) -> None:
    """Refuse a body with too many events.

    Raises:
        ProblemError: `too_many_events`.
    """
    if number > max_events:
        detail = f"more than {max_events} events in one body"
        raise ProblemError("too_many_events", detail)
