"""Quantiles of measured times, and the objectives that they have to meet. No I/O."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from live.domain.window import parse_duration
from live.errors import SetupError

try:
    from hdrh.histogram import HdrHistogram
except ModuleNotFoundError:  # it has no wheels for every platform, so it comes with an extra
    HdrHistogram = None

_LONGEST: Final = 3_600_000_000  # microseconds
_DIGITS: Final = 3
_OBJECTIVE: Final = re.compile(r"(?:(acknowledged|seen):)?(p50|p90|p99|p99\.9|max)=(\S+)")


class Quantiles(msgspec.Struct, frozen=True, rename={"p999": "p99.9"}):
    """Quantiles of a set of times, in milliseconds, exact to three digits.

    `histogram` is the whole set as a compressed HdrHistogram of microseconds, which the tools of
    https://hdrhistogram.org read.
    """

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    histogram: str

    def at(self, name: str) -> float:
        """A quantile by the name that it has in a report, such as `p99.9`."""
        value: float = getattr(self, name.replace(".", ""))
        return value


class Objective(msgspec.Struct, frozen=True):
    """A quantile of the times until likes are acknowledged or seen that must not exceed a number of milliseconds."""

    text: str
    what: str
    quantile: str
    milliseconds: float


def require_histograms() -> None:
    """Check that the package of the histograms is installed.

    Raises:
        SetupError: it is not.
    """
    if HdrHistogram is None:
        raise SetupError("`live load` needs the package hdrhistogram: install it with `pip install 'live-board[load]'`")


def parse_objective(text: str) -> Objective:
    """Parse an objective such as `acknowledged:p99=50ms`. Without a prefix, it is about `seen`.

    Raises:
        ValueError: the text has another form.
    """
    match = _OBJECTIVE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"--slo {text!r}: expected acknowledged or seen, one of p50, p90, p99, p99.9 and max, and a duration, like "
            "acknowledged:p99=50ms or seen:p99=250ms"
        )
    return Objective(text, match[1] or "seen", match[2], parse_duration(match[3]) * 1000)


def quantiles(seconds: Iterable[float]) -> Quantiles | None:
    """Quantiles of times from an HdrHistogram (http://hdrhistogram.org); None if there are no times."""
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


def is_met(objective: Objective, measured: Sequence[Quantiles]) -> bool:
    """Whether every set of times meets an objective. An objective about something that never happened is missed."""
    return bool(measured) and all(times.at(objective.quantile) <= objective.milliseconds for times in measured)
