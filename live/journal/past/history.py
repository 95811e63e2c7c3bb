"""Compute the records of members at many times. Each entry of the journal is read once, and updates the scores."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from sqlalchemy import Connection

from live.domain.board import Board
from live.domain.window import Sliding
from live.journal.log.entries import Head
from live.journal.past.coverage import contents_by_rules, reaches_of, since_of, timeline_at
from live.journal.past.queries import NoPastError, Step, TooLongError
from live.journal.state.ranking import Scores, live_slots, newest_slot, scores_at
from live.journal.state.snapshot import Snapshot
from live.store.board.batch import Batch

_KEEP_SLOTS: Final = frozenset(["hide", "tags", "enter", "withdraw", "erase"])  # kinds of entries that change no slot

_MOST_SCORES: Final = 10_000_000  # maximum of the steps of a history times the members of the board


def read_history(
    connection: Connection,
    board: Board,
    epoch: str,
    hidden: frozenset[str],
    members: Sequence[str],
    times: Sequence[int],
) -> list[list[Step]]:
    """Return the records of members at some ascending times, in milliseconds since 1970. `epoch` is the epoch now.

    Raises:
        NoPastError: one of the times is not covered, or all are before the board began.
        TooLongError: the board has too many members for so many steps.
    """
    steps: list[list[Step]] = [[] for _ in members]
    for at, found in scores_at_all(connection, board, epoch, times):
        if len(times) * len(found.scores) > _MOST_SCORES:
            most = max(1, _MOST_SCORES // len(found.scores))
            size = f"{len(found.scores):,} members"
            raise TooLongError(f"the board has {size}: a history of it may have at most {most} steps")
        ranks = found.ranks(board, hidden, members)
        for member, step in zip(members, steps, strict=True):
            score = found.scores[member] if member in ranks else None
            step.append(Step(at, score, ranks.get(member)))
    return steps


def scores_at_all(
    connection: Connection, board: Board, epoch: str | None, times: Sequence[int]
) -> Iterator[tuple[int, Scores]]:
    """Yield the scores at some ascending times, each valid until the next. Before the board began, there are none."""
    reaches = reaches_of(connection, board, epoch)
    found = [timeline_at(reaches, at) for at in times]
    if not any(found):
        raise NoPastError(since_of(reaches))
    for timeline, some in groupby(zip(found, times, strict=True), key=lambda item: item[0]):
        wanted = [at for _, at in some]
        if timeline is None:
            yield from ((at, Scores(None, {}, {})) for at in wanted)
        else:
            running = RunningScores(board)
            held = contents_by_rules(connection, timeline, board, wanted, running.follow)
            yield from ((at, running.scores(data, at)) for at, data in held)


class Sums:
    """The sum of the amounts of each member, and how many members have each sum, if a sum of zero is no score."""

    def __init__(self) -> None:
        self.scores: dict[str, int] = {}
        self.spread: dict[int, int] = {}

    def add(self, member: str, amount: int) -> None:
        """Add an amount to the sum of a member."""
        old = self.scores.get(member, 0)
        new = old + amount
        if new == old:
            return
        spread = self.spread
        if old:
            spread[old] -= 1
            if not spread[old]:
                del spread[old]
        if new:
            spread[new] = spread.get(new, 0) + 1
            self.scores[member] = new
        else:
            del self.scores[member]

    def subtract(self, slot: Mapping[str, int]) -> None:
        """Subtract each member's amount in a slot."""
        for member, amount in slot.items():
            self.add(member, -amount)


class RunningScores:
    """The scores of a board at ascending times. `follow` updates them after each entry of the journal."""

    def __init__(self, board: Board) -> None:
        self._board = board
        # With `zeros`, the sums do not tell which members are in a slot.
        self._adds_up = not (
            board.operator != "incr" or board.zeros or board.window.tables or isinstance(board.window, Sliding)
        )
        self._sums: Sums | None = None  # None until the contents have been added up
        self._oldest = 0  # the start of the first slot in the sums

    def follow(self, head: Head, counted: Batch | None) -> None:
        """Update the sums after an entry. If it does not only add to slots, forget the sums: `scores` adds up again."""
        if self._sums is None or head.kind in _KEEP_SLOTS:
            return
        if counted is None:
            self._sums = None
            return
        for group in counted.groups:
            if group.start >= self._oldest:
                for member, amount in zip(group.members, group.amounts, strict=True):
                    self._sums.add(member, amount)

    def scores(self, data: Snapshot, now: int) -> Scores:
        """Return the scores at a time, in milliseconds since 1970. The result is valid until the next entry or time."""
        newest = newest_slot(self._board, data, now)
        if not self._adds_up or newest is None:
            return scores_at(self._board, data, now)
        oldest = self._board.window.oldest(newest)
        if self._sums is None:
            self._sums = Sums()
            for slot in live_slots(self._board, data, now).values():
                for member, amount in slot.items():
                    self._sums.add(member, amount)
        else:
            for start in [start for start in data.slots if self._oldest <= start < oldest]:
                self._sums.subtract(data.slots[start])
        self._oldest = oldest
        reached = data.rankings[""].reached if "" in data.rankings else {}
        return Scores(None, self._sums.scores, reached, self._sums.spread)
