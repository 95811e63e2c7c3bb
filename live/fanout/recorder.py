"""Records what viewers receive of boards with `replay`. One process of a store does so.

A recording is a viewer without a connection: it receives the same frames as every viewer with the default size, at the
same ticks, and they are encoded once for all of them.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import structlog

from live.domain.recording import RecordedFrame, RecordingPiece
from live.errors import StoreUnavailableError
from live.fanout.channel import Channel
from live.fanout.frames import Frame
from live.fanout.hub import Hub
from live.fanout.position import Position
from live.fanout.subscription import Subscription, default_size
from live.fanout.viewer import Viewer
from live.settings import Settings

log = structlog.get_logger()

_INTERVAL: Final = 1.0  # seconds between two pieces
_SNAPSHOT: Final = 10.0  # seconds of a moving board after which a replay can begin
_QUIET: Final = 3600.0  # the same on a quiet board; so retention always leaves something to begin with
_FORGET: Final = 60.0  # seconds
_MOST_WAITING: Final = 64 * 1024**2  # bytes of frames that may wait for the database


class ArchiveWriter(Protocol):
    """Writes recordings of boards."""

    async def keep(self, pieces: Sequence[RecordingPiece]) -> None:
        """Keep pieces. Raises StoreUnavailableError if that is not possible now."""

    async def forget(self, boards: Mapping[str, int]) -> None:
        """Forget what is older than boards keep it, each for some seconds. Raises as `keep`."""


class Recording(Viewer):
    """The recording of one channel."""

    __slots__ = ("_began_at", "_board", "_frames", "_is_cut", "_snapshot")
    is_counted = False

    def __init__(self, channel: Channel, size: int) -> None:
        """Record the top `size`."""
        super().__init__(channel, *channel.place_of(Subscription(size=size)))
        self._board = channel.reader.state.board.id
        self._frames: list[RecordedFrame] = []
        self._snapshot: list[RecordedFrame] | None = None  # None before the first records
        self._is_cut = True
        self._began_at = 0.0

    def wake(self) -> None:
        """Take what is due."""
        while (frame := self.due_frame()) is not None:
            if self._snapshot is not None and frame.type != "alive":
                self._frames.append(_recorded(frame))
        if self._snapshot is None and self.position.epoch is not None:
            self._begin()

    def end(self, _code: int) -> None:
        """Nothing more comes."""

    def cut(self) -> None:
        """Begin again after frames were dropped."""
        self._frames, self._snapshot, self._is_cut = [], None, True
        self.wake()

    def take(self) -> RecordingPiece | None:
        """What came since the last call; None for nothing."""
        self.wake()
        snapshot, quiet_for = self._snapshot, time.monotonic() - self._began_at
        if snapshot is None or self.position.epoch is None or not (self._frames or self._is_cut or quiet_for >= _QUIET):
            return None
        if not self._frames and not self._is_cut:
            self._begin()
            snapshot = self._snapshot or []
        frames = [*snapshot, *self._frames]
        if not frames:
            return None
        offsets = [int(frame.position.rpartition(":")[2]) for frame in frames if frame.position]
        piece = RecordingPiece(
            board=self._board,
            epoch=self.position.epoch,
            first=min(offsets, default=-1),
            last=max(offsets, default=-1),
            snapshot=len(snapshot),
            is_cut=self._is_cut,
            began=frames[0].at,
            ended=frames[-1].at,
            frames=frames,
        )
        self._frames, self._snapshot, self._is_cut = [], [], False
        if quiet_for >= _SNAPSHOT:
            self._begin()
        return piece

    def _begin(self) -> None:
        """Let the next piece begin with what a viewer receives who connects now."""
        position, found = Position(), []
        while (frame := self.channel.due_frame(self.audience, position)) is not None:
            found.append(_recorded(frame))
        if position.epoch is not None:  # otherwise the records are read anew, and come soon
            self._snapshot, self._began_at = found, time.monotonic()


def _recorded(frame: Frame) -> RecordedFrame:
    return RecordedFrame(time.time_ns() // 1_000_000, frame.type, frame.payload, frame.id)


class Recorder:
    """Records all boards of a process that keep their frames."""

    def __init__(self, hub: Hub, writer: ArchiveWriter, settings: Settings, may_keep: Callable[[], bool]) -> None:
        """Record while `may_keep` says that this process records the boards of the store."""
        self._hub = hub
        self._may_keep = may_keep
        self._writer = writer
        self._size = default_size(settings)
        self._recordings: dict[str, Recording] = {}
        self._followed: tuple[int, bool] | None = None  # the revision of the hub, and whether this process records
        self._waiting: list[RecordingPiece] = []
        self._forgot_at = time.monotonic()

    async def run(self) -> None:
        """Record until cancelled, whenever no other process does."""
        try:
            while True:
                self._follow()
                await asyncio.sleep(_INTERVAL)
                await self._step()
        finally:
            for recording in self._recordings.values():
                recording.channel.leave(recording)
            await self._flush()
            self._recordings.clear()

    async def _step(self) -> None:
        await self._flush()
        now = time.monotonic()
        if now >= self._forgot_at + _FORGET and self._may_keep():
            self._forgot_at = now
            channels = self._hub.channels.values()
            boards = {board.id: board.replay or 0 for board in (channel.reader.state.board for channel in channels)}
            try:
                await self._writer.forget(boards)
            except StoreUnavailableError as error:
                log.warning("old frames are kept for longer", reason=str(error))

    def _follow(self) -> None:
        """Record the boards whose definitions say so now."""
        state = (self._hub.revision, self._may_keep())
        if state == self._followed:
            return  # there may be many thousands of boards
        self._followed = state
        channels = self._hub.channels if state[1] else {}
        wanted = {
            board: channel for board, channel in channels.items() if channel.reader.state.board.replay is not None
        }
        for board, recording in list(self._recordings.items()):
            if wanted.get(board) is not recording.channel:
                recording.channel.leave(recording)
                del self._recordings[board]
        for board, channel in wanted.items():
            if board not in self._recordings:
                recording = self._recordings[board] = Recording(channel, self._size)
                self._hub.add_recording(channel, recording)

    async def _flush(self) -> None:
        """Keep what came since the last call. What can't be kept waits, up to a limit."""
        for recording in self._recordings.values():
            piece = recording.take()
            if piece is not None:
                self._waiting.append(piece)
        if not self._waiting:
            return
        try:
            await self._writer.keep(self._waiting)
        except StoreUnavailableError as error:
            waiting = sum(len(frame.payload) for piece in self._waiting for frame in piece.frames)
            log.warning("frames of boards can't be kept now", reason=str(error), waiting=waiting)
            if waiting <= _MOST_WAITING:
                return
            for recording in self._recordings.values():
                recording.cut()
        self._waiting = []
