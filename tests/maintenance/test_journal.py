"""`live journal` says what can be lost."""

from pathlib import Path

import msgspec

from live.maintenance.journal import lost_at_most, status
from live.store.connection.client import Store
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
