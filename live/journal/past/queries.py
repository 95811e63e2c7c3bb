"""Questions about the past of a board, and their answers."""

from collections.abc import Sequence

import msgspec

from live.domain.board import Board


class AsOf(msgspec.Struct, frozen=True):
    """A board at a time.

    Attributes:
        board: the definition of the board.
        at: the time in milliseconds since 1970: everything that was counted before it.
        period: the start of a period; None for the one that was current then.
        hidden: the members that are hidden now. They stay hidden in the past.
    """

    board: Board
    at: int
    period: int | None
    hidden: frozenset[str]


class PastRanking(msgspec.Struct, frozen=True):
    """The ranking of a board at a time: members, scores and ranks in order, and the position of the board.

    `revision` is that of a period from the archive.
    """

    epoch: str
    offset: int
    period: int | None
    members: Sequence[str]
    scores: Sequence[int]
    ranks: Sequence[int]
    total: int
    metadata: dict[str, bytes]
    revision: int | None = None


class RankingSlice(msgspec.Struct, frozen=True):
    """A part of a ranking: the number of all its records, some of them, and where they begin."""

    ranking: PastRanking
    count: int
    start: int


class Step(msgspec.Struct, frozen=True):
    """A record at a time (milliseconds since 1970); score and rank are None when it was not on the board."""

    at: int
    score: int | None
    rank: int | None


class Change(msgspec.Struct, frozen=True):
    """Events of a member in one batch: when (microseconds since 1970), at which offset, and their amount."""

    at: int
    offset: int
    amount: int


class ScoreBreakdown(msgspec.Struct, frozen=True):
    """What a score consists of: each slot with what it holds, the votes, and the newest changes, the last one first."""

    epoch: str
    offset: int
    score: int | None
    slots: Sequence[tuple[int, int]]
    changes: Sequence[Change]


class TooLongError(Exception):
    """A query takes too long."""


class NoPastError(Exception):
    """The journal does not reach back to a time; `since` is the first time that it covers (milliseconds since 1970)."""

    def __init__(self, since: int | None = None) -> None:
        super().__init__(since)
        self.since = since
