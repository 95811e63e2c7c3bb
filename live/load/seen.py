"""When viewers saw the acknowledged likes. No I/O."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

_MOST_SAMPLES: Final = 200_000


class Acknowledged(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request whose likes were counted.

    Attributes:
        offset: the offset of the board at which all its likes are counted.
        due: when the request was due, in seconds of the clock of `time.perf_counter`.
        sent: when it was sent.
        at: when the response came.
        likes: how many of its likes were counted.
    """

    offset: int
    due: float
    sent: float
    at: float
    likes: int = 1


class Seen(msgspec.Struct, gc=False, array_like=True):
    """The messages of one viewer: their ascending offsets, and when each arrived (seconds)."""

    offsets: list[int] = []
    times: list[float] = []

    def add(self, offset: int, at: float) -> None:
        """Add a message."""
        self.offsets.append(offset)
        self.times.append(at)

    def reached(self, offset: int) -> bool:
        """Whether the viewer has seen an offset."""
        return bool(self.offsets) and self.offsets[-1] >= offset


def times_to_seen(
    acknowledged: Sequence[Acknowledged], viewers: Sequence[Seen], *, since_due: bool = True
) -> list[float]:
    """The seconds from when each request was due until each viewer saw its likes.

    With `since_due=False`, the time is counted from the acknowledgement instead; it is 0 if the message came first. A
    viewer sees a like with its first message at the offset of the like or later. If there are very many pairs, the
    result is an even sample. Likes that a viewer never saw are omitted; the report counts viewers that did not
    converge.
    """
    stride = max(1, -(-len(acknowledged) * len(viewers) // _MOST_SAMPLES))
    times: list[float] = []
    for number, seen in enumerate(viewers):
        for ack in acknowledged[number % stride :: stride]:
            frame = bisect_left(seen.offsets, ack.offset)
            if frame < len(seen.offsets):
                times.append(max(0.0, seen.times[frame] - (ack.due if since_due else ack.at)))
    return times
