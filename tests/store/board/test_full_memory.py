"""A store that has reached its `maxmemory` refuses events, and still frees memory and answers reads."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from live.boards.admin import BoardAdmin
from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices, Votes
from live.domain.event import make_entry
from live.domain.producer import Scope
from live.domain.window import Forever, Periods, Rolling, Sliding, WindowChoice
from live.errors import EpochLostError, StoreUnavailableError
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.requests import SCRIPTS, Scripts
from live.store.connection.client import Store, connect
from live.store.connection.scripts import Script
from live.store.registry.presence import Presence
from live.store.registry.producers import ProducerStore
from tests.harness.boards import built
from tests.harness.clock import set_clock, with_clock
from tests.harness.invariants import drifted
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER, StoreProcess, valkey
from tests.harness.waiting import eventually

HOUR = 3600
LATER = 100 * HOUR * 1000
CHANGING = [
    built(id="rolling", title="rolling", window=Rolling(24 * HOUR, HOUR), clock="event"),
    built(id="dense", title="dense", window=Rolling(24 * HOUR, HOUR), clock="event", ranks="dense", ties="first"),
    built(id="sliding", title="sliding", window=Sliding(7 * HOUR), clock="event"),
    built(id="tied", title="tied", window=Sliding(7 * HOUR), clock="event", ties="first", ranks="dense"),
    built(id="hours", title="hours", window=Periods(unit="hour", keep=9), clock="event"),
    built(id="best", title="best", window=Periods(unit="hour", keep=9), clock="event", operator="best", cap=50),
    built(id="today", title="today", window=Periods(unit="hour", keep=9)),
    built(id="sum", title="sum", window=Periods(unit="hour", last=9), clock="event"),
]
VOTING = built(id="vote", title="vote", window=Forever(), clock="event", votes=Votes(per_key=99, registered=True))


@pytest.fixture(params=["valkey", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreProcess]:
    """Each supported store in turn, with a memory limit that the test may change."""
    if request.param == "redis" and REDIS_SERVER is None:
        pytest.skip("redis-server is not installed")
    process = valkey(tmp_path) if request.param == "valkey" else StoreProcess(str(REDIS_SERVER), tmp_path)
    process.start()
    yield process
    process.kill()


@asynccontextmanager
async def client_of(store: StoreProcess) -> AsyncIterator[tuple[Store, Settings]]:
    """A client and its settings."""
    patient = {"store_timeout": 10, "write_deadline": 20}  # batches of 2,000 long members take long
    settings = fresh_settings(store.url, rotation_step=500, **patient)
    client = connect(store.url, settings)
    try:
        yield client, settings
    finally:
        await client.aclose()


async def fill_up(client: Store) -> None:
    """Set a memory limit below what the store holds."""
    await client.config_set("maxmemory", 1)


async def is_refused(ledger: Ledger) -> bool:
    """Whether an event is refused because memory is full, and not because the store was slow."""
    patient = ledger.state.settings
    ledger.state.settings = msgspec.structs.replace(patient, write_deadline=0.5)

    async def refused() -> bool:
        with pytest.raises(StoreUnavailableError) as error:
            await ledger.writer.add([make_entry("more", 1, LATER)])
        return "maxmemory" in str(error.value)

    await eventually(refused)
    ledger.state.settings = patient
    return True


async def all_left(ledger: Ledger) -> int | str:
    """Rotate until nothing is due. Returns the number of steps, or why a step was refused."""
    steps = 0
    try:
        while await ledger.rotator.rotate() is None:
            steps += 1
    except StoreUnavailableError as error:
        return str(error)
    return steps


async def old_and_new(client: Any, settings: Settings, board: Board, scripts: Scripts = SCRIPTS) -> Ledger:
    """A board on which almost all events are due to expire."""
    ledger = Ledger(client, board, settings, with_clock(scripts, settings))
    for hour in range(3):
        await set_clock(client, settings, hour * HOUR * 1000)
        members = [f"{number}-{'x' * 200}" for number in range(2000)]
        for amount in (1, 2):
            time = None if board.clock == "server" else hour * HOUR * 1000
            await ledger.writer.add([make_entry(member, amount, time) for member in members])
    await set_clock(client, settings, LATER)
    if board.clock == "event":
        await ledger.writer.add([make_entry("new", 1, LATER)])
    return ledger


@pytest.mark.slow
@pytest.mark.parametrize("board", CHANGING, ids=lambda board: board.id)
async def test_a_full_store_still_rotates(store: StoreProcess, board: Board) -> None:
    """Slots, events and periods expire in steps as always. The board is correct, and its memory is freed."""
    async with client_of(store) as (client, settings):
        ledger = await old_and_new(client, settings, board)
        before = (await client.info("memory"))["used_memory"]
        await fill_up(client)
        if board.clock == "event":
            assert await is_refused(ledger)
        steps = await all_left(ledger)
        assert isinstance(steps, int), steps
        assert steps >= 3
        new = ["new"] if board.clock == "event" else []
        assert [record.member for record in (await ledger.reader.read(9)).records] == new
        assert len(await client.keys(f"{ledger.state.keys.channel}:slot:*")) == len(new)
        if not board.window.tables:
            assert await drifted(client, ledger.state.keys) == []

        async def freed() -> bool:  # the store frees the memory of an UNLINK a moment later
            return bool((await client.info("memory"))["used_memory"] < before)

        await eventually(freed)
        await client.config_set("maxmemory", 0)
        await ledger.writer.add([make_entry("new", 1, LATER)])
        assert [record.member for record in (await ledger.reader.read(9)).records] == ["new"]


@pytest.mark.parametrize("name", ["expire_events", "rotate_period"])
async def test_a_script_without_flags_is_caught(store: StoreProcess, name: str) -> None:
    """The store refuses the script at its first write."""
    script: Script[Any] = getattr(SCRIPTS, name)
    bare = msgspec.structs.replace(SCRIPTS, **{name: script.changed(script.source.partition("\n")[2])})
    board = next(
        board for board in CHANGING if board.id == {"expire_events": "sliding", "rotate_period": "today"}[name]
    )
    async with client_of(store) as (client, settings):
        ledger = await old_and_new(client, settings, board, bare)
        await fill_up(client)
        with pytest.raises(AssertionError, match="maxmemory"):
            assert isinstance(steps := await all_left(ledger), int), steps


async def test_a_new_process_reads_and_rotates(store: StoreProcess) -> None:
    """An existing board can be opened, read in every way, and rotated. A new board can't be created."""
    async with client_of(store) as (client, settings):
        await old_and_new(client, settings, CHANGING[0])
        await fill_up(client)
        ledger = Ledger(client, CHANGING[0], settings, with_clock(SCRIPTS, settings))
        assert isinstance(await all_left(ledger), int)
        assert (await ledger.reader.read(9)).rank_count == 1
        assert await ledger.reader.find("new", 1) is not None
        assert len(await ledger.reader.places([("new", 1), ("none", 1)])) == 2
        epoch: Any = await client.hget(ledger.state.keys.meta, "epoch")
        ledger.state.require_epoch(epoch)
        assert await Presence(client).count("rolling") == 0
        with pytest.raises(StoreUnavailableError, match="maxmemory"):
            await Ledger(client, CHANGING[1], settings).state.open()


@pytest.mark.slow
async def test_operators_can_still_change_boards(store: StoreProcess) -> None:
    """Operators can hide a record, withdraw a member, freeze, delete and expire boards, and revoke an API key."""
    async with client_of(store) as (client, settings):
        ledger = await old_and_new(client, settings, CHANGING[0])
        voting = Ledger(client, VOTING, settings)
        await voting.moderation.enter("ada", b"{}")
        board_admin = BoardAdmin(client, settings)
        for name in ("one", "two"):
            await board_admin.put(name, {"idle_ttl": "1s"}, "ann")
        producers = ProducerStore(client)
        await producers.add("shop", Scope())
        epochs = {name: made.epoch for name, made in (await board_admin.definitions.load()).boards.items()}
        await fill_up(client)

        for hidden in (True, False):
            await ledger.moderation.hide("new", hidden=hidden)
            assert await ledger.moderation.is_hidden("new") is hidden
        await voting.moderation.withdraw("ada")
        assert await voting.reader.entrant("ada") is None
        with pytest.raises(StoreUnavailableError, match="maxmemory"):
            await voting.moderation.enter("bob", b"{}")
        assert (await producers.revoke("shop")).secrets == ()
        await board_admin.patch("two", {"frozen": True}, "ann")
        assert await client.hget(f"{settings.key_prefix}:{{two}}:meta", "frozen") == b"1"
        await board_admin.delete("one", "ann")

        async def expired() -> bool:
            return await board_admin.expire("two", epochs["two"], 1) is None

        await eventually(expired)
        assert (await board_admin.definitions.load()).boards == {}
        assert await client.keys(f"{settings.key_prefix}:{{one}}*") == []
        assert await client.keys(f"{settings.key_prefix}:{{two}}*") == []


async def test_a_board_in_use_does_not_expire(store: StoreProcess) -> None:
    """Recording a use replaces the time of the last use. So it needs no more memory."""
    async with client_of(store) as (client, settings):
        board_admin = BoardAdmin(client, settings)
        await board_admin.put("one", {"idle_ttl": "1s"}, "ann")
        made = (await board_admin.definitions.load()).boards["one"]
        board = built(id="one", title="one", idle_ttl="1s")
        meta = f"{settings.key_prefix}:{{one}}:meta"
        used = int(await client.servers.shared.call("HGET", meta, "used"))
        await fill_up(client)

        async def is_later() -> bool:
            await Ledger(client, board, settings, born=made.epoch).state.use()
            return int(await client.servers.shared.call("HGET", meta, "used")) > used

        await eventually(is_later)
        await client.delete(meta)
        with pytest.raises(EpochLostError):
            await Ledger(client, board, settings, born=made.epoch).state.use()


@pytest.mark.slow
async def test_a_server_recovers(store: StoreProcess) -> None:
    """While memory is full, the server is not ready and refuses events. When enough slots have expired, it recovers."""
    settings = fresh_settings(store.url, write_deadline=2)
    board = make_board(Choices(id="posts", window_choice=WindowChoice(sliding="8s")))
    admin: Any = connect(store.url, settings)
    base = (await admin.info("memory"))["used_memory"]
    async with run_server(settings, [board]) as url, httpx.AsyncClient(base_url=url) as client:
        for first in range(0, 20_000, 1000):
            events = [{"key": f"{first + number}-{'x' * 100}"} for number in range(1000)]
            await post(client, *events)
        assert (await client.get("/readyz")).status_code == 200
        used = (await admin.info("memory"))["used_memory"]
        await admin.config_set("maxmemory", base + (used - base) // 2)
        assert (await client.get("/readyz")).status_code == 503

        async def is_refused() -> bool:
            full = await client.post("/v1/events", json={"key": "a"})
            assert full.status_code == 503
            # The write is tried again. The outcome is unknown if its deadline passes before the store refuses it again.
            return bool(full.json()["code"] == "store_unavailable")

        await eventually(is_refused)
        assert (await client.get("/v1/boards/posts")).status_code == 200

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(ready)
        assert (await post(client, {"key": "a"}))["accepted"] == 1
    await admin.aclose()


@pytest.mark.slow
async def test_a_server_starts_on_a_full_store(store: StoreProcess, tmp_path: Path) -> None:
    """The server shows boards and rotates them, but is not ready until the store has room again."""
    boards = tmp_path / "boards.toml"
    boards.write_text('[[board]]\nid = "posts"\nwindow = {sliding = "6s"}\n', encoding="utf-8")
    settings = fresh_settings(store.url, boards=boards)
    log = Keys(settings.key_prefix, "posts").log
    admin: Any = connect(store.url, settings)
    server = ServerProcess(settings, tmp_path)
    try:
        server.start()
        async with httpx.AsyncClient(base_url=server.url) as client:
            await post(client, *({"key": f"k{number}"} for number in range(500)))
        server.kill()
        await fill_up(admin)
        server.start()
        async with httpx.AsyncClient(base_url=server.url) as client:
            assert (await client.get("/v1/boards/posts")).status_code == 200
            assert (await client.get("/readyz")).status_code == 503

            async def empty() -> bool:
                return not await admin.exists(log)

            await eventually(empty)
            await admin.config_set("maxmemory", 0)
            assert (await client.get("/readyz")).status_code == 200
            assert (await post(client, {"key": "a"}))["accepted"] == 1
    finally:
        server.kill()
        await admin.aclose()
