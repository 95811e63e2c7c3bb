"""Decode bodies strictly into events, and report the index of each mistake.

`msgspec` decodes a body in one pass. JSON allows repeated fields, and `msgspec` silently keeps the last of them. So
this module checks every body for repeated fields. The check costs one encoding (see `_doubled`). Arrays that are large
or have a mistake are split into events first, without decoding them, in steps of bounded work.
"""

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import count
from typing import Any, AnyStr, Final, TypeAlias

import msgspec
from msgspec import UNSET

from live.domain.event import MAX_DETAIL, MAX_KEY_BYTES, IncomingEvent, Rejection, event_fault
from live.domain.validation_messages import in_words
from live.errors import ProblemError

STEP: Final = 64  # elements per step
MOST_EVENT: Final = 65_536  # bytes or characters of one event among several; valid events are far smaller
SPACE: Final = " \t\r\n"

_one = msgspec.json.Decoder(IncomingEvent)
_many = msgspec.json.Decoder(list[IncomingEvent])
_encode = msgspec.json.Encoder().encode

_QUOTES_OF_A_LIKE: Final = 4  # quotes in `{"key":"p1"}`; every other field adds more
_WHOLE: Final = 262_144  # bytes of a body that is decoded in one piece
_BRACES: Final = 4  # most `{` per allowed event in a body that is decoded in one piece; more may mean too many events
_LONG: Final = 4096  # characters of an event that is decoded in a step of its own
_SHORT: Final = 2048  # characters that are parsed first to find the end of an event; most events are shorter
_CHECKED: Final = 16  # members checked per step, because normalizing a member can be slow
_OVERSIZED: Final = Rejection(0, "event_invalid", f"the event is longer than {MOST_EVENT:,} bytes")


class DecodedBody(msgspec.Struct, frozen=True):
    """A decoded body: the valid events with their indexes in the body, and the rejections of the invalid events.

    `likes` has the members if all events are valid and contain only a member. Such bodies are frequent.
    """

    events: Sequence[IncomingEvent]
    indexes: Sequence[int]
    rejections: list[Rejection]
    likes: list[str] | None = None


# Decoding a large body runs in steps of about a millisecond. Most bodies need no steps.
Steps: TypeAlias = Generator[None, None, DecodedBody]


def decode_plain(body: bytes) -> IncomingEvent | None:
    """Decode a body that is one valid JSON object. This is the most frequent case.

    Return None if the body needs a closer check.
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
    start = yield from past_blank(body, 0)
    if not body.startswith(b"[", start):  # one object
        if len(body) > MOST_EVENT:
            return (yield from check_parts([_OVERSIZED]))
        event = decode_plain(body)
        if event is not None:
            return DecodedBody([event], (0,), [])
        # Invalid JSON is a problem of the body. Any other mistake is a rejection of the event.
        text = text_of(body).strip(SPACE)
        if not text:
            raise ProblemError("malformed_body", "the body is empty")
        if end_of_value(text, 0) != len(text):
            raise ProblemError("malformed_body", "more than one JSON value; send an array, or application/x-ndjson")
        return (yield from check_parts([_decode_part(body)]))
    events: list[IncomingEvent] | None = None
    if len(body) <= _WHOLE and body.count(b"{") <= _BRACES * max_events:
        try:
            events = _many.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            events = None  # decoding the events one by one finds the mistake
        else:
            limit(len(events), max_events)
    if events is None or _doubled(body, events):  # decode the events one by one
        return (yield from decode_each(body, max_events, _decode_part))
    # Check the members of these events all at once. If this finds a mistake, check them one by one.
    bare = body.count(b'"') == _QUOTES_OF_A_LIKE * len(events)
    keys = [event.key for event in events]
    together = "".join(keys)
    is_valid = together.isascii() and together.isprintable() and "" not in keys
    is_valid = is_valid and (
        bare or all(event.metadata is UNSET and (event.actor is UNSET or event.actor.isprintable()) for event in events)
    )
    if is_valid and max(map(len, keys), default=0) <= MAX_KEY_BYTES:
        return DecodedBody(events, range(len(events)), [], keys if bare else None)
    return (yield from check_parts(events))


def decode_ndjson(body: bytes, max_events: int) -> Steps:
    """Decode one JSON object per line. Ignore blank lines, which have no index.

    Raises:
        ProblemError: `malformed_body` if the body is not UTF-8 or has no event, or `too_many_events`.
    """
    text_of(body)
    parts: list[IncomingEvent | Rejection] = []
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


def finish(steps: Steps) -> DecodedBody:
    """Run all steps at once. Use this for small bodies."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            body: DecodedBody = end.value
            return body


def _decode_part(part: bytes) -> IncomingEvent | Rejection:
    """Decode one event. Return a rejection if the event has a mistake.

    `check_parts` sets the index of the rejection.
    """
    try:
        event = _one.decode(part)
        # The second parser has another depth limit, so it can fail on text that the first parser accepted.
        name = _doubled_name(part) if _doubled(part, event) else None
    except msgspec.ValidationError as error:
        return Rejection(0, "event_invalid", in_words(error, IncomingEvent.__struct_fields__)[:MAX_DETAIL])
    except msgspec.DecodeError as error:
        return Rejection(0, "event_invalid", f"the event's JSON can't be parsed: {error}"[:MAX_DETAIL])
    except RecursionError:
        return Rejection(0, "event_invalid", "JSON is nested too deeply")
    if name is not None:
        return Rejection(0, "field_duplicate", f"the field `{name}` is repeated"[:MAX_DETAIL])
    return event


def check_parts(parts: Sequence[IncomingEvent | Rejection]) -> Steps:
    """Separate valid events from rejections, check the members of the valid events, and set the indexes."""
    events: list[IncomingEvent] = []
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
    return DecodedBody(events, indexes, rejections)


def _doubled(source: bytes, decoded: IncomingEvent | Sequence[IncomingEvent]) -> bool:
    """Tell whether `source` may contain a repeated field. False means that it has none.

    The name of every field has quotes. Without backslashes, no string contains a quote. So the encoding of the decoded
    events has the same number of quotes if, and only if, no field was dropped. A source with four quotes has only one
    name, so it needs no encoding.
    """
    quotes = source.count(b'"')
    return b"\\" in source or (quotes != _QUOTES_OF_A_LIKE and quotes != _encode(decoded).count(b'"'))


def _doubled_name(part: bytes) -> str | None:
    """Return the first repeated field of one event, or None. The parser that this uses is exact but slow."""
    doubled: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                doubled.append(name)
            seen.add(name)

    json.loads(part, object_pairs_hook=check, parse_int=str)
    return doubled[0] if doubled else None


def decode_each(body: bytes, max_events: int, decode: Callable[[bytes], IncomingEvent | Rejection]) -> Steps:
    """Decode the elements of a JSON array one by one.

    Raises:
        ProblemError: `malformed_body` or `too_many_events`.
    """
    parts: list[IncomingEvent | Rejection] = []
    for part in split(body):
        if part is None:
            yield
            continue
        limit(len(parts) + 1, max_events)
        parts.append(decode(part.encode()))
        if len(part) > _LONG:
            yield
    return (yield from check_parts(parts))


def limit(number: int, max_events: int) -> None:
    """Refuse a body with too many events.

    Raises:
        ProblemError: `too_many_events`.
    """
    if number > max_events:
        detail = f"more than {max_events} events in one body; the setting max_events allows {max_events}"
        raise ProblemError("too_many_events", detail)


def no_constant(name: str) -> None:
    """Refuse NaN and the infinities, which Python's parser accepts."""
    raise ValueError(f"{name} is not JSON")


# This decoder checks only the grammar. Numbers stay text, so no long integer is ever computed.
_grammar = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=no_constant)


def split(body: bytes) -> Iterator[str | None]:
    """Yield the elements of a JSON array as text, and None after each step. Only the grammar is checked.

    `list[msgspec.Raw]` would be faster, but takes one step of any length (50 ms for a body of 1 MB of numbers), and
    refuses the whole body for half a surrogate pair in one event.

    Raises:
        ProblemError: `malformed_body`.
    """
    text = text_of(body).strip(SPACE)
    position = yield from past_blank(text, 1)
    last = len(text) - 1
    if position == last and text[last] == "]":
        return
    done = position
    for number in count(1):
        end = _parse_within(text, position)
        yield text[position:end]
        if number % STEP == 0 or end - done > MOST_EVENT:
            done = end
            yield None
        position = yield from past_blank(text, end)
        if position == last and text[last] == "]":
            return
        if text[position : position + 1] != ",":
            raise ProblemError("malformed_body", f"JSON is malformed: `,` or `]` is missing at character {position}")
        position = yield from past_blank(text, position + 1)


def _parse_within(text: str, position: int) -> int:
    """Find the end of the array element that begins at `position`. Parse the element in pieces of bounded size."""
    for size in (_SHORT, MOST_EVENT):
        piece = text[position : position + size]
        whole = position + size >= len(text)
        try:
            end = _grammar.raw_decode(piece)[1]
        except RecursionError:
            raise ProblemError("malformed_body", "JSON is nested too deeply") from None
        except ValueError as error:
            if whole:
                raise _malformed(error, text, position) from None
            continue
        if end < size or whole:  # otherwise a number could continue in the next piece
            return position + end
    detail = f"JSON is malformed, or an event is longer than {MOST_EVENT:,} characters: at character {position}"
    raise ProblemError("malformed_body", detail)


def end_of_value(text: str, position: int) -> int:
    """Find the end of the JSON value that begins at `position`.

    Raises:
        ProblemError: `malformed_body`.
    """
    try:
        return _grammar.raw_decode(text, position)[1]
    except RecursionError:
        raise ProblemError("malformed_body", "JSON is nested too deeply") from None
    except ValueError as error:
        raise _malformed(error, text, 0) from None


def _malformed(error: ValueError, text: str, start: int) -> ProblemError:
    """Describe a mistake in the part of a text that begins at `start`."""
    if isinstance(error, json.JSONDecodeError):
        error = json.JSONDecodeError(error.msg, text, start + error.pos)
    return ProblemError("malformed_body", f"JSON is malformed: {error}"[:MAX_DETAIL])


def past_blank(text: AnyStr, position: int) -> Generator[None, None, int]:
    """Find the next character that is not white space. Each long piece of white space takes one step."""
    while text[position : position + 1].isspace():
        piece = text[position : position + MOST_EVENT]
        left = piece.lstrip(SPACE if isinstance(piece, str) else SPACE.encode())
        position += len(piece) - len(left)
        if left:
            break
        yield
    return position


def text_of(body: bytes) -> str:
    """Decode the text of a body.

    Raises:
        ProblemError: `malformed_body`: the body is not UTF-8.
    """
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise ProblemError("malformed_body", f"not UTF-8: byte {error.start} can't be read") from None
