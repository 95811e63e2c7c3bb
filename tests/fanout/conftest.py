"""Fixtures of the tests of replays."""

import pytest

from live.fanout import subscription
from live.fanout.engine import replays


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pieces and delays short, so that tests need not wait for them."""
    monkeypatch.setattr(subscription, "_LEAST_DELAY", 1)
    monkeypatch.setattr(replays, "_POLL", 100)
    monkeypatch.setattr(replays, "_WHOLE", 0.5)
    monkeypatch.setattr(replays, "_PRESENT", 1000)
