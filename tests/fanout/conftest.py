"""Fixtures of the tests of replays."""

import pytest

from live.fanout import subscription
from live.fanout.engine import playback


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pieces and delays short, so that tests need not wait for them."""
    monkeypatch.setattr(subscription, "_LEAST_DELAY", 1)
    monkeypatch.setattr(playback, "_POLL", 0.1)
    monkeypatch.setattr(playback, "_WHOLE", 0.5)
    monkeypatch.setattr(playback, "_PRESENT", 1000)
