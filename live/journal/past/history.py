"""Scores that are updated with each entry of a journal. So a history of many times reads the entries only once."""

from collections.abc import Mapping
from typing import Final

import msgspec

from live.domain.board import Board
from live.domain.window import Sliding
from live.journal.log.entries import Add, Head
from live.journal.state.ranking import Scores, live_slots, newest_slot, scores_at
from live.journal.state.snapshot import Snapshot

_KEEP_SLOTS: Final = frozenset(["hide", "tags", "enter", "withdraw"])  # entries that change no slot

_ADD: Final = msgspec.msgpack.Decoder(Add)


class Sums:
    """The sum of the amounts of each member, and how many members have each sum. A sum of zero is no score."""

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
        """Subtract what a slot holds of each member."""
        for member, amount in slot.items():
            self.add(member, -amount)


class RunningScores:
    """The scores of a board at ascending times, while its entries are applied to its contents."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._adds_up = board.operator == "incr" and not board.window.tables and not isinstance(board.window, Sliding)
        self._sums: Sums | None = None  # None until the contents are added up
        self._oldest = 0  # the first slot in the sums

    def follow(self, head: Head, body: bytes) -> None:
        """Follow an entry that was applied to the contents."""
        if self._sums is None or head.kind in _KEEP_SLOTS:
            return
        if head.kind != "add":
            self._sums = None
            return
        for group in _ADD.decode(body).groups:
            if group.start >= self._oldest:
                for member, amount in zip(group.members, group.amounts, strict=True):
                    self._sums.add(member, amount)

    def scores(self, data: Snapshot, now: int) -> Scores:
        """The scores at a time, in milliseconds since 1970. The result is valid until the next entry or time."""
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
