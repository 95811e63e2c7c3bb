"""Decode bodies strictly into events, and report the index of each mistake.

`msgspec` decodes a body in one pass. Only if an event of an array has a mistake, the array is split, and its events are
decoded one by one. JSON allows repeated fields: the last one counts. If a whole body is refused, nothing of it counts.

In CloudEvents 1.0, `subject` is the member, `source` and `id` the identity, `amount` the amount. An attribute can't be
an object, so `fields` and `metadata` are JSON text. `data` and other extensions are allowed and ignored. Attribute
names must follow the specification exactly, because an event whose `Amount` of 30 is ignored would count 1.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.domain.event import (
    DOTS,
    MAX_DETAIL,
    MAX_MEMBER_BYTES,
    MAX_SCORE,
    IncomingEvent,
    Label,
    Member,
    Rejection,
    event_fault,
)
from live.domain.meaning import ACTOR, BOARD, CATEGORY, ID, REPLACES, SOURCE, TIME, TYPE, says
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
    """Decode a body that is one valid JSON object, the most frequent case. Return None if it needs a closer check."""
    try:
        event = _one.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if event_fault(event) is not None else event


def decode_json(body: bytes, max_events: int) -> DecodedBody:
    """Decode one JSON object or an array of them."""
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
    members = [event.member for event in events]
    together = "".join(members)
    is_valid = together.isascii() and together.isprintable() and "" not in members
    is_valid = is_valid and (" " not in together or all(member == member.strip() for member in members))
    is_valid = is_valid and ("." not in together or DOTS.isdisjoint(members))
    is_valid = is_valid and (
        bare
        or all(
            event.metadata is UNSET
            and event.replaces is UNSET
            and event.id not in DOTS
            and (event.actor is UNSET or (event.actor.isprintable() and event.actor == event.actor.strip()))
            for event in events
        )
    )
    if is_valid and max(map(len, members), default=0) <= MAX_MEMBER_BYTES:
        return DecodedBody(events, range(len(events)), [], members if bare else None)
    return checked(events)


def decode_ndjson(body: bytes, max_events: int) -> DecodedBody:
    """Decode one JSON object per line. Ignore blank lines, which have no index."""
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
    """Decode one event. Return a rejection if its fields are invalid. `checked` sets the index of the rejection."""
    try:
        return decode(part)
    except msgspec.ValidationError as error:
        return Rejection(0, "event_invalid", in_words(error, IncomingEvent.__struct_encode_fields__)[:MAX_DETAIL])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(part, error) from None


def elements_of(body: bytes, max_events: int) -> list[bytes]:
    """Split a JSON array."""
    try:
        body.decode()  # `msgspec.Raw` does not check UTF-8
        elements = _elements.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(body, error) from None
    limit(len(elements), max_events)
    return list(map(bytes, elements))


def _malformed(body: bytes, error: Exception) -> ProblemError:
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
    """Refuse a body with too many events."""
    if number > max_events:
        detail = f"more than {max_events} events in one body"
        raise ProblemError("too_many_events", detail)


_NAME: Final = re.compile("[a-z0-9]+")
_MOST_ATTRIBUTES: Final = 100
_INNER: Final = "`fields` must be a JSON object with whole numbers, and `metadata` a JSON object, as text"
_WHOLE: Final = re.compile(rb'"(-?(?:0|[1-9][0-9]{0,15}))"')  # a whole number as text


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The supported attributes of a CloudEvent. Null means unset. Other attributes are ignored."""

    specversion: Annotated[str, Meta(pattern="^1[.]0$", max_length=3), says("Version of CloudEvents.")]
    id: Annotated[Label, ID]
    source: Annotated[Label, SOURCE]
    type: Annotated[Label, TYPE]
    subject: Annotated[Member, says("The member.")]
    time: Annotated[Annotated[datetime, Meta(tz=True)] | None, TIME] = None
    board: Annotated[str | None, BOARD] = None
    actor: Annotated[Label | None, ACTOR] = None
    amount: Annotated[
        Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | None,
        says("The amount to add, or the new score. Written as text if it has more than 32 bits."),
    ] = None
    category: Annotated[Label | None, CATEGORY] = None
    fields: Annotated[
        str | None, says("JSON text of an object: whole numbers by name, for boards whose score is made of fields.")
    ] = None
    metadata: Annotated[str | None, says("JSON text of an object that is stored with the record.")] = None
    replaces: Annotated[Member | None, REPLACES] = None


_event = msgspec.json.Decoder(CloudEvent)
_attributes = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN: Final = frozenset({*CloudEvent.__struct_fields__, "data", "data_base64"})


def decode_structured(body: bytes) -> DecodedBody:
    """Decode `application/cloudevents+json`: one event."""
    return checked([decoded(body, _decode)])


def decode_batch(body: bytes, max_events: int) -> DecodedBody:
    """Decode `application/cloudevents-batch+json`: an array of events, which may be empty."""
    if not body.lstrip(SPACE).startswith(b"["):
        raise ProblemError(
            "malformed_body", "a batch must be a JSON array; send one event as application/cloudevents+json"
        )
    return decode_each(elements_of(body, max_events), _decode)


def _decode(part: bytes) -> IncomingEvent:
    attributes = _attributes.decode(part)
    if len(attributes) > _MOST_ATTRIBUTES:
        raise msgspec.ValidationError(f"the event has more than {_MOST_ATTRIBUTES} attributes")
    for name in attributes:
        if name not in _KNOWN and not _NAME.fullmatch(name):
            raise msgspec.ValidationError(
                f"{name[:MAX_DETAIL]!r} is not an attribute name; use lower-case letters and digits"
            )
    # Integers of CloudEvents have 32 bits, so a larger amount is text. A gateway that makes JSON of headers may keep
    # any amount as text.
    if found := _WHOLE.fullmatch(bytes(attributes.get("amount", b""))):
        part = msgspec.json.encode({**attributes, "amount": msgspec.Raw(found[1])})
    event = _event.decode(part)
    fields: dict[str, int] | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET
    try:
        if event.fields is not None:
            fields = msgspec.json.decode(event.fields, type=dict[str, int])
        if event.metadata is not None:
            msgspec.json.decode(event.metadata)
            metadata = msgspec.Raw(event.metadata.strip().encode())
    except (msgspec.DecodeError, RecursionError):
        raise msgspec.ValidationError(_INNER) from None
    return IncomingEvent(
        member=event.subject,
        amount=UNSET if event.amount is None else event.amount,
        type=event.type,
        board=UNSET if event.board is None else event.board,
        time=UNSET if event.time is None else event.time,
        id=event.id,
        source=event.source,
        actor=UNSET if event.actor is None else event.actor,
        category=UNSET if event.category is None else event.category,
        fields=fields,
        metadata=metadata,
        replaces=UNSET if event.replaces is None else event.replaces,
    )
