"""A process that shows the boards of a real replica never writes, and marks data that may be old as stale."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect as connect_viewer

from live.domain.board import Boards
from live.errors import SetupError
from live.serve import check_store
from live.settings import Settings
from live.store.board.requests import OpenRequest
from live.store.board.state import BoardState
from live.store.connection.client import Store, connect
from live.store.connection.replica import Replica
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import REDIS_SERVER, valkey
from tests.harness.topologies import Server, wait
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow

BINARIES: Final = {"valkey": valkey(Path("/")).binary, "redis": REDIS_SERVER}
PATHS: Final = (
    "/v1/boards", "/v1/boards/posts", "/v1/boards/posts?limit=1", "/v1/boards/posts/records/a", "/v1/records/a",
    "/v1/boards/posts/records?key=a", "/v1/boards/posts/slots", "/v1/boards/posts/baseline", "/v1/items?key=a",
    "/", "/boards/posts", "/boards/posts/records/a", "/embed/posts", "/boards/posts/records.csv", "/readyz",
)  # fmt: skip


class Pair(NamedTuple):
    """A primary and its replica."""

    primary: Server
    replica: Server


class Site(NamedTuple):
    """A process that takes events at the primary, and one that shows boards from the replica."""

    producer: httpx.AsyncClient
    reader: httpx.AsyncClient
    url: str


@pytest.fixture(params=["valkey", "redis"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Yield a primary and a replica. The primary pings the replica each second, even if nothing is written."""
    binary = BINARIES[request.param]
    if binary is None:
        pytest.skip("redis-server is not installed")
    often = ("--repl-ping-replica-period", "1")
    primary = Server(binary, tmp_path / "p", *often)
    replica = Server(binary, tmp_path / "r", *often, "--replicaof", f"127.0.0.1 {primary.port}")
    primary.start()
    replica.start()
    wait(lambda: replica.ask("ROLE")[3] == b"connected")
    yield Pair(primary, replica)
    replica.kill()
    primary.kill()


def both_settings(pair: Pair, folder: Path, **changes: Any) -> tuple[Settings, Settings]:
    """Return the settings of both processes, which share no folder."""
    settings = replace(fresh_settings(f"redis://{pair.primary.place}"), data_dir=folder / "ingest", role="ingest")
    copy = {"store": f"redis+replica://{pair.replica.place}", "data_dir": folder / "viewers", "role": "viewers"}
    return settings, replace(settings, **{**copy, **changes})


@asynccontextmanager
async def site(pair: Pair, folder: Path, **changes: Any) -> AsyncIterator[Site]:
    """Run both processes, and count one event, which the replica has."""
    ingest, viewers = both_settings(pair, folder, **changes)
    boards = [rolling_board()]
    async with run_server(ingest, boards) as first, httpx.AsyncClient(base_url=first) as producer:
        await post(producer, {"key": "a"})
        async with run_server(viewers, boards) as url, httpx.AsyncClient(base_url=url, timeout=30) as reader:
            yield Site(producer, reader, url)


async def follow(socket: Any, model: ModelViewer, score: int) -> None:
    """Receive until the first record has a score, on a board that is not stale."""
    async with asyncio.timeout(30):
        while not model.records or model.records[0].score != score or model.stale:
            model.receive(await socket.recv())
            assert not model.records or model.records[0].score <= score


@asynccontextmanager
async def watched(pair: Pair, folder: Path) -> AsyncIterator[tuple[Site, Any, ModelViewer]]:
    """Run both processes, and a viewer at the replica that has seen the event."""
    async with (
        site(pair, folder) as at,
        connect_viewer(f"{at.url.replace('http', 'ws')}/v1/boards/posts/live") as socket,
    ):
        model = ModelViewer()
        await follow(socket, model, 1)
        yield at, socket, model


def refused_writes(server: Server) -> int:
    """Return how many writes a replica has refused."""
    return int(server.fields("INFO", "errorstats").get("errorstat_READONLY", "count=0").removeprefix("count="))


async def check_reading(pair: Pair, folder: Path) -> None:
    """Every read works, viewers see changes, and nothing was written."""
    async with (
        site(pair, folder) as at,
        connect_viewer(f"{at.url.replace('http', 'ws')}/v1/boards/posts/live") as socket,
    ):

        async def there() -> bool:
            return bool((await at.reader.get("/v1/boards/posts/records/a")).status_code == 200)

        await eventually(there)
        for path in PATHS:
            answer = await at.reader.get(path)
            assert answer.status_code == 200, (path, answer.text)
        model = ModelViewer()
        for score in (1, 2, 3):
            await follow(socket, model, score)
            await post(at.producer, {"key": "a"})
        await asyncio.sleep(2.5)  # on a primary, a process would write every two seconds that it is alive
    assert refused_writes(pair.replica) == 0


async def test_a_replica_is_read_and_never_written(pair: Pair, tmp_path: Path) -> None:
    """Neither the routes nor the periodic tasks nor the end of the process write."""
    await check_reading(pair, tmp_path)


@pytest.mark.mutant
async def test_a_board_that_is_opened_as_on_a_primary_is_noticed(pair: Pair, tmp_path: Path) -> None:
    """The mutant opens the board with the script that writes."""

    async def writing(self: BoardState, born: str) -> list[Any]:
        request = OpenRequest(idle=86400, span=86400, born=born or None)
        return await self.run(self.scripts.open, [self.keys.meta, self.keys.writers, self.keys.slots], request)

    with must_be_caught("the board is opened with a script that writes"), replaced(BoardState, "_opened", writing):
        await check_opened(pair, tmp_path)


async def check_opened(pair: Pair, folder: Path) -> None:
    """Check that a board of a replica can be opened without a write."""
    _, viewers = both_settings(pair, folder)
    client = connect(viewers.store, viewers)
    state = BoardState(client, rolling_board(), viewers)
    meta = state.keys.meta
    pair.primary.ask("HSET", meta, "epoch", "12345678", "shape", state.board.shape.encode(), "span", "86400")
    wait(lambda: pair.replica.ask("EXISTS", meta) == 1)
    try:
        failed = None
        try:
            await state.open()
        except Exception as error:  # noqa: BLE001 - of any kind: the check names it
            failed = error
        assert failed is None
        assert state.epoch == "12345678"
    finally:
        await client.aclose()
    assert refused_writes(pair.replica) == 0


@pytest.mark.fault
@pytest.mark.sentinel
async def test_a_replica_that_hears_nothing_is_stale_and_then_live_again(pair: Pair, tmp_path: Path) -> None:
    """Viewers learn that the board is stale, and no read shows its old state as current.

    When the primary is back, no event is missing.
    """
    async with watched(pair, tmp_path) as (at, socket, model):
        with pair.primary.frozen():
            await until_stale(socket, model)
            assert [(await at.reader.get(path)).status_code for path in ("/v1/boards/posts", "/readyz")] == [503, 503]
            assert model.records[0].score == 1

        async def counted() -> bool:
            return bool((await at.producer.post("/v1/events", json={"key": "a"})).status_code == 200)

        await eventually(counted)
        await follow_to_end(at, socket, model)
    assert refused_writes(pair.replica) == 0


@pytest.mark.mutant
async def test_an_old_state_that_is_shown_as_live_is_noticed(pair: Pair, tmp_path: Path) -> None:
    """The mutant takes a replica's data for current even if the replica hears nothing from its primary."""
    async with watched(pair, tmp_path) as (_, socket, model):
        mutant = replaced(Replica, "require_current", lambda _self: None)
        with mutant, must_be_caught("an old state is shown as live"), pair.primary.frozen():
            await until_stale(socket, model, 8)


async def until_stale(socket: Any, model: ModelViewer, patience: float = 30) -> None:
    """Receive until the board is stale."""
    end = asyncio.get_running_loop().time() + patience
    while not model.stale:
        left = end - asyncio.get_running_loop().time()
        assert left > 0, "the viewer does not know that the board may be old"
        try:
            model.receive(await asyncio.wait_for(socket.recv(), max(0.01, left)))
        except TimeoutError:
            continue


async def follow_to_end(at: Site, socket: Any, model: ModelViewer) -> None:
    """Receive until the viewer shows the score that the API of the reader shows, which includes the second event."""

    async def readable() -> Any:
        answer = await at.reader.get("/v1/boards/posts")
        return answer.json() if answer.status_code == 200 and answer.json()["total_score"] > 1 else None

    board = await eventually(readable)
    await follow(socket, model, board["total_score"])


@pytest.mark.fault
@pytest.mark.sentinel
async def test_a_promoted_replica_is_shown_and_still_not_written(pair: Pair, tmp_path: Path) -> None:
    """The process shows the board again, and writes nothing to the new primary."""
    async with watched(pair, tmp_path) as (at, socket, model):
        pair.primary.kill()
        await until_stale(socket, model)
        pair.replica.ask("REPLICAOF", "NO", "ONE")
        await follow(socket, model, 1)
        assert (await at.reader.get("/readyz")).status_code == 200
        before = pair.replica.fields("INFO", "persistence")["rdb_changes_since_last_save"]
        await asyncio.sleep(5.5)  # on a primary, a process would write its viewers every five seconds
        assert pair.replica.fields("INFO", "persistence")["rdb_changes_since_last_save"] == before
        assert model.records[0].score == 1


async def test_the_primary_counts_the_viewers_if_it_is_named(pair: Pair, tmp_path: Path) -> None:
    """With the setting `store_primary`, the primary counts a viewer of the replica. Without it, the count is 0."""
    for named, expected in ((f"redis://{pair.primary.place}", 1), ("", 0)):
        folder = tmp_path / str(expected)
        ingest, viewers = both_settings(pair, folder, store_primary=named)
        boards = [rolling_board()]
        async with (
            run_server(replace(ingest, role="all"), boards) as first,
            httpx.AsyncClient(base_url=first) as producer,
        ):
            await post(producer, {"key": "a"})
            async with (
                run_server(viewers, boards) as url,
                connect_viewer(f"{url.replace('http', 'ws')}/v1/boards/posts/live") as socket,
            ):
                await follow(socket, ModelViewer(), 1)

                async def counted(client: httpx.AsyncClient = producer, count: int = expected) -> bool:
                    return bool((await client.get("/v1/boards/posts")).json()["viewer_count"] == count)

                await asyncio.sleep(0 if expected else 5.5)
                await eventually(counted)


async def test_a_process_finds_out_that_its_store_is_a_replica(pair: Pair, tmp_path: Path) -> None:
    """A process with the role `viewers` then writes nothing. Other roles and contradictory settings are refused."""
    ingest, viewers = both_settings(pair, tmp_path)
    boards = Boards([rolling_board()])
    ingest = replace(ingest, open=True)
    await check_store(ingest, boards)
    wait(lambda: pair.replica.ask("DBSIZE") == pair.primary.ask("DBSIZE"))
    plain = replace(viewers, store=f"redis://{pair.replica.place}", open=True)
    found = await check_store(plain, boards)
    assert found.store == viewers.store
    assert is_replica(found)
    assert refused_writes(pair.replica) == 0
    for changes, reason in (
        ({"role": "all"}, "use redis://127.0.0.1"),
        ({"store": viewers.store, "role": "all"}, "use it with --role viewers"),
        ({"store": viewers.store, "admin_roles": ("viewers",)}, "leave viewers out of LIVE_ADMIN_ROLES"),
        ({"store": ingest.store, "store_primary": ingest.store}, "LIVE_STORE_PRIMARY is for a store that is a replica"),
        ({"store_primary": viewers.store}, "which names a replica"),
    ):
        with pytest.raises(SetupError, match=reason):
            await check_store(replace(plain, **changes), boards)


def is_replica(settings: Settings) -> bool:
    """Whether the client for some settings only reads."""
    client: Store = connect(settings.store, settings)
    return client.is_replica
