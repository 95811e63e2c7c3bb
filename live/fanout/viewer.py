"""The viewers of a board."""

from abc import ABC, abstractmethod
from typing import Protocol

from live.domain.reader import NOBODY
from live.fanout.engine.delivery import Cohort, Sink, Subscribers, ViewerPosition, count_frames
from live.fanout.frames import Frame
from live.fanout.subscription import Subscription
from live.metrics import RECOVERIES


class Source(Protocol):
    """The source of a viewer's frames: the channel of a board, or its recording.

    `ended` is the close code after the source has ended.
    """

    ended: int | None

    def due_frame(self, group: Subscribers, position: ViewerPosition) -> Frame | None:
        """Return the frame that a viewer at a position needs next, or None. The position moves past the frame."""

    def enter(self, viewer: "Viewer") -> None:
        """Add a viewer."""

    def leave(self, viewer: "Viewer") -> None:
        """Remove a viewer."""

    def place_of(self, subscription: Subscription) -> tuple[Subscribers, ViewerPosition]:
        """Find the position of a viewer that connects or reconnects, and the group that receives the same frames."""


class Viewer(ABC):
    """One open connection that watches the top of a board.

    `prefix` is the pattern of the limits that hold for the board, such as `acme-*`. It is empty without limits.
    """

    __slots__ = ("_alone", "channel", "cohort", "group", "prefix", "reader")

    def __init__(self, channel: Source, group: Subscribers, position: ViewerPosition) -> None:
        self.channel = channel
        self.reader = NOBODY
        self.prefix = ""
        self.group = group
        self.cohort: Cohort | None = None
        self._alone: ViewerPosition | None = position

    @property
    def position(self) -> ViewerPosition:
        """The viewer's own position, or the position of its cohort."""
        if self.cohort is not None:
            return self.cohort.position
        assert self._alone is not None, "a viewer is in a cohort or has its own position"  # noqa: S101
        return self._alone

    def due_frame(self) -> Frame | None:
        """Return the next frame for this viewer, or None if it is up to date."""
        position = self.position
        returns = position.returns
        frame = self.channel.due_frame(self.group, position)
        if returns and not position.returns and frame is not None:
            RECOVERIES.labels("true" if b'"recovered":true' in frame.payload else "false").inc()
        return frame

    @abstractmethod
    def wake(self) -> None:
        """Check whether there is something to send."""

    @abstractmethod
    def end(self, code: int) -> None:
        """Disconnect the viewer. `code` is one of `CLOSE_CODES`."""

    def leave_cohort(self) -> None:  # noqa: B027 - only push viewers are in cohorts
        """Leave the cohort, if the viewer is in one."""


class PushViewer(Viewer):
    """A viewer whose frames are written to its connection. It is in a cohort while it takes every frame whole.

    A viewer that asked for a member also receives the rank of that member, so the viewer is never in a cohort. While
    data is queued, a viewer receives nothing more, so no backlog arises. When the queue is empty, the viewer receives
    the changes up to the latest state.
    """

    __slots__ = ("sink",)

    def __init__(self, channel: Source, group: Subscribers, position: ViewerPosition, sink: Sink) -> None:
        super().__init__(channel, group, position)
        position.encoding = sink.encoding
        self.sink = sink

    def end(self, code: int) -> None:
        """Close the connection with this code."""
        self.sink.end(code)

    def wake(self) -> None:
        """Send what is due. Then join a cohort, unless data is queued or the viewer asked for a member."""
        if self.cohort is not None or self.sink.waiting:
            return
        while (frame := self.due_frame()) is not None:
            data = self.position.encode(frame)
            count_frames(frame, 1, len(data))
            if not self.sink.write(data):
                return
        if self.position.epoch is not None and self.position.lookup is None:
            self.join(self.group.cohort_at(self.position))

    def join(self, cohort: Cohort) -> None:
        """Join a cohort."""
        self.cohort, self._alone = cohort, None
        cohort.add(self)
        self.group.loose.discard(self)

    def fall_out(self, position: ViewerPosition) -> None:
        """Leave the cohort, and continue from a copy of its position."""
        self.cohort, self._alone = None, position.copy()
        self.group.loose.add(self)

    def leave_cohort(self) -> None:
        """Leave the cohort before the connection closes, so that the cohort no longer writes to the file descriptor."""
        if self.cohort is not None:
            cohort = self.cohort
            cohort.discard(self)
            self.fall_out(cohort.position)
