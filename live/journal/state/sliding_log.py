"""Keep the events in a sliding window up to date while the fold and the clock move on."""

from heapq import heappop, heappush
from typing import Final

from live.journal.state.snapshot import Logged, Snapshot, add, logged_of, name_of

_START: Final = -(2**63)
_NONE_GONE: Final = (_START, 0, 0)


class LiveLog:
    """The events that are in a sliding window, and their sums.

    Attributes:
        events: the time of each event, by its name in the log of the store.
        sums: the sum of each member's amounts.
        taken: the sum of each member's negative amounts, as a positive number.
        left: events up to this time (milliseconds since 1970) have left the window.
    """

    def __init__(self) -> None:
        self.events: dict[bytes, int] = {}
        self.sums: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self._heap: list[tuple[int, bytes]] = []
        self._log: list[Logged] = []
        self._read = 0  # events of the log so far
        self.left = _START

    def move(self, data: Snapshot, left: int, gone: tuple[int, int, int] | None = None) -> None:
        """Keep only the events of a log that are later than `left` (milliseconds since 1970).

        `gone` is the `place` of an event. That event and all events before it have left too, even if the clock was set
        back since. None means that no event has left in this way.
        """
        gone = gone or _NONE_GONE
        if data.log is not self._log or left < self.left:  # a correction replaced the log, or the clock was set back
            self.__init__()  # type: ignore[misc]
            self._log = data.log
        self.left = left
        for event in data.log[self._read :]:
            if event.time > left and event.place > gone:
                name = name_of(event)
                self.events[name] = event.time
                heappush(self._heap, (event.time, name))
                self._count(event, 1)
        self._read = len(data.log)
        while self._heap:
            time, name = self._heap[0]
            event = logged_of(name, time)
            if time > left and event.place > gone:
                break
            heappop(self._heap)
            if self.events.pop(name, None) is not None:
                self._count(event, -1)

    def _count(self, event: Logged, sign: int) -> None:
        add(self.sums, event.member, sign * event.amount)
        if event.amount < 0:
            add(self.taken, event.member, -sign * event.amount)
