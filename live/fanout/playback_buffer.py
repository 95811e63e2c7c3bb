"""The buffer of a playback: the messages since the last whole top, and the viewers that receive them."""

from collections.abc import Iterable

from live.fanout.audience import Audience
from live.fanout.frames import Frame
from live.fanout.position import Position

_STARTED = ""  # the epoch of a position in a buffer; None before the first frame


class PlaybackBuffer(Audience):
    """Frames by number, and where each viewer is. The offset of a position is the number of its next frame.

    The first frames are a snapshot. Viewers that are new, or so slow that their next frame is not here any more, begin
    with it; viewers that have received everything before it leave it out. `size` is how many bytes the frames have.
    """

    __slots__ = ("_first", "_frames", "_keys", "size")

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._first = 0
        self._keys = 0  # how many frames viewers leave out that have everything before
        self._frames: list[Frame] = []

    @property
    def is_played(self) -> bool:
        """Whether every viewer has received every frame."""
        end = self._first + len(self._frames)
        return all(position.epoch is not None and position.offset >= end for position in self.positions)

    def begin(self, snapshot: Iterable[Frame], *, is_cut: bool) -> None:
        """Go on with a snapshot. After a cut, everybody receives it."""
        self._first += len(self._frames)
        self._frames = list(snapshot)
        self.size = sum(len(frame.payload) for frame in self._frames)
        self._keys = 0 if is_cut else len(self._frames)

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        self._frames.append(frame)
        self.size += len(frame.payload)

    def next_frame(self, position: Position) -> Frame | None:
        """The frame that a viewer at a position needs next, or None. The position moves with it."""
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
