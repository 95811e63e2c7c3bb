"""Fixtures: a server that receives the events, and a folder for progress files outside of the home directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from live.domain.board_file import make_board
from live.domain.choices import Choices
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the runs of a test keep their progress, outside of the home directory."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the API key that a developer may have in the environment."""
    monkeypatch.delenv("LIVE_KEY", raising=False)


@pytest.fixture
async def url(valkey_url: str) -> AsyncIterator[str]:
    """The address of a server with two boards, one of which has `clock = "event"`."""
    boards = [rolling_board(), make_board(Choices(id="log", types=("line",), clock="event"))]
    async with run_server(fresh_settings(valkey_url), boards) as address:
        yield address
