"""Shared fixtures of the attacks."""

import pytest


@pytest.fixture
def effort(pytestconfig: pytest.Config) -> int:
    """How many times longer than in `make test` an attack runs; `make attack` sets it with `--effort`."""
    effort: int = pytestconfig.getoption("effort")
    return effort
