"""An export makes its rows part by part."""

import asyncio
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

import live.maintenance.export
from live.domain.item import Item
from live.journal.log.definitions import DefinitionLog
from live.journal.past.queries import AsOf
from live.maintenance.export import ranking_parts
from live.store.board.keys import SystemKeys
from tests.harness.journaled import Journaled, journaled

MEMBERS: Final = 2000
TITLE: Final = 100  # characters
ROWS: Final = 50


async def with_titles(board: Journaled) -> None:
    """Count a like for each member, and give it a title."""
    keys, names = [f"m{number:04}" for number in range(MEMBERS)], SystemKeys(board.settings.key_prefix)
    await board.like(*keys)
    titles: dict[Any, Any] = {
        member: msgspec.json.encode(Item(member, f"{member} ".ljust(TITLE, "x"))) for member in keys
    }
    await board.client.hset(names.items, mapping=titles)
    await board.client.incr(names.items_version)
    drainer = await board.drainer()
    await drainer.sweep()
    await DefinitionLog(board.client, drainer.database).follow()


def holds_one_part(board: Journaled) -> None:
    """Check that rows and titles are made for one part at a time."""
    at = AsOf(board.board, None, time.time_ns() // 10**6 + 1000, None, frozenset())
    with patch.object(live.maintenance.export, "_ROWS", ROWS):
        found, parts = ranking_parts(board.databases[0], at)
        # Making the first part also fills caches of the database, so it comes before the measurement.
        assert next(parts, None)
        seen = list(found.members[:ROWS])
        tracemalloc.start()
        try:
            for number, part in enumerate(parts, 2):
                assert len(part.rows) == ROWS
                assert (part.done, part.total) == (number * ROWS, MEMBERS)
                assert all(str(row[3]).startswith(f"{row[1]} ") for row in part.rows)
                seen += [str(row[1]) for row in part.rows]
            # The rows of all parts together would need more than five times as much. Other threads also allocate
            # memory.
            assert tracemalloc.get_traced_memory()[1] < 2 * MEMBERS * TITLE
        finally:
            tracemalloc.stop()
    assert seen == found.members


async def test_an_export_holds_the_rows_and_titles_of_one_part(valkey_url: str, tmp_path: Path) -> None:
    """The memory of an export does not grow with the number of members and titles."""
    async with journaled(valkey_url, tmp_path) as board:
        await with_titles(board)
        await asyncio.to_thread(holds_one_part, board)
