"""Questions about the past of a board, and their answers."""

from collections.abc import Sequence

import msgspec

from live.domain.board import Board


class AsOf(msgspec.Struct, frozen=True):
    """The board and the time that a query asks about.

    Attributes:
        board: the definition of the board.
        epoch: the epoch of the board now. The answer is about the life of the board with this epoch. None means every
            life of a board with this id, which only commands may read.
        at: the time in milliseconds since 1970. Everything that was counted before it is included.
        period: the start of a period; None means the period that was current at that time.
        hidden: the members that are hidden now. The answer leaves them out, even if they were not hidden at that time.
    """

    board: Board
    epoch: str | None
    at: int
    period: int | None
    hidden: frozenset[str]


class PastRanking(msgspec.Struct, frozen=True):
    """The ranking of a board at a time: members, scores and ranks in order, and the board's epoch and offset.

    `revision` is set if the board has dropped the period.
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
    """A part of a ranking. `count` is the number of all records, and `start` the number of records before this part."""

    ranking: PastRanking
    count: int
    start: int


class Step(msgspec.Struct, frozen=True):
    """A member's score and rank at a time (milliseconds since 1970). Both are None if the member had no record."""

    at: int
    score: int | None
    rank: int | None


class Reach(msgspec.Struct, frozen=True):
    """The first time that the journal covers, in milliseconds since 1970, and which of the requested times it covers.

    `since` is None if the journal covers no time.
    """

    since: int | None
    covered: Sequence[bool]


class Change(msgspec.Struct, frozen=True):
    """The change of a member by one batch: the time of the batch (microseconds since 1970), its offset, and the amount.

    A correction by an administrator has a `reason`. On a board that does not add amounts up, its amount is the new
    score.
    `producers` and `actors` are the senders that the journal knows. Each actor is the beginning of its digest.
    """

    at: int
    offset: int
    amount: int
    reason: str = ""
    producers: Sequence[str] = ()
    actors: Sequence[str] = ()


class ScoreBreakdown(msgspec.Struct, frozen=True):
    """The parts of a score: each slot with its amount, and the newest changes, the last change first."""

    epoch: str
    offset: int
    score: int | None
    slots: Sequence[tuple[int, int]]
    changes: Sequence[Change]


class TooLongError(Exception):
    """A query takes too long, or would read too much."""


class NoPastError(Exception):
    """The journal does not cover a time. `since` is the next time that it covers (milliseconds since 1970), if any."""

    def __init__(self, since: int | None = None) -> None:
        self.since = since
