"""The decoded entries of a journal. Most are requests to scripts, in the form in which the store keeps them."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec
import zstandard
from sqlalchemy import Row

from live.errors import JournalBrokenError, SetupError
from live.store.board.journal_stream import Entry


class Head(msgspec.Struct, frozen=True):
    """The head of an entry: its kind, and which entry comes before it.

    Attributes:
        kind: `begin`, `adopt`, `renew`, `add`, `hide`, `enter`, `withdraw`, `tags`, `left`, `erase` or `forget`.
        size: the bytes of all entries of the journal so far.
        id: the id of the entry: the board's offset, a hyphen, and a number.
        time: the store's time in microseconds since 1970.
        link: the id, time, writer and number of the entry, which the next entry repeats as `before`.
        before: the link of the entry before it.
    """

    kind: str
    size: int
    id: str
    time: int
    link: str
    before: str

    @property
    def offset(self) -> int:
        """The board's offset after the entry."""
        return int(self.id.partition("-")[0])


FIRST: Final = "0-0 0 - 0"
"""The link before the first entry of a timeline."""


def parse_head(text: str) -> Head:
    """Parse the head of an entry.

    Raises:
        SetupError: this version cannot read the head.
    """
    words = text.split(" ")
    try:
        kind, size, name, time, writer, number, *before = words
        return Head(kind, int(size), name, int(time), f"{name} {time} {writer} {number}", " ".join(before))
    except ValueError:
        raise SetupError(f"an entry of the journal begins with {text!r}: a newer version has written it") from None


def position_of(link: str) -> tuple[int, int]:
    """Parse the offset and the number in an id or a link. The pair grows from entry to entry."""
    offset, _, number = link.partition(" ")[0].partition("-")
    return int(offset), int(number or 0)


class EntryRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of the board's rankings, as an entry has them (see `live.store.board.requests.Rules`)."""

    operation: str
    order: str
    ties: str | None = None
    cap: int | None = None
    zeros: bool = False


class EntryIdentities(msgspec.Struct, frozen=True, kw_only=True):
    """The identities of the events of a batch (see `live.store.board.requests.BatchIdentities`)."""

    all: msgspec.Raw
    counted: int = 0
    bucket: int
    kept: int


class EntryVotes(msgspec.Struct, frozen=True):
    """The votes of a batch in one slot (see `live.store.board.requests.BatchVotes`)."""

    actors: list[msgspec.Raw]
    pairs: list[msgspec.Raw]
    changes: list[int]
    members: list[int] = []
    producers: list[int] = []


class EntryDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch changed in one slot (see `live.store.board.requests.SlotDelta`)."""

    start: int
    suffix: str
    members: list[str]
    amounts: list[int]
    orders: list[int] = []
    times: list[int | Literal[False]] = []
    arrivals: list[int] = []
    metadata: list[msgspec.Raw] = []
    votes: EntryVotes | None = None
    parts: list[tuple[int, list[int]]] = []
    drops: list[int] = []
    moments: list[int] = []


class EntryEvents(msgspec.Struct, frozen=True):
    """The events of a batch in the log of a sliding window (see `live.store.board.requests.LogEvents`)."""

    times: list[int | bool]
    amounts: list[int]
    members: list[str]
    producers: list[int] = []


class EntryClock(msgspec.Struct, frozen=True):
    """The clock of a board (see `live.store.board.requests.PlannedClock`)."""

    by_event: bool = False


class Add(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was applied; see `live.store.board.requests.AddRequest`."""

    clock: EntryClock = EntryClock()
    rules: EntryRules
    span: int
    reached: int | None
    latest: int | None = None
    identities: EntryIdentities | None = None
    groups: list[EntryDelta] = []
    events: EntryEvents | None = None
    producers: list[str] = []
    reason: str = ""


def arrival_of(head: Head, reached: int | None, latest: int | None = None) -> int:
    """Return the time (ms) at which events without a time arrived.

    `reached` is the newest slot after the batch. With an event clock, `latest` is the newest event time before it.
    """
    return max(head.time // 1000, 1000 * (reached or 0)) if latest is None else latest


def marks_of(group: EntryDelta, rules: EntryRules, arrival: int) -> list[tuple[int, int]]:
    """Return, for each member, the time (ms) and the number of the event with which it reached its amount."""
    times = [arrival if time is False else time for time in group.times] or [arrival] * len(group.orders)
    marks = list(zip(times, group.orders, strict=True))
    for index, number in zip(group.arrivals[::2], group.arrivals[1::2], strict=True):
        time = times[index - 1]
        if arrival >= time if rules.operation == "incr" else arrival < time:
            marks[index - 1] = arrival, number
    return marks


class Latest(msgspec.Struct, frozen=True):
    """The newest event time in a batch, in milliseconds since 1970. None if the batch has no event time."""

    latest: int | None = None


class Hide(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was hidden, or shown again."""

    member: str
    hide: bool = False
    rules: EntryRules


class Enter(msgspec.Struct, frozen=True):
    """A member that was registered, with its metadata."""

    member: str
    metadata: msgspec.Raw


class Withdraw(msgspec.Struct, frozen=True):
    """A member that was withdrawn."""

    member: str


class Begin(msgspec.Struct, frozen=True):
    """The beginning of a board: its epoch, its shape, and the key of the digests of voters."""

    epoch: str
    shape: str
    secret: msgspec.Raw


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a board when its journal began.

    Numbers are texts, as in the store. An empty text means no number.

    After a loss, `parent` is the epoch that the board continues. Otherwise it is empty.
    """

    parent: str = ""
    shape: str
    secret: msgspec.Raw
    newest: str
    latest: str
    bucket: str
    span: str
    slots: list[tuple[str, list[str]]]
    tables: list[tuple[str, list[msgspec.Raw], list[msgspec.Raw], list[msgspec.Raw]]]
    seen: list[tuple[str, list[msgspec.Raw]]]
    log: list[msgspec.Raw]
    entrants: list[msgspec.Raw]
    hidden: list[str]


class Erase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An actor or a member that was erased.

    `digests` stand for the digests that the store deleted: each is the keyed hash of one of them, with the key `key`.
    `elsewhere` has the digests for boards without a journal of their own, such as deleted boards. `member` is the
    digest of the member in an entry `forget`. In the last of these entries, `system` says that titles and the audit log
    must forget the member too.
    """

    key: bytes
    digests: list[bytes]
    elsewhere: list[tuple[str, list[bytes]]] = []
    member: bytes = b""
    system: bool = False


Left = tuple[int, int, int]
"""The last event that had left a sliding window when the clock was set back: its time (ms), offset and number."""

Tags = list[tuple[str, str, int, int]]
"""Tags that members got or lost without an event: the suffix of the ranking, the member, the time (ms), and the number
(0: no tag)."""


_HEADS: Final = {0xD9: 2, 0xDA: 3, 0xDB: 5}  # the length of the header of a long text, by its first byte


def content(raw: msgspec.Raw) -> bytes:
    """Return the bytes of a MessagePack text, which need not be UTF-8."""
    data = bytes(raw)
    return data[_HEADS.get(data[0], 1) :]


def contents(raw: msgspec.Raw, size: int) -> list[bytes]:
    """Return the texts of a MessagePack list in which each text has `size` bytes."""
    data = memoryview(raw)
    return [bytes(data[first : first + size]) for first in range(6, len(data), size + 1)]


_LEVEL: Final = 3  # a higher level takes much more time and saves little space
_Pair = tuple[str, bytes]

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[_Pair])


class Packed(msgspec.Struct, frozen=True):
    """Compressed bytes, and their checksum."""

    crc: int
    data: bytes


def compress(data: bytes) -> Packed:
    """Compress bytes."""
    packed = zstandard.compress(data, _LEVEL)
    return Packed(zlib.crc32(packed), packed)


def decompress(crc: int, data: bytes) -> bytes:
    """Return the bytes that were compressed.

    Raises:
        JournalBrokenError: the compressed bytes are damaged.
    """
    if zlib.crc32(data) != crc:
        raise JournalBrokenError(
            "the journal is damaged: a checksum does not match; `live journal --verify` says where"
        )
    return zstandard.decompress(data)


def pack_entries(entries: Sequence[Entry]) -> Packed:
    """Pack and compress the heads and contents of entries."""
    return pack_pairs([(entry.head, entry.content) for entry in entries])


def pack_pairs(pairs: Sequence[_Pair]) -> Packed:
    """Pack and compress heads and contents."""
    return compress(_ENCODER.encode(pairs))


def unpack_entries(crc: int, data: bytes) -> Iterator[_Pair]:
    """Yield the heads and contents of the entries in a segment.

    Raises:
        JournalBrokenError: the compressed bytes are damaged.
    """
    yield from _DECODER.decode(decompress(crc, data))


def read_entries_of(row: Row[*tuple[Any, ...]]) -> Iterator[tuple[Head, bytes]]:
    """Yield the heads and contents of the entries in the row of a segment.

    Raises:
        JournalBrokenError: the compressed bytes are damaged.
        SetupError: this version cannot read the head of an entry.
    """
    for text, body in unpack_entries(row.crc, row.data):
        yield parse_head(text), body
