"""Events as a client sends them. An id makes an event count once."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

MAX_EVENT_BYTES: Final = 64 * 1024  # far more than a valid event has
_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """`member` received `amount`. Fields that are None are not sent.

    An event whose JSON is longer than 64 KiB raises ValueError when it is sent. A value that JSON can't hold raises
    TypeError.

    Attributes:
        member: what is ranked: 1 to 1,024 bytes of UTF-8 in NFC. The wire format calls it `key`.
        amount: a whole number within ±2^53. A negative amount takes back. None means 1, and is refused by boards that
            keep amounts as scores.
        type: the event type. The event feeds the boards that have this type in their `types`. The server's default is
            `like`.
        board: the only board that the event feeds. It replaces `type`.
        time: an aware datetime. Without a time, the event counts at the time when it arrives.
        id: unique within the `source`. An event with an id counts once, however often it is sent.
        source: the system that gives out the ids.
        category: the event feeds only boards that take this category.
        actor: who acted. Boards that count votes require an actor.
        replaces: the member whose vote of the actor is taken back in the same step, on boards that count votes.
        fields: whole numbers by name, for boards whose score is made of fields.
        metadata: a JSON object of up to 4,096 bytes. Boards that do not add up amounts keep it with the record.
    """

    member: str = msgspec.field(name="key")
    amount: int | None = None
    type: str | None = None
    board: str | None = None
    time: datetime | None = None
    id: str | None = None
    source: str | None = None
    category: str | None = None
    actor: str | None = None
    fields: Mapping[str, int] | None = None
    metadata: Mapping[str, Any] | None = None
    replaces: str | None = None


decode_event: Final = msgspec.json.Decoder(Event).decode
"""Decodes a line from `encode_event`."""


def encode_event(event: Event) -> bytes:
    """Encode an event as a line of JSON."""
    line = _encode(event)
    if len(line) > MAX_EVENT_BYTES:
        raise ValueError(f"the event has {len(line):,} bytes of JSON; at most {MAX_EVENT_BYTES:,} are allowed")
    return line


def with_identity(line: bytes, run: bytes, number: int, *, has_source: bool) -> bytes:
    """Append an id made of `run` and `number` to a JSON object without trailing white space.

    If the event has its own `source`, the id contains the run, so that it differs from other ids of that source.
    Otherwise the run becomes the `source`.
    """
    if has_source:
        return b'%b,"id":"%b:%d"}' % (line[:-1], run, number)
    return b'%b,"source":"%b","id":"%d"}' % (line[:-1], run, number)
