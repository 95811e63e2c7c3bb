"""A playback: it sends the recorded frames of a board again, when they are due by its pace."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, cast

import structlog

from live.domain.recording import RecordedFrame, RecordingPiece
from live.errors import FAILED, StoreUnavailableError
from live.fanout.audience import Audience
from live.fanout.channel import SILENCE, Channel
from live.fanout.delivery import deliver
from live.fanout.frames import ALIVE, Frame, MessageType, replay_frame, status_frame
from live.fanout.playback_buffer import PlaybackBuffer
from live.fanout.position import Position
from live.fanout.subscription import Subscription
from live.fanout.viewer import Viewer

log = structlog.get_logger()

_POLL: Final = 0.5  # seconds between two checks for new pieces
_BEAT: Final = 1.0  # seconds between two checks for viewers that received nothing for a while
_PRESENT: Final = 3000  # milliseconds; a replay this close to the present becomes live
_FASTEST: Final = 10.0  # beyond this speed, only snapshots are sent: there are up to ten a second of them


class Archive(Protocol):
    """Reads recordings of boards."""

    async def start(self, board: str, epoch: str, at: int) -> RecordingPiece | None:
        """The newest piece before a time from which a replay can begin, or the oldest one; None if nothing is kept.

        Raises StoreUnavailableError.
        """

    async def after(self, board: str, epoch: str, piece: int, *, only_snapshots: bool = False) -> list[RecordingPiece]:
        """The next pieces; with `only_snapshots`, only those from which a replay can begin.

        Raises StoreUnavailableError.
        """

    async def until(self, board: str, epoch: str, offset: int) -> list[RecordingPiece]:
        """The pieces that lead to an offset, or nothing. Raises StoreUnavailableError."""


class Pace(NamedTuple):
    """When frames are due: what was sent at `origin` is due at `begun`, and the rest `speed` times as fast.

    Both are milliseconds since 1970.
    """

    origin: int
    begun: int
    speed: float = 1.0

    def due(self, at: int) -> float:
        """When something is due that was sent at a time, in milliseconds since 1970."""
        return self.begun + (at - self.origin) / self.speed

    def now(self) -> int:
        """The time that is shown now."""
        return round(self.origin + (wall_clock() - self.begun) * self.speed)


class Playback:
    """Plays a board for its viewers.

    `present` is the channel of the board. `ended` is the close code of a playback that has ended, and `last` the
    position after the last frame, as text.
    `on_empty` is called when the last viewer has left, and `on_present` with the playback when it has reached the
    present.
    """

    def __init__(
        self, present: Channel, pace: Pace, archive: Archive, on_present: Callable[["Playback"], None] | None
    ) -> None:
        """Play from the time that the pace shows first. Without `on_present`, it stays behind."""
        self.present = present
        self.ended: int | None = None
        self.on_empty: Callable[[], None] = lambda: None
        self.last = ""
        self._pace = pace
        self._archive = archive
        self._on_present = on_present
        self._buffer = PlaybackBuffer()
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_away = False  # whether viewers know that the archive can't be read

    # A source of viewers

    def place_of(self, _subscription: Subscription) -> tuple[Audience, Position]:
        """The audience and the position of a new viewer."""
        return self._buffer, Position()

    def due_frame(self, audience: Audience, position: Position) -> Frame | None:
        """The frame that a viewer at a position needs next, or None. The position moves with it."""
        frame = cast("PlaybackBuffer", audience).next_frame(position)
        now = time.monotonic()
        if frame is None and now - position.sent_at >= SILENCE:
            frame = ALIVE
        if frame is not None:
            position.sent_at = now
        return frame

    def enter(self, viewer: Viewer) -> None:
        """Add a viewer. The first one starts the playback."""
        self._viewers.add(viewer)
        self.present.uncounted -= 1
        self._buffer.viewers += 1
        self._buffer.loose.add(viewer)
        viewer.wake()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._report)

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer. The last one ends the playback."""
        if viewer not in self._viewers:
            return
        self._viewers.discard(viewer)
        self.present.uncounted += 1
        self._buffer.viewers -= 1
        viewer.leave_cohort()
        self._buffer.loose.discard(viewer)
        if not self._viewers:
            if self._task is not None:
                self._task.cancel()
            self.on_empty()

    @property
    def viewers(self) -> list[Viewer]:
        """Its viewers."""
        return list(self._viewers)

    def end(self, code: int) -> None:
        """Disconnect all viewers with one of `CLOSE_CODES`."""
        self.ended = code
        for viewer in self.viewers:
            viewer.end(code)

    @property
    def _name(self) -> tuple[str, str]:
        """The board and its epoch."""
        state = self.present.reader.state
        return state.board.id, state.epoch or (self.present.position or ("",))[0]

    # Playing

    def _report(self, task: "asyncio.Task[None]") -> None:
        """Disconnect the viewers if the playback failed; they may try again."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a replay failed", board=self._name[0], exc_info=error)
            self.end(FAILED)

    async def _run(self) -> None:
        piece = await self._first()
        while piece is None:
            if self._is_present():
                return await self._finish()
            await self._pause(_POLL)
            piece = await self._first()
        await self._play(piece, self._preface(piece))
        while True:
            pieces = await self._read(piece.id)
            for piece in pieces:
                await self._play(piece)
            if self._is_present():
                return await self._finish()
            if not pieces:
                await self._pause(_POLL)

    async def _first(self) -> RecordingPiece | None:
        """The piece with which it begins, if it was sent by now."""
        try:
            return await self._archive.start(*self._name, self._pace.now())
        except StoreUnavailableError as error:
            await self._handle_unavailable(error)
            return None

    async def _read(self, last: int) -> Sequence[RecordingPiece]:
        try:
            pieces = await self._archive.after(*self._name, last, only_snapshots=self._pace.speed > _FASTEST)
        except StoreUnavailableError as error:
            await self._handle_unavailable(error)
            return ()
        if self._is_away:
            self._is_away = False
            self._buffer.add(status_frame(None))
        return pieces

    async def _handle_unavailable(self, error: StoreUnavailableError) -> None:
        """Send the viewers one message that the archive can't be read, and wait."""
        if not self._is_away:
            log.warning("kept frames can't be read", board=self._name[0], reason=str(error))
            self._is_away = True
            self._buffer.add(status_frame("the journal does not answer"))
            await deliver(self, [self._buffer])
        await self._pause(_BEAT)

    def _preface(self, piece: RecordingPiece) -> list[Frame]:
        """What is sent before the first piece: from which time on a replay plays. Before that time nothing is kept."""
        if self._on_present is None:
            return []
        start = max(self._pace.origin, piece.began)
        self._pace = self._pace._replace(origin=start)
        return [replay_frame(start, self._pace.speed)]

    async def _play(self, piece: RecordingPiece, preface: Sequence[Frame] = ()) -> None:
        """Send the frames of a piece, each when it is due."""
        only_snapshots = self._pace.speed > _FASTEST
        if piece.snapshot:
            await self._wait_until(self._pace.due(piece.began))
            snapshot = [frame_of(recorded) for recorded in piece.frames[: piece.snapshot]]
            self._buffer.begin([*preface, *snapshot], is_cut=piece.is_cut or only_snapshots or bool(preface))
            self.last = _last(snapshot) or self.last
        for recorded in () if only_snapshots else piece.frames[piece.snapshot :]:
            await self._wait_until(self._pace.due(recorded.at))
            self._buffer.add(frame_of(recorded))
            self.last = recorded.position or self.last
        await deliver(self, [self._buffer])

    async def _wait_until(self, due: float) -> None:
        """Wait until a time; before that, send what was due until now."""
        if due <= wall_clock():
            return
        await deliver(self, [self._buffer])
        while (rest := due - wall_clock()) > 0:
            await self._pause(min(rest / 1000, _BEAT))

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await deliver(self, [self._buffer], time.monotonic() - SILENCE)

    def _is_present(self) -> bool:
        return self._on_present is not None and self._pace.now() >= wall_clock() - _PRESENT

    async def _finish(self) -> None:
        """Become live, once every viewer has received everything."""
        assert self._on_present is not None, "a delay never ends"  # noqa: S101
        self._buffer.add(replay_frame(None, 1.0))
        await deliver(self, [self._buffer])
        while not self._buffer.is_played:
            await self._pause(0.1)
        self._on_present(self)


def frame_of(recorded: RecordedFrame) -> Frame:
    """A recorded frame as it is sent."""
    return Frame(cast("MessageType", recorded.type), recorded.payload, recorded.position)


def wall_clock() -> float:
    """The time in milliseconds since 1970."""
    return time.time() * 1000


def _last(frames: Sequence[Frame]) -> str:
    return next((frame.id for frame in reversed(frames) if frame.id), "")
