"""Events as producers send them, and entries as boards count them."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Annotated, Any, Final, TypeAlias, cast, overload

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.domain import meaning
from live.domain.meaning import says
from live.domain.text import PATTERN, character_fault, json_fault, space_fault
from live.errors import RETRYABLE

MAX_SCORE: Final = 2**53
MAX_MEMBER_BYTES: Final = 1024
DOTS: Final = frozenset({".", ".."})
"""Names that no URL can have: clients drop them from a path, and so ask for something else."""
MAX_METADATA_BYTES: Final = 4096
MAX_DETAIL: Final = 200

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CONTROL: Final = re.compile("[\0-\x1f\x7f-\x9f]")

Label = Annotated[str, Meta(min_length=1, max_length=256)]
# The type of a member in the API contracts. `member_fault` checks members.
Member = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_MEMBER_BYTES, "pattern": PATTERN})]


class IncomingEvent(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, gc=False):
    """An event: a member (`key`) received `amount` at `time`."""

    # What a board ranks is a member, everywhere in the code. What clients send and receive calls it `key`.
    member: Annotated[Member, meaning.MEMBER] = msgspec.field(name="key")
    amount: Annotated[
        Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)] | UnsetType,
        says("The amount to add to the score, 1 by default. Boards with `set` or `best` need it: it is the new score."),
    ] = UNSET
    type: Annotated[Label | UnsetType, meaning.TYPE] = UNSET
    board: Annotated[str | UnsetType, says("The one board to feed, instead of `type`.")] = UNSET
    time: Annotated[Annotated[datetime, Meta(tz=True)] | UnsetType, meaning.TIME] = UNSET
    id: Annotated[Label | UnsetType, meaning.ID] = UNSET
    source: Annotated[Label | UnsetType, meaning.SOURCE] = UNSET
    actor: Annotated[Label | UnsetType, meaning.ACTOR] = UNSET
    category: Annotated[Label | UnsetType, meaning.CATEGORY] = UNSET
    fields: Annotated[dict[str, int] | UnsetType, meaning.FIELDS] = UNSET
    metadata: Annotated[msgspec.Raw | UnsetType, meaning.METADATA] = UNSET
    replaces: Annotated[Member | UnsetType, meaning.REPLACES] = UNSET


class Rejection(msgspec.Struct, frozen=True):
    """Why one event of a body was not counted."""

    index: Annotated[int, meaning.INDEX]
    code: Annotated[str, says("Stable name of the refusal.")]
    detail: Annotated[str, meaning.DETAIL]
    board: Annotated[
        str | UnsetType, says("Id of the board that refused the event. Omitted on a server with one board.")
    ] = UNSET
    retryable: Annotated[bool, says("Whether the reason can pass, so that the same event can count later.")] = False
    counted: Annotated[
        bool | UnsetType, says("True if another board has counted the event, now or before. Omitted otherwise.")
    ] = UNSET

    def __post_init__(self) -> None:
        """Look up whether the same event may count later."""
        if self.code in RETRYABLE:
            msgspec.structs.force_setattr(self, "retryable", True)  # noqa: FBT003 - of a struct that is being made


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of the member of an event, on a board that has counted the event.

    `score` and `rank` are null if the member is not on the board: it is hidden, its sum is zero on a board without
    `zeros`, or the board has a `cap` and other members are better.
    """

    index: Annotated[int, meaning.INDEX]
    board: Annotated[str, meaning.BOARD]
    member: Annotated[str, meaning.MEMBER] = msgspec.field(name="key")
    score: Annotated[int | None, says("The score. Null if the member is not on the board.")]
    rank: Annotated[int | None, says("Place in the ranking, from 1. Null if the member is not on the board.")]
    best: Annotated[
        bool | None,
        says(
            "Whether the event was a new best of its member. Null for a duplicate, on boards that do "
            "not keep the best, and if the connection to the store was lost meanwhile."
        ),
    ]
    period: Annotated[
        str | None, says("Period in which the event counted. Null on boards without a ranking for each period.")
    ]
    rank_count: Annotated[int, meaning.RANK_COUNT]
    epoch: Annotated[str, says("Epoch of the board when the record was read.")]
    offset: Annotated[
        int, says("Offset of the board when the record was read: the offset of the event, or a later one.")
    ]
    fields: Annotated[dict[str, int] | UnsetType, meaning.FIELDS] = UNSET


class Answer(msgspec.Struct, frozen=True):
    """The result of a request with events."""

    accepted: Annotated[int, says("Number of events that were counted.")]
    duplicate: Annotated[int, says("Number of events that were not counted again, because their identity was known.")]
    rejected: Annotated[tuple[Rejection, ...], says("Refused events, by index.")]
    offsets: Annotated[dict[str, int], says("New offset of each board that changed, by id.")]
    duplicates: Annotated[
        tuple[int, ...] | UnsetType, says("Indexes of the duplicates, if other events counted. Omitted otherwise.")
    ] = UNSET
    records: Annotated[
        Sequence[EventRecord] | UnsetType,
        says("Records of the members, in the order of the events. Only with `rank=true`."),
    ] = UNSET


class Extra(msgspec.Struct, frozen=True):
    """Parts of an event that only some boards use: the actor, and JSON that is stored with the record.

    `refused` is the code with which the board refuses the event. If the board has counted the same identity before, the
    event is a duplicate instead.
    """

    actor: str | None = None
    metadata: bytes | None = None
    refused: str | None = None
    replaces: str | None = None


# An event as a board counts it: the member, the amount, the time in ms since 1970 or None, the identity (see
# `Identities`) or None, and the parts that only some boards use. An entry is a plain tuple, because a busy server
# creates some hundred thousand entries per second.
Entry: TypeAlias = tuple[str, int, int | None, bytes | None, Extra | None]


_MOST_SOURCES: Final = 100
_encode = msgspec.json.Encoder().encode


class Identities:
    """Computes the 16 bytes that identify an event: a hash of its producer, its source and its id.

    Ids of different producers never collide, so no producer can use up the ids of another producer.
    """

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._sources: dict[str, Any] = {}  # the state of the hash after producer and source, by source

    def of(self, event: IncomingEvent) -> bytes:
        """Compute the identity of an event with an id.

        BLAKE2b (RFC 7693) gives 128 bits, which do not collide by chance.
        """
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

    def of_parts(self, key: str) -> Callable[[int, IncomingEvent], bytes]:
        """Return a function that computes identities for a body with the `Idempotency-Key` `key`.

        The identity of an event without an id is a hash of the key, of its index in the body, and of its content. It
        never equals the identity of an event with an id.
        """
        begun = blake2b(f"{self._producer}\n*{key}\n".encode(), digest_size=16)

        def of(index: int, event: IncomingEvent) -> bytes:
            whole = begun.copy()
            whole.update(b"%d\n%b" % (index, _encode(event)))
            return whole.digest()

        return of


_LIKE: Final = (1, None, None, None)  # the rest of a like's entry, after the member


class Likes(Sequence[Entry]):
    """Entries of which each is one like. Only members are stored, so adding up a body is several times as fast."""

    __slots__ = ("members",)

    def __init__(self, members: list[str]) -> None:
        self.members = members

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> "Likes": ...
    def __getitem__(self, index: int | slice) -> "Entry | Likes":
        return Likes(self.members[index]) if isinstance(index, slice) else (self.members[index], *_LIKE)


def join(parts: Sequence[Sequence[Entry]]) -> Sequence[Entry]:
    """Return all entries of several sequences, in order."""
    if all(isinstance(part, Likes) for part in parts):
        likes = cast("Sequence[Likes]", parts)
        return likes[0] if len(likes) == 1 else Likes([member for part in likes for member in part.members])
    return [entry for part in parts for entry in part]


def members_of_likes(entries: Sequence[Entry]) -> list[str] | None:
    """Return the members if each entry is one like without more fields. Otherwise return None."""
    if isinstance(entries, Likes):
        return entries.members
    if entries and all(entry[1:] == _LIKE for entry in entries):
        return [entry[0] for entry in entries]
    return None


def make_entry(
    member: str, amount: int = 1, time: int | None = None, identity: bytes | None = None, extra: Extra | None = None
) -> Entry:
    """Make an entry that does not come from an event."""
    return (member, amount, time, identity, extra)


def entry_of(event: IncomingEvent, identity: bytes | None = None) -> Entry:
    """Make the entry of an event."""
    time = None if event.time is UNSET else milliseconds(event.time)
    return (event.member, 1 if event.amount is UNSET else event.amount, time, identity, _extra_of(event))


def _extra_of(event: IncomingEvent) -> Extra | None:
    if event.actor is UNSET and event.metadata is UNSET and event.replaces is UNSET:
        return None
    metadata = None if event.metadata is UNSET else bytes(event.metadata)
    replaces = None if event.replaces is UNSET else event.replaces
    return Extra(None if event.actor is UNSET else event.actor, metadata, replaces=replaces)


def entries_of(events: Sequence[IncomingEvent], identify: Callable[[IncomingEvent], bytes]) -> list[Entry]:
    """Make the entries of many events, several times as fast as `entry_of`.

    `identify` returns the identity of an event that has an id.
    """
    return [
        (
            event.member,
            1 if event.amount is UNSET else event.amount,
            None if event.time is UNSET else milliseconds(event.time),
            None if event.id is UNSET else identify(event),
            _extra_of(event)
            if event.actor is not UNSET or event.metadata is not UNSET or event.replaces is not UNSET
            else None,
        )
        for event in events
    ]


def rfc3339(time: int, per_second: float = 1000, timespec: str = "milliseconds", sep: str = "T") -> str:
    """Format a time as RFC 3339 with the precision `timespec`.

    `time` is a number of units since 1970. `per_second` units are one second.
    """
    return datetime.fromtimestamp(time / per_second, UTC).isoformat(sep, timespec).replace("+00:00", "Z")


def milliseconds(time: datetime) -> int:
    """Convert a time to milliseconds since 1970."""
    return (time - _EPOCH) // _MILLISECOND


def member_fault(member: str) -> str | None:
    """Say why a member is invalid, or return None.

    A valid member has 1 to 1,024 bytes of UTF-8 in NFC, without control or format characters, and no white space at its
    beginning or end. It is not one of `DOTS`.
    """
    is_plain = member.isascii() and member.isprintable() and member[:1] > " " and member[-1:] > " "
    if is_plain and len(member) <= MAX_MEMBER_BYTES and member not in DOTS:
        return None
    if not member or member in DOTS:
        return f"key is {member!r}, which no URL can name" if member else "key is empty"
    size = len(member.encode(errors="surrogatepass"))
    if size > MAX_MEMBER_BYTES:
        return f"key has {size} bytes; at most {MAX_MEMBER_BYTES} are allowed"
    if fault := character_fault(member) or space_fault(member):
        return f"key {fault}"
    if not unicodedata.is_normalized("NFC", member):
        return "key is not in Unicode normalization form NFC"
    return None


def _actor_fault(actor: str) -> str | None:
    found = _CONTROL.search(actor)
    fault = space_fault(actor) if found is None else f"contains the control character U+{ord(found[0]):04X}"
    return fault and f"`actor` {fault}"


def _change_fault(event: IncomingEvent, replaces: str) -> str | None:
    if fault := member_fault(replaces):
        return f"`replaces`: {fault}"
    if replaces == event.member:
        return "`replaces` and `key` are the same member"
    return "`amount` must be at least 1 with `replaces`" if event.amount is not UNSET and event.amount < 1 else None


def event_fault(event: IncomingEvent) -> tuple[str, str] | None:
    """Say why a decoded event is invalid, as code and detail, or return None."""
    fault = member_fault(event.member)
    if fault is not None:
        return "key_invalid", fault
    fault = f"`id` is {event.id!r}, which no URL can name" if event.id in DOTS else None
    if fault is None and event.actor is not UNSET:
        fault = _actor_fault(event.actor)
    if fault is None and event.replaces is not UNSET:
        fault = _change_fault(event, event.replaces)
    if fault is not None:
        return "event_invalid", fault
    if event.metadata is not UNSET:
        metadata = bytes(event.metadata)
        if len(metadata) > MAX_METADATA_BYTES:
            return "metadata_invalid", f"metadata has {len(metadata)} bytes; at most {MAX_METADATA_BYTES} are allowed"
        try:
            text = metadata.decode()
        except UnicodeDecodeError:
            text = ""
        if not text.startswith("{"):
            return "metadata_invalid", "metadata is not a JSON object"
        if fault := json_fault(text):
            return "metadata_invalid", f"metadata {fault}"
    return None
