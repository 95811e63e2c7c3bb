"""The board registry: a process runs what is defined, starts and stops it whole, and outlives what it can't run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from live.boards.admin import BoardAdmin
from live.boards.registry import BoardRegistry
from live.domain.board import Boards
from live.domain.event import make_entry
from live.errors import EpochLostError, ProblemError
from live.fanout.hub import Hub
from live.fanout.subscription import Subscription
from live.fanout.viewer import ChannelEndedError, PullViewer
from live.ingest.committer import Committer
from live.settings import Duration, Settings
from live.store.connection.client import connect
from live.store.registry.definitions import Definition
from live.store.registry.presence import Presence
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

KISS: Final[dict[str, Any]] = {"source": ["kiss"], "window": "forever"}


class Process:
    """What a process has of boards; `told` is what the intake would hear."""

    def __init__(self, settings: Settings) -> None:
        in_file = Boards([rolling_board()])
        self.client = connect(settings.store, settings)
        self.hub = Hub(self.client, (), settings, Presence(self.client, settings.key_prefix))
        self.board_admin = BoardAdmin(self.client, settings, in_file)
        self.registry = BoardRegistry(self.client, settings, in_file, self.hub, self.board_admin)
        self.told: list[list[str]] = []
        self.registry.tell = self.tell

    def tell(self, boards: Boards, committers: dict[str, Committer]) -> None:
        assert list(boards.by_id) == list(committers) == list(self.hub.channels)
        self.told.append(list(committers))


@asynccontextmanager
async def process(settings: Settings) -> AsyncIterator[Process]:
    """A process that runs while in the context."""
    made = Process(settings)
    tasks = [asyncio.create_task(made.registry.run()), asyncio.create_task(made.hub.run())]
    try:
        yield made
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await made.client.aclose()


async def drain(viewer: PullViewer) -> None:
    """Take frames for as long as there are any."""
    while True:
        await viewer.next_frame()


async def test_boards_are_swapped_as_a_whole(any_store: str) -> None:
    """What was read before stays as it was; what is read after has all of the board."""
    async with process(fresh_settings(any_store)) as made:
        before = made.registry.boards, made.registry.ledgers, made.registry.committers
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.look()
        assert [len(held) for held in (before[0].by_id, *before[1:])] == [1, 1, 1]
        assert (await made.registry.committers["b"].commit([make_entry("a")])).offset == 1
        assert [board.id for board in made.registry.boards.fed_by("kiss", None)] == ["b"]
        await made.board_admin.delete("b", "ann")
        await made.registry.look()
        assert made.told == [["posts", "b"], ["posts"]]


async def test_what_a_removed_board_still_holds_is_refused(any_store: str) -> None:
    """Whether its process has heard or not, and whoever still has its committer."""
    async with process(fresh_settings(any_store)) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.look()
        committer = made.registry.committers["b"]
        await committer.commit([make_entry("a")])
        await made.board_admin.delete("b", "ann")
        unheard = await asyncio.gather(*(committer.commit([make_entry("a"), make_entry("b")]) for _ in range(20)))
        assert all(done.offset is None and done.refused == dict.fromkeys((0, 1), "board_unknown") for done in unheard)
        assert "b" not in made.registry.committers
        assert (await committer.commit([make_entry("a")])).refused == {0: "board_unknown"}


async def test_a_board_that_is_lost_is_not_one_that_was_removed(any_store: str) -> None:
    """As long as it is defined, the store has lost it, and says so."""
    async with process(fresh_settings(any_store)) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.look()
        await made.registry.committers["b"].commit([make_entry("a")])
        await made.client.delete(made.registry.ledgers["b"].state.keys.meta)
        with pytest.raises(EpochLostError):
            await made.registry.committers["b"].commit([make_entry("a")])
        error = EpochLostError("lost")
        assert await made.registry.explain("b", error) is error
        gone = await made.registry.explain("c", error)
        assert isinstance(gone, ProblemError)
        assert gone.code == "board_not_found"


async def test_another_life_takes_the_viewers_along(any_store: str) -> None:
    """A board that was removed and made again between two looks; its channel goes on, at the beginning."""
    settings = fresh_settings(any_store, conflation_interval=Duration(0.01))
    async with process(settings) as made:
        other = BoardAdmin(made.client, settings, Boards([rolling_board()]))
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.look()
        old = made.registry.ledgers["b"]
        with made.hub.watch("b", Subscription(size=5)) as viewer:
            assert (await viewer.next_frame()).type == "sync"
            async with made.registry._looking:  # a process that is between two looks
                await other.delete("b", "ann")
                await other.put("b", KISS, "ann")
            await made.registry.look()
            new = made.registry.ledgers["b"]
            assert new is not old

            async def synced() -> bool:
                frame = await viewer.next_frame()
                return frame.type == "sync" and new.state.born in frame.text

            await eventually(synced)
            assert (await made.registry.committers["b"].commit([make_entry("a")])).offset == 1
            while (frame := await viewer.next_frame()).type == "status":  # the number of viewers may come first
                pass
            assert frame.type == "update"
            await made.board_admin.delete("b", "ann")
            await made.registry.look()
            with pytest.raises(ChannelEndedError):
                await drain(viewer)
        assert made.hub.channels.keys() == {"posts"}


async def test_what_can_not_be_run_is_passed_over(any_store: str) -> None:
    """A definition of a later version, one without a life, one of other data: said once, and the rest goes on."""
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
            async with made.registry._looking:
                for name, definition in strange.items():
                    version = await made.board_admin.definitions.version()
                    assert await made.board_admin.definitions.keep(version, name, definition, None)
            await made.registry.look()
            await made.registry.look()
        said = [line["board"] for line in logs if line["event"] == "can't run a board that is defined"]
        assert sorted(said) == ["later", "lifeless", "odd"]
        assert made.registry.ledgers.keys() >= {"posts", "b"}
        assert not made.registry.ledgers.keys() & {"later", "lifeless"}


async def test_a_board_of_the_file_goes_before(any_store: str) -> None:
    """One that was made at run time under its id is not run, which is said once."""
    settings = fresh_settings(any_store)
    async with process(settings) as made:
        held = made.registry.ledgers["posts"]
        with capture_logs() as logs:
            async with made.registry._looking:
                version = await made.board_admin.definitions.version()
                definition = Definition(epoch="1", choices=KISS)
                assert await made.board_admin.definitions.keep(version, "posts", definition, None)
            await made.registry.look()
            await made.registry.look()
        assert [line["board"] for line in logs if "ignoring a run-time board" in line["event"]] == ["posts"]
        assert made.registry.ledgers["posts"] is held


async def test_a_change_that_was_not_finished_is_finished(any_store: str) -> None:
    """Whoever froze a board and died before the store knew: the next process that hears sees to it."""
    async with process(fresh_settings(any_store)) as made:
        await made.board_admin.put("b", KISS, "ann")
        found = await made.board_admin.definitions.load()
        frozen = Definition(epoch=found.boards["b"].epoch, choices={**KISS, "frozen": True}, revision=2)
        assert await made.board_admin.definitions.keep(found.version, "b", frozen, None)
        await made.registry.look()
        assert (await made.registry.committers["b"].commit([make_entry("a")])).refused == {0: "frozen"}


async def test_a_store_that_is_away_changes_nothing(own_store: StoreProcess) -> None:
    """The boards go on as they were; when it is back, what was changed is taken over."""
    async with process(fresh_settings(own_store.url, store_timeout=Duration(0.3))) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.registry.look()
        with capture_logs() as logs:
            own_store.kill()
            await asyncio.sleep(2.5)
            assert made.registry.ledgers.keys() == {"posts", "b"}
            own_store.start()
        assert len([line for line in logs if line["event"] == "can't read the definitions of boards"]) == 1
        await made.board_admin.delete("b", "ann")

        async def heard() -> bool:
            return made.registry.ledgers.keys() == {"posts"}

        await eventually(heard)
