"""Texts compressed once for all receivers (RFC 1951), and gzip streams made of them (RFC 1952).

A text is compressed with the text before it as the dictionary. References count backwards from the end of what a
receiver has decompressed, so receivers may differ in everything before that text. Nobody needs a compressor of its own.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

FLUSHED: Final = b"\x00\x00\xff\xff"  # the end of a flush: an empty block, which ends at a whole byte
_LEVEL: Final = 6
_WINDOW: Final = -15  # a window of 32 KiB, and no header
_MOST_HISTORIES: Final = 8  # slow receivers have one each; beyond this number, a text is compressed alone
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no time, and no system
_LARGEST_STORED: Final = 0xFFFF
_STORED: Final = struct.Struct("<BHH")
_LAST: Final = b"\x03\x00"  # an empty last block
_TRAILER: Final = struct.Struct("<LL")


def deflate(text: bytes, dictionary: bytes) -> bytes:
    """Compress a text into blocks that end at a whole byte, for receivers whose last text was the dictionary."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, zdict=dictionary)
    return compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)


class Shared:
    """A text that many receivers share, compressed once for all with the same history.

    `make` compresses the text, given as its first argument, with the dictionary that is its second.
    """

    def __init__(self, text: bytes, make: Callable[[bytes, bytes], bytes] = deflate) -> None:
        self.text = text
        self._make = make
        self._alone: bytes | None = None
        self._after: WeakKeyDictionary[Shared, bytes] = WeakKeyDictionary()  # weak, or a history never ended

    def after(self, history: "Shared | None") -> bytes:
        """The text compressed for receivers whose last compressed text is `history`; None if they have none."""
        found = None if history is None else self._after.get(history)
        if found is not None:
            return found
        if history is None or len(self._after) >= _MOST_HISTORIES:
            if self._alone is None:
                self._alone = self._make(self.text, b"")
            return self._alone
        found = self._after[history] = self._make(self.text, history.text)
        return found


class GzipStream:
    """One receiver's gzip stream of shared texts. It keeps a checksum, and no compressor."""

    def __init__(self) -> None:
        self._checksum = 0
        self._size = 0
        self._history: Shared | None = None

    def start(self) -> bytes:
        """The header."""
        return _GZIP_HEADER

    def shared(self, text: Shared) -> bytes:
        """A text that others receive too."""
        data = text.after(self._history)
        self._count(text.text)
        self._history = text
        return data

    def own(self, text: bytes) -> bytes:
        """A text for this receiver alone, stored: compressing it would be work for each receiver.

        Nothing refers to it either, so the next text is compressed alone.
        """
        self._count(text)
        self._history = None
        pieces = [text[start : start + _LARGEST_STORED] for start in range(0, len(text), _LARGEST_STORED)]
        return b"".join(_STORED.pack(0, len(piece), len(piece) ^ _LARGEST_STORED) + piece for piece in pieces)

    def end(self) -> bytes:
        """The end, with checksum and size of all texts."""
        return _LAST + _TRAILER.pack(self._checksum, self._size)

    def _count(self, text: bytes) -> None:
        self._checksum = zlib.crc32(text, self._checksum)
        self._size = (self._size + len(text)) & 0xFFFFFFFF
