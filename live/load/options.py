"""The flags of a load test."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from live.client.target import parse_api_key, parse_url
from live.domain.window import parse_duration
from live.errors import SetupError
from live.load.latencies import Objective, parse_objective, require_histograms
from live.load.schedule import Schedule

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:\.\.(\d+(?:\.\d+)?))?")
_LOWEST: Final = 0.1
_HIGHEST: Final = 10_000_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The load to generate, and the objectives that it has to meet."""

    url: str
    board: str
    producers: int
    viewers: int
    sse_viewers: int
    schedule: Schedule
    members: int
    processes: int
    objectives: tuple[Objective, ...]
    key: str | None = None


def make_options(  # noqa: PLR0913 - one for each flag
    *,
    url: str,
    board: str,
    producers: int,
    viewers: int,
    rate: str,
    duration: str,
    members: int,
    sse_viewers: int = 0,
    batch: int = 1,
    processes: int = 1,
    slo: Sequence[str] = (),
    key: str | None = None,
) -> Options:
    """Build the options from flags.

    Raises:
        SetupError: a flag is malformed, or the extra `load` is not installed.
    """
    require_histograms()
    try:
        first, last = parse_rate(rate)
        return Options(
            url=parse_url(url), key=parse_api_key(key), board=board, producers=max(producers, processes),
            viewers=viewers, sse_viewers=sse_viewers, members=members, processes=processes,
            schedule=Schedule(first_rate=first, last_rate=last, seconds=_seconds(duration), batch=batch),
            objectives=tuple(parse_objective(text) for text in slo),
        )  # fmt: skip
    except ValueError as error:
        raise SetupError(str(error)) from None


def parse_rate(text: str) -> tuple[float, float]:
    """Parse a rate such as `500`, or a ramp such as `100..2000`, in likes per second.

    Raises:
        ValueError: the text has another form, or the rate is out of range.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"--rate {text!r}: expected likes per second, like 500, or a ramp, like 100..2000")
    first = float(match[1])
    last = first if match[2] is None else float(match[2])
    if not (0 <= first <= _HIGHEST and _LOWEST <= last <= _HIGHEST):
        raise ValueError(f"--rate {text!r}: expected {_LOWEST} to {_HIGHEST:,} likes per second")
    return first, last


def _seconds(text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise ValueError(f"--duration {text!r}: expected more than zero, like 30s")
    return seconds
