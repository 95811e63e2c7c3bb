"""A recording: what a viewer of a board received, kept so that others can watch it later. Pure: no I/O."""

from collections.abc import Sequence

import msgspec


class RecordedFrame(msgspec.Struct, frozen=True, array_like=True):
    """A message to viewers: when it was sent (milliseconds since 1970), its type, its JSON, and the position after it.

    `position` is `epoch:offset`, or empty for a message without records.
    """

    at: int
    type: str
    payload: bytes
    position: str


class RecordingPiece(msgspec.Struct, frozen=True):
    """A piece of a recording: what a viewer received, in order.

    Attributes:
        board: the id of the board.
        epoch: the epoch of its records.
        first: the lowest offset after one of its frames.
        last: the highest.
        snapshot: how many of the frames, the first ones, are what a viewer received who connected at `began`. Those who
            watched before have seen it.
        is_cut: whether frames are missing before it. Then everybody needs the first frames.
        began: when it begins, in milliseconds since 1970.
        ended: the time of its last frame.
        frames: the frames.
        id: its number, once it is kept. Later pieces have higher ones.
    """

    board: str
    epoch: str
    first: int
    last: int
    snapshot: int
    is_cut: bool
    began: int
    ended: int
    frames: Sequence[RecordedFrame]
    id: int = 0
