"""`live recover --board` gives one board in the store what the journal says: what it lost, or all of it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from live.cli.context import milliseconds_of
from live.store.registry.audit_trail import AuditTrail
from tests.harness.commands import run_command
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, wrong_value
from tests.harness.settings import as_environment
from tests.maintenance.test_check import planted

BOARDS_FILE = """
[[board]]
id = "first"
types = ["like"]
window = { rolling = "24h", slot = "1h" }
ties = "first"
"""


async def recover(board: Compared, *flags: str) -> tuple[int, str, str]:
    """Run the command; returns its exit status and its output."""
    boards = board.folder / "boards.toml"
    boards.write_text(BOARDS_FILE, encoding="utf-8")
    environment = as_environment(msgspec.structs.replace(board.settings, boards=boards))
    ended = await asyncio.to_thread(
        run_command, "recover", "--from", "journal", "--board", "first", *flags, **environment
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.slow
async def test_what_an_older_copy_lacks_is_written(valkey_url: str, tmp_path: Path) -> None:
    """The ranking is the same as before the loss, and equals the journal. A second run changes nothing."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        client, keys = board.client, board.ledger.state.keys
        await board.drain()
        await board.add(("a", 1), ("b", 1))
        await board.is_drained()
        copy = {name: await client.dump(name) async for name in client.names(keys.pattern)}
        await board.add(("c", 1), ("b", 3))
        await board.add(("c", 3), ("d", 4))
        before = await board.rows()
        await board.is_drained()
        await board.stop_draining()
        async for name in client.names(keys.pattern):
            await client.delete(name)
        for name, content in copy.items():
            await client.restore(name, 0, content or b"")
        status, text, error = await recover(board)
        assert (status, error) == (0, ""), error
        assert text.startswith("first is at offset ")
        assert f"(epoch {board.ledger.state.epoch})" in text, "the board has another epoch"
        assert await board.rows() == before
        acts = await AuditTrail(client).last(9)
        assert [(act.what, act.board) for act in acts] == [
            ("recovered", "first"),
            ("begun", "first"),
        ]
        status, text, error = await recover(board)
        assert (status, error) == (0, ""), error
        assert await board.rows() == before
        await board.add(("d", 1))
        await board.drain()
        await board.is_drained()
        assert (await board.check()).drifted == 0


async def test_a_board_that_lost_nothing_is_replaced_while_a_drainer_runs(valkey_url: str, tmp_path: Path) -> None:
    """The store holds a wrong value. Afterwards the board equals its journal, under another edition."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await board.drain()
        await board.add(("a", 1), ("b", 1))
        before, epoch = await board.rows(), board.ledger.state.epoch
        await planted(board, (wrong_value,))
        assert (await board.check()).drifted
        status, text, error = await recover(board)
        assert (status, error) == (0, ""), error
        assert text.startswith("first is at offset ")
        assert await board.rows() == before
        assert (await board.ledger.reader.read(1)).epoch == f"{epoch}e1"
        assert (await board.check()).drifted == 0


@pytest.mark.slow
async def test_a_board_in_use_goes_back_to_a_time(valkey_url: str, tmp_path: Path) -> None:
    """The server goes on meanwhile. The audit log says to which time."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await board.add(("a", 1), ("b", 1))
        before, epoch = await board.rows(), board.ledger.state.epoch
        await asyncio.sleep(0.01)
        at = datetime.now(UTC).isoformat()
        await asyncio.sleep(0.01)
        await board.add(("b", 1), ("c", 1))
        later = await board.rows()
        status, text, error = await recover(board, "--at", at, "--dry-run")
        assert (status, text, error) == (0, f"first would be at offset 2 with 2 members (epoch {epoch})\n", "")
        assert await board.rows() == later
        status, text, error = await recover(board, "--at", at)
        assert (status, text, error) == (0, f"first is at offset 3 with 2 members (epoch {epoch})\n", "")
        assert await board.rows() == before
        acts = await AuditTrail(board.client).last(9)
        assert [act.what for act in acts] == ["recovered", "begun"]
        assert acts[0].before == {"from": "journal", "at": milliseconds_of(at, "--at")}
        assert (await board.check()).drifted == 0


@pytest.mark.parametrize(
    "words",
    [
        ("store", "--at", "2026-11-22T12:00:00Z"),
        ("store", "--dry-run"),
        ("store", "--board", "a", "--as", "b"),
        ("journal", "--as", "b"),
        ("nowhere",),
        (),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The command says so, and begins nothing."""
    ended = run_command("recover", *(("--from",) if words else ()), *words, LIVE_DATA_DIR=str(tmp_path / "data"))
    assert ended.returncode == 2
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
async def test_a_store_that_lost_nothing_stays(valkey_url: str, tmp_path: Path) -> None:
    """The board keeps its epoch, and the audit log has no entry."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await board.add(("a", 1))
        await board.stop_draining()
        environment = as_environment(board.settings)
        ended = await asyncio.to_thread(run_command, "recover", "--from", "store", **environment)
        assert (ended.returncode, ended.stdout) == (0, "The store has lost nothing.\n"), ended.stderr
        assert len(await board.rows()) == 1
        assert await AuditTrail(board.client).last(9) == []
