"""Answered requests in the metrics."""

from types import SimpleNamespace

import pytest

from live.metrics import REGISTRY
from live.protocols import exchange
from live.protocols.exchange import VIEWERS, RequestTally


def test_requests_are_counted_by_route_status_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket includes its limit.

    Requests that wait for changes are not counted: their times say nothing about the server.
    """
    clock = SimpleNamespace(now=8.0)
    monkeypatch.setattr(exchange, "perf_counter", lambda: clock.now)

    def figure(name: str, status: str = "200", **labels: str) -> float | None:
        return REGISTRY.get_sample_value(
            f"live_request_seconds_{name}", {"route": "GET /counted", "status": status, **labels}
        )

    tally = RequestTally()
    for arrived, status in ((7.5, 200), (7.25, 200), (-8.0, 200), (4.0, 404), (VIEWERS, 200)):
        tally.count("GET /counted", status, arrived)
    assert figure("count") is None, "requests are in the metrics before `fold`"
    for _ in range(2):
        tally.fold()
        assert [figure("bucket", le=limit) for limit in ("0.25", "0.5", "1.0", "8.0", "+Inf")] == [0, 1, 2, 2, 3]
        assert (figure("count"), figure("sum"), figure("sum", "404")) == (3, 17.25, 4)
    tally.count("GET /counted", 200, 7.0)
    tally.fold()
    assert (figure("count"), figure("sum")) == (4, 18.25)
