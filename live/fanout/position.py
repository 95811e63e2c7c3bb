"""Where a viewer stands."""

import time

from live.fanout.frames import Frame
from live.fanout.lookup import RankLookup


class Position:
    """How far one viewer has come, or several that stand together; and what it was last told beside the records.

    `epoch` is None for nothing yet. One that `returns` had its position from before, maybe from another process, and
    is believed until a read that began after its return (`asked` is the number of the last before it) tells otherwise.
    `sent_at` is the time of the last frame, in seconds of the monotonic clock.
    One with a `lookup` is of a viewer that asked for a key; it stands by itself for ever, so no copy has one.
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
        self._around: Frame | None = None  # what was told of the lookup

    def next_around(self) -> Frame | None:
        """What is to be told of the lookup, if that is another thing than what was; the records come first."""
        if self.lookup is None or self.epoch is None or self.lookup.frame is self._around:
            return None
        self._around = self.lookup.frame
        return self._around

    def copy(self) -> "Position":
        """The same position, of a viewer by itself."""
        twin = Position(self.epoch, self.offset, self.asked)
        twin.returns, twin.stale, twin.viewers = self.returns, self.stale, self.viewers
        twin.sent_at = self.sent_at
        return twin

    def is_same(self, other: "Position") -> bool:
        """Whether two have seen the same."""
        return (self.offset, self.epoch, self.stale, self.viewers) == (
            other.offset,
            other.epoch,
            other.stale,
            other.viewers,
        )

    def begin_anew(self) -> None:
        """Forget the records, so that the whole top comes next."""
        self.epoch, self.offset, self.returns = None, -1, False
