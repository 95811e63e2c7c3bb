"""A store that lost data: no process acknowledges anything on any route until an operator accepts the loss."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import WebSocketException

from live.domain.board import Board
from live.domain.producer import Scope
from live.fanout.channel import Channel
from live.settings import Settings
from live.store.board.keys import Keys, SystemKeys
from live.store.connection.client import connect
from live.store.connection.witness import Witness
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server, until_ready
from tests.harness.settings import fresh_settings
from tests.harness.store import Copy, StoreProcess, valkey
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.security, pytest.mark.fault]

CONTEST: Final[dict[str, Any]] = {"source": ["vote"], "window": "forever", "votes": {"per_key": 1, "registered": True}}
HAMMER: Final = 1.0  # seconds
CLOUDEVENT: Final = b'{"specversion": "1.0", "id": "1", "source": "s", "type": "like", "subject": "k"}'


class Attempt:
    """One way to have something acknowledged, and its result."""

    def __init__(self, method: str, path: str, headers: dict[str, str] | None = None, **body: Any) -> None:
        self.method = method
        self.path = path
        self.headers = headers or {}
        self.body = body

    async def __call__(self, client: httpx.AsyncClient) -> httpx.Response:
        """Make the attempt."""
        return await client.request(self.method, self.path, headers=self.headers, **self.body)


ATTEMPTS: Final = [
    Attempt("POST", "/v1/events", json={"key": "k"}),
    Attempt("POST", "/v1/events", json=[{"key": "k", "id": "1"}, {"key": "j", "type": "vote", "actor": "a"}]),
    Attempt("POST", "/v1/events", {"Idempotency-Key": "new"}, json={"key": "k"}),
    Attempt("POST", "/v1/events", {"Content-Type": "application/cloudevents+json"}, content=CLOUDEVENT),
    Attempt("PUT", "/v1/boards/fresh", json={"source": ["kiss"]}),
    Attempt("PUT", "/v1/boards/contest", json={**CONTEST, "title": "More"}),
    Attempt("PATCH", "/v1/boards/contest", json={"title": "Most"}),
    Attempt("DELETE", "/v1/boards/contest"),
    Attempt("PUT", "/v1/boards/contest/records/Ben", json={}),
    Attempt("PATCH", "/v1/boards/posts/records/k", json={"hidden": True}),
    Attempt("DELETE", "/v1/boards/contest/records/Ada"),
]  # fmt: skip


def is_acknowledged(response: httpx.Response) -> bool:
    """Whether the server accepted something."""
    if response.request.url.path == "/v1/events":
        return response.status_code == 200 and response.json()["accepted"] > 0
    return response.status_code < 400


def http(url: str, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    """A client that opens a connection for each request, so that requests reach all workers.

    Workers take time to start.
    """
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=url, headers=headers or {}, timeout=30, limits=limits)


async def hammer(url: str, headers: dict[str, str], duration: float = HAMMER) -> list[str]:
    """Try every route over many connections for a while; returns what was acknowledged."""
    acknowledged: list[str] = []
    end = time.monotonic() + duration

    async def send(client: httpx.AsyncClient, attempt: Attempt) -> None:
        while time.monotonic() < end:
            with suppress(httpx.TransportError):  # the worker was killed
                response = await attempt(client)
                if is_acknowledged(response):
                    acknowledged.append(f"{attempt.method} {attempt.path}: {response.text}")

    async def send_messages() -> None:
        while time.monotonic() < end:
            with suppress(WebSocketException, OSError):
                address = url.replace("http", "ws") + "/v1/events/live"
                async with connect_socket(address, additional_headers=headers) as socket:
                    await socket.send('{"key":"k"}')
                    answer = msgspec.json.decode(await socket.recv())
                    if answer.get("accepted"):
                        acknowledged.append(f"socket: {answer}")
            await asyncio.sleep(0.05)

    async with http(url, headers) as client:
        await asyncio.gather(*(send(client, attempt) for attempt in ATTEMPTS), send_messages())
    return acknowledged


async def codes(url: str, headers: dict[str, str]) -> set[tuple[int, str]]:
    """The answers of every route."""
    async with http(url, headers) as client:
        responses = [await attempt(client) for attempt in ATTEMPTS]
        return {(response.status_code, response.json().get("code", "")) for response in responses}


class Servers:
    """Real servers on one store."""

    def __init__(self, folder: Path, workers: int, *, keyed: bool) -> None:
        self.folder = folder
        self.store = valkey(folder / "store")
        self.settings = fresh_settings(self.store.url, workers=workers, log_level="warning")
        self.keyed = keyed
        self.headers: dict[str, str] = {}
        self.server = ServerProcess(self.settings, folder)

    async def begin(self) -> None:
        """Start a server with a run-time board and some events."""
        self.store.start()
        await self.make_key()
        self.server.start()
        async with http(self.server.url, self.headers) as client:

            async def works() -> bool:
                return (await client.post("/v1/events", json={"key": "k"})).status_code == 200

            await eventually(works)
            if self.keyed:
                assert (await client.put("/v1/boards/contest", json=CONTEST)).status_code == 201

                async def knows() -> bool:  # another worker learns of the board a moment later
                    return (await client.put("/v1/boards/contest/records/Ada", json={})).status_code < 300

                await eventually(knows)

    async def make_key(self) -> None:
        """Create an API key with all rights, if producers need one."""
        if self.keyed:
            client = connect(self.store.url, self.settings)
            producers = ProducerStore(client, self.settings.key_prefix)
            _, secret = await producers.add("shop", Scope(verbs=("post", "admin")))
            await client.aclose()
            self.headers = {"Authorization": f"Bearer shop.{secret}"}

    async def flush(self) -> None:
        """Delete all data."""
        client = connect(self.store.url, self.settings)
        await client.flushall()
        await client.aclose()

    async def lost_on_every_route(self) -> None:
        """Wait until every route refuses a client with an API key because of the loss, within a second."""

        async def lost() -> bool:
            return await codes(self.server.url, self.headers) == {(503, "epoch_lost")}

        await eventually(lost, 5)
        async with http(self.server.url) as client:
            assert (await client.get("/readyz")).status_code == 503

    def children(self) -> list[int]:
        """The workers."""
        assert self.server.process is not None
        pid = self.server.process.pid
        found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]

    def refused(self) -> str:
        """Start a server that must not start; returns its output."""
        self.server.spawn()
        assert self.server.process is not None
        assert self.server.process.wait(20) == 2, self.server.log()
        return self.server.log()


@contextmanager
def servers(folder: Path, workers: int, *, keyed: bool) -> Iterator[Servers]:
    """Servers that are stopped at the end."""
    (folder / "store").mkdir()
    made = Servers(folder, workers, keyed=keyed)
    try:
        yield made
    finally:
        if made.server.process is not None:
            made.server.process.kill()
            made.server.process.wait()
        if made.store.process is not None:
            made.store.kill()


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no_keys"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_an_emptied_store_is_not_taken_for_a_new_one(
    tmp_path: Path, workers: int, effort: int, *, keyed: bool
) -> None:
    """The running process, a new worker, and a server that starts later all notice."""
    with servers(tmp_path, workers, keyed=keyed) as made:
        await made.begin()
        await made.flush()
        assert await hammer(made.server.url, made.headers, HAMMER * effort) == []
        if keyed:
            assert await hammer(made.server.url, {}, HAMMER / 2) == []
            await made.lost_on_every_route()
        if workers > 1:
            killed = made.children()[0]
            os.kill(killed, signal.SIGKILL)

            async def replaced() -> bool:
                return len(made.children()) == workers and killed not in made.children()

            await eventually(replaced, 20)
            assert await hammer(made.server.url, {}, HAMMER * effort) == []
        assert "data was lost" in made.server.log()
        made.server.stop()

        said = made.refused()
        assert "has no identity" in said
        assert "posts (epoch" in said
        assert "live serve --accept-loss" in said
        await expect_empty(made)

        made.server.start("--accept-loss")
        async with http(made.server.url) as client:
            answer = await client.post("/v1/events", json={"key": "k"})
            assert answer.status_code == (401 if keyed else 200)
            assert (await client.get("/readyz")).status_code == 200
        made.server.stop()
        made.server.start()  # it stays accepted


async def expect_empty(made: Servers) -> None:
    """Check that the store has only store keys that expire: rates, claims of idempotency keys, live processes."""
    client = connect(made.store.url, made.settings)
    found = [key async for key in client.scan_iter(count=1000)]
    await client.aclose()
    assert [key for key in found if not any(tag in key for tag in (b"{rate:", b"{once:", b"{:processes}"))] == []


async def test_a_server_that_forgets_the_store_is_caught(tmp_path: Path) -> None:
    """The test above fails for servers without their record of the store."""
    with servers(tmp_path, 1, keyed=True) as made:
        await made.begin()
        await made.flush()
        made.server.stop()
        shutil.rmtree(made.settings.data_dir)
        made.server.start()
        with pytest.raises(AssertionError, match="accepted"):
            assert await hammer(made.server.url, {}, HAMMER) == []


async def test_a_foreign_store_is_refused(tmp_path: Path) -> None:
    """A server that is pointed to another store reports it and changes nothing there."""
    with servers(tmp_path, 1, keyed=False) as made:
        await made.begin()
        made.server.stop()
        (tmp_path / "other").mkdir()
        other = valkey(tmp_path / "other")
        other.start()
        try:
            settings = msgspec.structs.replace(made.settings, store=other.url)
            client = connect(other.url, settings)
            await client.set(SystemKeys(settings.key_prefix).store, "somebody-else")
            made.server = ServerProcess(settings, tmp_path)
            assert "has the identity somebody-else" in made.refused()
            assert await client.dbsize() == 1
            await client.aclose()
            made.server = ServerProcess(made.settings, tmp_path)
            made.server.start()  # the right store works as before
        finally:
            other.kill()


async def test_a_board_that_lost_its_state_stops_everything(tmp_path: Path) -> None:
    """A run-time board has lost only its state. A deletion by another process is not a loss."""
    with servers(tmp_path, 2, keyed=True) as made:
        await made.begin()
        async with http(made.server.url, made.headers) as client:
            assert (await client.put("/v1/boards/gone", json={"source": ["kiss"]})).status_code == 201
            assert (await client.delete("/v1/boards/gone")).status_code == 204
            for _ in range(20):
                assert (await client.post("/v1/events", json={"key": "k", "type": "kiss"})).status_code == 200
            part, union = {"source": ["hug"], "window": "forever"}, {"union": ["part", "other"], "window": "forever"}
            for name, choices in (("part", part), ("other", {**part, "source": ["wave"]}), ("sum", union)):
                made_one = await client.put(f"/v1/boards/{name}", json=choices)
                assert made_one.status_code == 201, made_one.text
        store = connect(made.store.url, made.settings)
        await store.delete(Keys(made.settings.key_prefix, "contest").meta)
        await store.aclose()

        async def noticed() -> bool:
            async with http(made.server.url, made.headers) as client:
                await client.get("/v1/boards/contest")
                return (await client.get("/readyz")).status_code == 503

        await eventually(noticed)
        await made.lost_on_every_route()
        made.server.stop()
        assert "board contest is defined with epoch" in made.refused()
        made.server.start("--accept-loss")
        async with http(made.server.url, made.headers) as client:
            contest, posts = await client.get("/v1/boards/contest"), await client.get("/v1/boards/posts")
            assert (contest.status_code, contest.json()["rank_count"]) == (200, 0)
            assert posts.json()["rank_count"] == 1
            answer = await post(client, {"key": "k", "type": "hug"})
            assert answer["offsets"].keys() == {"part", "sum"}  # the union has its part again


# A store that goes back


async def watch(url: str, position: tuple[str, int] | None = None) -> tuple[ClientConnection, ModelViewer]:
    """A viewer, which may resume from a position."""
    query = "" if position is None else f"?epoch={position[0]}&offset={position[1]}"
    socket = await connect_socket(f"{url.replace('http', 'ws')}/v1/boards/posts/live{query}")
    return socket, ModelViewer()


async def shows(socket: ClientConnection, viewer: ModelViewer, scores: dict[str, int], deadline: float = 10) -> None:
    """Receive messages until the viewer shows these scores."""
    try:
        async with asyncio.timeout(deadline):
            while {record.key: record.score for record in viewer.records} != scores:
                viewer.receive(await socket.recv())
    except TimeoutError:
        shown = {record.key: record.score for record in viewer.records}
        raise AssertionError(f"the viewer shows {shown}, the store holds {scores}") from None


@asynccontextmanager
async def gone_back(settings: Settings, store: StoreProcess, folder: Path) -> AsyncIterator[tuple[str, Any, Any]]:
    """A server whose store went back from {a: 2, b: 1} to {a: 1}, with its viewer, and the viewer's old position."""
    boards: list[Board] = [rolling_board()]
    async with run_server(settings, boards) as url, http(url) as client:
        await post(client, {"key": "a"})
        copy = Copy(store, folder)
        await post(client, {"key": "a"}, {"key": "b"})
        socket, viewer = await watch(url)
        await shows(socket, viewer, {"a": 2, "b": 1})
        before = (viewer.epoch, viewer.offset)
        copy.restore()
        yield url, (socket, viewer), before
        await socket.close()


async def test_viewers_see_the_restored_state(own_store: StoreProcess, tmp_path: Path) -> None:
    """Connected, new and returning viewers see it, and no event is counted."""
    settings = fresh_settings(own_store.url)
    with capture_logs() as logs:
        async with gone_back(settings, own_store, tmp_path) as (url, (socket, viewer), before):
            await shows(socket, viewer, {"a": 1})
            for position in (None, before):
                other, newcomer = await watch(url, position)
                await shows(other, newcomer, {"a": 1})
                assert not newcomer.recovered
                await other.close()
            assert await hammer(url, {}) == []
            assert await codes(url, {}) == {(503, "epoch_lost")}
            async with http(url) as client:
                assert (await client.get("/readyz")).status_code == 503
                assert (await client.get("/v1/boards/posts")).json()["total_score"] == 1
    assert [line["reason"] for line in logs if line["event"].startswith("data was lost")]


@pytest.mark.parametrize("part", ["channel", "witness"])
async def test_missing_checks_of_offsets_are_caught(
    own_store: StoreProcess, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above fails without either of the two parts."""
    if part == "channel":
        monkeypatch.setattr(Channel, "_forget", lambda _channel: None)
    else:
        monkeypatch.setattr(Witness, "lose", lambda _witness, _reason: None)
    settings = fresh_settings(own_store.url)
    async with gone_back(settings, own_store, tmp_path) as (url, (socket, viewer), _):
        if part == "channel":
            with pytest.raises(AssertionError, match="the viewer shows"):
                await shows(socket, viewer, {"a": 1}, 3)
        else:
            with pytest.raises(AssertionError, match="accepted"):
                assert await hammer(url, {}) == []


async def test_accepting_a_loss_begins_a_new_epoch(own_store: StoreProcess, tmp_path: Path) -> None:
    """A returning viewer receives the whole top, although the offset has been reached again."""
    settings = fresh_settings(own_store.url, workers=2, log_level="warning")
    server = ServerProcess(settings, tmp_path)
    server.start()
    try:
        async with http(server.url) as client:
            await post(client, {"key": "a"})
            copy = Copy(own_store, tmp_path)
            for _ in range(5):
                await post(client, {"key": "a"})
            before = (await client.get("/v1/boards/posts")).json()
            copy.restore()
            assert await hammer(server.url, {}) == []
        server.stop()
        server.spawn()
        assert server.process is not None
        assert server.process.wait(20) == 2
        assert "went back from offset" in server.log()
        server.start("--accept-loss")
        async with http(server.url) as client:
            for _ in range(6):
                await post(client, {"key": "b"})
            after = (await client.get("/v1/boards/posts")).json()
            assert after["offset"] >= before["offset"]
            assert after["epoch"] != before["epoch"]
            socket, viewer = await watch(server.url, (before["epoch"], before["offset"]))
            await shows(socket, viewer, {"a": 1, "b": 6})
            assert not viewer.recovered
            await socket.close()
    finally:
        server.kill()


async def test_processes_share_acknowledged_offsets(own_store: StoreProcess, tmp_path: Path) -> None:
    """The only process that saw the highest offset is frozen. The other one still refuses to count below it."""
    settings = fresh_settings(own_store.url, log_level="warning")
    one, two = ServerProcess(settings, tmp_path), ServerProcess(settings, tmp_path)
    one.start()
    two.start()
    try:
        async with http(one.url) as client, http(two.url) as other:
            await post(client, {"key": "a"})
            await post(other, {"key": "a"})
            copy = Copy(own_store, tmp_path)
            assert (await post(client, {"key": "a"}))["accepted"] == 1
            assert one.process is not None
            one.process.send_signal(signal.SIGSTOP)
            copy.restore()
            assert await hammer(two.url, {}) == []
    finally:
        one.kill()
        two.kill()


async def test_a_restarted_store_has_lost_nothing(own_store: StoreProcess) -> None:
    """A store that was killed and started again still has everything that was acknowledged."""
    settings = fresh_settings(own_store.url)
    async with run_server(settings, [rolling_board()]) as url, http(url) as client:
        for number in range(5):
            await post(client, {"key": "a"})
            own_store.kill()
            own_store.start()
            await until_ready(client)
            assert (await client.get("/v1/boards/posts")).json()["total_score"] == number + 1
