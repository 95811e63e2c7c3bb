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
from collections.abc import Iterable, Iterator
from copy import copy
from os import write
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from live.domain.reader import NOBODY
from live.domain.views import Viewers
from live.fanout.frames import Frame, TextHistory, alive_frame, following, frame_of, status_frame
from live.fanout.lookups import RankLookup
from live.fanout.subscription import Subscription
from live.metrics import BYTES_SENT, FRAMES_SENT, RECOVERIES

MOST: Final = 256  # maximum members of a cohort: no other task of the event loop runs while they receive a frame
_MOST_AT_ONCE: Final = 256  # viewers that receive frames before other tasks of the event loop run
_BROKEN: Final = -1
SILENCE: Final = 5.0  # seconds without a message after which a viewer receives `alive`
_SENT: Final = {kind: FRAMES_SENT.labels(kind) for kind in ("sync", "update", "status", "viewers", "around", "alive")}


Encoding: TypeAlias = Literal["plain", "deflated", "event"]
"""The form of frames: of a WebSocket, plain or compressed, or of an event stream."""


class ViewerPosition:
    """The last messages that a viewer, or a whole cohort, has received.

    `epoch` is None before the first message. `returns` is true for a viewer that reconnects with a position, which may
    come from another process. That position counts as valid, unless a read that began after the reconnect shows that it
    is not. `last_read` is the number of the last read before the reconnect. `sent_at` is when the last message was
    sent, by the monotonic clock. A position with a `lookup` belongs to a viewer that asked for a member. Such a viewer
    never joins a cohort. `encoding` is the form in which viewers at this
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

    def state(self) -> tuple[object, ...]:
        """Return the parts of the position that determine the next frame: with the same parts, viewers share it."""
        return self.offset, self.epoch, self.stale, self.viewers, self.encoding, self.history

    def reset(self) -> None:
        """Forget the records, so that the next message is a sync."""
        self.epoch, self.offset, self.returns = None, -1, False


class BoardStatus(msgspec.Struct, eq=False):
    """The state of a board that its viewers receive besides records.

    `stale` is the reason why the records may be out of date, or None. `viewer_count` is the number of viewers in all
    processes, None before it is known. `is_due` is true while some viewers may not have received the latest state.
    """

    stale: str | None = None
    viewer_count: int | None = None
    is_due: bool = False

    def take_due(self) -> bool:
        """Return whether to send the state to all viewers now. After that, it is no longer due."""
        due, self.is_due = self.is_due or self.stale is not None, False
        return due

    def next_frame(self, position: ViewerPosition) -> Frame | None:
        """Return the frame that a viewer at a position needs next, or None. The position moves past the frame."""
        if position.stale != self.stale:
            position.stale = self.stale
            return status_frame(self.stale)
        if self.viewer_count is not None and position.viewers != self.viewer_count and position.epoch is not None:
            position.viewers = self.viewer_count
            return frame_of(Viewers(self.viewer_count))
        return None


class Sink(Protocol):
    """The connection of a viewer.

    `fd` is the file descriptor that frames can be written to while nothing is queued, or -1 if they must go through
    `write`. `encoding` is the form in which the client takes frames. `blocked_since` is when queued data last made
    progress, or None if no data is queued.
    """

    fd: int
    encoding: Encoding
    blocked_since: float | None

    @property
    def waiting(self) -> bool:
        """Whether data is queued."""

    def write(self, data: bytes | memoryview) -> bool:
        """Send data, or queue it. Return False if some of it is queued."""

    def abort(self) -> None:
        """Close a broken connection."""

    def end(self, code: int) -> None:
        """Close the connection with this code."""


class Cohort(msgspec.Struct, eq=False):
    """Members that share one position. Frames for the `_direct` members go to their file descriptors."""

    position: ViewerPosition
    _direct: dict[int, "Viewer"] = msgspec.field(default_factory=dict)
    _indirect: dict["Viewer", None] = msgspec.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._direct) + len(self._indirect)

    def add(self, member: "Viewer") -> None:
        """Add a member that is at the position of the cohort."""
        if member.sink.fd == -1:
            self._indirect[member] = None
        else:
            self._direct[member.sink.fd] = member

    def discard(self, member: "Viewer") -> None:
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

    def send(self, wire: bytes) -> list["Viewer"]:
        """Send a frame to every member. Return the members that left the cohort because some of the frame is queued."""
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

    def _finish(self, wire: bytes, short: list[tuple[int, int]]) -> list["Viewer"]:
        """Drop broken connections. Queue the rest of the frame for the others, and return those that have to wait."""
        behind: list[Viewer] = []
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


class Source(Protocol):
    """The source of a viewer's frames: a channel or a recording."""

    def enter(self, viewer: "Viewer") -> None:
        """Add a viewer."""

    def leave(self, viewer: "Viewer") -> None:
        """Remove a viewer."""

    def place_of(self, subscription: Subscription) -> tuple["Subscribers", ViewerPosition]:
        """Find the position of a viewer that connects or reconnects, and the group that receives the same frames."""


class Viewer:
    """An open connection that watches a board. It is in a cohort while it takes every frame whole.

    A viewer that asked for a member also receives the rank of that member, so the viewer is never in a cohort. While
    data is queued, a viewer receives nothing more, so no backlog arises. When the queue is empty, the viewer receives
    the changes up to the latest state. `prefix` is the pattern of the limits of its board (`acme-*`), if any.
    """

    __slots__ = ("_alone", "address", "channel", "cohort", "group", "prefix", "reader", "sink")

    def __init__(self, channel: Source, group: "Subscribers", position: ViewerPosition, sink: Sink) -> None:
        self.channel = channel
        self.reader = NOBODY
        self.address = self.prefix = ""
        self.group = group
        self.sink = sink
        self.cohort: Cohort | None = None
        self._alone: ViewerPosition | None = position
        position.encoding = sink.encoding

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
        frame = self.group.due_frame(position)
        if returns and not position.returns and frame is not None:
            RECOVERIES.labels("true" if b'"recovered":true' in frame.payload else "false").inc()
        return frame

    def end(self, code: int) -> None:
        """Close the connection. `code` is one of `CLOSE_CODES`."""
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
        self.cohort, self._alone = None, copy(position)
        self.group.loose.add(self)

    def leave_cohort(self) -> None:
        """Leave the cohort before the connection closes, so that the cohort no longer writes to the file descriptor."""
        if self.cohort is not None:
            cohort = self.cohort
            cohort.discard(self)
            self.fall_out(cohort.position)


class Subscribers:
    """Viewers that receive the same frames at the same position; those in `loose` are in no cohort.

    Viewers with a `delay` (in seconds) receive earlier messages.
    """

    __slots__ = ("_status", "cohorts", "delay", "loose")

    def __init__(self, status: BoardStatus, delay: int = 0) -> None:
        self._status = status
        self.delay = delay
        self.cohorts: list[Cohort] = []
        self.loose: set[Viewer] = set()

    @property
    def positions(self) -> Iterator[ViewerPosition]:
        """The positions of all viewers."""
        yield from (cohort.position for cohort in self.cohorts)
        yield from (viewer.position for viewer in self.loose)

    def due_frame(self, position: ViewerPosition) -> Frame | None:
        """Return the frame that a viewer at a position needs next, or None. The position moves past the frame.

        After records come the rank of a member, and the status of the board. If viewers at the position received
        nothing for a while, return `alive`.
        """
        frame = self.next_frame(position) or position.next_around() or self._status.next_frame(position)
        now = time.monotonic()
        if frame is None and now - position.sent_at >= SILENCE:
            frame = alive_frame(int(time.time()) - self.delay)
        if frame is not None:
            position.sent_at = now
        return frame

    def next_frame(self, position: ViewerPosition) -> Frame | None:
        """Return the records that a viewer at a position lacks, or None. The position moves past the frame."""
        raise NotImplementedError

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


class Outbox:
    """Frames that wait to be written. Flush it before another task runs: a new member would receive them twice."""

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


async def deliver(groups: Iterable[Subscribers], silent_since: float = math.inf) -> None:
    """Send due messages to viewers that received nothing since `silent_since`, while other tasks of the loop run."""
    wanted, outbox = list(groups), Outbox()
    await collect(wanted, outbox, silent_since)
    outbox.flush()
    await wake(wanted, silent_since)


async def collect(groups: Iterable[Subscribers], outbox: Outbox, silent_since: float = math.inf) -> None:
    """Put the frames that cohorts need into an outbox. When the outbox is full, it is flushed and other tasks run."""
    for group in groups:
        for cohort in list(group.cohorts):
            if cohort.position.sent_at > silent_since:
                continue
            data = []
            while (frame := group.due_frame(cohort.position)) is not None:
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
