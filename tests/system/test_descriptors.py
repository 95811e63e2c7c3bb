"""How limits on connections are adapted to the available file descriptors."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.errors import SetupError
from live.settings import Settings
from live.system.descriptors import RESERVED, fit

COUNTS = st.integers(1, 100_000)


@given(connections=COUNTS, viewers=st.integers(0, 100_000), available=st.integers(300, 200_000))
def test_connections_and_viewers_leave_what_is_reserved(connections: int, viewers: int, available: int) -> None:
    """Any limits are possible. Limits that fit stay unchanged, and neither becomes zero."""
    asked = Settings(max_connections=connections, max_viewers=viewers)
    fitted = fit(asked, available)
    budget = available - RESERVED - asked.store_connections
    assert fitted.max_connections + fitted.max_viewers <= budget
    assert fitted.max_connections >= min(connections, budget // 2)
    assert fitted.max_viewers >= min(viewers, budget // 2)
    if connections + viewers <= budget:
        assert fitted == asked


def test_too_few_descriptors_are_a_mistake_of_the_setup() -> None:
    """The message says how many are needed, and how to get them."""
    with pytest.raises(SetupError, match=r"may open 100 files, and needs \d+: raise the limit"):
        fit(Settings(), 100)


def test_a_fitted_setting_changes_nothing_else() -> None:
    """Only the two limits are lowered."""
    asked = Settings(port=1234)
    fitted = fit(asked, 1024)
    assert msgspec.structs.replace(fitted, max_connections=4096, max_viewers=20_000) == asked
