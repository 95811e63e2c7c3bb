"""Compresses each text once for all receivers (RFC 1951).

The dictionary of a text is the few texts before it. References count backwards from the end of the decompressed data.
So two receivers can share a text if both have its dictionary, whatever they received before it. No receiver needs its
own compressor.
"""

import zlib
from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

FLUSHED: Final = b"\x00\x00\xff\xff"  # the end of a flush: an empty block, which ends on a byte boundary
_LEVEL: Final = 6
_WINDOW: Final = -15  # a window of 32 KiB, and no header
# A member that moves in one message is often in one of the last few messages. A longer dictionary would save little,
# and it would take longer until new receivers can share texts with the others.
_DEPTH: Final = 4
_MOST_HISTORIES: Final = 8  # histories with which a text is compressed; for others, it is compressed without a history


def deflate(text: bytes, dictionary: bytes) -> bytes:
    """Compress a text into blocks that end on a byte boundary, for receivers whose data ends with the dictionary."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, zdict=dictionary)
    return compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)


class SharedText:
    """A text that many receivers share, compressed once for all receivers with the same history.

    `make` takes the text and the dictionary, and returns the compressed text.
    """

    _numbers = count()

    def __init__(self, text: bytes, make: Callable[[bytes, bytes], bytes]) -> None:
        self.text = text
        self._make = make
        self._number = next(self._numbers)
        # The keys are the numbers of the texts in the history. References to the texts themselves would keep all of
        # them in memory.
        self._made: dict[tuple[int, ...], bytes] = {}

    def after(self, history: "TextHistory") -> bytes:
        """Return the text compressed for receivers with a history."""
        key = tuple([text._number for text in history])  # noqa: SLF001 - of the same class
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_HISTORIES and history:
                return self.after(())
            found = self._made[key] = self._make(self.text, b"".join([text.text for text in history]))
        return found


TextHistory: TypeAlias = tuple[SharedText, ...]
"""The last compressed texts that a receiver has, the newest last. They are the dictionary of the next text."""


def following(history: TextHistory, text: SharedText) -> TextHistory:
    """Return the history after a text was received."""
    return (*history, text)[-_DEPTH:]
