"""Viewers of a board: a push viewer has frames written to its socket, a pull viewer asks for one after another."""

import asyncio
import math
from typing import Final, Protocol

from live.domain.ranking import Page
from live.errors import CLOSE_CODES
from live.fanout.cohort import Cohort
from live.fanout.frames import Frame
from live.fanout.position import Position
from live.fanout.variant import Variant
from live.metrics import BYTES_SENT, FRAMES_SENT, RECOVERIES

_SENT: Final = {kind: FRAMES_SENT.labels(kind) for kind in ("sync", "update", "status", "viewers", "around", "alive")}


class ChannelEndedError(Exception):
    """There is nothing more to watch: `code` is one of `CLOSE_CODES`."""

    def __init__(self, code: int) -> None:
        super().__init__(CLOSE_CODES[code].reason)
        self.code = code


class Source(Protocol):
    """The channel of a board, as its viewers see it; `ended` is the code with which they are let go, if they are."""

    ended: int | None

    def due_frame(self, variant: Variant, position: Position) -> Frame | None:
        """The frame that is due at a position, which moves with it; None when there is none."""

    def enter(self, viewer: "Viewer") -> None:
        """Take in a viewer."""

    def leave(self, viewer: "Viewer") -> None:
        """Let a viewer go."""


class Viewer:
    """One open connection that watches the top of a board."""

    __slots__ = ("_alone", "channel", "cohort", "variant")

    def __init__(self, channel: Source, variant: Variant, position: Position) -> None:
        self.channel = channel
        self.variant = variant
        self.cohort: Cohort | None = None
        self._alone: Position | None = position

    @property
    def position(self) -> Position:
        """Where it stands, by itself or with its cohort."""
        if self.cohort is not None:
            return self.cohort.position
        assert self._alone is not None, "a viewer stands in a lane or alone"  # noqa: S101
        return self._alone

    def due_frame(self) -> Frame | None:
        """The next frame for it, or None when it is up to date."""
        position = self.position
        returns = position.returns
        frame = self.channel.due_frame(self.variant, position)
        if returns and not position.returns and frame is not None:
            RECOVERIES.labels("true" if b'"recovered":true' in frame.payload else "false").inc()
        return frame

    def wake(self) -> None:
        """There may be something to send."""
        raise NotImplementedError

    def end(self, code: int) -> None:
        """There is nothing more to watch."""
        raise NotImplementedError


class PullViewer(Viewer):
    """A viewer that asks: `next_frame` waits for what it is to be sent next."""

    __slots__ = ("_woken",)

    def __init__(self, channel: Source, variant: Variant, position: Position) -> None:
        super().__init__(channel, variant, position)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Have a look."""
        self._woken.set()

    def end(self, _code: int) -> None:
        """Have a look: the channel has ended."""
        self._woken.set()

    async def next_frame(self) -> Frame:
        """Wait for the next frame; a viewer that is slow to ask skips to the latest state.

        Raises:
            ChannelEndedError: there will be none.
        """
        while True:
            if self.channel.ended is not None:
                raise ChannelEndedError(self.channel.ended)
            frame = self.due_frame()
            if frame is not None:
                count_frames(frame, 1, len(frame.payload))
                return frame
            self._woken.clear()
            await self._woken.wait()

    async def next_page(self) -> Page:
        """Wait until the board stands elsewhere than this viewer did when it came, for one that takes whole pages.

        Raises:
            ChannelEndedError: it never will.
        """
        self.position.sent_at = math.inf  # it takes a page, and no sign of life before
        while True:
            if self.channel.ended is not None:
                raise ChannelEndedError(self.channel.ended)
            page = self.variant.page_elsewhere(self.position)
            if page is not None:
                return page
            self._woken.clear()
            await self._woken.wait()


class Sink(Protocol):
    """The connection of a viewer that is written to."""

    @property
    def fd(self) -> int:
        """The file descriptor that frames may be written to while nothing waits; -1 for none."""

    @property
    def waiting(self) -> bool:
        """Whether something that was written waits to be sent."""

    def write(self, data: bytes | memoryview) -> bool:
        """Send, or let wait; False when some of it waits."""

    def abort(self) -> None:
        """The connection is broken."""

    def end(self, code: int) -> None:
        """There is nothing more to watch; close with this code."""


class PushViewer(Viewer):
    """A viewer that is written to: in a cohort, with others, while it takes every frame whole; else alone.

    One that asked for a key is told of it beside the others, so it is always alone.
    While something waits to be sent it gets no more, and no backlog: when it is writable again, it gets what brings it
    to where the board then stands.
    """

    __slots__ = ("_sink",)

    def __init__(self, channel: Source, variant: Variant, position: Position, sink: Sink) -> None:
        super().__init__(channel, variant, position)
        self._sink = sink

    @property
    def fd(self) -> int:
        """That of the connection."""
        return self._sink.fd

    def write(self, data: bytes | memoryview) -> bool:
        """Send, or let wait; False when some of it waits."""
        return self._sink.write(data)

    def abort(self) -> None:
        """The connection is broken."""
        self._sink.abort()

    def end(self, code: int) -> None:
        """Close."""
        self._sink.end(code)

    def wake(self) -> None:
        """Send what is due, and join those that stand at the same position."""
        if self.cohort is not None or self._sink.waiting:
            return
        while (frame := self.due_frame()) is not None:
            count_frames(frame, 1, len(frame.wire))
            if not self._sink.write(frame.wire):
                return
        if self.position.epoch is not None and self.position.lookup is None:
            self.join(self.variant.cohort_at(self.position))

    def join(self, cohort: Cohort) -> None:
        """Stand in a cohort."""
        self.cohort, self._alone = cohort, None
        cohort.add(self)
        self.variant.loose.discard(self)

    def fall_out(self, position: Position) -> None:
        """Stand alone, at a position that the cohort had."""
        self.cohort, self._alone = None, position.copy()
        self.variant.loose.add(self)

    def leave_cohort(self) -> None:
        """Be gone from the cohort, and from the file descriptors that are written to."""
        if self.cohort is not None:
            cohort = self.cohort
            cohort.discard(self)
            self.fall_out(cohort.position)


def count_frames(frame: Frame, viewers: int, size: int) -> None:
    """Note that a frame of so many bytes was handed to so many viewers."""
    _SENT[frame.type].inc(viewers)
    BYTES_SENT.inc(viewers * size)
