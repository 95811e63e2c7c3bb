"""`LiveBoard.watch`: whatever happens to the connection, the last top equals the top that the API returns."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from live.client import (
    Event,
    LiveBoard,
    RequestRefusedError,
    ServerUnavailableError,
    Top,
    WatchEndedError,
    sender,
    watching,
)
from live.client.target import Patience
from live.domain.board_file import make_board
from live.domain.choices import Choices
from tests.client.support import same, shown
from tests.harness.boards import rolling_board
from tests.harness.ingest import make_key
from tests.harness.network import free_port
from tests.harness.proxy import Proxy, listening
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.tokens import SECRET, make_token
from tests.harness.waiting import eventually


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a disconnected watcher reconnect soon."""
    monkeypatch.setattr(watching, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(watching, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(sender, "_LONGEST_PAUSE", 0.05)


class Seen:
    """Everything that one watcher has received."""

    def __init__(self) -> None:
        self.tops: list[Top] = []
        self.task: asyncio.Task[None] | None = None

    @property
    def last(self) -> Top:
        """The current top."""
        return self.tops[-1]

    async def until_same(self, url: str, limit: int = 50, board: str = "posts") -> None:
        """Wait until the top is live, and equals the top that the API returns."""

        async def agrees() -> bool:
            assert self.task is not None
            assert not self.task.done(), self.task
            page = await shown(url, limit, board)
            return bool(self.tops) and same(self.last, page)

        await eventually(agrees)


@asynccontextmanager
async def watcher(url: str, board: str = "posts", limit: int = 50) -> AsyncIterator[Seen]:
    """Run a watcher while in the context; its errors are raised at the end."""
    seen = Seen()

    async def watch() -> None:
        async with LiveBoard(url) as live:
            async for top in live.watch(board, limit=limit):
                seen.tops.append(top)

    seen.task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        seen.task.cancel()
        await asyncio.wait({seen.task})
    if not seen.task.cancelled():
        seen.task.result()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["ordinal", "dense", "competition"])
async def test_a_watcher_yields_the_ordered_top(valkey_url: str, ranks: str) -> None:
    """After random events, the top equals the API's page, for each kind of ranks."""
    chance = random.Random(4)
    board = make_board(Choices(id="posts", ranks=ranks))  # type: ignore[arg-type]
    settings = fresh_settings(valkey_url, conflation_interval=0.005)
    async with run_server(settings, [board]) as url, LiveBoard(url) as live, watcher(url, limit=5) as seen:
        for _ in range(40):
            await live.post(*[Event(f"m{chance.randrange(9)}", chance.randint(-2, 3)) for _ in range(4)])
            await seen.until_same(url, 5)
        offsets = [top.offset for top in seen.tops]
        assert offsets == sorted(set(offsets)), "the watcher got a state twice"
        assert len({top.epoch for top in seen.tops}) == 1
        assert not any(top.stale for top in seen.tops)


@pytest.mark.fault
async def test_a_watcher_survives_a_hundred_disconnects(valkey_url: str) -> None:
    """While events arrive, the watcher continues from its position each time.

    Between two connections, it reports that its top is stale.
    """
    chance = random.Random(9)
    settings = fresh_settings(valkey_url, conflation_interval=0.005, rate=0)
    async with (
        run_server(settings, [rolling_board()]) as url,
        listening(Proxy(url)) as proxy,
        LiveBoard(url) as live,
        live.producer() as producer,
        watcher(proxy.url, limit=10) as seen,
    ):
        for number in range(100):
            for _ in range(20):
                await producer.send(Event(f"m{chance.randrange(30)}", chance.randint(-2, 3)))
            if chance.random() < 0.5:
                await producer.flush()

            async def connected() -> bool:
                return bool(seen.tops) and seen.last.stale is None

            await eventually(connected)
            proxy.cut()

            async def noticed(number: int = number) -> bool:
                return sum("connection lost" in (top.stale or "") for top in seen.tops) > number

            await eventually(noticed)
        await producer.flush()
        await seen.until_same(url, 10)
    assert proxy.connections > 100


async def test_a_returning_watcher_receives_what_it_missed(valkey_url: str) -> None:
    """The watcher sends its position in the URL."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url, LiveBoard(url) as live:
        follower = watching.Watcher(url, "posts", limit=3)
        for position in ("", "&epoch={0.epoch}&offset={0.offset}"):
            expected = f"ws{url[4:]}/v1/boards/posts/live?limit=3{position.format(follower._state.top)}"
            await live.post(Event("a"))
            with patch.object(watching, "open_viewer", wraps=watching.open_viewer) as opened:
                async with aclosing(follower.tops()) as tops:
                    await anext(tops)
            opened.assert_called_once_with(expected, None)


@pytest.mark.slow
async def test_a_watcher_survives_a_restart_of_the_server(valkey_url: str, tmp_path: Path) -> None:
    """The watcher returns after the pause that the last message asked for, and receives the events in between."""
    server = ServerProcess(fresh_settings(valkey_url, port=free_port()), tmp_path)
    server.start()
    async with LiveBoard(server.url) as live, watcher(server.url) as seen:
        await live.post(Event("a"))
        await seen.until_same(server.url)
        assert server.stop() == 0
        await asyncio.to_thread(server.start)
        await live.post(Event("b", 2))
        await seen.until_same(server.url)
        assert [record.member for record in seen.last.records] == ["b", "a"]
        assert "the server" in str({top.stale for top in seen.tops})
    assert server.stop() == 0


async def test_the_requested_pause_is_obeyed(valkey_url: str) -> None:
    """The server announces the pause before it closes the connection. A refusal may also ask for a pause."""
    follower = watching.Watcher("http://127.0.0.1:9", "posts", patience=Patience(60))
    follower._last_contact = asyncio.get_running_loop().time()
    status = follower._state.receive(b'{"type":"status","stale":true,"reason":"x","retry_after":7.5}')
    assert status is not None
    follower._wait(status.retry_after)
    assert 7.4 < follower._next_pause() <= 7.52
    settings = fresh_settings(valkey_url, max_viewers=1)
    async with (
        run_server(settings, [rolling_board()]) as url,
        LiveBoard(url, patience=0) as hasty,
        watcher(url) as seen,
    ):
        await seen.until_same(url)
        with pytest.raises(ServerUnavailableError, match="too_many_viewers"):
            await anext(hasty.watch("posts"))


@pytest.mark.slow
async def test_the_end_of_a_watch_is_raised(valkey_url: str) -> None:
    """A watch ends if there is no such board, if the board is deleted, or if the server is away for too long."""
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    async with (
        run_server(settings, [rolling_board()]) as url,
        LiveBoard(url, patience=0.2) as live,
        httpx.AsyncClient(base_url=url) as admin,
    ):
        with pytest.raises(RequestRefusedError) as raised:
            await anext(live.watch("no/such board"))
        assert (raised.value.status, raised.value.code) in {(404, "board_not_found"), (404, "not_found")}
        with pytest.raises(RequestRefusedError, match="limit"):
            await anext(live.watch("posts", limit=0))
        assert (await admin.put("/v1/boards/june", json={})).is_success
        async with aclosing(live.watch("june")) as tops:
            assert (await anext(tops)).records == ()
            assert (await admin.delete("/v1/boards/june")).is_success
            with pytest.raises(WatchEndedError) as ended:
                async for _ in tops:
                    pass
        assert ended.value.code == 3502
        async with aclosing(live.watch("posts")) as tops:
            await anext(tops)
    async with LiveBoard("http://127.0.0.1:9", patience=0.1) as away:
        with pytest.raises(ServerUnavailableError, match="no Live Board server answers"):
            await anext(away.watch("posts"))


async def test_a_private_board_is_watched_with_an_api_key(valkey_url: str) -> None:
    """Without an API key, the server says that there is no such board."""
    settings = fresh_settings(valkey_url)
    key = await make_key(settings, "reader", verbs=("read",), boards=("staff",))
    staff = make_board(Choices(id="staff", visibility="private"))
    async with run_server(settings, [staff]) as url:
        async with LiveBoard(url, key) as live, aclosing(live.watch("staff")) as tops, asyncio.timeout(60):
            assert (await anext(tops)).rank_count == 0
        async with LiveBoard(url) as live, aclosing(live.watch("staff")) as tops:
            with pytest.raises(RequestRefusedError, match="board_not_found"):
                await anext(tops)


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_watch_goes_on_with_the_next_token(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """No change is lost or shown twice. If the client does not know when its token ends, the server tells it."""
    if is_told:
        monkeypatch.setattr(watching, "_renewal_of", lambda _: None)
    settings = fresh_settings(valkey_url, token_secret=SECRET)
    key = await make_key(settings, "shop")
    asked = 0

    async def token() -> str:
        nonlocal asked
        asked += 1
        return make_token("staff", ends=2 if asked == 1 else 3600)

    staff = make_board(Choices(id="staff", visibility="private"))
    async with run_server(settings, [staff]) as url, LiveBoard(url, key) as live, asyncio.timeout(60):
        seen, sent = [], 0
        async with aclosing(live.watch("staff", token=token)) as tops:
            async for top in tops:
                seen.append((top.offset, top.rank_count and top.records[0].score, top.stale))
                if asked > 1 and top.offset == sent:
                    break
                sent += 1
                await live.post(Event("a", board="staff"))
                await asyncio.sleep(0.05)
        assert seen == [(number, number, None) for number in range(len(seen))]
        async with aclosing(live.watch("staff", token=old)) as tops:
            with pytest.raises(RequestRefusedError, match="expired"):
                await anext(tops)


async def old() -> str:
    """A token that has ended."""
    return make_token("staff", ends=-1)
