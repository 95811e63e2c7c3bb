"""What viewers receive besides records: whether the board is stale, and how many viewers watch it."""

from live.fanout.frames import Frame, status_frame, viewers_frame
from live.fanout.position import Position


class Announcements:
    """The state of a board that its viewers receive besides records.

    `stale` is the reason why the records may be out of date, or None. `viewer_count` is the number of viewers in all
    processes, None before it is known. `is_due` is true while some viewers may not have received the latest state.
    """

    __slots__ = ("is_due", "stale", "viewer_count")

    def __init__(self) -> None:
        self.stale: str | None = None
        self.viewer_count: int | None = None
        self.is_due = False

    def set_stale(self, reason: str | None) -> bool:
        """Set the reason why the board is stale, or None if it is not. Returns whether that is a change."""
        if reason == self.stale:
            return False
        self.stale = reason
        self.is_due = True
        return True

    def set_viewer_count(self, count: int) -> bool:
        """Set the number of viewers. Returns whether that is a change."""
        if count == self.viewer_count:
            return False
        self.viewer_count = count
        self.is_due = True
        return True

    def take_due(self) -> bool:
        """Whether to send the state to all viewers now."""
        due, self.is_due = self.is_due or self.stale is not None, False
        return due

    def next_frame(self, position: Position) -> Frame | None:
        """The frame that a viewer at a position needs next, or None. The position moves with it."""
        if position.stale != self.stale:
            position.stale = self.stale
            return status_frame(self.stale)
        if self.viewer_count is not None and position.viewers != self.viewer_count and position.epoch is not None:
            position.viewers = self.viewer_count
            return viewers_frame(self.viewer_count)
        return None
