"""`live reconcile`: its exit status and its report, with and without a server."""

import asyncio
from pathlib import Path
from typing import Final

import msgspec
import pytest

from live.settings import as_environment
from live.store.board.ledger import Ledger
from tests.harness.commands import run_command
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, fill, wrong_value

BOARDS_FILE: Final = """
[[board]]
id = "first"
types = ["like"]
window = { rolling = "24h", slot = "1h" }
ties = "first"
"""


async def reconcile(board: Compared, *flags: str) -> tuple[int, str, str]:
    """Run `live reconcile`; returns its exit status and its output."""
    boards = board.folder / "boards.toml"
    boards.write_text(BOARDS_FILE, encoding="utf-8")
    environment = as_environment(msgspec.structs.replace(board.settings, boards=boards))
    ended = await asyncio.to_thread(run_command, "reconcile", *flags, **environment)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.slow
async def test_the_exit_status_tells_whether_there_is_drift(valkey_url: str, tmp_path: Path) -> None:
    """The status is 0 if nothing differs, 1 if something differs or was repaired, and 2 for a wrong flag."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        await wrong_value(board)
        status, text, _ = await reconcile(board, "--board", "first")
        assert status == 1
        assert "ann: value of" in text
        assert text.splitlines()[2].endswith("store 50, journal 7")
        status, text, _ = await reconcile(board, "--repair", "journal", "--json")
        found = msgspec.json.decode(text)
        assert (status, found["equal"]) == (1, False)
        (differences,) = found["boards"]
        assert (differences["drifted"], differences["repaired"]) == (1, True)
        assert differences["drift"][0]["journal"] == 7
        assert (await reconcile(board))[0] == 0
        status, text, error = await reconcile(board, "--repair")
        assert (status, text) == (2, "")
        assert "--repair" in error
        status, text, error = await reconcile(board, "--repair", "store")
        assert (status, "equal" in text) == (0, True), "the command replaces a store that equals the journal"


@pytest.mark.slow
async def test_without_a_server_what_waits_is_compared_and_stays(valkey_url: str, tmp_path: Path) -> None:
    """Entries that are not in SQL yet count in the comparison, and stay in the store. A repair keeps them too."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        await board.is_drained()
        await board.stop_draining()
        await board.add(("dan", 1))
        rows, epoch = await board.rows(), board.ledger.state.epoch
        status, text, _ = await reconcile(board)
        assert (status, text.split(";")[0]) == (0, f"first (epoch {epoch}): equal")
        assert await board.waiting() == 1, "the comparison moved an entry to SQL"
        await wrong_value(board)
        await board.settle_ranking()
        status, text, error = await reconcile(board, "--repair", "store")
        assert (status, text.split(";")[0]) == (1, f"first (epoch {epoch}): the store is replaced"), error
        board.ledger = Ledger(board.client, board.board, board.settings)
        assert await board.rows() == rows
        assert board.ledger.state.epoch != epoch
        assert (await reconcile(board))[0] == 0
