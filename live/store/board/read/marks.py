"""Marks of a ranking: what it was like at earlier times. `baseline.lua` describes how the store keeps them."""

import hashlib
import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

from live.domain.ranking import Ranks, ranks_of

RECORDS: Final = 1000  # records of a mark with their members and scores, and members whose digests one call adds
MOST: Final = 10_000  # members of a mark

_SHORT: Final = 4  # bytes of a digest
_TIE: Final = 1  # the bit of a digest that says whether the score equals the score before it
_RANK_BITS: Final = 32


class Mark(msgspec.Struct, frozen=True):
    """What the store knows of a mark. Times are in milliseconds."""

    id: str
    ranked: int
    known: int
    gained: str


decode_marks: Final = msgspec.msgpack.Decoder(list[Mark]).decode


class DeepRanks:
    """The ranks of members after the first records. It takes eight bytes for each member.

    A member that is not in the mark seems to be in it with a probability of one to 200,000.
    """

    def __init__(self, scores: Sequence[int], deep: bytes, ranks: Ranks) -> None:
        """Take the scores of the first records, and the digests of the members after them."""
        digests = struct.unpack(f">{len(deep) // _SHORT}I", deep)
        all_scores = list(scores)
        for digest in digests:  # only whether neighbours are equal matters
            all_scores.append(all_scores[-1] + (0 if digest & _TIE else 1))
        found = ranks_of(all_scores, 1, 0, ranks)[len(scores) :]
        self._ranks: array[int] = array(
            "Q", sorted((digest | _TIE) << _RANK_BITS | rank for digest, rank in zip(digests, found, strict=True))
        )

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._ranks)

    def get(self, member: str) -> int | None:
        """Return the rank of a member, or None."""
        digest = int.from_bytes(hashlib.sha1(member.encode(), usedforsecurity=False).digest()[:_SHORT]) | _TIE
        place = bisect_left(self._ranks, digest << _RANK_BITS)
        if place == len(self._ranks) or self._ranks[place] >> _RANK_BITS != digest:
            return None
        return self._ranks[place] & ((1 << _RANK_BITS) - 1)
