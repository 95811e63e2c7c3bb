"""Viewers with a delay receive what the viewers of a board received some seconds earlier.

A recording keeps the frames of the last minutes in memory: the frames that a viewer of the board receives. It consists
of chapters. A chapter begins with the whole top, and continues with the changes until the next chapter. New viewers
begin with a chapter, and other viewers go on from one chapter to the next.
"""

import asyncio
import time
from bisect import bisect_right
from collections import deque
from itertools import count
from operator import attrgetter
from typing import Final, NamedTuple, cast

import structlog

from live.domain.reader import SERVER
from live.errors import FAILED
from live.fanout.channel import Channel
from live.fanout.cohort import BoardStatus, Encoding, Sink, Subscribers, Viewer, ViewerPosition, deliver
from live.fanout.frames import Frame, MessageType
from live.fanout.subscription import DEFAULT_SIZE, Subscription
from live.store.board.read.reader import BoardReader

log = structlog.get_logger()

_MOST_BYTES: Final = 8 * 1024**2  # bytes of the frames of one recording
_FRAME: Final = 200  # bytes of a frame without its payload, approximately
_BURST: Final = 2.0  # seconds; a board may send so much at once as it otherwise may in this time
_CHAPTER: Final = 5.0  # seconds until the next chapter
_LINGER: Final = 20.0  # seconds for which a recording goes on without viewers, so that they can reconnect
_BEAT: Final = 1.0  # seconds between two checks for viewers that received nothing for a while
_MOST_SHARED: Final = 64  # frames of a delay whose encoded forms are kept


class _Recorded(NamedTuple):
    """A frame and its time, without its encoded forms, which would take more memory than the frame itself."""

    at: float
    type: MessageType
    payload: bytes
    id: str


class Chapter(NamedTuple):
    """Frames from one whole top (the first `begin` frames) to the next. All times are by the monotonic clock."""

    number: int
    at: float
    begin: int
    frames: list[_Recorded]


class DelayedViewers(Subscribers):
    """Viewers with the same delay, in seconds.

    The `epoch` of a viewer's position is the number of its chapter, and the offset counts the frames of the chapter
    that the viewer has received.
    """

    __slots__ = ("_chapters", "_shared", "size")

    def __init__(self, delay: int, chapters: deque[Chapter]) -> None:
        super().__init__(BoardStatus(), delay)
        self.size = 0  # number of viewers
        self._chapters = chapters
        self._shared: dict[tuple[int, int], Frame] = {}

    def next_frame(self, position: ViewerPosition) -> Frame | None:
        """Return the recorded frame that is due, or None. The position moves past the frame."""
        chapters, due = self._chapters, time.monotonic() - self.delay
        at = next((at for at, chapter in enumerate(chapters) if str(chapter.number) == position.epoch), None)
        if at is None:  # the viewer is new, or so slow that the recording does not have its chapter any more
            at = max((at for at, chapter in enumerate(chapters) if chapter.at <= due), default=None)
            if at is None:
                return None
            self._move(position, chapters[at], 0)
        while position.offset == len(chapters[at].frames):
            if at + 1 == len(chapters) or chapters[at + 1].at > due:
                return None
            at += 1
            self._move(position, chapters[at], chapters[at].begin)
        if chapters[at].frames[position.offset].at > due:
            return None
        position.offset += 1
        return self._frame(chapters[at], position.offset - 1)

    def next_due(self) -> float | None:
        """Return when the next frame is due, by the monotonic clock. Return None if there is none."""
        due = time.monotonic() - self.delay
        for chapter in self._chapters:
            if chapter.frames and chapter.frames[-1].at > due:
                return chapter.frames[bisect_right(chapter.frames, due, key=attrgetter("at"))].at + self.delay
        return None

    def _move(self, position: ViewerPosition, chapter: Chapter, offset: int) -> None:
        position.epoch, position.offset, position.returns = str(chapter.number), offset, False

    def _frame(self, chapter: Chapter, place: int) -> Frame:
        """Return a frame, whose encoded forms the viewers share."""
        key = chapter.number, place
        frame = self._shared.get(key)
        if frame is None:
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            frame = self._shared[key] = Frame(*chapter.frames[place][1:])
        return frame


def _kind_of(reader: BoardReader) -> tuple[str, bool]:
    return reader.state.born, reader.state.board.is_private


class _Recorder(Viewer):
    """The viewer of a board whose frames a recording keeps."""

    __slots__ = ("_recording",)

    encoding: Encoding = "plain"

    def __init__(self, recording: "Recording", subscription: Subscription) -> None:
        group, position = recording.channel.place_of(subscription)
        super().__init__(recording.channel, group, position, cast("Sink", self))  # it sends nothing
        self.reader = SERVER
        self._recording = recording

    def wake(self) -> None:
        self._recording.record()

    def end(self, code: int) -> None:
        self._recording.end(code)


class Recording:
    """What viewers of a board have received lately, and the viewers with a delay.

    It reaches back as far as the longest delay. `address` has begun it. `ended` is its close code, once it has ended.
    """

    def __init__(self, channel: Channel, address: str) -> None:
        """Record the top of the default size."""
        self.channel = channel
        self.address = address
        self.ended: int | None = None
        self._recorder = _Recorder(self, Subscription(size=DEFAULT_SIZE))
        self._kind = _kind_of(channel.reader)
        self._numbers = count()
        self._chapters: deque[Chapter] = deque()
        self._groups: dict[int, DelayedViewers] = {}
        self._viewers: set[Viewer] = set()
        self._longest = 0  # seconds; the longest delay
        self._empty_since = time.monotonic()
        # When the frames until now would have come if they came evenly, and filled the memory exactly.
        self._paid_until = 0.0
        channel.enter(self._recorder)
        channel.count_delayed(-1)  # the recorder is not a viewer

    # The methods of a `Source`

    def place_of(self, subscription: Subscription) -> tuple[Subscribers, ViewerPosition]:
        """Return a position before the first frame."""
        delay = subscription.delay
        if delay not in self._groups:
            self._groups[delay] = DelayedViewers(delay, self._chapters)
        return self._groups[delay], ViewerPosition()

    def enter(self, viewer: Viewer) -> None:
        """Add a viewer."""
        group = cast("DelayedViewers", viewer.group)
        self._viewers.add(viewer)
        self.channel.count_delayed(1)
        group.size += 1
        group.loose.add(viewer)
        # A delay that nobody watches any more stays until somebody watches with another delay.
        self._groups = {delay: one for delay, one in self._groups.items() if one.size}
        self._longest = max(self._groups)
        viewer.wake()

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer."""
        group = cast("DelayedViewers", viewer.group)
        self._viewers.remove(viewer)
        self.channel.count_delayed(-1)
        viewer.leave_cohort()
        group.loose.discard(viewer)
        group.size -= 1
        self._empty_since = time.monotonic()
        if not group.size and len(self._groups) > 1:  # the last delay stays, because its viewers may reconnect
            del self._groups[group.delay]
            self._longest = max(self._groups)

    @property
    def viewers(self) -> list[Viewer]:
        """The viewers with a delay."""
        return list(self._viewers)

    def end(self, code: int) -> None:
        """Disconnect all viewers with one of `CLOSE_CODES`."""
        self.ended = code
        for viewer in self.viewers:
            viewer.end(code)

    # Recording

    async def run(self) -> None:
        """Record, and send each frame when it is due, until nobody has watched for a while."""
        try:
            while self.ended is None and (self._viewers or time.monotonic() < self._empty_since + _LINGER):
                self.record()
                await deliver(list(self._groups.values()))
                due = [due for group in self._groups.values() if (due := group.next_due()) is not None]
                await asyncio.sleep(min(max(0.0, min(due, default=_BEAT) - time.monotonic()), _BEAT))
        except Exception:
            log.exception("a delay failed", board=self.channel.reader.state.board.id)
            self.end(FAILED)  # the viewers may try again
        finally:
            self.channel.leave(self._recorder)
            self.channel.count_delayed(1)

    def record(self) -> None:
        """Keep the frames that viewers receive now. Without room in memory, skip states, as a slow viewer does."""
        now = time.monotonic()
        while len(self._chapters) > 1 and self._chapters[1].at <= now - self._longest:
            self._chapters.popleft()
        if self._paid_until > now + _BURST:
            return
        while (frame := self._recorder.due_frame()) is not None:
            if self._chapters and frame.type != "alive":
                self._chapters[-1].frames.append(self._kept(frame, now))
        if self._recorder.position.epoch is None:
            return  # the board is not read yet
        last = self._chapters[-1] if self._chapters else None
        if last is None or (now >= last.at + _CHAPTER and len(last.frames) > last.begin):
            whole, position = [], ViewerPosition()
            while (frame := self._recorder.group.due_frame(position)) is not None:
                whole.append(self._kept(frame, now))
            self._chapters.append(Chapter(next(self._numbers), now, len(whole), whole))

    def renew(self, reader: BoardReader) -> None:
        """Forget everything if the board was created again, or if other viewers may watch it now."""
        if (kind := _kind_of(reader)) != self._kind:
            self._kind = kind
            self._chapters.clear()

    def _kept(self, frame: Frame, now: float) -> _Recorded:
        size = len(frame.payload) + _FRAME
        kept_for = self._longest + _CHAPTER  # seconds; whole chapters are dropped
        self._paid_until = max(self._paid_until, now) + size * kept_for / _MOST_BYTES
        return _Recorded(now, frame.type, frame.payload, frame.id)
