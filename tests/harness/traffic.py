"""Producers and viewers of the boards of one server, which go on while servers of its store fail."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
from msgspec.structs import replace

from live.domain.board import Board
from live.journal.database import Database
from live.journal.log.reader import contents_of
from live.journal.log.timelines import find_timeline
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.connection.client import Store, connect
from tests.harness import figures
from tests.harness.checked import checked
from tests.harness.server import serving, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop
from tests.harness.viewer import ModelViewer, keep_watching
from tests.harness.waiting import eventually

MEMBERS: Final = [f"k{number}" for number in range(7)]


class Traffic:
    """A producer and a viewer for each board. A producer sends one event at a time.

    An event that was not acknowledged is sent again with the same id, so what is acknowledged equals what is counted.
    """

    def __init__(self, client: httpx.AsyncClient, settings: Settings, boards: Sequence[Board]) -> None:
        self.client = client
        self.settings = settings
        self.boards = {board.id: board for board in boards}
        self.acknowledged = dict.fromkeys(self.boards, 0)
        self.refused: dict[str, list[str]] = {name: [] for name in self.boards}
        self.longest = dict.fromkeys(self.boards, 0.0)  # the longest time between two acknowledged events, in seconds
        self.viewers = {name: ModelViewer() for name in self.boards}
        self.ended = self.gives_up = False
        self.producing: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start to produce."""
        self.producing = [asyncio.create_task(self.produce(name)) for name in self.boards]

    async def end(self, *, gives_up: bool = False) -> None:
        """Stop the producers once every event is acknowledged, or with `gives_up`, once every request is answered."""
        self.ended, self.gives_up = True, gives_up
        await asyncio.gather(*self.producing)

    async def produce(self, name: str) -> None:
        """Send events to one board until `end` is called, and repeat the last event until it is acknowledged."""
        last, sent = time.monotonic(), 0
        while not self.ended or (sent > self.acknowledged[name] and not self.gives_up):
            sent = self.acknowledged[name] + 1
            event = {"board": name, "type": name, "key": MEMBERS[sent % len(MEMBERS)], "id": f"{name}-{sent}"}
            try:
                answer = await self.client.post("/v1/events", json=event)
                reason = answer.text
                taken = answer.status_code == 200 and not answer.json()["rejected"]
            except httpx.TransportError as error:
                taken, reason = False, repr(error)
            if taken:
                self.acknowledged[name] += 1
                self.longest[name], last = max(self.longest[name], time.monotonic() - last), time.monotonic()
            else:
                self.refused[name].append(reason)
                await asyncio.sleep(0.05)

    async def more(self, *names: str) -> None:
        """Wait until some boards, by default all, have counted more events, and their viewers have seen that."""
        wanted = {name: (self.acknowledged[name] + 3, self.viewers[name].offset) for name in names or self.boards}

        async def moved() -> bool:
            return all(
                self.acknowledged[name] >= count and self.viewers[name].offset != offset
                for name, (count, offset) in wanted.items()
            )

        await eventually(moved)

    async def journaled(self, *names: str) -> None:
        """Wait until SQL has every event of these boards that is acknowledged now."""
        client = connect(self.settings.store, replace(self.settings, data_dir=self.settings.data_dir / "asked"))
        try:
            for name in names:
                meta, counted = Keys(self.settings.key_prefix, name).meta, self.acknowledged[name]
                epoch = (await client.call(meta, "HGET", meta, "epoch")).decode()

                async def there(name: str = name, epoch: str = epoch, counted: int = counted) -> bool:
                    return await asyncio.to_thread(self._in_sql, name, epoch) >= counted

                await eventually(there)
        finally:
            await client.aclose()

    async def compare(self) -> None:
        """Check that the store and the journal have as many events of each board as were acknowledged.

        Each board must also pass the check, and each viewer must be up to date.
        """
        client = connect(self.settings.store, replace(self.settings, data_dir=self.settings.data_dir / "compared"))
        store, journal = {}, {}
        try:
            for board in self.boards.values():
                ledger = Ledger(client, board, self.settings)
                await ledger.state.open()
                keys, epoch = ledger.state.keys, ledger.state.epoch or ""
                await eventually(partial(self._is_drained, client, keys.journal(epoch)))
                await eventually(partial(self._is_shown, ledger))
                assert (await checked(client, self.settings, board)).clean
                buckets = [name async for name in client.names(keys.seen_pattern)]
                store[board.id] = sum([await client.call(name, "SCARD", name) for name in buckets])
                journal[board.id] = await asyncio.to_thread(self._in_sql, board.id, epoch)
        finally:
            await client.aclose()
        figures.record(
            figures.Figures(
                acknowledged=sum(self.acknowledged.values()), store=sum(store.values()), journal=sum(journal.values()),
                refused=sum(map(len, self.refused.values())), longest_stop=max(self.longest.values()),
            )
        )  # fmt: skip
        assert (store, journal) == (self.acknowledged, self.acknowledged)

    async def _is_drained(self, client: Store, stream: str) -> bool:
        return bool(await client.call(stream, "XLEN", stream) == 0)

    async def _is_shown(self, ledger: Ledger) -> bool:
        model = self.viewers[ledger.state.board.id]
        records = (await ledger.reader.read(len(MEMBERS))).records
        seen = [(record.member, record.score) for record in model.records]
        return not model.stale and seen == [(record.member, record.score) for record in records]

    def _in_sql(self, board: str, epoch: str) -> int:
        prefix = self.settings.key_prefix
        with Database("sqlite", self.settings.data_dir, prefix, writes=False) as database:

            def read(connection: Any) -> int:
                timeline = find_timeline(connection, board, epoch)
                assert timeline is not None
                return sum(map(len, contents_of(connection, timeline).seen.values()))

            return database.work(read)


@asynccontextmanager
async def traffic(
    store: str, folder: Path, *boards: Board, unions: Sequence[Board] = (), deadline: float = 30
) -> AsyncIterator[Traffic]:
    """Send events to boards and watch them while in the context, and compare the results at its end.

    `unions` are boards that add up `boards`. Nobody sends events to a union. `deadline` is the `write_deadline`.
    """
    settings = fresh_settings(
        store,
        data_dir=folder / "data",
        write_deadline=deadline,
        wait_replicas=0,  # after a failover in a Cluster of these tests, the new primary may have no replica
        store_timeout=1,
        journal="sqlite",
        anonymous_admin=True,
        open=True,
    )
    async with serving(settings, *boards, *unions) as client:
        await until_ready(client)
        found = Traffic(client, settings, boards)
        url = str(client.base_url).replace("http", "ws").rstrip("/")
        watching = [
            asyncio.create_task(keep_watching(f"{url}/v1/boards/{name}/live", model))
            for name, model in found.viewers.items()
        ]
        try:
            found.begin()
            try:
                await found.more()
                yield found
            except BaseException:
                await found.end(gives_up=True)
                raise
            await found.end()
            await found.compare()
        finally:
            await stop(*watching)
