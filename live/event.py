"""What a producer sends: strict decoding of bodies into events, each fault named by index.

Decoding is one pass of `msgspec` over the whole body. JSON allows a field to stand twice, and `msgspec` keeps the
last without a word; so every body is checked for that, at the price of encoding it again (see `_doubled`).
"""

import json
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Annotated, Any, Final, TypeAlias, cast, overload

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.errors import ProblemError

MAX_SCORE: Final = 2**53
MAX_KEY_BYTES: Final = 1024
MAX_METADATA_BYTES: Final = 4096
MAX_DETAIL: Final = 200

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_JOINERS: Final = "\u200c\u200d"  # format characters without which emoji and some scripts can't be written
_REFUSED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

Label = Annotated[str, Meta(min_length=1, max_length=256)]


class Event(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, gc=False):
    """`key` was liked `amount` times at `time`; `type` and `category` say what kind of like, so which boards it feeds.

    `fields` make the score of boards that are ranked by several; `metadata` is kept with a record that it made.
    """

    key: str
    amount: Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | UnsetType = UNSET
    type: Label | UnsetType = UNSET
    board: str | UnsetType = UNSET
    time: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET
    id: Label | UnsetType = UNSET
    source: Label | UnsetType = UNSET
    actor: Label | UnsetType = UNSET
    category: Label | UnsetType = UNSET
    fields: dict[str, int] | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET


class Rejection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why one event of a body was not counted: `code` is a key of `REFUSALS`; `board` where one of several refused."""

    index: int
    code: str
    detail: str
    board: str | None = None


class Extra(msgspec.Struct, frozen=True):
    """What only some boards need of an event: who sent it, and JSON to keep with the record."""

    actor: str | None = None
    metadata: bytes | None = None


# What a board needs of an event: the key, the amount, the time in ms since 1970 if it gave one, the identity if it has
# one (`Identities`), and what only some boards need. A bare tuple, because a busy server makes some hundred thousand of
# them a second.
Entry: TypeAlias = tuple[str, int, int | None, bytes | None, Extra | None]


_MOST_SOURCES: Final = 100


class Identities:
    """Makes the 16 bytes by which an event is known again: a hash of who sent it, its source and its id.

    A producer's ids are its own: no other can take them, or use them up.
    """

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._sources: dict[str, Any] = {}  # the hash as far as it is the same for all events of a source

    def of(self, event: Event) -> bytes:
        """The identity of an event that has an id; BLAKE2b (RFC 7693), 128 bits of which do not collide by chance."""
        source = "" if event.source is UNSET else event.source
        begun = self._sources.get(source)
        if begun is None:
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            begun = self._sources[source] = blake2b(
                f"{self._producer}\n{len(source)}:{source}".encode(), digest_size=16
            )
        whole = begun.copy()
        whole.update(cast("str", event.id).encode())
        identity: bytes = whole.digest()
        return identity

    def of_part(self, key: str, index: int) -> bytes:
        """The identity of the event at `index` in a body that `key` makes idempotent; never that of an event's own."""
        return blake2b(f"{self._producer}\n*{key}\n{index}".encode(), digest_size=16).digest()


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


class Likes(Sequence[Entry]):
    """Entries of one like each, kept as no more than their keys: bodies of them are added up several times as fast."""

    __slots__ = ("keys",)

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> "Likes": ...
    def __getitem__(self, index: int | slice) -> "Entry | Likes":
        return Likes(self.keys[index]) if isinstance(index, slice) else (self.keys[index], 1, None, None, None)


def join(parts: Sequence[Sequence[Entry]]) -> Sequence[Entry]:
    """All entries of several sequences, one after another."""
    if all(isinstance(part, Likes) for part in parts):
        likes = cast("Sequence[Likes]", parts)
        return likes[0] if len(likes) == 1 else Likes([key for part in likes for key in part.keys])
    return [entry for part in parts for entry in part]


def make_entry(
    key: str, amount: int = 1, time: int | None = None, identity: bytes | None = None, extra: Extra | None = None
) -> Entry:
    """An entry that is not made from an event."""
    return (key, amount, time, identity, extra)


def entry_of(event: Event, identity: bytes | None = None) -> Entry:
    """The part of an event that is counted."""
    time = None if event.time is UNSET else milliseconds(event.time)
    return (event.key, 1 if event.amount is UNSET else event.amount, time, identity, _extra_of(event))


def _extra_of(event: Event) -> Extra | None:
    if event.actor is UNSET and event.metadata is UNSET:
        return None
    metadata = None if event.metadata is UNSET else bytes(event.metadata)
    return Extra(None if event.actor is UNSET else event.actor, metadata)


def entries_of(events: Sequence[Event], identify: Callable[[Event], bytes]) -> list[Entry]:
    """`entry_of` for many, several times as fast; `identify` gives the identity of those that have an id."""
    return [
        (
            event.key,
            1 if event.amount is UNSET else event.amount,
            None if event.time is UNSET else milliseconds(event.time),
            None if event.id is UNSET else identify(event),
            _extra_of(event) if event.actor is not UNSET or event.metadata is not UNSET else None,
        )
        for event in events
    ]


def milliseconds(time: datetime) -> int:
    """A time as ms since 1970."""
    return (time - _EPOCH) // _MILLISECOND


def key_fault(key: str) -> str | None:
    """Why a key can't be taken, or None: 1 to 1,024 bytes of UTF-8 in NFC, no control or bidi characters."""
    if key.isascii() and key.isprintable() and 0 < len(key) <= MAX_KEY_BYTES:
        return None
    if not key:
        return "key is empty"
    size = len(key.encode())
    if size > MAX_KEY_BYTES:
        return f"key has {size} bytes; at most {MAX_KEY_BYTES} are taken"
    for character in key:
        if unicodedata.category(character) in _REFUSED and character not in _JOINERS:
            return f"key holds the control or format character U+{ord(character):04X}"
    if not unicodedata.is_normalized("NFC", key):
        return "key is not in Unicode normalization form NFC"
    return None


def event_fault(event: Event) -> tuple[str, str] | None:
    """Why an event that was decoded can't be taken all the same, as code and detail; or None."""
    fault = key_fault(event.key)
    if fault is not None:
        return "key_invalid", fault
    if event.metadata is not UNSET:
        metadata = bytes(event.metadata)
        if len(metadata) > MAX_METADATA_BYTES:
            return "metadata_invalid", f"metadata has {len(metadata)} bytes; at most {MAX_METADATA_BYTES} are taken"
        if not metadata.startswith(b"{") or not _is_utf8(metadata):
            return "metadata_invalid", "metadata is no JSON object"
    return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


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
