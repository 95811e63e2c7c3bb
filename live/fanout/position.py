"""The position of a viewer."""

import time

from live.fanout.deflate import History, following
from live.fanout.frames import Frame
from live.fanout.lookup import RankLookup


class Position:
    """What a viewer, or a whole cohort, has received: epoch, offset, and the last state besides records.

    `epoch` is None before the first message. `returns` is true for a viewer that reconnects with a position, maybe from
    another process. That position counts as valid until a read that began after the reconnect (`last_read` is the
    number of the last read before it) shows otherwise. `sent_at` is when the last message was sent, by the monotonic
    clock. A position with a `lookup` belongs to a viewer that asked for a member. That viewer never joins a cohort, so
    copies have no lookup. `deflates` is true for viewers that receive compressed frames, and `history` are the last
    ones that were compressed.
    """

    __slots__ = (
        "_around",
        "deflates",
        "epoch",
        "history",
        "last_read",
        "lookup",
        "offset",
        "returns",
        "sent_at",
        "stale",
        "viewers",
    )

    def __init__(
        self, epoch: str | None = None, offset: int = -1, last_read: int = 0, lookup: RankLookup | None = None
    ) -> None:
        self.epoch = epoch
        self.offset = offset
        self.returns = epoch is not None
        self.last_read = last_read
        self.stale: str | None = None
        self.viewers: int | None = None
        self.sent_at = time.monotonic()
        self.lookup = lookup
        self.deflates = False
        self.history: History = ()
        self._around: Frame | None = None  # the last frame of the lookup that was sent

    def next_around(self) -> Frame | None:
        """The frame of the lookup, if it was not sent yet. Records come first."""
        if self.lookup is None or self.epoch is None or self.lookup.frame is self._around:
            return None
        self._around = self.lookup.frame
        return self._around

    def encode(self, frame: Frame) -> bytes:
        """The bytes of a frame for viewers at this position. The position moves with it.

        The message of a lookup belongs to one viewer, so it is sent plain: compressing it would be work for each
        viewer, and a plain frame leaves the history as it is.
        """
        if not self.deflates or frame.type == "around":
            return frame.wire
        data = frame.deflated(self.history)
        if data is not frame.wire:
            self.history = following(self.history, frame.message)
        return data

    def copy(self) -> "Position":
        """A copy for a viewer that leaves its cohort."""
        copied = Position(self.epoch, self.offset, self.last_read)
        copied.returns, copied.stale, copied.viewers = self.returns, self.stale, self.viewers
        copied.sent_at = self.sent_at
        copied.deflates, copied.history = self.deflates, self.history
        return copied

    def state(self) -> tuple[object, ...]:
        """What the next frame depends on: viewers at positions with the same state receive the same bytes."""
        return self.offset, self.epoch, self.stale, self.viewers, self.deflates, self.history

    def reset(self) -> None:
        """Forget the records, so that the next message is a sync."""
        self.epoch, self.offset, self.returns = None, -1, False
