"""Comparing the store's clock with the clock of this machine."""

import pytest
from redis.exceptions import ResponseError

from live.store.connection.clocks import clock_fault

BEFORE, AFTER = 1_000_000.0, 1_000_005.0


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        (999_999.5, ""), (1_000_003.0, ""), (1_000_005.5, ""), (999_970.0, "30 s behind"),
        (1_007_205.0, "7,200 s ahead of"),
    ],
)  # fmt: skip
def test_the_time_until_the_reply_does_not_count(told: float, wrong: str) -> None:
    """The clocks may differ by a second in either direction."""
    reply = [str(int(told)).encode(), str(round(told % 1 * 1e6)).encode()]
    fault = clock_fault(reply, BEFORE, AFTER)
    assert fault.startswith(f"the clock of the store is {wrong}") if wrong else not fault


def test_a_server_that_does_not_tell_its_time_has_no_fault() -> None:
    """Managed services forbid some commands."""
    assert clock_fault(ResponseError("NOPERM"), BEFORE, AFTER) == ""
