"""`live boards`: its output for boards of a file and run-time boards."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from live.boards.admin import BoardAdmin
from live.cli.main import app
from live.domain.board import Boards
from live.domain.event import make_entry
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings


async def fill(settings: Settings) -> None:
    """Create a board of the file with two records, and a frozen run-time board."""
    client = connect(settings.store, settings)
    await Ledger(client, rolling_board(), settings).writer.add([make_entry("a"), make_entry("b")])
    board_admin = BoardAdmin(client, settings, Boards([rolling_board()]))
    await board_admin.put("ice", {"title": "Ice", "window": "forever", "frozen": True}, "ann")
    await client.aclose()


@pytest.fixture
def run(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command on a filled store; returns its output."""
    settings = fresh_settings(valkey_url)
    asyncio.run(fill(settings))
    monkeypatch.setenv("LIVE_KEY_PREFIX", settings.key_prefix)
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "boards.toml"
    file.write_text('[[board]]\nid = "posts"\nties = "key"\n\n[[board]]\nid = "new"\n', encoding="utf-8")

    def call(*arguments: str) -> str:
        given = ["boards", "--store", valkey_url, "--boards", str(file), *arguments]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == 0, result.output
        return result.stdout

    return call


def test_boards_are_listed(run: Any) -> None:
    """The list has the records and offsets of each board, and marks a board that no server has opened."""
    boards = json.loads(run("--json"))["boards"]
    assert [(board["board"], board["records"], board["offset"]) for board in boards] == [
        ("posts", 2, 1), ("new", 0, 0), ("ice", 0, 1),
    ]  # fmt: skip
    assert [(board["epoch"] is None, board["frozen"]) for board in boards] == [
        (False, False), (True, False), (False, True),
    ]  # fmt: skip
    assert "memory" not in boards[0]
    text = run()
    assert "not opened" in text
    assert "frozen" in text


def test_memory_is_measured(run: Any) -> None:
    """The output has the memory of each board. It has an estimate only if flags give the load to estimate for."""
    posts, new, _ = (board["memory"] for board in json.loads(run("--json", "--memory"))["boards"])
    assert posts["bytes"] > 2 * posts["bytes_per_member"] > 0
    assert "predicted" not in posts
    assert (new["bytes"], new["bytes_per_member"]) == (0, None)
    posts, new, _ = (board["memory"] for board in json.loads(run("--json", "--members", "100"))["boards"])
    assert posts["predicted"] > 10 * posts["bytes_per_member"]
    assert new["predicted"] is None
    text = run("--members", "100", "--events", "5")
    assert "estimate" in text
    assert "are unreliable" in text


def test_an_unavailable_store_is_one_clear_line(tmp_path: Path) -> None:
    """The exit status is 2, as always when a command can't run."""
    result = CliRunner().invoke(app, ["boards", "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "the store is unavailable" in result.stderr
