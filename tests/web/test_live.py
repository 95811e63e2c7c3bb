"""The live route: what a viewer that only applies messages holds, and who may watch."""

import asyncio
import random
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from live.domain.board import Board
from live.domain.ranking import Record
from live.domain.window import Forever, Periods, Sliding
from tests.harness.boards import built, rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually


class Shown(msgspec.Struct):
    """The part of a page that a viewer also holds."""

    offset: int
    rank_count: int
    total_score: int | None
    records: list[Record]


class Watcher:
    """A viewer of a number of records, over a real socket."""

    def __init__(self, socket: ClientConnection, size: int) -> None:
        self.socket = socket
        self.size = size
        self.model = ModelViewer()
        self.watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        async for message in self.socket:
            self.model.receive(message)

    async def close(self) -> None:
        """Disconnect. Raises the error of a message that did not follow from the previous message."""
        await self.socket.close()
        await self.watching


def live_url(client: httpx.AsyncClient, query: str = "", board: str = "posts") -> str:
    """The address of the live route."""
    return f"{str(client.base_url).replace('http', 'ws').rstrip('/')}/v1/boards/{board}/live{query}"


async def watch(client: httpx.AsyncClient, size: int) -> Watcher:
    """Connect a viewer."""
    return Watcher(await connect(live_url(client, f"?limit={size}")), size)


async def agree(client: httpx.AsyncClient, watchers: list[Watcher]) -> None:
    """Wait until every viewer has the server's offset, and compare the records."""
    for watcher in watchers:

        async def same(watcher: Watcher = watcher) -> bool:
            response = await client.get(f"/v1/boards/posts?limit={watcher.size}")
            page = msgspec.json.decode(response.content, type=Shown)
            model = watcher.model
            if model.offset != page.offset:
                assert not watcher.watching.done()
                return False
            assert model.records == page.records
            assert (model.rank_count, model.total_score) == (page.rank_count, page.total_score)
            return True

        await eventually(same)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("interval", [0.005, 0.1])
async def test_a_viewer_that_only_applies_messages_holds_the_top(valkey_url: str, seed: int, interval: float) -> None:
    """Random positive and negative likes, joins and leaves: viewers of all sizes match the server at every offset."""
    chance = random.Random(seed)
    async with server(valkey_url, conflation_interval=interval) as client:
        watchers = [await watch(client, 5)]
        for _ in range(60 if interval < 0.1 else 15):
            action = chance.random()
            if action < 0.15 and len(watchers) < 8:
                watchers.append(await watch(client, chance.choice([1, 2, 3, 5, 5, 10, 50])))
            elif action < 0.25 and len(watchers) > 1:
                await watchers.pop(chance.randrange(len(watchers))).close()
            else:
                for _ in range(chance.randint(1, 3)):
                    await post(client, *random_likes(chance))
            await agree(client, watchers)
        for watcher in watchers:
            await watcher.close()


def random_likes(chance: random.Random) -> list[dict[str, Any]]:
    """Likes of few members, so that ties, overtaking and zeros are common."""
    return [{"key": f"k{chance.randrange(12)}", "amount": chance.randint(-2, 3)} for _ in range(chance.randint(1, 6))]


@pytest.mark.slow
async def test_viewers_follow_a_rotating_board(valkey_url: str) -> None:
    """The window is two seconds. Every message follows from the previous message, and finally the board is empty."""
    chance = random.Random(1)
    board = rolling_board("2s", "1s")
    async with server(valkey_url, board, conflation_interval=0.005, rotation_step=2) as client:
        watchers = [await watch(client, size) for size in (1, 3, 10)]
        for _ in range(60):
            await post(client, *random_likes(chance))
            await asyncio.sleep(0.05)

        async def empty() -> bool:
            return all(watcher.model.rank_count == 0 and not watcher.model.records for watcher in watchers)

        await eventually(empty)
        await agree(client, watchers)
        assert all(watcher.model.syncs + watcher.model.updates > 20 for watcher in watchers)
        for watcher in watchers:
            await watcher.close()


@pytest.mark.slow
async def test_two_processes_show_the_same_board(valkey_url: str) -> None:
    """Viewers of one server see what is posted to the other server."""
    settings = fresh_settings(valkey_url, conflation_interval=0.01)
    board = rolling_board()
    async with (
        run_server(settings, [board]) as one,
        run_server(settings, [board]) as other,
        httpx.AsyncClient(base_url=one) as producer,
        httpx.AsyncClient(base_url=other) as client,
    ):
        watcher = await watch(client, 5)
        for number in range(10):
            await post(producer, {"key": f"k{number}", "amount": number})
        await agree(client, [watcher])
        assert [record.member for record in watcher.model.records] == ["k9", "k8", "k7", "k6", "k5"]
        await watcher.close()


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1", "http://[", "file://"])
async def test_pages_of_other_origins_may_not_watch(valkey_url: str, origin: str) -> None:
    """A foreign origin is refused before the handshake, including an origin that only looks like the server's own."""
    async with server(valkey_url) as client:
        for tricky in (origin, f"{str(client.base_url).rstrip('/')}.evil.example"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(live_url(client), additional_headers={"Origin": tricky})
            assert refused.value.response.status_code == 403
            assert b'"code":"origin_forbidden"' in refused.value.response.body


async def test_own_and_allowed_pages_may_watch(valkey_url: str) -> None:
    """The server's own pages, pages of `allowed_origins`, and clients without an origin may watch."""
    async with server(valkey_url, allowed_origins=("https://friend.example",)) as client:
        for headers in ({}, {"Origin": str(client.base_url).rstrip("/")}, {"Origin": "https://friend.example"}):
            async with connect(live_url(client), additional_headers=headers) as socket:
                assert '"type":"sync"' in str(await socket.recv())


@pytest.mark.parametrize(
    ("board", "query", "status", "code"),
    [
        ("none", "", 404, "board_not_found"),
        ("posts", "?limit=0", 400, "parameter_invalid"),
        ("posts", "?limit=101", 400, "parameter_invalid"),
        ("posts", "?limit=x", 400, "parameter_invalid"),
        ("posts", "?limit=-1", 400, "parameter_invalid"),
    ],
)
async def test_an_invalid_request_is_refused_before_the_handshake(
    valkey_url: str, board: str, query: str, status: int, code: str
) -> None:
    """An unknown board and a limit out of range get ordinary HTTP answers."""
    async with server(valkey_url) as client:
        with pytest.raises(InvalidStatus) as refused:
            await connect(live_url(client, query, board))
        assert refused.value.response.status_code == status
        assert f'"code":"{code}"'.encode() in refused.value.response.body


async def test_more_viewers_than_the_limit_are_refused(valkey_url: str) -> None:
    """A viewer beyond `max_viewers` gets 503 with `Retry-After`. When a viewer leaves, there is room again."""
    async with server(valkey_url, max_viewers=1) as client:
        async with connect(live_url(client)) as first:
            await first.recv()
            with pytest.raises(InvalidStatus) as refused:
                await connect(live_url(client))
            assert refused.value.response.status_code == 503
            assert refused.value.response.headers["Retry-After"] == "5"

        async def has_room() -> bool:
            try:
                async with connect(live_url(client)):
                    return True
            except InvalidStatus:
                return False

        await eventually(has_room)


async def test_without_an_upgrade_it_is_426(valkey_url: str) -> None:
    """The answer has an Upgrade field for WebSocket."""
    async with server(valkey_url) as client:
        response = await client.get("/v1/boards/posts/live")
        assert (response.status_code, response.json()["code"]) == (426, "upgrade_required")
        assert response.headers["upgrade"] == "websocket"


def kind(**choices: Any) -> Board:
    """A board `posts` without a window, on event time."""
    return built(**{
        "id": "posts", "title": "posts", "source": frozenset({"like"}), "window": Forever(), "clock": "event", **choices
    })  # fmt: skip


KINDS = {
    "first-competition": kind(ranks="competition"),
    "last-dense": kind(ties="last", ranks="dense", sort_order="asc"),
    "key": kind(ties="key", window=Periods(unit="hour", last=2)),
    "set": kind(operator="set", ranks="dense"),
    "best": kind(operator="best", cap=6),
    "periods": kind(window=Periods(unit="hour", grace=3600), ranks="dense"),
    "sliding": kind(window=Sliding(3600), ties="last"),
}


@pytest.mark.slow
@pytest.mark.parametrize("board", KINDS.values(), ids=KINDS)
async def test_viewers_of_every_kind_of_board_hold_its_top(valkey_url: str, board: Board) -> None:
    """Messages alone tell viewers of scores that become equal, records that leave, a new period, and metadata."""
    chance = random.Random(4)
    async with server(valkey_url, board, conflation_interval=0.005) as client:
        watchers = [await watch(client, size) for size in (2, 5, 20)]
        minute = 0
        for _ in range(25):
            minute += chance.choice([0, 1, 1, 20])
            time = f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"
            said = [{}, {"metadata": {"n": 1}}, {"metadata": {"n": 2}}]
            await post(client, *(
                {"key": f"k{chance.randrange(9)}", "amount": chance.choice([-1, 1, 1, 2]), "time": time,
                 **chance.choice(said)}
                for _ in range(chance.randint(1, 6))
            ))  # fmt: skip
            if chance.random() < 0.5:
                await agree(client, watchers)
        await agree(client, watchers)
        page = (await client.get("/v1/boards/posts")).json()
        for watcher in watchers:
            assert (watcher.model.period, watcher.model.ranks) == (page["period"], board.ranks)
            assert watcher.model.updates > 0
            await watcher.close()


@pytest.mark.parametrize(("message", "code"), [("hello", 3501), (b"hello", 3501), ("x" * 1025, 1009)])
async def test_a_viewer_that_sends_messages_is_closed(valkey_url: str, message: str | bytes, code: int) -> None:
    """The close code is 3501 for a small message, and 1009 for a message over a kilobyte."""
    async with server(valkey_url) as client, connect(live_url(client)) as socket:
        await socket.recv()
        await socket.send(message)
        with pytest.raises(ConnectionClosed) as closed:
            await drain(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code


async def drain(socket: ClientConnection) -> None:
    """Receive messages until the connection ends."""
    while True:
        await socket.recv()


@pytest.mark.slow
async def test_a_stopping_server_closes_viewers(valkey_url: str) -> None:
    """The server closes the connections of viewers with the code 3001."""
    settings = fresh_settings(valkey_url)
    async with run_server(settings, [rolling_board()]) as url:
        socket = await connect(f"{url.replace('http', 'ws')}/v1/boards/posts/live")
        await socket.recv()
    with pytest.raises(ConnectionClosed) as closed:
        await drain(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 3001
