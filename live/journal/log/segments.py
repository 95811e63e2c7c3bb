"""Consecutive entries of a journal, packed, compressed and checked."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import zstandard

from live.errors import JournalBrokenError
from live.store.board.handover import Entry

_LEVEL: Final = 3  # a higher one takes much more time and saves little space
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
    """The bytes that were compressed.

    Raises:
        JournalBrokenError: they are damaged.
    """
    if zlib.crc32(data) != crc:
        raise JournalBrokenError("the journal is damaged: a checksum does not match; `live journal verify` says where")
    return zstandard.decompress(data)


def pack_entries(entries: Sequence[Entry]) -> Packed:
    """Pack and compress the heads and contents of entries."""
    return compress(_ENCODER.encode([(entry.head, entry.content) for entry in entries]))


def unpack_entries(crc: int, data: bytes) -> Iterator[_Pair]:
    """The heads and contents of the entries in a segment.

    Raises:
        JournalBrokenError: they are damaged.
    """
    yield from _DECODER.decode(decompress(crc, data))
