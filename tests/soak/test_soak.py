"""A short soak."""

import random

import pytest

from tests.soak.__main__ import run

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(900)]


def test_acknowledged_is_store_is_journal(chance: random.Random) -> None:
    """Acknowledged events, store and journal agree after faults of all kinds under load, on every kind of board."""
    assert run(15, chance.randrange(10**6), postgres=False) == []
