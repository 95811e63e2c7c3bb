"""Calculations of the load test: quantiles, objectives, and when each like was seen. No I/O."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

from live.domain.window import parse_duration

_PROMISE: Final = re.compile(r"(p50|p90|p99|max)=(\S+)")
_MOST_SAMPLES: Final = 500_000


class Quantiles(msgspec.Struct, frozen=True):
    """Quantiles of a set of times, in milliseconds."""

    p50: float
    p90: float
    p99: float
    max: float


class Promise(msgspec.Struct, frozen=True):
    """A quantile that must not exceed a number of milliseconds."""

    text: str
    quantile: str
    milliseconds: float


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """A like that was counted: its offset on the board, when it was sent, and when the response came (seconds)."""

    offset: int
    sent: float
    at: float


class Seen(msgspec.Struct, gc=False):
    """The messages of one viewer: their ascending offsets, and when each arrived (seconds)."""

    offsets: list[int] = []
    times: list[float] = []


def parse_promise(text: str) -> Promise:
    """Parse an objective such as `p99=250ms`.

    Raises:
        ValueError: the text has another form.
    """
    match = _PROMISE.fullmatch(text)
    if match is None:
        raise ValueError(f"--slo {text!r}: expected p50, p90, p99 or max and a duration, like p99=250ms")
    return Promise(text, match[1], parse_duration(match[2]) * 1000)


def quantiles(seconds: Sequence[float]) -> Quantiles | None:
    """Nearest-rank quantiles; None if there are no times."""
    if not seconds:
        return None
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 3)

    return Quantiles(at(0.5), at(0.9), at(0.99), at(1.0))


def seen_after(acknowledged: Sequence[Acknowledged], viewers: Sequence[Seen]) -> list[float]:
    """The seconds from the acknowledgement of each like until each viewer saw it.

    A viewer sees a like with its first message at the offset of the like or later. If there are very many pairs, the
    result is an even sample. Likes that a viewer never saw are omitted; the report counts viewers that did not
    converge.
    """
    pairs = len(acknowledged) * len(viewers)
    stride = max(1, pairs // _MOST_SAMPLES)
    waits: list[float] = []
    for number, seen in enumerate(viewers):
        for ack in acknowledged[number % stride :: stride]:
            frame = bisect_left(seen.offsets, ack.offset)
            if frame < len(seen.offsets):
                waits.append(max(0.0, seen.times[frame] - ack.at))
    return waits
