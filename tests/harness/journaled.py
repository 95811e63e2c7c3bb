"""A board with a journal: a ledger, a database, and drainers that can be killed anywhere."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from live.domain.board import Board
from live.domain.event import make_entry
from live.journal.database import Database
from live.journal.log.drainer import Drainer
from live.journal.log.reader import contents_of
from live.journal.log.timelines import find_timeline
from live.journal.schema import LIFE
from live.journal.state.ranking import ranked_at
from live.journal.state.snapshot import Snapshot
from live.maintenance.backup import Manifest, back_up
from live.store.board.journal_stream import read_entries
from live.store.board.ledger import Ledger
from live.store.connection.client import connect, required
from tests.harness.boards import rolling_board
from tests.harness.scripts import connected
from tests.harness.server import define
from tests.harness.settings import fresh_settings

Rows = list[tuple[str, int]]


class Journaled:
    """A board whose events go to SQL."""

    def __init__(self, store: str, folder: Path, board: Board, url: str = "sqlite", **changes: Any) -> None:
        self.settings = fresh_settings(store, **{"journal": "sqlite", "data_dir": folder, **changes})
        self.client = connect(store, self.settings)
        self.board = board
        self.ledger = Ledger(self.client, board, self.settings)
        self.url, self.folder = url, folder
        self.databases: list[Database] = []
        self.counted = 0

    async def drainer(self, folder: Path | None = None) -> Drainer:
        """Make another drainer, as in another process, on this database or on that of another data directory."""
        database = Database(self.url, folder or self.folder, self.settings.key_prefix, writes=True)
        self.databases.append(database)
        await asyncio.to_thread(database.work, database._prepare)
        return Drainer(self.client, self.settings, database)

    async def like(self, *members: str) -> None:
        """Count a like for each member in one batch."""
        added = await self.ledger.writer.add([make_entry(member, 1, None, None) for member in members])
        self.counted += len(members) - len(added.refused)

    async def rows(self) -> Rows:
        """The ranking in the store."""
        page = await self.ledger.reader.read(200_000)
        return [(record.member, record.score) for record in page.records]

    async def total(self) -> int:
        """The sum of all scores in the store."""
        return sum(score for _, score in await self.rows())

    async def contents(self, **choices: Any) -> Snapshot:
        """The contents of the board in SQL."""
        database, epoch = self.databases[0], self.ledger.state.epoch or ""

        def read(connection: Any) -> Snapshot:
            timeline = find_timeline(connection, self.board.id, epoch)
            return Snapshot() if timeline is None else contents_of(connection, timeline, **choices)

        return await asyncio.to_thread(database.work, read)

    async def rows_in_sql(self, **choices: Any) -> Rows:
        """The ranking in SQL."""
        data = await self.contents(**choices)
        found = ranked_at(self.board, data, data.time // 1000)
        return [(member, found.scores[member]) for member in found.members]

    async def waiting(self) -> int:
        """The number of entries that wait in the store."""
        state = self.ledger.state
        (entries,) = required(await read_entries(self.client, [(state.keys, state.epoch or "", "0")]))
        return len(entries)

    async def must_agree(self) -> None:
        """Check that SQL has every counted event once, and that no entry waits in the store."""
        rows = await self.rows()
        assert await self.total() == self.counted
        assert await self.rows_in_sql() == rows
        assert await self.waiting() == 0

    async def begun_again(self) -> int:
        """How often a new timeline began because entries were missing."""
        count = select(func.count()).where(LIFE.c.parent == LIFE.c.epoch)
        return await self.databases[0].run(lambda connection: connection.scalar(count) or 0)


async def backed_up(board: Journaled, folder: Path, *, url: str = "sqlite") -> Manifest:
    """Back up the store and the database of a board, after a drainer has moved the entries."""
    await (await board.drainer()).sweep()
    with Database(url, board.folder, board.settings.key_prefix, writes=False) as source:
        return await back_up(board.client, board.settings, source, folder, lambda *_: None)


@asynccontextmanager
async def twin_of(store: str, board: Board) -> AsyncIterator[Ledger]:
    """Another board with the same choices, or with others, under another key prefix. It has no journal."""
    settings = fresh_settings(store)
    async with connected(store, settings) as client:
        yield Ledger(client, board, settings)


@asynccontextmanager
async def journaled(
    store: str,
    folder: Path,
    board: Board | None = None,
    url: str = "sqlite",
    *,
    is_defined: bool = True,
    **changes: Any,
) -> AsyncIterator[Journaled]:
    """A board with a journal in a new data directory; `changes` replace settings.

    If it is not defined, the store is empty until its first event.
    """
    found = Journaled(store, folder, board or rolling_board(ties="first"), url, **changes)
    if is_defined:
        await define(found.settings, [found.board])
    try:
        yield found
    finally:
        for database in found.databases:
            await database.aclose()
        await found.client.aclose()
