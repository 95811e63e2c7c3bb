"""`live reconcile`: its exit status and its report, with and without a server."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from live.settings import as_environment
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, fill, wrong_value

BOARDS_FILE: Final = """
[[board]]
id = "first"
source = ["like"]
window = { rolling = "24h", slot = "1h" }
ties = "first"
"""


async def run_command(board: Compared, *flags: str) -> tuple[int, str, str]:
    """Run `live reconcile` as a process; returns its exit status and its output."""
    boards = board.folder / "boards.toml"
    boards.write_text(BOARDS_FILE, encoding="utf-8")
    environment = {**os.environ, **as_environment(msgspec.structs.replace(board.settings, boards=boards))}
    command = [sys.executable, "-m", "live", "reconcile", *flags]
    ended = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.slow
async def test_the_exit_status_tells_whether_there_is_drift(valkey_url: str, tmp_path: Path) -> None:
    """It is 0 if nothing differs, 1 if something does or did, and 2 for a mistake."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        await wrong_value(board)
        status, text, _ = await run_command(board, "--board", "first")
        assert status == 1
        assert "ann: value of" in text
        assert text.splitlines()[2].endswith("store 50, journal 7")
        status, text, _ = await run_command(board, "--repair", "--to", "store", "--json")
        found = msgspec.json.decode(text)
        assert (status, found["equal"]) == (1, False)
        (differences,) = found["boards"]
        assert (differences["drifted"], differences["repaired"], differences["left"]) == (1, 1, 0)
        assert differences["drift"][0]["journal"] == 7
        status, text, error = await run_command(board, "--repair")
        assert (status, text) == (2, "")
        assert "--to" in error


@pytest.mark.slow
async def test_without_a_server_the_command_moves_the_journal_itself(valkey_url: str, tmp_path: Path) -> None:
    """The last entries may wait in the store."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        assert (await board.reconcile()).drifted == 0
        await board.stop_draining()
        await board.add(("dan", 1))
        status, text, _ = await run_command(board)
        assert (status, text.split(";")[0]) == (0, f"first (epoch {board.ledger.state.epoch}): equal")
        assert await board.waiting() == 0
