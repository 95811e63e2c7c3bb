"""When the requests of a load test are due. No I/O."""

import math
from collections.abc import Iterator

import msgspec


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Requests at a rate that is constant or changes linearly.

    Attributes:
        first_rate: likes per second at the start.
        last_rate: likes per second at the end.
        seconds: how long the test sends.
        batch: likes per request.
    """

    first_rate: float
    last_rate: float
    seconds: float
    batch: int = 1

    @property
    def requests(self) -> int:
        """The number of requests that are due within the time."""
        return max(1, math.floor((self.first_rate + self.last_rate) / 2 * self.seconds / self.batch + 1e-6))

    @property
    def likes(self) -> int:
        """The number of likes that are due within the time."""
        return self.requests * self.batch

    def due(self, number: int) -> float:
        """Seconds after the start at which a request is due, counted from 0.

        With the rate a + s·t, the number of requests until t is a·t + s·t²/2. This is its inverse, in a form that also
        holds for s = 0.
        """
        if number == 0:
            return 0.0
        start = self.first_rate / self.batch
        slope = (self.last_rate - self.first_rate) / self.batch / self.seconds
        return 2 * number / (start + math.sqrt(max(0.0, start * start + 2 * slope * number)))

    def share(self, process: int, processes: int) -> Iterator[float]:
        """The due times of one of several processes, which take turns."""
        return (self.due(number) for number in range(process, self.requests, processes))

    def likes_between(self, first: float, last: float) -> float:
        """The number of likes that are due between two times after the start."""

        def until(at: float) -> float:
            return self.first_rate * at + (self.last_rate - self.first_rate) * at * at / 2 / self.seconds

        return until(min(last, self.seconds)) - until(first)
