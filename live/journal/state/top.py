"""Update the first records of a board with each entry of its journal, so that each step of a replay is cheap."""

from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heappush, nsmallest
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.domain.ranking import Page, ranks_of
from live.domain.window import Sliding
from live.journal.log.entries import Add, Head, Hide, Tags
from live.journal.state.ranking import live_events, live_slots, newest_slot, order_of, period_name, records_of, rules_of
from live.journal.state.snapshot import Ranking, Snapshot

_SPARE: Final = 4  # `_SPARE * size` records are kept, so that all members need sorting less often

_MOST_LEFT: Final = 1000  # events that a log may have, besides twice the events in the sliding window, before it is cut

_ADD: Final = msgspec.msgpack.Decoder(Add)
_HIDE: Final = msgspec.msgpack.Decoder(Hide)
_TAGS: Final = msgspec.msgpack.Decoder(Tags)


class RunningTop:
    """The first `size` records of a board at ascending times. `follow` takes note of each entry of the journal.

    More records are kept than requested. A record moves only when its member changes, so a step looks only at the
    members that have changed. A step looks at all members only when too many of the kept records have fallen behind.
    """

    def __init__(self, board: Board, hidden: Collection[str], size: int) -> None:
        """Leave out the members in `hidden`, and the members that the contents hide."""
        self._board = board
        self._hidden = hidden
        self._size = size
        self._adds_up = board.operator == "incr" and not board.window.tables
        self._scores: dict[str, int] | None = None  # None until `_begin` has found them
        self._total = 0
        self._newest: int | None = None  # the start of the newest slot in the scores
        self._oldest = 0  # the start of the oldest slot in the scores
        self._leaving: list[tuple[int, int, str, int]] = []  # events of a sliding window, by the time when they leave
        self._changed: set[str] = set()
        self._kept: set[str] | None = None  # None until the first records are found
        self._last: Any = None  # the sort key of the last kept record; None if all records are kept

    def follow(self, head: Head, body: bytes, data: Snapshot) -> None:
        """Note which members an entry changes, and add its amounts, after it was applied to the contents.

        After an entry that can change everything, `page` finds all scores again.
        """
        match head.kind:
            case "add":
                request = _ADD.decode(body)
                for group in request.groups:
                    self._changed.update(group.members)
                if self._scores is None or not self._adds_up:
                    return  # if amounts don't add up, `_scores` is the slot itself, which is up to date
                if request.events is not None:
                    for event in data.log[-len(request.events.members) :] if request.events.members else ():
                        heappush(self._leaving, (event.time, event.offset, event.member, event.amount))
                        self._count(event.member, event.amount)
                    return
                for group in request.groups:
                    if group.start >= self._oldest:
                        for member, amount in zip(group.members, group.amounts, strict=True):
                            self._count(member, amount)
            case "hide":
                self._changed.add(_HIDE.decode(body).member)
            case "tags":
                self._changed.update(member for _, member, _ in _TAGS.decode(body))
            case "enter" | "withdraw" | "erase":
                pass
            case _:
                self._scores = self._kept = None

    def hide(self, hidden: Collection[str]) -> None:
        """Replace the members that are left out."""
        self._changed.update(set(self._hidden) ^ set(hidden))
        self._hidden = hidden

    def is_due(self, data: Snapshot, now: int) -> bool:
        """Return whether the page may differ from the last page, because of entries or of the time."""
        if self._scores is None or self._changed or newest_slot(self._board, data, now) != self._newest:
            return True
        return bool(self._leaving) and self._leaving[0][0] <= self._start(data, now)

    def page(self, data: Snapshot, epoch: str, now: int) -> Page:
        """Return the first records at a time, in milliseconds since 1970."""
        board, newest = self._board, newest_slot(self._board, data, now)
        if self._scores is None or (board.window.tables and newest != self._newest):
            self._begin(data, now)
        elif isinstance(board.window, Sliding):
            self._expire(data, self._start(data, now))
        elif self._adds_up and newest is not None and newest != self._newest:
            self._move(data, board.window.oldest(newest))
        self._newest = newest
        scores = self._scores
        assert scores is not None, "they were added up just now"  # noqa: S101
        ranking = data.rankings.get(f":{newest}" if board.window.tables else "", Ranking())
        ranking.votes.clear()  # no record depends on who has voted
        hidden = [member for member in {*self._hidden, *data.hidden} if member in scores]
        members = self._first(scores, order_of(rules_of(board), scores, ranking.reached), {*hidden})
        values = [scores[member] for member in members]
        metadata = ranking.metadata if board.votes is None else data.entrants
        total = self._total if self._adds_up else sum(scores.values())
        return Page(
            epoch=epoch,
            offset=data.offset,
            rank_count=len(scores) - len(hidden),
            total_score=None if board.score is not None else total - sum(scores[member] for member in hidden),
            start=0,
            records=tuple(records_of(board, members, values, ranks_of(values, 1, 0, board.ranks), metadata)),
            slot=newest if board.window.tables else None,
            period=period_name(board, newest if board.window.tables else None),
        )

    def _start(self, data: Snapshot, now: int) -> int:
        """Return the time up to which events have left a sliding window."""
        moment = now if self._board.clock == "server" else data.latest or 0
        return moment - (self._board.window.length if isinstance(self._board.window, Sliding) else 0) * 1000

    def _count(self, member: str, amount: int) -> None:
        scores = self._scores
        assert scores is not None, "there is something to add to"  # noqa: S101
        value = scores.get(member, 0) + amount
        self._total += amount
        if value:
            scores[member] = value
        else:
            scores.pop(member, None)

    def _begin(self, data: Snapshot, now: int) -> None:
        """Find all scores in the contents: add up amounts, or take the newest slot if amounts do not add up."""
        board, self._kept, self._total = self._board, None, 0
        self._changed.clear()
        newest = newest_slot(board, data, now)
        if not self._adds_up:
            self._scores = {}
            if newest is not None:
                self._scores = data.slots.setdefault(newest, {})
                data.drop_before(newest)  # a replay only goes forward, so nobody sees earlier periods again
            return
        self._scores = {}
        if isinstance(board.window, Sliding):
            events = live_events(board, data, now)
            self._leaving = [(event.time, event.offset, event.member, event.amount) for event in events]
            heapify(self._leaving)
            for event in events:
                self._count(event.member, event.amount)
            return
        self._oldest = -(2**62) if newest is None else board.window.oldest(newest)
        for slot in live_slots(board, data, now).values():
            for member, amount in slot.items():
                self._count(member, amount)

    def _expire(self, data: Snapshot, start: int) -> None:
        """Subtract the events that have left a sliding window. If many are still in the log, remove them there."""
        while self._leaving and self._leaving[0][0] <= start:
            _, _, member, amount = heappop(self._leaving)
            self._count(member, -amount)
            self._changed.add(member)
        if len(data.log) > 2 * len(self._leaving) + _MOST_LEFT:
            data.log = [event for event in data.log if event.time > start]

    def _move(self, data: Snapshot, oldest: int) -> None:
        """Subtract the slots that have left the window, and forget them."""
        for start in [start for start in data.slots if start < oldest]:
            slot = data.slots.pop(start)
            if start >= self._oldest:
                for member, amount in slot.items():
                    self._count(member, -amount)
                self._changed.update(slot)
        self._oldest = oldest

    def _first(self, scores: Mapping[str, int], key: Callable[[str], Any], hidden: Collection[str]) -> list[str]:
        kept, last = self._kept, self._last
        if kept is not None:
            for member in self._changed:
                if member in scores and member not in hidden and (last is None or key(member) <= last):
                    kept.add(member)
                else:
                    kept.discard(member)
            if self._board.cap is not None:
                kept.intersection_update(scores)
        self._changed.clear()
        if kept is None or (len(kept) < self._size and last is not None):
            return self._find(scores, key, hidden)
        found = sorted(kept, key=key)
        if len(found) > 2 * _SPARE * self._size:
            del found[_SPARE * self._size :]
            self._kept, self._last = set(found), key(found[-1])
        return found[: self._size]

    def _find(self, scores: Mapping[str, int], key: Callable[[str], Any], hidden: Collection[str]) -> list[str]:
        """Find the first members among all members of the board, and keep more members than requested."""
        most = _SPARE * self._size
        shown = [member for member in scores if member not in hidden] if hidden else scores
        found = nsmallest(most, shown, key=key) if len(shown) > most else sorted(shown, key=key)
        self._kept, self._last = set(found), None if len(shown) <= most else key(found[-1])
        return found[: self._size]
