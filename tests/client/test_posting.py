"""`LiveBoard.post`: one request, which counts once and returns how it counted."""

import asyncio
import math
from pathlib import Path

import pytest
from msgspec import UNSET

from live.client import (
    AccessRefusedError,
    Event,
    LiveBoard,
    NotALiveBoardError,
    RequestRefusedError,
    ServerUnavailableError,
    sender,
)
from live.domain.board_file import make_board
from live.domain.choices import Choices
from tests.client.support import scores, shown, sums
from tests.harness.boards import rolling_board
from tests.harness.network import free_port
from tests.harness.proxy import lossy
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess


async def test_an_answer_has_the_result_of_each_event(valkey_url: str) -> None:
    """An event is counted, is a duplicate by its id, or is rejected with its index and a code. All fields arrive."""
    boards = [
        rolling_board(),
        make_board(Choices(id="best", types=("game",), operator="best", window_choice="forever")),
    ]
    async with run_server(fresh_settings(valkey_url), boards) as url, LiveBoard(f"{url}/") as live:
        answer = await live.post(Event("a"), Event("a", 4, id="1", source="shop"), Event(""))
        assert (answer.accepted, answer.duplicate) == (2, 0)
        assert [(rejection.index, rejection.code) for rejection in answer.rejected] == [(2, "key_invalid")]
        assert answer.offsets["posts"] == (await shown(url)).offset
        assert (await live.post(Event("a", 4, id="1", source="shop"))).duplicate == 1
        game = Event("b", 9, type="game", actor="ann", category="x", metadata={"level": "2"})
        assert (await live.post(game)).accepted == 1
        (record,) = (await shown(url, board="best")).records
        assert (record.member, record.score) == ("b", 9)
        assert record.metadata is not UNSET
        assert bytes(record.metadata) == b'{"level":"2"}'
        assert await scores(url) == {"a": 5}


@pytest.mark.slow
async def test_a_lost_answer_is_requested_again(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and answers are lost at random. The event of a lost answer is a duplicate."""
    monkeypatch.setattr(sender, "_LONGEST_PAUSE", 0.02)
    events = [Event(f"m{number % 5}", number) for number in range(1, 200)]
    async with (
        run_server(fresh_settings(valkey_url), [rolling_board()]) as url,
        lossy(url, share=0.2) as proxy,
        LiveBoard(proxy.url) as live,
    ):
        duplicates = 0
        for event in events:
            answer = await live.post(event)
            assert (answer.accepted + answer.duplicate, answer.rejected) == (1, ())
            duplicates += answer.duplicate
        assert proxy.lost_answers >= duplicates > 5
        assert proxy.lost_requests > 5
        assert await scores(url) == sums(events)


@pytest.mark.slow
async def test_a_rate_limit_is_obeyed(valkey_url: str) -> None:
    """The pause does not use up the patience, because a 429 does not mean that the server is away."""
    settings = fresh_settings(valkey_url, rate=1)
    async with run_server(settings, [rolling_board()]) as url, LiveBoard(url, patience=0.01) as live:
        began = asyncio.get_running_loop().time()
        for _ in range(4):
            assert (await live.post(Event("a"))).accepted == 1
        assert asyncio.get_running_loop().time() - began > 0.8
        assert await scores(url) == {"a": 4}


@pytest.mark.slow
async def test_a_post_waits_for_an_unavailable_server(valkey_url: str, tmp_path: Path) -> None:
    """The client tries again as long as the patience lasts."""
    server = ServerProcess(fresh_settings(valkey_url, port=free_port()), tmp_path)
    server.start()
    async with LiveBoard(server.url, patience=math.inf) as live, LiveBoard(server.url, patience=0) as hasty:
        assert (await live.post(Event("a"))).accepted == 1
        server.kill()
        with pytest.raises(ServerUnavailableError, match="no Live Board server answers") as raised:
            await hasty.post(Event("a"))
        assert not raised.value.in_doubt
        waiting = asyncio.create_task(live.post(Event("b")))
        await asyncio.to_thread(server.start)
        assert (await waiting).accepted == 1
        assert await scores(server.url) == {"a": 1, "b": 1}
    assert server.stop() == 0


@pytest.mark.slow
async def test_a_frozen_store_counts_the_current_batch_once(own_store: StoreProcess) -> None:
    """The server answers that the outcome is unknown. The client sends the events again until an answer is final."""
    settings = fresh_settings(own_store.url, write_deadline=0.3, store_timeout=0.2)
    async with run_server(settings, [rolling_board()]) as url, LiveBoard(url) as live:
        assert (await live.post(Event("a"))).accepted == 1
        with own_store.frozen():
            waiting = asyncio.create_task(live.post(Event("a"), Event("c")))
            await asyncio.wait({waiting}, timeout=1)
            assert not waiting.done()
        answer = await waiting
        assert answer.accepted + answer.duplicate == 2
        assert await scores(url) == {"a": 2, "c": 1}


async def test_a_refusal_is_raised(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client raises the error at once, with the code of the problem."""
    monkeypatch.setattr("live.ingest.intake.MOST_EVENTS", 2)
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:
        async with LiveBoard(url) as live:
            with pytest.raises(RequestRefusedError, match="more than 2 events") as raised:
                await live.post(*[Event("a")] * 3)
            assert (raised.value.status, raised.value.code) == (413, "too_many_events")
        async with LiveBoard(url, "shop.sesame") as live:
            with pytest.raises(AccessRefusedError, match="does not accept this API key of producer 'shop'") as refused:
                await live.post(Event("a"))
            assert refused.value.code == "credentials_invalid"
            assert "sesame" not in repr(refused.value)
        assert await scores(url) == {}


async def test_an_answer_of_another_server_is_an_error() -> None:
    """If what answers is no Live Board server, the client raises an error and does not try again."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, LiveBoard(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as live:
        with pytest.raises(NotALiveBoardError, match="is not a Live Board"):
            await live.post(Event("a"))


@pytest.mark.parametrize(
    ("event", "error"), [(Event("a" * 70_000), ValueError), (Event("a", metadata={"x": object()}), TypeError)]
)
async def test_an_invalid_event_is_refused_by_the_client(event: Event, error: type[Exception]) -> None:
    """The client refuses the event before it opens a connection."""
    async with LiveBoard("http://127.0.0.1:9") as live, live.producer() as producer:
        with pytest.raises(error):
            await live.post(event)
        with pytest.raises(error):
            await producer.send(event)


async def test_a_client_must_be_open() -> None:
    """A client that is not open raises a clear error, and so does a URL or an API key of a wrong form."""
    live = LiveBoard("http://127.0.0.1:9")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not entered"):
            await live.post(Event("a"))
        async with live:
            pass
    for url, key in (("ftp://h", None), ("http://h", "sesame")):
        with pytest.raises(ValueError, match="is not"):
            LiveBoard(url, key)
