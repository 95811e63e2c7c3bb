"""Replays send the past of a board from its journal. Each message is sent when it is due by the pace of the replay."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar, cast

import msgspec
import structlog

from live.domain.board import Board
from live.errors import FAILED, ProblemError, StoreUnavailableError
from live.fanout.engine.channel import Channel, frame_or_alive
from live.fanout.engine.delivery import Subscribers, ViewerPosition, deliver
from live.fanout.frames import Frame, MessageType, replay_frame, status_frame
from live.fanout.subscription import ReplayRequest, Subscription, default_size
from live.fanout.viewer import Viewer
from live.settings import Settings

log = structlog.get_logger()

_T = TypeVar("_T")

_STARTED: Final = ""  # the `epoch` of a viewer's position after the first frame; it is None before
_POLL: Final = 250  # milliseconds until the end of the journal is read again
_BEAT: Final = 1000  # milliseconds between two checks for viewers that received nothing for a while
_AHEAD: Final = 1000  # milliseconds; messages are made so long before they are due
_PRESENT: Final = 3000  # milliseconds; a replay this close to the present becomes live
_WHOLE: Final = 10.0  # seconds after which the buffer begins again: with the whole top, without the members hidden now
_MOST_BYTES: Final = 1024**2  # bytes in the buffer, after which it also begins again
_NO_JOURNAL: Final = "the journal does not answer"
_NO_MEMORY: Final = "too many replays run"
_RETRY: Final = 5  # seconds after which a client may ask again for a replay


class PlayedFrame(msgspec.Struct, frozen=True, array_like=True):
    """A message: the time that it shows (milliseconds since 1970), its type, its JSON, and the position after it."""

    at: int
    type: MessageType
    payload: bytes
    position: str

    @property
    def frame(self) -> Frame:
        """The message as it is sent."""
        return Frame(self.type, self.payload, self.position)


class Played(msgspec.Struct, frozen=True):
    """The next messages of a replay.

    Attributes:
        whole: a message with the whole top before `frames`, if the caller asked for it and the board has a top.
        frames: the messages.
        now: the time in the past that the replay has reached, in milliseconds since 1970.
    """

    whole: PlayedFrame | None
    frames: list[PlayedFrame]
    now: int


class TooLittleMemoryError(StoreUnavailableError):
    """The running replays take too much memory for another replay."""


class Players(Protocol):
    """Makes the messages of replays, each of which has a number."""

    async def begin(
        self, address: str, board: Board, hidden: Collection[str], size: int, at: int
    ) -> tuple[int, int] | None:
        """Begin a replay of the top `size` at a time in milliseconds since 1970, without some hidden members.

        Addresses take turns, so an address with many replays delays only its own replays.

        Return the number of the replay and the time at which it begins. If the journal begins later, so does the
        replay. Return None if the journal has no entries of the board.

        Raises:
            TooLittleMemoryError: the replays that run take too much memory.
            StoreUnavailableError: the journal does not answer.
        """

    async def play(
        self, number: int, until: int, speed: float, interval: int, hidden: Collection[str] | None = None
    ) -> Played | None:
        """Make the next messages of a replay up to a time, with at least `interval` milliseconds between them.

        With `hidden` (the members that are hidden now), the messages begin with the whole top. Return None if the
        replay does not exist any more.

        Raises:
            StoreUnavailableError: the journal does not answer.
        """

    def end(self, number: int) -> None:
        """End a replay."""


class PlaybackBuffer(Subscribers):
    """The frames of a replay by number. The offset of a viewer's position is the number of its next frame.

    The first frames are a snapshot. Viewers begin with the snapshot if they are new, or if they are so slow that the
    buffer has dropped their next frame. Viewers that have received every frame before the snapshot skip it, except
    after a cut (see `begin`). `size` is how many bytes the frames have.
    """

    __slots__ = ("_first", "_frames", "_keys", "size")

    def __init__(self) -> None:
        super().__init__()
        # `_keys` is how many frames of the snapshot a viewer skips if it has received everything before the snapshot:
        # all of them, or 0 after a cut.
        self.size = self._first = self._keys = 0
        self._frames: list[Frame] = []

    @property
    def is_played(self) -> bool:
        """Whether every viewer has received every frame."""
        end = self._first + len(self._frames)
        return all(position.epoch is not None and position.offset >= end for position in self.positions)

    def begin(self, snapshot: Iterable[Frame], *, is_cut: bool) -> None:
        """Continue with a snapshot. After a cut, every viewer receives the snapshot."""
        self._first += len(self._frames)
        self._frames = list(snapshot)
        self.size = sum(len(frame.payload) for frame in self._frames)
        self._keys = 0 if is_cut else len(self._frames)

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        self._frames.append(frame)
        self.size += len(frame.payload)

    def next_frame(self, position: ViewerPosition) -> Frame | None:
        """Return the frame that a viewer at a position needs next, or None. The position moves past the frame."""
        if position.epoch is None or position.offset < self._first:
            position.offset = self._first
        elif position.offset == self._first:
            position.offset += self._keys
        number = position.offset - self._first
        if number >= len(self._frames):
            return None
        position.epoch, position.returns = _STARTED, False
        position.offset += 1
        return self._frames[number]


class Pace(NamedTuple):
    """Tells when messages are due. The message for the time `origin` is due at the time `begun`.

    The other messages follow `speed` times as fast as in the past. Both times are in milliseconds since 1970.
    """

    origin: int
    begun: int
    speed: float = 1.0

    def due(self, at: int) -> float:
        """Return when the message for a time is due, in milliseconds since 1970."""
        return self.begun + (at - self.origin) / self.speed

    def now(self) -> int:
        """Return the time in the past that viewers see now."""
        return round(self.origin + (wall_clock() - self.begun) * self.speed)


class Playback:
    """Plays the past of a board for its viewers.

    `present` is the channel of the board. `ended` is the close code of a playback that has ended. `on_empty` is called
    when the last viewer has left. `on_present` is called with the playback when it has reached the present.
    """

    def __init__(
        self,
        present: Channel,
        pace: Pace,
        players: Players,
        address: str,
        size: int,
        on_present: Callable[["Playback"], None] | None,
    ) -> None:
        """Play the top `size`, from the time `pace.origin` on.

        `address` asked for the replay, and takes turns with other addresses (see `Players.begin`). Without
        `on_present`, the replay stays behind the present.
        """
        self.present = present
        self.ended: int | None = None
        self.on_empty: Callable[[], None] = lambda: None
        self._pace = pace
        self._players = players
        self._open = partial(players.begin, address, size=size)
        self._on_present = on_present
        self._buffer = PlaybackBuffer()
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._away: str | None = None  # the reason that viewers were given for a stopped replay
        # The messages that tell viewers of a stopped replay that it continues.
        self._back: list[Frame] = []
        self._number: int | None = None  # the number of the replay in the other process, which makes the messages
        self._now = pace.origin  # the time in the past that the other process has reached
        self._whole_at = 0.0  # when the buffer began with the whole top

    # The methods of a `Source`

    def place_of(self, _subscription: Subscription) -> tuple[Subscribers, ViewerPosition]:
        """Return a position before the first frame."""
        return self._buffer, ViewerPosition()

    def due_frame(self, group: Subscribers, position: ViewerPosition) -> Frame | None:
        """Return the frame that a viewer at a position needs next, or None. The position moves past the frame."""
        return frame_or_alive(cast("PlaybackBuffer", group).next_frame(position), position)

    def enter(self, viewer: Viewer) -> None:
        """Add a viewer. The first viewer starts the playback."""
        self._viewers.add(viewer)
        self.present.replay_viewers += 1
        self._buffer.loose.add(viewer)
        viewer.wake()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer. When the last viewer leaves, the playback ends."""
        self._viewers.remove(viewer)
        self.present.replay_viewers -= 1
        viewer.leave_cohort()
        self._buffer.loose.discard(viewer)
        if not self._viewers:
            if self._task is not None:
                self._task.cancel()
            self.on_empty()

    @property
    def viewers(self) -> list[Viewer]:
        """The viewers of the playback."""
        return list(self._viewers)

    def end(self, code: int) -> None:
        """Disconnect all viewers with one of `CLOSE_CODES`."""
        self.ended = code
        for viewer in self.viewers:
            viewer.end(code)

    # Playing

    async def _run(self) -> None:
        try:
            await self._begin()
            while self._on_present is None or self._now < wall_clock() - _PRESENT:
                until = self._pace.now() + round(_AHEAD * self._pace.speed)
                if self._on_present is not None:
                    until = min(until, round(wall_clock()))
                played = await self._ask(self._next_messages(until))
                if played is not None:
                    await self._send(played)
                elif self._away is None:  # the other process was replaced, and does not know this replay
                    await self._begin()
            # The replay has reached the present. It becomes live once every viewer has received everything.
            self._buffer.add(replay_frame(None, 1.0))
            await deliver(self.due_frame, [self._buffer])
            while not self._buffer.is_played:
                await self._pause(_POLL)
            self._on_present(self)
        except Exception:
            log.exception("a replay failed", board=self.present.reader.state.board.id)
            self.end(FAILED)  # the viewers may try again
        finally:
            if self._number is not None:
                self._players.end(self._number)

    async def _begin(self) -> None:
        """Begin the replay in the other process, as soon as the journal has entries of the board."""

        async def begin() -> tuple[int, int] | None:
            board, hidden = self.present.reader.state.board, await self._hidden()
            return await self._open(board, hidden, at=self._now)

        while (found := await self._ask(begin())) is None:
            await self._pause(_POLL)
        is_first = self._number is None
        if self._number is not None:  # the process that had this replay has ended
            self._players.end(self._number)
        self._number, self._now = found
        if is_first and self._on_present is not None:
            self._pace = self._pace._replace(origin=self._now)
            self._buffer.begin([*self._back, replay_frame(self._now, self._pace.speed)], is_cut=True)
        else:
            self._buffer.begin(self._back, is_cut=True)
        self._whole_at = time.monotonic()

    async def _next_messages(self, until: int) -> Played | None:
        """Get the messages up to a time. Every few seconds, or if the buffer is full, they begin with the whole top."""
        assert self._number is not None, "it has begun"  # noqa: S101
        is_long = time.monotonic() >= self._whole_at + _WHOLE or self._buffer.size >= _MOST_BYTES
        hidden = await self._hidden() if is_long else None
        return await self._players.play(self._number, until, self._pace.speed, self.present.interval, hidden)

    async def _hidden(self) -> list[str]:
        """Read which members are hidden now. They are hidden in the past too."""
        state = self.present.reader.state
        return [name.decode() for name in await state.call("HKEYS", state.keys.hidden)]

    async def _ask(self, answer: Awaitable[_T]) -> _T | None:
        """Wait for an answer of the other process. If the call fails, tell the viewers, pause, and return None."""
        try:
            found = await answer
        except StoreUnavailableError as error:
            reason = _NO_MEMORY if isinstance(error, TooLittleMemoryError) else _NO_JOURNAL
            if reason != self._away:
                log.warning("a replay has to wait", board=self.present.reader.state.board.id, reason=str(error))
                self._away = reason
                self._buffer.add(status_frame(reason))
            await self._pause(_BEAT)
            return None
        if self._away is not None:
            self._away, self._back = None, [status_frame(None)]
            self._buffer.add(self._back[0])
        return found

    async def _send(self, played: Played) -> None:
        """Send messages, each when it is due."""
        self._now = played.now
        if played.whole is not None:
            self._buffer.begin([*self._back, played.whole.frame], is_cut=False)
            self._whole_at = time.monotonic()
        for made in played.frames:
            await self._wait_until(self._pace.due(made.at))
            self._buffer.add(made.frame)
        await deliver(self.due_frame, [self._buffer])
        await self._wait_until(min(self._pace.due(self._now), wall_clock() + _POLL))

    async def _wait_until(self, due: float) -> None:
        while wall_clock() < due:
            await self._pause(min(due - wall_clock(), _BEAT))

    async def _pause(self, milliseconds: float) -> None:
        """Send what is due, and then wait."""
        await deliver(self.due_frame, [self._buffer])
        await asyncio.sleep(milliseconds / 1000)


def wall_clock() -> float:
    """Return the time in milliseconds since 1970."""
    return time.time() * 1000


class Replays:
    """Finds the replay that a viewer asks for. Viewers of one board with the same delay share a replay."""

    def __init__(self, players: Players | None, settings: Settings, go_live: Callable[[Playback], None]) -> None:
        """Play with `players` (None without a journal). `go_live` moves the viewers of a replay to the present."""
        self._players = players
        self._settings = settings
        self._go_live = go_live
        self._delayed: dict[tuple[str, int], Playback] = {}
        self._all: set[Playback] = set()
        self._addresses: Counter[str] = Counter()

    def end(self, code: int, board: str | None = None) -> None:
        """End the replays of a board, or all of them."""
        for playback in list(self._all):
            if board in (None, playback.present.reader.state.board.id):
                playback.end(code)

    def viewers_of(self, board: str) -> list[Viewer]:
        """List the viewers of the replays of a board."""
        every = (playback for playback in self._all if playback.present.reader.state.board.id == board)
        return [viewer for playback in every for viewer in playback.viewers]

    def require_room(self, channel: Channel, subscription: Subscription, address: str) -> None:
        """Check that the limits allow the replay that a viewer asks for.

        Raises:
            ProblemError: `past_unavailable`, `parameter_invalid` or `too_many_viewers`.
        """
        board, replay = channel.reader.state.board, subscription.replay
        if replay is None:
            return
        if board.journal.level == "off" or self._players is None:
            raise ProblemError("past_unavailable", f"board {board.id} has no journal")
        age = replay.delay if replay.at is None else time.time() - replay.at / 1000
        if age < 0:
            raise ProblemError("parameter_invalid", "`at` is in the future")
        kept = board.journal.events or self._settings.journal_events
        if age > kept:
            raise ProblemError("past_unavailable", f"the journal has the events of board {board.id} for {kept} seconds")
        if (board.id, replay.delay) in self._delayed:
            return
        for replays, setting, what in (
            (len(self._all), "max_replays", "run"),
            (self._addresses[address] if address else 0, "max_address_replays", "run for your address"),
        ):
            most = getattr(self._settings, setting)
            if replays >= most:
                detail = f"{replays} replays {what}; the setting {setting} allows {most}"
                raise ProblemError("too_many_viewers", detail, retry_after=_RETRY)

    def find(self, channel: Channel, replay: ReplayRequest, address: str) -> Playback:
        """Find or start the replay that a viewer asks for. `require_room` must have found room."""
        now = round(wall_clock())
        if replay.at is not None:
            return self._add(channel, Pace(replay.at, now, replay.speed), address)
        name = channel.reader.state.board.id, replay.delay
        if name not in self._delayed:
            self._delayed[name] = self._add(channel, Pace(now - replay.delay * 1000, now), address, replay.delay)
        return self._delayed[name]

    def _add(self, channel: Channel, pace: Pace, address: str, delay: int = 0) -> Playback:
        assert self._players is not None, "there is no room without"  # noqa: S101
        go_live = None if delay else self._go_live
        playback = Playback(channel, pace, self._players, address, default_size(self._settings), go_live)

        def forget() -> None:
            self._all.discard(playback)
            self._delayed.pop((channel.reader.state.board.id, delay), None)
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

        playback.on_empty = forget
        self._all.add(playback)
        self._addresses[address] += 1
        return playback
