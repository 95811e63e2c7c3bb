"""The top of a board as a list of records, and the difference between two tops. No I/O.

`diff` and `apply` are inverse: `apply(old, *diff(old, new)) == new` for all tops. A difference contains only records
that are new, whose score or metadata changed, or that changed places with others. A record that only slid keeps its
order relative to the unchanged records. Its new rank follows from their ranks, so it is not sent.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from live.domain.meaning import FIELDS, MEMBER, METADATA, RANK, SCORE, says

_T = TypeVar("_T")
Ranks = Literal["ordinal", "dense", "competition"]


class Record(msgspec.Struct, frozen=True):
    """One row of a board."""

    member: Annotated[str, MEMBER] = msgspec.field(name="key")
    score: Annotated[int, SCORE]
    rank: Annotated[int, RANK]
    fields: Annotated[dict[str, int] | UnsetType, FIELDS] = UNSET
    metadata: Annotated[msgspec.Raw | UnsetType, METADATA] = UNSET
    position: Annotated[
        int | UnsetType,
        says("Place in the list, from 1. Present if it differs from the rank because equal scores share a rank."),
    ] = UNSET


class Made:
    """A cache of things that were made from a page, such as its JSON. All users of the page share it.

    `size` is the number of their bytes. If `on_growth` is set, it is called with each change of `size`.
    """

    __slots__ = ("_things", "on_growth", "size")

    def __init__(self) -> None:
        self.size = 0
        self.on_growth: Callable[[int], None] | None = None
        self._things: dict[Hashable, tuple[Any, int]] = {}

    def get(self, kind: Hashable) -> Any:  # noqa: ANN401 - whatever was kept
        """Return the thing of a kind, or None."""
        return self._things.get(kind, (None, 0))[0]

    def keep(self, kind: Hashable, thing: _T, size: int = 0) -> _T:
        """Cache a thing of `size` bytes, which replaces the last thing of its kind. Return the thing."""
        growth = size - self._things.get(kind, (None, 0))[1]
        self._things[kind] = thing, size
        self.size += growth
        if growth and self.on_growth is not None:
            self.on_growth(growth)
        return thing


class Page(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Consecutive records of a board, and the position of the board, read at one instant.

    `start` is the number of records ahead of the first record. `total_score` and `rank_count` are about the whole
    board, or about the `period` that was read. `total_score` is None if scores are not amounts. `names` are the
    elements of the sorted set that the records come from. `slot` is the start of the period that was read, or None if
    the board has no periods. `entrants` is the number of registered members of a contest.
    """

    epoch: str
    offset: int
    rank_count: int
    total_score: int | None
    start: int
    records: tuple[Record, ...]
    names: tuple[bytes, ...] = ()
    entrants: int | None = None
    slot: int | None = None
    period: str | None = None

    @cached_property
    def made(self) -> Made:
        """The cache of things that were made from this page."""
        return Made()

    @property
    def first(self) -> tuple[int, bytes] | None:
        """The score of the first record, and its name in the ranking."""
        return (self.records[0].score, self.names[0]) if self.names else None

    @property
    def last(self) -> tuple[int, bytes] | None:
        """The score of the last record, and its name in the ranking."""
        return (self.records[-1].score, self.names[-1]) if self.names else None


def ranks_of(scores: Sequence[int], first: int, start: int, ranks: Ranks) -> list[int]:
    """Rank consecutive records. The first record has the rank `first`, and `start` records are ahead of it.

    `ordinal` counts records. In the other schemes, equal scores share a rank. After equal scores, `competition` skips
    the numbers of the records that share a rank, and `dense` continues with the next number.
    """
    if ranks == "ordinal":
        return list(range(start + 1, start + 1 + len(scores)))
    found: list[int] = []
    for i, score in enumerate(scores):
        if i == 0:
            found.append(first)
        elif score == scores[i - 1]:
            found.append(found[-1])
        else:
            found.append(found[-1] + 1 if ranks == "dense" else start + i + 1)
    return found


def neighbourhood(records: Sequence[Record], member: str, around: int) -> tuple[Record, int | None, Sequence[Record]]:
    """Return the record of a member, its gap to the record above (or None), and the record with its neighbours.

    `records` are consecutive and contain the member. If the member is not the first of the board, they contain the
    record above too.
    """
    place = next(place for place, record in enumerate(records) if record.member == member)
    own = records[place]
    gap = abs(records[place - 1].score - own.score) if place else None
    return own, gap, records[max(0, place - around) : place + around + 1]


def diff(old: Sequence[Record], new: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """Compare two tops. Return the new, changed or moved records in order, and the members that left."""
    before = {record.member: record for record in old}
    moved: set[str] = set()
    staying: list[str] = []
    for record in new:
        member = record.member
        was = before.pop(member, None)
        if was is None or was.score != record.score or was.metadata != record.metadata:
            moved.add(member)
        else:
            staying.append(member)
    removed = list(before)
    unmoved = set(staying)
    moved |= _out_of_order([record.member for record in old if record.member in unmoved], staying)
    return [record for record in new if record.member in moved], removed


def _out_of_order(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """Find the smallest set of members that must move to turn the `old` order into the `new` one.

    The members that stay are the longest increasing subsequence of old places. Patience sorting finds it (Fredman,
    1975).
    """
    if old == new:
        return set()
    places = {member: place for place, member in enumerate(old)}
    ends: list[int] = []  # for each length of a run, the smallest old place that ends such a run
    runs: list[int] = []  # for each member of `new`, the length of the longest run that ends with it
    for member in new:
        place = places[member]
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        runs.append(length)
    staying: set[str] = set()
    wanted = len(ends) - 1
    for member, length in zip(reversed(new), reversed(runs), strict=True):
        if length == wanted:
            staying.add(member)
            wanted -= 1
    return set(new) - staying


def apply(
    old: Sequence[Record], changed: Sequence[Record], removed: Iterable[str], ranks: Ranks = "ordinal"
) -> list[Record]:
    """Apply a difference to a top: remove members that left or changed, then insert each changed record."""
    moving = {record.member for record in changed}
    moving.update(removed)
    top = [record for record in old if record.member not in moving]
    for record in changed:
        top.insert((record.rank if record.position is UNSET else record.position) - 1, record)
    return with_ranks(top, ranks)


def with_ranks(top: Sequence[Record], ranks: Ranks) -> list[Record]:
    """Give each record of a top its rank and its position."""
    numbers = ranks_of([record.score for record in top], 1, 0, ranks)
    return [
        msgspec.structs.replace(record, rank=rank, position=position(rank, place))
        for place, (record, rank) in enumerate(zip(top, numbers, strict=True), 1)
    ]


def position(rank: int, place: int) -> int | UnsetType:
    """Return the `position` of a record. It is unset if it equals the rank."""
    return UNSET if rank == place else place
