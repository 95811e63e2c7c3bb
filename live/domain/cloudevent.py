"""CloudEvents 1.0 as events: `subject` is the member, `source` and `id` the identity, `amount` the amount.

An attribute can't be an object, so `fields` and `metadata` are JSON text.

`CloudEvent` lists the required and optional attributes. `data` is allowed and ignored, and so are other extensions.
Attribute names must follow the specification exactly, because an event whose `Amount` of 30 is ignored would count 1.
"""

import json
import re
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.domain.decoding import SPACE, Steps, check_parts, decode_each, no_constant, text_of
from live.domain.event import MAX_DETAIL, MAX_SCORE, IncomingEvent, Key, Label, Rejection
from live.domain.validation_messages import in_words
from live.errors import ProblemError

_NAME: Final = re.compile("[a-z0-9]+")
_INTEGER: Final = re.compile("-?(?:0|[1-9][0-9]{0,15})")
_MOST_DIGITS: Final = 20
_MOST_ATTRIBUTES: Final = 32_768  # bytes of an event without its data
# What a String of CloudEvents must not contain: control characters, surrogates, and noncharacters.
_NO_TEXT: Final = re.compile(
    "[\0-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
    + "]"
)


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The supported attributes of a CloudEvent. Null means unset. Other attributes are ignored."""

    specversion: Annotated[str, Meta(pattern="^1[.]0$", max_length=3)]
    id: Label
    source: Label
    type: Label
    subject: Key
    time: Annotated[datetime, Meta(tz=True)] | None = None
    board: str | None = None
    actor: Label | None = None
    amount: Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | None = None
    category: Label | None = None
    fields: str | None = None
    metadata: str | None = None


class _Data(msgspec.Struct, gc=False):
    """The parts of an event that can be large."""

    data: msgspec.Raw = msgspec.Raw()
    data_base64: msgspec.Raw = msgspec.Raw()


_DATA: Final = _Data.__struct_fields__
_data = msgspec.json.Decoder(_Data)
_attributes = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_structured(body: bytes) -> Steps:
    """Decode `application/cloudevents+json`: one event.

    Raises:
        ProblemError: `malformed_body`; nothing of the body counts.
    """
    return (yield from check_parts([_event_of_part(body)]))


def decode_batch(body: bytes, max_events: int) -> Steps:
    """Decode `application/cloudevents-batch+json`: an array of events, which may be empty.

    Raises:
        ProblemError: `malformed_body` or `too_many_events`; nothing of the body counts.
    """
    if not body.lstrip(SPACE.encode()).startswith(b"["):
        if len(body) <= _MOST_ATTRIBUTES:  # parsing a larger body would take too long
            _parse(body)
        raise ProblemError(
            "malformed_body", "a batch must be a JSON array; send one event as application/cloudevents+json"
        )
    return (yield from decode_each(body, max_events, _event_of_part))


# Objects become tuples of pairs, so that repeated names are visible; arrays become lists. An integer that is too long
# for any attribute becomes a float, because parsing a float is fast at any length.
_json = json.JSONDecoder(
    object_pairs_hook=tuple,
    parse_int=lambda digits: int(digits) if len(digits) < _MOST_DIGITS else float(digits),
    parse_constant=no_constant,
)


def _parse(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    text = text_of(body).strip(SPACE)
    if not text:
        raise ProblemError("malformed_body", "the body is empty")
    try:
        return _json.decode(text)
    except RecursionError:
        raise ProblemError("malformed_body", "JSON is nested too deeply") from None
    except ValueError as error:
        raise ProblemError("malformed_body", f"JSON is malformed: {error}"[:MAX_DETAIL]) from None


def _event_of_part(part: bytes) -> IncomingEvent | Rejection:
    """Decode the event in a JSON object."""
    if len(part) > _MOST_ATTRIBUTES:  # the data can be large and no board uses it, so it is removed first
        try:
            data = _data.decode(part)
            if len(part) - len(data.data) - len(data.data_base64) > _MOST_ATTRIBUTES:
                return _invalid(f"the attributes of the event exceed {_MOST_ATTRIBUTES:,} bytes")
            raw = _attributes.decode(part)
        except RecursionError:
            raise ProblemError("malformed_body", "JSON is nested too deeply") from None
        except msgspec.ValidationError as error:
            return _invalid(in_words(error))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProblemError("malformed_body", f"JSON is malformed: {error}"[:MAX_DETAIL]) from None
        quotes = sum(bytes(value).count(b'"') for value in raw.values())
        if part.count(b'"') != quotes + 2 * len(raw):  # then parsing has dropped a repeated name
            return Rejection(0, "field_duplicate", "an attribute is repeated, or its name contains a quotation mark")
        part = msgspec.json.encode({name: value for name, value in raw.items() if name not in _DATA})
    value = _parse(part)
    if not isinstance(value, tuple):
        return _converted(value)
    attributes = dict(value)
    if len(attributes) < len(value):
        return _twice([name for name, _ in value])
    for name in _DATA:  # these fields belong to the JSON format, and are not attributes
        attributes.pop(name, None)
    if tuple in map(type, attributes.values()):  # the error message must show an object, and not a tuple
        attributes = {name: {} if isinstance(value, tuple) else value for name, value in attributes.items()}
    return _event_of(attributes)


def _event_of(attributes: dict[str, Any]) -> IncomingEvent | Rejection:
    """Make an event from its attributes."""
    for name in attributes:
        if name not in _KNOWN and (name == "data" or not _NAME.fullmatch(name)):
            return _invalid(f"{name!r} is not an attribute name; use lower-case letters and digits, but not `data`")
    amount = attributes.get("amount")
    if isinstance(amount, str) and _INTEGER.fullmatch(amount):
        # Integers of CloudEvents have 32 bits, so a larger amount is text. A gateway that makes JSON of headers may
        # keep any amount as text.
        attributes["amount"] = int(amount)
    event = _converted(attributes)
    if isinstance(event, Rejection):
        return event
    for name in _TEXTS:  # the attributes that this server uses must be valid Strings of CloudEvents
        text = attributes.get(name)
        if text and not (text.isascii() and text.isprintable()) and (found := _NO_TEXT.search(text)):
            code = "key_invalid" if name == "subject" else "event_invalid"
            return Rejection(
                0, code, f"`{name}` contains U+{ord(found[0]):04X}, which CloudEvents attributes do not allow"
            )
    return event


def _converted(value: Any) -> IncomingEvent | Rejection:  # noqa: ANN401 - any JSON value
    try:
        event = msgspec.convert(value, CloudEvent)
    except msgspec.ValidationError as error:
        return _invalid(in_words(error))
    except UnicodeEncodeError as error:  # msgspec raises this for text that is not valid UTF-8
        return _invalid(
            f"the text contains U+{ord(error.object[error.start]):04X}, which CloudEvents attributes do not allow"
        )
    fields: dict[str, int] | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET
    try:
        if event.fields is not None:
            fields = msgspec.json.decode(event.fields, type=dict[str, int])
            if event.fields.count('"') != 2 * len(fields):
                return Rejection(0, "field_duplicate", "a name in `fields` is repeated, or has a quotation mark")
        if event.metadata is not None:
            msgspec.json.decode(event.metadata)
            metadata = msgspec.Raw(event.metadata.strip().encode())
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return _invalid("`fields` must be a JSON object with whole numbers, and `metadata` a JSON object, as text")
    return IncomingEvent(
        key=event.subject,
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
    )


_KNOWN: Final = frozenset(CloudEvent.__struct_fields__)
_TEXTS: Final = ("id", "source", "type", "subject", "board", "actor", "category", "fields", "metadata")


def _twice(names: list[str]) -> Rejection:
    seen: set[str] = set()
    name = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return Rejection(0, "field_duplicate", f"the attribute {name!r} is repeated"[:MAX_DETAIL])


def _invalid(detail: str) -> Rejection:
    """Make a rejection. `check_parts` sets its index."""
    return Rejection(0, "event_invalid", detail[:MAX_DETAIL])
