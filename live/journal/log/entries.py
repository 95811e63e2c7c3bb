"""The decoded entries of a journal. Most are requests to scripts; a batch is a `live.store.board.batch.Batch`."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
import zstandard
from sqlalchemy import Row

from live.domain.board import Rules
from live.errors import JournalBrokenError, SetupError
from live.store.board.batch import SlotDelta
from live.store.board.journal_stream import Entry


class Head(msgspec.Struct, frozen=True):
    """The head of an entry: its kind, and which entry comes before it."""

    kind: str  # `begin`, `adopt`, `renew`, `add`, `hide`, `enter`, `withdraw`, `tags`, `erase`, `forget` or `swap`
    size: int  # the bytes of all entries of the journal so far
    id: str  # the id of the entry: the board's offset, a hyphen, and a number
    time: int  # the time by the board's clock, in microseconds since 1970. It never goes back within an epoch
    link: str  # the id, time, writer and number of the entry, which the next entry repeats as `before`
    before: str  # the link of the entry before it

    @property
    def offset(self) -> int:
        """The board's offset after the entry."""
        return int(self.id.partition("-")[0])


FIRST: Final = "0-0 0 - 0"
"""The link before the first entry of a timeline."""


def parse_head(text: str) -> Head:
    """Parse the head of an entry."""
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


def marks_of(group: SlotDelta, rules: Rules, arrival: int) -> list[tuple[int, int]]:
    """Return, for each member, the time (ms) and the number of the event with which it reached its amount."""
    times = [arrival if time is False else time for time in group.times] or [arrival] * len(group.orders)
    marks = list(zip(times, group.orders, strict=True))
    for index, number in group.arrivals.items():
        time = times[index - 1]
        if arrival >= time if rules.operation == "incr" else arrival < time:
            marks[index - 1] = arrival, number
    return marks


class Latest(msgspec.Struct, frozen=True):
    """The newest event time in a batch, or of a board at a swap, in milliseconds since 1970. None if there is none."""

    latest: int | None = None


class Hide(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was hidden, or shown again."""

    member: str
    hide: bool = False
    rules: Rules


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
    edition: str = ""
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


NIL: Final = b"\xc0"


class Swap(msgspec.Struct, frozen=True):
    """The number of a new edition: from here on, the board holds what the entries before say.

    `taken` is a packed `live.journal.state.taken.Taken`, as a text: the events that are left out from here on. It is
    nil if there are none.
    `ruled` has the rules from here on, a `live.journal.state.ruled.Ruled`; nil if they stay.
    `oldest` is the start of the oldest slot in the window, and events of a sliding window up to the time `left` (ms)
    have left it.
    """

    edition: int
    taken: msgspec.Raw = msgspec.Raw(NIL)
    ruled: msgspec.Raw = msgspec.Raw(NIL)
    oldest: int | None = None
    left: int | None = None


class Erase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An actor or a member that was erased.

    `digests` are those that the store deleted: of the actor, or of votes for the member. `member` is the member in an
    entry `forget`. `elsewhere` has the digests for boards without a journal of their own, such as deleted boards. In
    the last of these entries, `system` says that titles and the audit log must forget the member too.

    The entry is so only until it is in SQL, where it holds nothing but what replaces the digests in earlier entries.
    `key` makes the replacements.
    """

    digests: list[bytes] = []
    key: bytes = b""
    member: str = ""
    elsewhere: list[tuple[str, list[bytes]]] = []
    system: bool = False

    def replacements(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return what replaces each digest, everywhere the same. Without the key, nobody can find out which it is."""
        size = DIGEST - len(REPLACED)
        return {digest: REPLACED + blake2b(digest, digest_size=size, key=self.key).digest() for digest in digests}


REPLACED: Final = bytes(4)
"""The beginning of what replaces the digest of an erased actor."""
DIGEST: Final = 16
"""Bytes of a digest."""


Tags = list[tuple[str, int, int]]
"""Tags that members got or lost without an event: the member, the time (ms), and the number (0: no tag)."""


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
    """Return the bytes that were compressed."""
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
    """Yield the heads and contents of the entries in a segment."""
    yield from _DECODER.decode(decompress(crc, data))


def read_entries_of(row: Row[*tuple[Any, ...]]) -> Iterator[tuple[Head, bytes]]:
    """Yield the heads and contents of the entries in the row of a segment."""
    for text, body in unpack_entries(row.crc, row.data):
        yield parse_head(text), body
