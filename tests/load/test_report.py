"""What a load test has to reach to pass."""

from typing import Any

import msgspec
import pytest

from live.load.latencies import Acknowledged, Seen
from live.load.options import load_options
from live.load.run import LoadReport, make_report
from live.load.worker import Counts, Result

STARTED = 1000.0


def likes(count: int, *, wait: float = 0.01) -> list[Acknowledged]:
    """Ten likes a second, each acknowledged `wait` seconds after it was due."""
    return [
        Acknowledged(number + 1, STARTED + number / 10, STARTED + number / 10, STARTED + number / 10 + wait)
        for number in range(count)
    ]


def report(*, slo: tuple[str, ...] = (), **changes: Any) -> LoadReport:
    """The report of ten seconds with ten likes a second, which one viewer saw."""
    options = load_options(
        url="http://h", board="posts", producers=1, viewers=1, rate="10", duration="10s", members=1, slo=slo
    )
    result = Result(
        counts=Counts(sent=100, accepted=100), acknowledged=likes(100), waited=[],
        websocket=[Seen([100], [STARTED + 10])], sse=[], frames=2, bytes=1000,
    )  # fmt: skip
    return make_report(options, [msgspec.structs.replace(result, **changes)], STARTED, 100)


def test_a_test_that_reaches_its_rate_passes() -> None:
    """Every like was counted, and the viewer saw the last like."""
    found = report()
    assert found.passed
    assert (found.rate, found.reached, found.converged) == (10, 1, 1)
    assert found.bytes_per_viewer_second == 100


@pytest.mark.parametrize(
    "changes",
    [
        {"acknowledged": likes(94)},
        {"acknowledged": likes(100, wait=1)},
        {"counts": Counts(sent=100, accepted=99, failed=1)},
        {"websocket": [Seen([99], [STARTED + 10])]},
        {"slo": ("seen:p50=1s",)},
    ],
    ids=["too few", "too late", "a failure", "a viewer that fell behind", "a missed objective"],
)
def test_a_test_fails_for_each_reason(changes: dict[str, Any]) -> None:
    """The load has too few likes, late answers, a failed request, a viewer that fell behind, or a missed objective."""
    assert not report(**changes).passed


def test_likes_that_were_never_sent_count_with_the_time_they_waited() -> None:
    """If only sent likes counted, a server that stalls would look fast."""
    found = report(acknowledged=likes(50), waited=[2.0] * 50)
    assert found.acknowledged is not None
    assert found.acknowledged.count == 100
    assert found.acknowledged.p90 == pytest.approx(2000, rel=0.001)
