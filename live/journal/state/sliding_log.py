"""The events in a sliding window, and their sums."""

from heapq import heappop, heappush
from typing import Final

from live.domain.board import Board
from live.journal.state.snapshot import Logged, Snapshot, add, logged_of, name_of

_START: Final = -(2**63)


class EventSums:
    """Sums of the events of a sliding window, as the store holds them.

    Attributes:
        slot: the sum of each member's amounts.
        taken: the sum of each member's negative amounts, as a positive number. With `zeros`, also the number of each
            member's events, under a zero byte and the member.
    """

    def __init__(self, board: Board) -> None:
        self.slot: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self._board = board

    def count(self, event: Logged, sign: int) -> None:
        """Add an event, or subtract it if `sign` is -1."""
        member = event.member
        if below := self._board.below_zero(event.amount):
            add(self.taken, member, sign * below)
        if not self._board.zeros:
            add(self.slot, member, sign * event.amount)
            return
        add(self.taken, f"\0{member}", sign)
        self.slot[member] = self.slot.get(member, 0) + sign * event.amount
        if f"\0{member}" not in self.taken:
            del self.slot[member]


class LiveLog:
    """The events that are in a sliding window, and their sums.

    Attributes:
        events: the time of each event, by its name in the log of the store.
        sums: the sums of the events.
        left: events up to this time (milliseconds since 1970) have left the window.
    """

    def __init__(self, board: Board) -> None:
        self.events: dict[bytes, int] = {}
        self.sums = EventSums(board)
        self._board = board
        self._heap: list[tuple[int, bytes]] = []
        self._log: list[Logged] = []
        self._read = 0  # how many events of the log were read
        self.left = _START

    def move(self, data: Snapshot, left: int) -> None:
        """Keep only the events of a log that are later than `left` (milliseconds since 1970)."""
        # A new log replaced the old one, or the store's clock was set back, and the board has not changed since.
        if data.log is not self._log or left < self.left:
            self.__init__(self._board)  # type: ignore[misc]
            self._log = data.log
        self.left = left
        for event in data.log[self._read :]:
            if event.time > left:
                name = name_of(event)
                self.events[name] = event.time
                heappush(self._heap, (event.time, name))
                self.sums.count(event, 1)
        self._read = len(data.log)
        while self._heap:
            time, name = self._heap[0]
            if time > left:
                break
            heappop(self._heap)
            if self.events.pop(name, None) is not None:
                self.sums.count(logged_of(name, time), -1)
