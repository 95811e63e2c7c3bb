"""Compute quantiles of the times until likes are acknowledged and seen, and check objectives for them. No I/O."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from live.domain.window import parse_duration
from live.errors import SetupError

try:
    from hdrh.histogram import HdrHistogram
except ModuleNotFoundError:  # the package has no wheels for some platforms, so it is an optional extra
    HdrHistogram = None

_LONGEST: Final = 3_600_000_000  # microseconds
_DIGITS: Final = 3
_MOST_SAMPLES: Final = 200_000
_OBJECTIVE: Final = re.compile(r"(?:(acknowledged|seen):)?(p50|p90|p99|p99\.9|max)=(\S+)")


class Quantiles(msgspec.Struct, frozen=True, rename={"p999": "p99.9"}):
    """Quantiles of a set of times, in milliseconds, exact to three digits.

    `histogram` is the whole set as a compressed HdrHistogram of microseconds. The tools of https://hdrhistogram.org
    read it.
    """

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    histogram: str


class Objective(msgspec.Struct, frozen=True):
    """A limit in milliseconds for a quantile of the times until likes are acknowledged or seen."""

    text: str
    what: str
    quantile: str
    milliseconds: float

    def is_met(self, measured: Sequence[Quantiles]) -> bool:
        """Return whether every set of times meets the objective. If there is no set of times, it is missed."""
        return bool(measured) and all(getattr(times, self.quantile) <= self.milliseconds for times in measured)


def require_histograms() -> None:
    """Check that the package of the histograms is installed."""
    if HdrHistogram is None:
        raise SetupError("`live load` needs the package hdrhistogram: install it with `pip install 'live-board[load]'`")


def parse_objective(text: str) -> Objective:
    """Parse an objective such as `acknowledged:p99=50ms`. Without a prefix, the objective is about `seen`."""
    match = _OBJECTIVE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"--slo {text!r}: expected acknowledged or seen, one of p50, p90, p99, p99.9 and max, and a duration, like "
            "acknowledged:p99=50ms or seen:p99=250ms"
        )
    return Objective(text, match[1] or "seen", match[2].replace(".", ""), parse_duration(match[3]) * 1000)


def quantiles(seconds: Iterable[float]) -> Quantiles | None:
    """Compute the quantiles of times with an HdrHistogram (http://hdrhistogram.org), if there are any times."""
    histogram = HdrHistogram(1, _LONGEST, _DIGITS)
    longest = 0.0
    for value in seconds:
        longest = max(longest, value)
        histogram.record_value(min(_LONGEST, max(1, round(value * 1_000_000))))
    if not histogram.get_total_count():
        return None

    def at(percentile: float) -> float:
        found: float = histogram.get_value_at_percentile(percentile) / 1000
        return min(found, round(longest * 1000, 3))

    return Quantiles(
        count=histogram.get_total_count(), p50=at(50), p90=at(90), p99=at(99), p999=at(99.9),
        max=round(longest * 1000, 3), histogram=histogram.encode().decode(),
    )  # fmt: skip


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """A request whose likes were counted."""

    offset: int  # the offset of the board at which all its likes are counted
    due: float  # when the request was due, in seconds of the clock of `time.perf_counter`
    sent: float  # when the request was sent
    at: float  # when the response came
    likes: int = 1  # how many of its likes were counted


class Seen(msgspec.Struct, gc=False):
    """The messages of one viewer: their ascending offsets, and when each arrived (seconds)."""

    offsets: list[int] = []
    times: list[float] = []

    def add(self, offset: int, at: float) -> None:
        """Add a message."""
        self.offsets.append(offset)
        self.times.append(at)

    def reached(self, offset: int) -> bool:
        """Return whether the viewer has seen an offset."""
        return bool(self.offsets) and self.offsets[-1] >= offset


def times_to_seen(
    acknowledged: Sequence[Acknowledged], viewers: Sequence[Seen], *, since_due: bool = True
) -> list[float]:
    """Return the seconds from the time when each request was due until each viewer saw the likes of the request.

    A viewer sees a like with its first message at the offset of the like or later. With `since_due=False`, the time
    counts from the acknowledgement instead, and is 0 if the message came before the acknowledgement. If there are very
    many pairs, the result is an even sample. Likes that a viewer never saw are omitted. The report counts the viewers
    that saw the last like.
    """
    stride = max(1, -(-len(acknowledged) * len(viewers) // _MOST_SAMPLES))
    times: list[float] = []
    for number, seen in enumerate(viewers):
        for ack in acknowledged[number % stride :: stride]:
            frame = bisect_left(seen.offsets, ack.offset)
            if frame < len(seen.offsets):
                times.append(max(0.0, seen.times[frame] - (ack.due if since_due else ack.at)))
    return times
