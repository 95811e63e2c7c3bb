"""The board registry: a process runs the defined boards, adds and removes them, and skips those that it can't run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from live.boards.admin import BoardAdmin
from live.boards.registry import BoardRegistry
from live.domain.board import Boards
from live.domain.event import make_entry
from live.domain.reader import SERVER
from live.errors import EpochLostError, ProblemError
from live.fanout.hub import Hub
from live.fanout.subscription import Subscription
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.registry.definitions import Definition
from live.store.registry.presence import Presence
from live.system.resources import Resources
from tests.harness.boards import rolling_board
from tests.harness.pulling import ChannelEndedError, PullViewer, pulling
from tests.harness.server import define
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

KISS: Final[dict[str, Any]] = {"types": ["kiss"], "window": "forever"}


class Process:
    """The boards of a process. `updates` has the ids of the boards that the registry published to the intake."""

    def __init__(self, settings: Settings) -> None:
        self.client = connect(settings.store, settings)
        self.hub = Hub(
            self.client,
            settings,
            Presence(self.client),
            Resources(settings),
        )
        self.board_admin = BoardAdmin(self.client, settings)
        self.registry = BoardRegistry(self.client, settings, self.hub, self.board_admin)
        self.updates: list[list[str]] = []
        self.registry.publish = self.publish

    @property
    def ids(self) -> set[str]:
        return {ledger.state.board.id for ledger in self.registry.ledgers.all(SERVER)}

    def ledger(self, board: str) -> Ledger:
        found = self.registry.ledgers.find(board, SERVER)
        assert found is not None
        return found

    def publish(self, boards: Boards) -> None:
        assert list(boards.by_id) == list(self.registry.committers) == list(self.hub.channels)
        self.updates.append(list(boards.by_id))


@asynccontextmanager
async def process(settings: Settings) -> AsyncIterator[Process]:
    """A process that runs while in the context. Before it begins, the board `posts` is defined."""
    await define(settings, [rolling_board()])
    made = Process(settings)
    await made.registry.refresh()
    made.updates.clear()
    tasks = [asyncio.create_task(made.registry.run()), asyncio.create_task(made.hub.run())]
    try:
        yield made
        assert not any(task.done() for task in tasks)
    finally:
        await stop(*tasks)
        await made.client.aclose()


async def drain(viewer: PullViewer) -> None:
    """Take frames until the channel ends."""
    while True:
        await viewer.next_frame()


async def test_boards_are_swapped_as_a_whole(any_store: str) -> None:
    """A running request keeps the boards that it began with. Later requests see every part of the new board."""
    async with process(fresh_settings(any_store)) as made:
        before = made.registry.boards
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.refresh()
        assert list(before.by_id) == ["posts"]
        assert (await made.registry.committers["b"].commit([make_entry("a")])).offset == 1
        assert [board.id for board in made.registry.boards.fed_by("kiss", None)] == ["b"]
        await made.board_admin.delete("b", "ann")
        await made.registry.refresh()
        assert made.updates == [["posts", "b"], ["posts"]]


async def test_requests_to_a_deleted_board_are_refused(any_store: str) -> None:
    """The process refuses requests before and after it knows of the deletion.

    The committer of the deleted board, which a request may still have, refuses requests too.
    """
    async with process(fresh_settings(any_store)) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.refresh()
        committer = made.registry.committers["b"]
        await committer.commit([make_entry("a")])
        await made.board_admin.delete("b", "ann")
        refused = await asyncio.gather(*(committer.commit([make_entry("a"), make_entry("b")]) for _ in range(20)))
        assert all(done.offset is None and done.refused == dict.fromkeys((0, 1), "board_unknown") for done in refused)
        assert "b" not in made.registry.committers
        assert (await committer.commit([make_entry("a")])).refused == {0: "board_unknown"}


async def test_a_lost_board_is_not_a_deleted_one(any_store: str) -> None:
    """If a board is defined but its data is missing, the store has lost the data."""
    async with process(fresh_settings(any_store)) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.refresh()
        await made.registry.committers["b"].commit([make_entry("a")])
        await made.client.delete(made.ledger("b").state.keys.meta)
        with pytest.raises(EpochLostError):
            await made.registry.committers["b"].commit([make_entry("a")])
        error = EpochLostError("lost")
        assert await made.registry.explain("b", error, SERVER) is error
        gone = await made.registry.explain("c", error, SERVER)
        assert isinstance(gone, ProblemError)
        assert gone.code == "board_not_found"


async def test_a_recreated_board_keeps_its_viewers(any_store: str) -> None:
    """A board is deleted and created again between two reads of definitions. Its channel goes on with the new board."""
    settings = fresh_settings(any_store, conflation_interval=0.01)
    async with process(settings) as made:
        other = BoardAdmin(made.client, settings)
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.refresh()
        old = made.ledger("b")
        with pulling(made.hub, "b", Subscription(size=5)) as viewer:
            assert (await viewer.next_frame()).type == "sync"
            async with made.registry._refreshing:  # the process does not read definitions meanwhile
                await other.delete("b", "ann")
                await other.put("b", KISS, "ann")
            await made.registry.refresh()
            new = made.ledger("b")
            assert new is not old

            async def synced() -> bool:
                frame = await viewer.next_frame()
                return frame.type == "sync" and new.state.born.encode() in frame.payload

            await eventually(synced)
            assert (await made.registry.committers["b"].commit([make_entry("a")])).offset == 1
            # A frame with the number of viewers may arrive first.
            while (frame := await viewer.next_frame()).type == "status":
                pass
            assert frame.type == "update"
            await made.board_admin.delete("b", "ann")
            await made.registry.refresh()
            with pytest.raises(ChannelEndedError):
                await drain(viewer)
        assert made.hub.channels.keys() == {"posts"}


async def test_a_board_that_can_not_run_is_skipped(any_store: str) -> None:
    """A definition is of a newer version, or the data of its board is missing or different.

    The reason is logged once, and other boards run.
    """
    settings = fresh_settings(any_store)
    async with process(settings) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.board_admin.put("odd", KISS, "ann")
        found = await made.board_admin.definitions.load()
        strange = {
            "later": Definition(epoch="1", choices={"colour": "red"}),
            "lifeless": Definition(epoch="2", choices=KISS),
            "odd": Definition(epoch=found.boards["odd"].epoch, choices={"clock": "event"}),
        }
        with capture_logs() as logs:
            async with made.registry._refreshing:
                for name, definition in strange.items():
                    version = await made.board_admin.definitions.version()
                    assert await made.board_admin.definitions.keep(version, {name: definition})
            await made.registry.refresh()
            await made.registry.refresh()
        skipped = [line["board"] for line in logs if line["event"] == "can't run a board that is defined"]
        assert sorted(skipped) == ["later", "lifeless", "odd"]
        assert made.ids >= {"posts", "b"}
        assert "later" not in made.ids
        # The process knows the board, and reports that the board is lost.
        with pytest.raises(EpochLostError, match="holds none"):
            await made.ledger("lifeless").reader.read(1)


async def test_an_unfinished_change_is_finished(any_store: str) -> None:
    """A process wrote that a board is frozen, and died before it told the store.

    The next process that reads the definition freezes the board.
    """
    async with process(fresh_settings(any_store)) as made:
        await made.board_admin.put("b", KISS, "ann")
        found = await made.board_admin.definitions.load()
        frozen = Definition(epoch=found.boards["b"].epoch, choices={**KISS, "frozen": True}, revision=2)
        assert await made.board_admin.definitions.keep(found.version, {"b": frozen})
        await made.registry.refresh()
        assert (await made.registry.committers["b"].commit([make_entry("a")])).refused == {0: "frozen"}


@pytest.mark.slow
async def test_an_unavailable_store_changes_nothing(own_store: StoreProcess) -> None:
    """The process keeps its boards as they are, and applies changes when the store is back."""
    async with process(fresh_settings(own_store.url, store_timeout=0.3)) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.refresh()
        with capture_logs() as logs:
            own_store.kill()
            await asyncio.sleep(2.5)
            assert made.ids == {"posts", "b"}
            own_store.start()
        assert len([line for line in logs if line["event"] == "can't read the definitions of boards"]) == 1
        await made.board_admin.delete("b", "ann")

        async def is_applied() -> bool:
            return made.ids == {"posts"}

        await eventually(is_applied)
