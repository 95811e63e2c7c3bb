"""Counts answered requests in plain numbers, which become metrics once a second.

A metric takes a lock, and with several workers it writes to two places of a file. To update the metric for each request
would take a tenth of the time of the request.
"""

from bisect import bisect_left
from time import perf_counter
from typing import Final

from live.metrics import REQUEST_SECONDS, SECONDS

OTHER: Final = "other"  # stands for the route if no route matches, or if a request is refused before its route is known
VIEWERS: Final = 0.0  # the time of arrival of the request of a viewer; it is not counted


class RequestTally:
    """The answered requests of a process, by route and status."""

    def __init__(self) -> None:
        # For each route and status: the requests in each bucket, and the sum of their seconds, since the last `fold`.
        self._counts: dict[tuple[str, int], list[float]] = {}

    def count(self, route: str, status: int, arrived: float) -> None:
        """Count a request whose head arrived at `arrived`, a time of `time.perf_counter()`.

        Routes must be few: never take the path that a client has sent.
        """
        if arrived == VIEWERS:
            return
        seconds = perf_counter() - arrived
        try:
            counts = self._counts[route, status]
        except KeyError:
            counts = self._counts[route, status] = [0.0] * (len(SECONDS) + 2)
        counts[bisect_left(SECONDS, seconds)] += 1
        counts[-1] += seconds

    def fold(self) -> None:
        """Add what was counted to the metric."""
        counted, self._counts = self._counts, {}
        for (route, status), (*buckets, seconds) in counted.items():
            histogram = REQUEST_SECONDS.labels(route, str(status))
            histogram._sum.inc(seconds)  # noqa: SLF001 - `observe` takes one request at a time
            for bucket, count in zip(histogram._buckets, buckets, strict=True):  # noqa: SLF001
                if count:
                    bucket.inc(count)
