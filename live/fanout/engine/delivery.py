"""Delivers frames to viewers: the same bytes to all members of a cohort, or one frame to a single viewer.

The members of a cohort are at one position, and no data waits to be sent to them. So a frame goes straight to their
sockets. The loop over a cohort takes more time than any other loop of the fan-out. It writes the same bytes to one file
descriptor after another, with no lookup, check or await in between. A viewer that can't take a whole frame leaves the
cohort. The frames of many boards are made first and then written together, because work in between slows down each
write.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator
from os import write
from typing import Final, Literal, Protocol, TypeAlias

from live.fanout.engine.deflate import TextHistory, following
from live.fanout.engine.rank_lookups import RankLookup
from live.fanout.frames import Frame
from live.metrics import BYTES_SENT, FRAMES_SENT

MOST: Final = 256  # maximum members of a cohort: no other task of the event loop runs while they receive a frame
_MOST_AT_ONCE: Final = 256  # viewers that receive frames before other tasks of the event loop run
_BROKEN: Final = -1
_SENT: Final = {kind: FRAMES_SENT.labels(kind) for kind in ("sync", "update", "status", "viewers", "around", "alive")}


Encoding: TypeAlias = Literal["plain", "deflated", "event"]
"""The form of frames: of a WebSocket, plain or compressed, or of an event stream."""


class ViewerPosition:
    """The last messages that a viewer, or a whole cohort, has received.

    `epoch` is None before the first message. `returns` is true for a viewer that reconnects with a position, which may
    come from another process. That position counts as valid, unless a read that began after the reconnect shows that it
    is not. `last_read` is the number of the last read before the reconnect. `sent_at` is when the last message was
    sent, by the monotonic clock. A position with a `lookup` belongs to a viewer that asked for a member. Such a viewer
    never joins a cohort, so copies of a position have no lookup. `encoding` is the form in which viewers at this
    position receive frames. `history` has the last frames that were compressed.
    """

    __slots__ = (
        "_around", "encoding", "epoch", "history", "last_read", "lookup", "offset", "returns", "sent_at", "stale",
        "viewers",
    )  # fmt: skip

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
        self.encoding: Encoding = "plain"
        self.history: TextHistory = ()
        self._around: Frame | None = None  # the last frame of the lookup that was sent

    def next_around(self) -> Frame | None:
        """Return the frame of the lookup if it was not sent yet, or None before the viewer has received records."""
        if self.lookup is None or self.epoch is None or self.lookup.frame is self._around:
            return None
        self._around = self.lookup.frame
        return self._around

    def encode(self, frame: Frame) -> bytes:
        """Return the bytes of a frame for viewers at this position. The position moves past the frame.

        Few viewers share the message of a lookup, so it is sent plain. Compressing it would be work for each of them. A
        plain frame leaves the history as it is.
        """
        if self.encoding == "event":
            return frame.event
        if self.encoding == "plain" or frame.type == "around":
            return frame.wire
        data = frame.message.after(self.history)
        if data is not frame.wire:
            self.history = following(self.history, frame.message)
        return data

    def copy(self) -> "ViewerPosition":
        """Copy the position for a viewer that leaves its cohort."""
        copied = ViewerPosition(self.epoch, self.offset, self.last_read)
        copied.returns, copied.stale, copied.viewers = self.returns, self.stale, self.viewers
        copied.sent_at, copied.encoding, copied.history = self.sent_at, self.encoding, self.history
        return copied

    def state(self) -> tuple[object, ...]:
        """Return the parts of the position that determine the next frame.

        Viewers with the same parts receive the same bytes.
        """
        return self.offset, self.epoch, self.stale, self.viewers, self.encoding, self.history

    def reset(self) -> None:
        """Forget the records, so that the next message is a sync."""
        self.epoch, self.offset, self.returns = None, -1, False


class Loose(Protocol):
    """A viewer that is in no cohort."""

    @property
    def position(self) -> ViewerPosition:
        """The position of the viewer."""

    def wake(self) -> None:
        """Check whether there is something to send."""


class Sink(Protocol):
    """The connection of a push viewer.

    `fd` is the file descriptor that frames can be written to while nothing is queued, or -1 if they must go through
    `write`. `encoding` is the form in which the client takes frames.
    """

    fd: int
    encoding: Encoding

    @property
    def waiting(self) -> bool:
        """Whether data is queued."""

    def write(self, data: bytes | memoryview) -> bool:
        """Send data, or queue it. Return False if some of it is queued."""

    def abort(self) -> None:
        """Close a broken connection."""

    def end(self, code: int) -> None:
        """Close the connection with this code."""


class Member(Protocol):
    """A viewer as its cohort sees it."""

    @property
    def sink(self) -> Sink:
        """The connection of the viewer."""

    def join(self, cohort: "Cohort") -> None:
        """Become a member of a cohort."""

    def fall_out(self, position: ViewerPosition) -> None:
        """Leave the cohort, and continue from a copy of its position."""


class Cohort:
    """Members that share one position."""

    __slots__ = ("_direct", "_indirect", "position")

    def __init__(self, position: ViewerPosition) -> None:
        self.position = position
        self._direct: dict[int, Member] = {}
        self._indirect: dict[Member, None] = {}

    def __len__(self) -> int:
        return len(self._direct) + len(self._indirect)

    def add(self, member: Member) -> None:
        """Add a member that is at the position of the cohort."""
        if member.sink.fd == -1:
            self._indirect[member] = None
        else:
            self._direct[member.sink.fd] = member

    def discard(self, member: Member) -> None:
        """Remove a member. Call this before another connection can reuse its file descriptor."""
        if member.sink.fd == -1:
            self._indirect.pop(member, None)
        else:
            self._direct.pop(member.sink.fd, None)

    def move_all(self, other: "Cohort") -> None:
        """Move all members to another cohort in the same state."""
        members = [*self._direct.values(), *self._indirect]
        self._direct.clear()
        self._indirect.clear()
        for member in members:
            member.join(other)

    def send(self, wire: bytes) -> list[Member]:
        """Send a frame to every member.

        Returns the members that left the cohort because some of the frame is queued.
        """
        size = len(wire)
        short: list[tuple[int, int]] = []
        for fd in self._direct:
            try:
                sent = write(fd, wire)
            except BlockingIOError:
                sent = 0
            except OSError:
                sent = _BROKEN
            if sent != size:
                short.append((fd, sent))
        behind = [member for member in self._indirect if not member.sink.write(wire)]
        for member in behind:
            del self._indirect[member]
        return [*self._finish(wire, short), *behind] if short else behind

    def _finish(self, wire: bytes, short: list[tuple[int, int]]) -> list[Member]:
        """Drop broken connections. Queue the rest of the frame for the others, and return those that have to wait."""
        behind: list[Member] = []
        rest = memoryview(wire)  # a memoryview, because copies of a large frame for many members would fill the memory
        for fd, sent in short:
            member = self._direct.pop(fd)
            if sent == _BROKEN:
                member.sink.abort()
            elif member.sink.write(rest[sent:]):
                self._direct[fd] = member
            else:
                behind.append(member)
        return behind


class Subscribers:
    """Viewers that receive the same frames when they are at the same position.

    `loose` has the viewers that are in no cohort.
    """

    __slots__ = ("cohorts", "loose")

    def __init__(self) -> None:
        self.cohorts: list[Cohort] = []
        self.loose: set[Loose] = set()

    @property
    def positions(self) -> Iterator[ViewerPosition]:
        """The positions of all viewers."""
        yield from (cohort.position for cohort in self.cohorts)
        yield from (viewer.position for viewer in self.loose)

    def cohort_at(self, position: ViewerPosition) -> Cohort:
        """Find a cohort at a position with room for one more member, or make a new one."""
        for cohort in self.cohorts:
            if len(cohort) < MOST and cohort.position.state() == position.state():
                return cohort
        cohort = Cohort(position)
        self.cohorts.append(cohort)
        return cohort

    def merge_cohorts(self) -> None:
        """Unite cohorts that have reached the same state, and remove cohorts without members."""
        if len(self.cohorts) == 1 and self.cohorts[0]:
            return  # most calls end here, without making states to compare
        kept: dict[tuple[object, ...], Cohort] = {}
        for cohort in self.cohorts:
            other = kept.setdefault(cohort.position.state(), cohort)
            if other is not cohort and len(other) + len(cohort) <= MOST:
                cohort.move_all(other)
            elif len(cohort) < len(other):
                kept[cohort.position.state()] = cohort  # keep the cohort with more room
        self.cohorts = [cohort for cohort in self.cohorts if cohort]


DueFrame: TypeAlias = Callable[[Subscribers, ViewerPosition], Frame | None]
"""Returns the frame that a viewer at a position needs next, or None. The position moves past the frame."""


class Outbox:
    """Frames that wait to be written.

    Call `flush` before any other task runs. A viewer that joined a cohort in between would receive these frames twice.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Cohort, bytes]] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether so many frames wait that it is time to write them."""
        return self._size >= _MOST_AT_ONCE

    def add(self, cohort: Cohort, data: bytes) -> None:
        """Add data for all members of a cohort, whose position has moved already. Call this once for each cohort."""
        self._waiting.append((cohort, data))
        self._size += len(cohort)

    def flush(self) -> None:
        """Write everything. Viewers that can't take all their data leave their cohorts."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        for cohort, data in waiting:
            for member in cohort.send(data):
                member.fall_out(cohort.position)


async def deliver(due_frame: DueFrame, groups: Iterable[Subscribers], silent_since: float = math.inf) -> None:
    """Send due messages to the viewers that have received nothing since a time. By default, send to all viewers.

    Other tasks of the event loop run in between.
    """
    wanted, outbox = list(groups), Outbox()
    await collect(due_frame, wanted, outbox, silent_since)
    outbox.flush()
    await wake(wanted, silent_since)


async def collect(
    due_frame: DueFrame, groups: Iterable[Subscribers], outbox: Outbox, silent_since: float = math.inf
) -> None:
    """Put the frames that cohorts need into an outbox. When the outbox is full, it is flushed and other tasks run."""
    for group in groups:
        for cohort in list(group.cohorts):
            if cohort.position.sent_at > silent_since:
                continue
            data = []
            while (frame := due_frame(group, cohort.position)) is not None:
                data.append(cohort.position.encode(frame))
                count_frames(frame, len(cohort), len(data[-1]))
            if data:
                outbox.add(cohort, b"".join(data))
            if outbox.is_full:
                outbox.flush()
                await asyncio.sleep(0)


async def wake(groups: Iterable[Subscribers], silent_since: float = math.inf) -> None:
    """Bring the viewers that are in no cohort up to date. Call this after the outbox was flushed."""
    sent = 0
    for group in groups:
        group.merge_cohorts()
        for viewer in list(group.loose):
            if viewer in group.loose and viewer.position.sent_at <= silent_since:
                viewer.wake()
                sent += 1
            if sent >= _MOST_AT_ONCE:
                sent = 0
                await asyncio.sleep(0)


def count_frames(frame: Frame, viewers: int, size: int) -> None:
    """Count a frame of `size` bytes that was sent to a number of viewers."""
    _SENT[frame.type].inc(viewers)
    BYTES_SENT.inc(viewers * size)
