"""`live boards`: its output for boards of a file, and for boards that were created over HTTP."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from live.boards.admin import BoardAdmin
from live.cli.main import app
from live.domain.event import make_entry
from live.process.serve import apply_file
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings


async def fill(settings: Settings) -> None:
    """Create the boards of the file, the first with two records, and a frozen board. Then lose an empty board."""
    client = connect(settings.store, settings)
    await apply_file(client, settings)
    await Ledger(client, rolling_board(), settings).writer.add([make_entry("a"), make_entry("b")])
    await client.call(key := Keys(settings.key_prefix, "lost").meta, "DEL", key)
    board_admin = BoardAdmin(client, settings)
    await board_admin.put("ice", {"title": "Ice", "window": "forever", "frozen": True}, "ann")
    await client.aclose()


@pytest.fixture
def run(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command on a filled store; returns its output."""
    file = tmp_path / "boards.toml"
    file.write_text('[[board]]\nid = "posts"\nties = "key"\n\n[[board]]\nid = "lost"\n', encoding="utf-8")
    settings = fresh_settings(valkey_url, boards=file)
    asyncio.run(fill(settings))
    monkeypatch.setenv("LIVE_KEY_PREFIX", settings.key_prefix)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> str:
        given = ["boards", "--store", valkey_url, *arguments]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == 0, result.output
        return result.stdout

    return call


def test_boards_are_listed(run: Any) -> None:
    """The list has the records and offsets of each board, and marks a board whose data the store does not have."""
    boards = json.loads(run("--json"))["boards"]
    assert [(board["board"], board["records"], board["offset"]) for board in boards] == [
        ("posts", 2, 1), ("lost", 0, 0), ("ice", 0, 1),
    ]  # fmt: skip
    assert [(board["epoch"] is None, board["frozen"]) for board in boards] == [
        (False, False), (True, False), (False, True),
    ]  # fmt: skip
    assert "memory" not in boards[0]
    text = run()
    assert "no data" in text
    assert "frozen" in text


def test_memory_is_measured(run: Any) -> None:
    """The output has the memory of each board. It has an estimate only if flags give the load to estimate for."""
    posts, lost, _ = (board["memory"] for board in json.loads(run("--json", "--memory"))["boards"])
    assert posts["bytes"] > 2 * posts["bytes_per_member"] > 0
    assert "predicted" not in posts
    assert (lost["bytes"], lost["bytes_per_member"]) == (0, None)
    posts, lost, _ = (board["memory"] for board in json.loads(run("--json", "--members", "100"))["boards"])
    assert posts["predicted"] > 10 * posts["bytes_per_member"]
    assert lost["predicted"] is None
    text = run("--members", "100", "--events", "5")
    assert "estimate" in text
    assert "are unreliable" in text


def test_an_unavailable_store_is_one_clear_line(tmp_path: Path) -> None:
    """The exit status is 2, as always when a command can't run."""
    result = CliRunner().invoke(app, ["boards", "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "the store is unavailable" in result.stderr
