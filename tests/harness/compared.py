"""Compares a board with its journal while a drainer moves entries to SQL."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select, update

from live.domain.board import Board
from live.domain.event import Extra, make_entry
from live.journal.database import Database
from live.journal.log.entries import pack_entries, unpack_entries
from live.journal.log.reader import Follower
from live.journal.schema import SEGMENT
from live.maintenance.check import Checker, Report, replace_store
from live.store.board.journal_stream import Entry, begin_journal
from live.store.board.state import BoardState
from tests.harness.folded import data_of
from tests.harness.journaled import Journaled
from tests.harness.server import define
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

ANN = Extra("ann", b'{"team":"x"}')


class Compared(Journaled):
    """A board, its journal, and the command that compares them."""

    draining: asyncio.Task[None] | None = None

    async def drain(self) -> None:
        """Start to move entries to SQL."""
        drainer = await self.drainer()
        drainer._interval = 0.01  # seconds; short, because each comparison waits for the drainer
        self.draining = asyncio.create_task(drainer.run())

    async def stop_draining(self) -> None:
        """Stop the drainer, so that another process can drain."""
        if self.draining is not None:
            await stop(self.draining)
        while self.databases:
            await self.databases.pop().aclose()

    async def is_drained(self) -> None:
        """Wait until SQL has every entry."""

        async def nothing_waits() -> bool:
            return await self.waiting() == 0

        await eventually(nothing_waits)

    async def add(self, *events: tuple[str, int], extra: Extra = ANN) -> None:
        """Count events of members in one batch."""
        entries = [make_entry(member, amount, None, None, extra) for member, amount in events]
        added = await self.ledger.writer.add(entries)
        assert not added.refused

    async def check(self) -> Report:
        """Compare the board with its journal."""
        epoch, prefix = self.ledger.state.epoch or "", self.settings.key_prefix
        state = BoardState(self.client, self.board, self.settings, born=epoch)
        await state.open()
        with Database(self.url, self.folder, prefix, writes=False) as database:
            follower = Follower(self.client, database, self.board.id, epoch)
            await follower.begin(lambda *_: None)
            return await Checker(state, follower, lambda *_: None).check()

    async def begin_again(self) -> None:
        """Let the journal begin again with what the store holds."""
        await begin_journal(self.client, self.ledger.state.keys, self.ledger.state.epoch or "", again=True)

    async def replace(self) -> None:
        """Make the store hold what the journal says."""
        epoch = self.ledger.state.epoch or ""
        await replace_store(self.client, self.settings, self.board, epoch, lambda *_: None)

    async def do(self, command: str, key: str, *words: str | int | bytes) -> Any:
        """Run a command on a store key of the board, bypassing the scripts."""
        name = f"{self.ledger.state.keys.channel}:{key}"
        return await self.client.execute_command(command, name, *words)

    async def offset(self) -> int:
        """The board's offset."""
        return (await self.ledger.reader.read(1)).offset

    async def held(self) -> dict[str, object]:
        """Everything in the store that belongs to the board."""
        return await data_of(self.client, self.ledger.state.keys)

    async def spoil(self, change: Callable[[bytes], bytes]) -> None:
        """Change every entry in SQL, bypassing the drainer."""

        def work(connection: Any) -> None:
            for row in connection.execute(select(SEGMENT)).all():
                entries = [Entry("", head, change(body)) for head, body in unpack_entries(row.crc, row.data)]
                packed = pack_entries(entries)
                values = {"crc": packed.crc, "data": packed.data}
                connection.execute(update(SEGMENT).where(SEGMENT.c.id == row.id).values(values))

        await self.databases[0].run(work)


@asynccontextmanager
async def compared(store: str, folder: Path, board: Board, **changes: Any) -> AsyncIterator[Compared]:
    """A board with a journal and a running drainer; `changes` replace settings."""
    found = Compared(store, folder, board, **changes)
    await define(found.settings, [board])
    await found.drain()
    try:
        yield found
    finally:
        await found.stop_draining()
        await found.client.aclose()
