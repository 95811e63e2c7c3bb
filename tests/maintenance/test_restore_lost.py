"""A store was put back to an older copy: `live rebuild --lost` sends again what the store lost."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from live.settings import as_environment
from live.store.registry.audit_trail import AuditTrail
from tests.harness.commands import run_command
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS

BOARDS_FILE = """
[[board]]
id = "first"
types = ["like"]
window = { rolling = "24h", slot = "1h" }
ties = "first"
"""


async def restore_lost(board: Compared, *flags: str) -> tuple[int, str, str]:
    """Run the command; returns its exit status and its output."""
    boards = board.folder / "boards.toml"
    boards.write_text(BOARDS_FILE, encoding="utf-8")
    environment = as_environment(msgspec.structs.replace(board.settings, boards=boards))
    ended = await asyncio.to_thread(run_command, "rebuild", "--lost", "--board", "first", *flags, **environment)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.slow
async def test_what_an_older_copy_lacks_is_sent_again(valkey_url: str, tmp_path: Path) -> None:
    """The ranking is the same as before the loss, and equals the journal. A second run has nothing to do."""
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
        status, text, error = await restore_lost(board)
        assert (status, error) == (0, ""), error
        assert text.startswith("first (epoch ")
        assert await board.rows() == before
        status, _, error = await restore_lost(board)
        assert status == 2
        acts = await AuditTrail(client, board.settings.key_prefix).last(9)
        assert [(act.what, act.board) for act in acts] == [
            ("begun", "first"),
            ("loss_restored", "first"),
            ("begun", "first"),
        ]
        assert "has everything" in error
        await board.add(("d", 1))
        await board.drain()
        await board.is_drained()
        assert (await board.reconcile()).drifted == 0
