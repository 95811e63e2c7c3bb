"""Viewers watch a board whose contents are replaced again and again: each frame is before or after, never between."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as watch

import live.store.board.manage.swap
from live.boards.definitions import all_boards
from live.domain.board_file import parse_boards
from live.journal.database import Database
from live.maintenance.check import replace_store
from live.maintenance.set_back import set_back
from live.settings import Settings
from live.store.board.manage.swap import SWAP
from live.store.connection.client import Store, connect
from tests.harness.mutation import compiled, must_be_caught, mutated
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually

BOARDS = """
[[board]]
id = "runs"
types = ["run"]
ties = "first"
window = "forever"
"""
Shown = tuple[int, int | None, tuple[tuple[str, int], ...]]
"""How many records a viewer sees, their sum, and the records."""


class Watching:
    """What viewers of a board show, at each position."""

    def __init__(self) -> None:
        self.frames = 0
        self.at: dict[tuple[str, int], Shown] = {}
        self.models: list[ModelViewer] = []

    async def follow(self, url: str) -> None:
        """Apply the messages of the board. At one position, all viewers show the same."""
        model = ModelViewer()
        self.models.append(model)
        async with watch(f"{url}/v1/boards/runs/live?limit=100".replace("http", "ws")) as socket:
            async for message in socket:
                model.receive(message)
                if model.stale:
                    continue
                rows = tuple((record.member, record.score) for record in model.records)
                shown = model.rank_count, model.total_score, rows
                assert self.at.setdefault((model.epoch, model.offset), shown) == shown, "viewers show different things"
                assert (len(rows), sum(score for _, score in rows)) == shown[:2], "a frame is mixed"
                self.frames += 1


class Changing:
    """A board in use, whose contents are replaced in every way."""

    def __init__(self, settings: Settings, store: Store, clients: list[httpx.AsyncClient]) -> None:
        self.settings, self.store, self.clients = settings, store, clients
        self.begun = time.time_ns() // 1_000_000
        self.sent = 0
        self.done = False

    async def produce(self, client: httpx.AsyncClient) -> None:
        """Post batches. No event is refused."""
        while not self.done:
            self.sent += 1
            number = self.sent
            events = [
                {"type": "run", "key": f"m{(number * 7 + place) % 40}", "amount": place + 1, "id": f"{number}-{place}"}
                for place in range(4)
            ]
            answer = await client.post("/v1/events", json=events)
            assert (answer.status_code, answer.json()["rejected"]) == (200, []), answer.text

    async def take_back(self) -> None:
        """Take one event back."""
        answer = await self.clients[0].delete(f"/v1/boards/runs/events/{self.sent // 2}-1")
        assert answer.status_code == 200, answer.text

    async def change_rules(self, **rules: Any) -> None:
        """Count the events again by other rules."""
        answer = await self.clients[1].patch("/v1/boards/runs", json=rules)
        assert answer.status_code == 200, answer.text

    async def repair(self) -> None:
        """Replace what the store holds by what the journal says."""
        board, epoch = (await all_boards(self.store))["runs"]
        await replace_store(self.store, self.settings, board, epoch, lambda *_: None)

    async def go_back(self) -> None:
        """Undo the last half second, or less on a new board."""
        board, epoch = (await all_boards(self.store))["runs"]
        now = time.time_ns() // 1_000_000
        at = max(now - 500, (self.begun + now) // 2)
        with Database("sqlite", self.settings.data_dir, self.settings.key_prefix, writes=False) as database:
            await set_back(self.store, self.settings, database, board, epoch, at, lambda *_: None, dry=False)

    async def hide(self, *, hidden: bool) -> None:
        """Hide a member, or show it again."""
        answer = await self.clients[0].patch("/v1/boards/runs/records/m7", json={"hidden": hidden})
        assert answer.is_success, answer.text


@asynccontextmanager
async def in_use(store: str, viewers: int) -> AsyncIterator[tuple[Changing, Watching]]:
    """A board of two processes, with viewers and producers of both. At the end, all viewers show what the store has."""
    settings = fresh_settings(store, anonymous_admin=True, journal="sqlite", write_deadline=30.0)
    async with (
        aclosing(connect(store, settings)) as client,
        run_server(settings, parse_boards(BOARDS)) as one,
        run_server(settings, None) as other,
        httpx.AsyncClient(base_url=one, timeout=180) as first,
        httpx.AsyncClient(base_url=other, timeout=180) as second,
    ):
        changing, watching = Changing(settings, client, [first, second]), Watching()
        producing = [asyncio.create_task(changing.produce(each)) for each in (first, second)]
        tasks = [asyncio.create_task(watching.follow(url)) for url in (one, other) for _ in range(viewers // 2)]
        try:
            yield changing, watching
            changing.done = True
            await asyncio.gather(*producing)
            page = (await first.get("/v1/boards/runs?limit=100")).json()
            where = page["epoch"], page["offset"]

            async def all_there() -> bool:
                return all((model.epoch, model.offset) == where for model in watching.models)

            await eventually(all_there)
            assert watching.at[where][2] == tuple((record["key"], record["score"]) for record in page["records"])
        finally:
            for task in (*tasks, *producing):
                task.cancel()
            ended = await asyncio.gather(*tasks, *producing, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error


@pytest.mark.slow
async def test_every_frame_is_before_or_after_a_swap(valkey_url: str, effort: int) -> None:
    """Events are taken back, rules change, the board is repaired and set back, and a member is hidden, under load."""
    async with in_use(valkey_url, 40) as (changing, watching):
        await eventually(lambda: asyncio.sleep(0, watching.frames > 40))
        for number in range(2 * effort):
            await changing.take_back()
            await changing.change_rules(sort_order="asc" if number % 2 == 0 else "desc")
            await changing.hide(hidden=True)
            await changing.go_back()
            await changing.repair()
            await changing.hide(hidden=False)
            await changing.change_rules(ties="last" if number % 2 == 0 else "first")
        before = len({epoch for epoch, _ in watching.at})
        await eventually(lambda: asyncio.sleep(0, watching.frames > 10_000 * effort))
    assert before > 5 * effort


@pytest.mark.mutant
async def test_a_swap_that_keeps_the_old_total_is_detected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant gives viewers the new records with the old total."""
    source = mutated(SWAP.source, {"for i = 1, #request.totals, 3 do": "for i = 1, 0 do"})
    monkeypatch.setattr(live.store.board.manage.swap, "SWAP", compiled(valkey_url, SWAP.changed(source)))
    with must_be_caught("the total stays"):
        async with in_use(valkey_url, 4) as (changing, watching):
            await eventually(lambda: asyncio.sleep(0, watching.frames > 40))
            before = changing.sent
            await eventually(lambda: asyncio.sleep(0, changing.sent > before + 10))  # these are undone
            await changing.go_back()
