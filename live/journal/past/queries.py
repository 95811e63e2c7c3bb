"""Questions about the past of a board, and their answers."""

from collections.abc import Sequence

import msgspec

from live.domain.board import Board
from live.domain.event import rfc3339
from live.errors import SetupError


class AsOf(msgspec.Struct, frozen=True):
    """The board and the time that a query asks about."""

    board: Board  # the definition of the board
    # The epoch of the board now. The answer is about the life of the board with this epoch. None means every life of a
    # board with this id, which only commands may read.
    epoch: str | None
    at: int  # the time in milliseconds since 1970. Everything that was counted before it is included
    period: int | None  # the start of a period; None means the period that was current at that time
    # The members that are hidden now. The answer leaves them out, even if they were not hidden at that time.
    hidden: frozenset[str]


class PastRanking(msgspec.Struct, frozen=True):
    """The ranking of a board at a time, in order. If the board has dropped the period, `revision` is set."""

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
    """The first time (milliseconds since 1970) that the journal covers, if any, and which requested times it covers."""

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

    def of_board(self, board: str) -> SetupError:
        """Return the error as a command reports it."""
        since = "" if self.since is None else f"; it does from {rfc3339(self.since)} on"
        return SetupError(f"the journal does not cover board {board!r} at that time{since}")
