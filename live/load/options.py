"""The options of a load test, and the times at which its requests are due. No I/O."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from live.client.target import parse_api_key, parse_url
from live.domain.window import parse_duration
from live.errors import SetupError
from live.load.latencies import Objective, parse_objective, require_histograms

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:\.\.(\d+(?:\.\d+)?))?")
_LOWEST: Final = 0.1
_HIGHEST: Final = 10_000_000


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Requests at a rate that is constant or changes linearly."""

    first_rate: float  # likes per second at the start
    last_rate: float  # likes per second at the end
    seconds: float  # how long the test sends
    batch: int = 1  # likes per request

    @property
    def requests(self) -> int:
        """The number of requests that are due during the test."""
        return max(1, math.floor((self.first_rate + self.last_rate) / 2 * self.seconds / self.batch + 1e-6))

    @property
    def likes(self) -> int:
        """The number of likes that are due during the test."""
        return self.requests * self.batch

    def due(self, number: int) -> float:
        """Return how many seconds after the start a request is due. `number` counts requests from 0.

        With the rate a + s·t, the number of requests until t is a·t + s·t²/2. The result is the inverse of this
        function, in a form that also holds for s = 0.
        """
        if number == 0:
            return 0.0
        start = self.first_rate / self.batch
        slope = (self.last_rate - self.first_rate) / self.batch / self.seconds
        return 2 * number / (start + math.sqrt(max(0.0, start * start + 2 * slope * number)))

    def share(self, process: int, processes: int) -> Iterator[float]:
        """Yield the due times of the requests of one process. The processes take the requests in turn."""
        return (self.due(number) for number in range(process, self.requests, processes))

    def likes_between(self, first: float, last: float) -> float:
        """Return the number of likes that are due from `first` to `last`, in seconds after the start."""

        def until(at: float) -> float:
            return self.first_rate * at + (self.last_rate - self.first_rate) * at * at / 2 / self.seconds

        return until(min(last, self.seconds)) - until(first)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The load to generate, and the objectives that it has to meet."""

    url: str
    board: str
    producers: int
    viewers: int
    sse_viewers: int = 0
    schedule: Schedule
    members: int
    processes: int = 1
    objectives: tuple[Objective, ...]
    key: str | None


def load_options(
    *,
    url: str,
    rate: str,
    duration: str,
    batch: int = 1,
    slo: Sequence[str] = (),
    key: str | None = None,
    **given: Any,  # noqa: ANN401 - other fields of `Options`
) -> Options:
    """Build the options from flags."""
    require_histograms()
    try:
        first, last = parse_rate(rate)
        schedule = Schedule(first_rate=first, last_rate=last, seconds=parse_duration(duration), batch=batch)
        objectives = tuple(map(parse_objective, slo))
        options = Options(url=parse_url(url), key=parse_api_key(key), schedule=schedule, objectives=objectives, **given)
    except ValueError as error:
        raise SetupError(str(error)) from None
    if not schedule.seconds:
        raise SetupError(f"--duration {duration!r}: expected more than zero, like 30s")
    return options


def parse_rate(text: str) -> tuple[float, float]:
    """Parse a rate such as `500`, or a ramp such as `100..2000`, in likes per second."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"--rate {text!r}: expected likes per second, like 500, or a ramp, like 100..2000")
    first = float(match[1])
    last = first if match[2] is None else float(match[2])
    if not (0 <= first <= _HIGHEST and _LOWEST <= last <= _HIGHEST):
        raise ValueError(f"--rate {text!r}: expected {_LOWEST} to {_HIGHEST:,} likes per second")
    return first, last
