"""`live journal` says what can be lost, and moves the journals of a store to another database."""

from pathlib import Path

import httpx
import msgspec
import pytest

from live.maintenance.journal import lost_at_most, status
from live.store.connection.client import Store
from tests.harness.journal_server import Machine
from tests.harness.journaled import journaled

STORE = "the data of the store is lost"
REPLICA = "a replica takes over"


async def test_the_status_says_what_is_lost_at_most(valkey_url: str, tmp_path: Path) -> None:
    """The status counts entries that SQL lacks. The settings decide what else is safe."""
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        await board.like("a")
        await drainer.sweep()

        async def found(client: Store | None = board.client, **changes: object) -> dict[str, str]:
            rows = await board.databases[0].run(status)
            return await lost_at_most(client, msgspec.structs.replace(board.settings, **changes), rows)

        assert (await found())[STORE] == "what SQL lacks, now nothing"
        await board.like("b")
        await board.like("a", "c")
        assert (await found())[STORE] == "what SQL lacks, now 2 changes of 1 board"
        assert (await found(None))[STORE] == "what SQL lacks"
        assert (await found(journal_ack=True))[STORE] == "nothing: LIVE_JOURNAL_ACK is set"
        assert (await found(store=""))[REPLICA] == "there is none"
        assert (await found(wait_replicas=0))[REPLICA].startswith("what SQL lacks, now 2 changes of 1 board. Events")
        assert (await found(wait_replicas=2))[
            REPLICA
        ] == "nothing, if it is one of those for which LIVE_WAIT_REPLICAS=2 waits"


@pytest.mark.slow
def test_a_lost_file_is_replaced_by_one_command(tmp_path: Path) -> None:
    """`--adopt` makes the file again, and the journals begin again. In a directory that does not exist, it refuses."""
    machine = Machine(tmp_path)
    machine.server.start()
    try:
        assert httpx.post(f"{machine.server.url}/v1/events", json=[{"type": "like", "key": "a"}]).is_success
    finally:
        machine.server.stop()
    for path in machine.data.glob("journal-live.db*"):
        path.unlink()

    nowhere = machine.run("journal", "--adopt", "--data-dir", str(tmp_path / "nowhere"))
    assert nowhere.returncode == 2
    assert "there is no journal at" in nowhere.stderr
    done = machine.run("journal", "--adopt")
    assert done.returncode == 0, done.stderr
    machine.server.start()
    try:
        checked = machine.run("check", "--board", "posts")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert "no drift" in checked.stdout
    finally:
        machine.server.stop()
