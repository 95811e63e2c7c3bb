"""A board that the store loses under load takes no events, and every other board goes on, also after a restart."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from live.fanout.channel import Channel
from live.settings import Settings
from live.store.connection.client import connect
from live.store.connection.high_water import Facts, HighWater
from live.store.registry.definitions import DefinitionStore
from tests.harness.boards import rolling_board
from tests.harness.forked import run_live
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import ServerProcess, serving, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.sse import Stream, streaming
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.fault]

FILE: Final = """
[[board]]
id = "near"
types = ["near"]
[[board]]
id = "far"
types = ["far"]
"""

GO_BACK: Final = """
redis.call('DEL', unpack(KEYS))
for i = 1, #ARGV, 2 do redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1]) end
"""

LOST: Final = "the store lost the board's data"
PATIENCE: Final = 30.0  # seconds in which viewers learn of a loss

Lose = Callable[["Far"], Coroutine[Any, Any, None]]


class Far:
    """The store keys of the board that gets lost."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.client = connect(settings.store, msgspec.structs.replace(settings, data_dir=folder / "far"))
        self.prefix = settings.key_prefix
        self.copy: dict[str, bytes] = {}

    async def keep(self) -> None:
        """Copy the board as it is."""
        async for name in self.client.names(f"{self.prefix}:{{far}}:*"):
            self.copy[name] = await self.client.call(name, "DUMP", name)

    async def go_back(self) -> None:
        """Put the copy in place of the board, in one step."""
        names = [name async for name in self.client.names(f"{self.prefix}:{{far}}:*")]
        parts = [part for pair in self.copy.items() for part in pair]
        await self.client.call(names[0], "EVAL", GO_BACK, len(names), *names, *parts)

    async def lose_state(self) -> None:
        """Delete the state of the board."""
        meta = f"{self.prefix}:{{far}}:meta"
        await self.client.call(meta, "DEL", meta)

    async def waiting(self, board: str) -> int:
        """Return how many entries of a board's journals wait in the store."""
        streams = [name async for name in self.client.names(f"{self.prefix}:{{{board}}}:journal:*")]
        return sum([await self.client.call(stream, "XLEN", stream) for stream in streams])


async def epochs(far: Far) -> dict[str, str]:
    """The epochs of all boards, as they are defined."""
    found = await DefinitionStore(far.client).load()
    return {name: definition.epoch for name, definition in found.boards.items()}


class Load:
    """Producers of a board.

    They count all acknowledged events, and the acknowledged events that they sent after the loss.
    """

    def __init__(self, client: httpx.AsyncClient, board: str) -> None:
        self.client, self.board = client, board
        self.acknowledged = self.after = self.refused = 0
        self.is_lost = self.is_over = False

    async def send(self) -> httpx.Response:
        """Send one event."""
        began_after = self.is_lost
        answer = await self.client.post("/v1/events", json={"board": self.board, "type": self.board, "key": "k"})
        if answer.status_code == 200 and answer.json()["accepted"]:
            self.acknowledged += 1
            self.after += began_after
        else:
            self.refused += 1
        return answer

    async def run(self) -> None:
        """Send events until the load is over."""
        while not self.is_over:
            with suppress(httpx.TransportError):
                await self.send()


@asynccontextmanager
async def running(*loads: Load) -> AsyncIterator[None]:
    """Let producers send events while in the context."""
    tasks = [asyncio.create_task(load.run()) for load in loads for _ in range(2)]
    try:
        yield
    finally:
        for load in loads:
            load.is_over = True
        await asyncio.gather(*tasks)


async def begin(client: httpx.AsyncClient, far: Far) -> tuple[Load, Load]:
    """Count on both boards, copy the board `far`, and count more on it."""
    near_load, far_load = Load(client, "near"), Load(client, "far")
    for load in (near_load, far_load):
        for _ in range(5):
            assert (await load.send()).status_code == 200

    async def drained() -> bool:
        return not await far.waiting("near") + await far.waiting("far")

    await eventually(drained)
    await far.keep()
    for _ in range(3):
        assert (await far_load.send()).status_code == 200
    await eventually(drained)
    return near_load, far_load


async def only_far_stops(client: httpx.AsyncClient, near: Load, other: Load, stream: Stream) -> None:
    """Check under load that only the board `far` stops, which the store has just lost."""
    refused, counted = near.refused, near.acknowledged

    async def moves() -> bool:
        return near.acknowledged >= counted + 20 and other.refused >= 5

    await eventually(moves)
    assert (near.refused, other.after) == (refused, 0), (
        "the lost board counted an event, or the other board refused one"
    )
    answer = await other.send()
    assert (answer.status_code, answer.json()["code"]) == (503, "epoch_lost"), answer.text
    with suppress(TimeoutError):
        await asyncio.wait_for(stream.follow(counted + 20), 10)
    assert stream.model.offset >= counted + 20, "viewers of the board that was not lost get nothing"
    assert not stream.model.stale

    async def named() -> bool:
        ready = await client.get("/readyz")
        assert ready.status_code == 200, ready.text
        return any("board far takes no events until an operator decides" in one for one in ready.json()["reasons"])

    await eventually(named)


async def drains(far: Far, near: Load) -> None:
    """Check that the other board's journal still moves to SQL after load."""

    async def drained() -> bool:
        return not await far.waiting("near")

    for _ in range(3):
        assert (await near.send()).status_code == 200
        await eventually(drained)


async def lose_under_load(store: str, folder: Path, lose: Lose) -> None:
    """Run a server with two boards under load, and let the store lose one of them."""
    settings = fresh_settings(store, data_dir=folder, journal="sqlite")
    far = Far(settings, folder)
    try:
        async with serving(settings, rolling_board(board="near"), rolling_board(board="far")) as client:
            await until_ready(client)
            near, other = await begin(client, far)
            async with streaming(client, board="near") as stream:
                async with running(near, other):
                    await lose(far)
                    other.is_lost = True
                    await only_far_stops(client, near, other, stream)
                await drains(far, near)
            assert await score(client, "near") == near.acknowledged
    finally:
        await far.client.aclose()


LOSSES: Final = pytest.mark.parametrize("lose", [Far.go_back, Far.lose_state], ids=["back", "gone"])


@LOSSES
async def test_one_lost_board_stops_alone(valkey_url: str, tmp_path: Path, lose: Lose) -> None:
    """Nothing is acknowledged on top of the lost board, and the other board goes on."""
    await lose_under_load(valkey_url, tmp_path, lose)


async def show_nothing_lost(store: StoreProcess, folder: Path) -> None:
    """Restart a store, which comes back without the state of a board. Nobody sends events to this board."""
    settings = fresh_settings(store.url, data_dir=folder, journal="sqlite")
    far = Far(settings, folder)
    try:
        async with serving(settings, rolling_board(board="near"), rolling_board(board="far")) as client:
            await until_ready(client)
            _, other = await begin(client, far)
            async with streaming(client, board="far") as stream:
                await stream.follow(other.acknowledged)
                assert b'data-member="k"' in (await client.get("/boards/far")).content
                await far.lose_state()
                store.kill()
                await asyncio.to_thread(store.start)

                known = False
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        while not known:
                            known = (await stream.until("status")).message["reason"] == LOST
                assert known, "a viewer takes the old state for the present one"
            for _ in range(5):
                page, drawn = await client.get("/v1/boards/far"), await client.get("/boards/far")
                assert (page.status_code, page.json()["code"]) == (503, "epoch_lost"), page.text
                assert b'data-member="k"' not in drawn.content, "the page shows the old state"
                answer = await other.send()
                assert (answer.status_code, answer.json()["code"]) == (503, "epoch_lost"), answer.text
            assert (await client.get("/v1/boards/near")).status_code == 200
    finally:
        await far.client.aclose()


async def test_a_lost_board_is_shown_to_nobody(own_store: StoreProcess, tmp_path: Path) -> None:
    """Nobody sends it events. Still, viewers learn of the loss, pages show nothing, and nothing is acknowledged."""
    await show_nothing_lost(own_store, tmp_path)


@pytest.mark.mutant
async def test_viewers_who_do_not_learn_of_a_loss_are_noticed(own_store: StoreProcess, tmp_path: Path) -> None:
    """In the mutant, viewers are not told that what they see is out of date."""
    with must_be_caught("viewers see a lost board as live"), replaced(Channel, "set_stale", lambda *_: None):
        await show_nothing_lost(own_store, tmp_path)


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", ["for all", "in silence"])
async def test_a_loss_of_the_wrong_extent_is_detected(valkey_url: str, tmp_path: Path, mistake: str) -> None:
    """After the loss of one board, one mutant stops every board, and the other mutant stops no board."""

    def wrong(high_water: HighWater, reasons: Mapping[str, str]) -> None:
        if mistake == "for all" and reasons:
            high_water.lose("; ".join(reasons.values()))

    with must_be_caught(mistake), replaced(HighWater, "lose_boards", wrong):
        await lose_under_load(valkey_url, tmp_path, Far.go_back)


class Machine:
    """A server with a journal and two boards of the boards file, and commands beside it."""

    def __init__(self, store: str, folder: Path) -> None:
        file = folder / "boards.toml"
        file.write_text(FILE, encoding="utf-8")
        self.settings = Settings(
            port=0, store=store, data_dir=folder / "data", boards=file, journal="sqlite",
            allowed_hosts=("x",),
        )  # fmt: skip
        self.server = ServerProcess(self.settings, folder)
        self.run = partial(run_live, environment=self.server.environment, timeout=120)

    @property
    def facts(self) -> Facts:
        """What the witness file in the data directory says."""
        path = self.settings.data_dir / f"witness-{self.settings.key_prefix}.json"
        return msgspec.json.decode(path.read_bytes(), type=Facts)

    @asynccontextmanager
    async def client(self, *loads: Load) -> AsyncIterator[httpx.AsyncClient]:
        """A client of the server, which the producers use too."""
        async with httpx.AsyncClient(base_url=self.server.url, timeout=180) as client:
            for load in loads:
                load.client = client
            yield client

    def lost(self) -> list[str]:
        """Return the boards that `live journal` lists as lost."""
        found: list[str] = json.loads(self.run("journal", "--json").stdout)["lost"]
        return found


async def score(client: httpx.AsyncClient, board: str) -> int:
    """The score of the only member."""
    page = (await client.get(f"/v1/boards/{board}")).json()
    return sum(record["score"] for record in page.get("records", ()))


async def lose_and_start_again(machine: Machine, far: Far, lose: Lose) -> tuple[Load, Load, int]:
    """Lose a board under load, and start the server again. The server then serves only the other board."""
    async with machine.client() as client:
        near, other = await begin(client, far)
        async with streaming(client, board="near") as stream, running(near):
            await lose(far)  # SQL now has all entries of `far`, so the journal can restore every acknowledged event
            other.is_lost = True
            async with running(other):
                await only_far_stops(client, near, other, stream)
        await drains(far, near)
    assert ["far" in line for line in machine.lost()] == [True], machine.lost()
    assert machine.run("backup", str(machine.settings.data_dir / "refused")).returncode == 2
    await asyncio.to_thread(machine.server.stop)
    await asyncio.to_thread(machine.server.start)
    assert machine.facts.lost_boards.keys() == {"far"}
    async with machine.client(near, other) as client:
        assert (await near.send()).status_code == 200
        assert (await other.send()).json()["code"] == "epoch_lost"
        assert (await client.get("/readyz")).status_code == 200
        await drains(far, near)
        held = await score(client, "far")
    await asyncio.to_thread(machine.server.stop)
    return near, other, held


@pytest.mark.parametrize(
    ("lose", "words"),
    [
        (Far.go_back, ("store",)),
        (Far.lose_state, ("store", "--board", "far")),
        (Far.go_back, ("journal", "--board", "far")),
        (Far.lose_state, ("journal", "--board", "far")),
    ],
    ids=["back-store", "gone-store", "back-journal", "gone-journal"],
)
async def test_a_server_starts_with_a_lost_board_until_an_operator_decides(
    own_store: StoreProcess, tmp_path: Path, lose: Lose, words: tuple[str, ...]
) -> None:
    """The decision ends the loss of the lost board, and does not touch the other board."""
    machine = Machine(own_store.url, tmp_path)
    far = Far(machine.settings, tmp_path)
    machine.server.start()
    try:
        near, other, held = await lose_and_start_again(machine, far, lose)
        before = await epochs(far)
        done = await asyncio.to_thread(machine.run, "recover", "--from", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        await asyncio.to_thread(machine.server.start)
        after = machine.facts
        assert (after.lost, after.lost_boards) == ("", {})
        now = await epochs(far)
        assert now["near"] == before["near"], "a board that lost nothing got another epoch"
        # What an older state lacks is written, unless the store has counted something since.
        assert now["far"] != before["far"] or (lose is Far.go_back and words[0] == "journal")
        async with machine.client(near, other) as client:
            for load in (near, other):
                assert (await load.send()).status_code == 200
            expected = other.acknowledged if words[0] == "journal" else held + 1
            assert [await score(client, "near"), await score(client, "far")] == [near.acknowledged, expected]
            await drains(far, near)
            await drains(far, other)
        compared = json.loads((await asyncio.to_thread(machine.run, "check", "--json")).stdout)
        assert compared["clean"], compared
        assert machine.lost() == []
    finally:
        await far.client.aclose()
        if machine.server.process is not None and machine.server.process.poll() is None:
            machine.server.kill()
