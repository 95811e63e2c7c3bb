"""The top of a board as a list of records, and the difference between two tops: pure, no I/O.

`diff` and `apply` are inverse: `apply(old, *diff(old, new)) == new` for all tops. A difference names only
records that are new or whose score changed; a record that merely slid keeps its place relative to the others
that did not change, so its new rank follows from theirs and need not travel.
"""

from collections.abc import Iterable, Sequence

import msgspec


class Record(msgspec.Struct, frozen=True):
    """One row: `rank` counts from 1, `score` is a whole number within ±2^53."""

    key: str
    score: int
    rank: int


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive records of a board, read at one instant, and where the board stood then.

    `start` is the number of records ahead of the first one; `total_score` and `rank_count` are of the whole board.
    """

    epoch: str
    offset: int
    rank_count: int
    total_score: int
    start: int
    records: tuple[Record, ...]


def diff(old: Sequence[Record], new: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """What turns `old` into `new`: the records that are new or rescored, by rank, and the keys that left."""
    scores = {record.key: record.score for record in old}
    changed = [record for record in new if scores.get(record.key) != record.score]
    staying = {record.key for record in new}
    removed = [record.key for record in old if record.key not in staying]
    return changed, removed


def apply(old: Sequence[Record], changed: Sequence[Record], removed: Iterable[str]) -> list[Record]:
    """The top after a difference: take out what left or changed, then put each changed record at its rank."""
    moving = {record.key for record in changed}
    moving.update(removed)
    top = [record for record in old if record.key not in moving]
    for record in changed:
        top.insert(record.rank - 1, record)
    return [Record(record.key, record.score, rank) for rank, record in enumerate(top, 1)]
