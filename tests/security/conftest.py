"""What the attacks share."""

import pytest


@pytest.fixture
def effort(pytestconfig: pytest.Config) -> int:
    """How many times as long as in `make test` an attack runs; `make attack` sets it with `--effort`."""
    effort: int = pytestconfig.getoption("effort")
    return effort
