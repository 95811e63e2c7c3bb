"""CloudEvents 1.0 as events: `subject` is the member, `source` and `id` the identity, `amount` the amount.

An attribute can't be an object, so `fields` and `metadata` are JSON text.

`CloudEvent` lists the required and optional attributes. `data` is allowed and ignored, and so are other extensions.
Attribute names must follow the specification exactly, because an event whose `Amount` of 30 is ignored would count 1.
"""

import re
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.domain.decoding import SPACE, DecodedBody, checked, decode_each, decoded, elements_of
from live.domain.event import MAX_DETAIL, MAX_SCORE, IncomingEvent, Key, Label
from live.domain.text import ACTOR, BOARD, CATEGORY, ID, REPLACES, SOURCE, TIME, TYPE
from live.errors import ProblemError

_NAME: Final = re.compile("[a-z0-9]+")
_MOST_ATTRIBUTES: Final = 100
_INNER: Final = "`fields` must be a JSON object with whole numbers, and `metadata` a JSON object, as text"
_WHOLE: Final = re.compile(rb'"(-?(?:0|[1-9][0-9]{0,15}))"')  # a whole number as text


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The supported attributes of a CloudEvent. Null means unset. Other attributes are ignored."""

    specversion: Annotated[str, Meta(pattern="^1[.]0$", max_length=3), Meta(description="Version of CloudEvents.")]
    id: Annotated[Label, ID]
    source: Annotated[Label, SOURCE]
    type: Annotated[Label, TYPE]
    subject: Annotated[Key, Meta(description="The member.")]
    time: Annotated[Annotated[datetime, Meta(tz=True)] | None, TIME] = None
    board: Annotated[str | None, BOARD] = None
    actor: Annotated[Label | None, ACTOR] = None
    amount: Annotated[
        Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | None,
        Meta(description="The amount to add, or the new score. Written as text if it has more than 32 bits."),
    ] = None
    category: Annotated[Label | None, CATEGORY] = None
    fields: Annotated[
        str | None,
        Meta(description="JSON text of an object: whole numbers by name, for boards whose score is made of fields."),
    ] = None
    metadata: Annotated[str | None, Meta(description="JSON text of an object that is stored with the record.")] = None
    replaces: Annotated[Key | None, REPLACES] = None


_event = msgspec.json.Decoder(CloudEvent)
_attributes = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN: Final = frozenset({*CloudEvent.__struct_fields__, "data", "data_base64"})


def decode_structured(body: bytes) -> DecodedBody:
    """Decode `application/cloudevents+json`: one event.

    Raises:
        ProblemError: `malformed_body`; nothing of the body counts.
    """
    return checked([decoded(body, _decode)])


def decode_batch(body: bytes, max_events: int) -> DecodedBody:
    """Decode `application/cloudevents-batch+json`: an array of events, which may be empty.

    Raises:
        ProblemError: `malformed_body` or `too_many_events`; nothing of the body counts.
    """
    if not body.lstrip(SPACE).startswith(b"["):
        raise ProblemError(
            "malformed_body", "a batch must be a JSON array; send one event as application/cloudevents+json"
        )
    return decode_each(elements_of(body, max_events), _decode)


def _decode(part: bytes) -> IncomingEvent:
    """Decode one event."""
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
        replaces=UNSET if event.replaces is None else event.replaces,
    )
