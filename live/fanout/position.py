"""The position of a viewer."""

import time

from live.fanout.frames import Frame
from live.fanout.lookup import RankLookup


class Position:
    """What a viewer, or a whole cohort, has received: epoch, offset, and the last state besides records.

    `epoch` is None before the first message. `returns` is true for a viewer that reconnects with a position, maybe from
    another process. That position counts as valid until a read that began after the reconnect (`asked` is the number of
    the last read before it) shows otherwise. `sent_at` is when the last message was sent, by the monotonic clock. A
    position with a `lookup` belongs to a viewer that asked for a member. That viewer never joins a cohort, so copies
    have no lookup.
    """

    __slots__ = ("_around", "asked", "epoch", "lookup", "offset", "returns", "sent_at", "stale", "viewers")

    def __init__(
        self, epoch: str | None = None, offset: int = -1, asked: int = 0, lookup: RankLookup | None = None
    ) -> None:
        self.epoch = epoch
        self.offset = offset
        self.returns = epoch is not None
        self.asked = asked
        self.stale: str | None = None
        self.viewers: int | None = None
        self.sent_at = time.monotonic()
        self.lookup = lookup
        self._around: Frame | None = None  # the last frame of the lookup that was sent

    def next_around(self) -> Frame | None:
        """The frame of the lookup, if it was not sent yet. Records come first."""
        if self.lookup is None or self.epoch is None or self.lookup.frame is self._around:
            return None
        self._around = self.lookup.frame
        return self._around

    def copy(self) -> "Position":
        """A copy for a viewer that leaves its cohort."""
        twin = Position(self.epoch, self.offset, self.asked)
        twin.returns, twin.stale, twin.viewers = self.returns, self.stale, self.viewers
        twin.sent_at = self.sent_at
        return twin

    def is_same(self, other: "Position") -> bool:
        """Whether viewers at both positions have received the same."""
        return (self.offset, self.epoch, self.stale, self.viewers) == (
            other.offset,
            other.epoch,
            other.stale,
            other.viewers,
        )

    def reset(self) -> None:
        """Forget the records, so that the next message is a sync."""
        self.epoch, self.offset, self.returns = None, -1, False
