"""Long polling: `?wait=` answers when the top differs from `If-None-Match`."""

import asyncio
import copy
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from live.domain.ranking import Page
from live.fanout.viewer import PageReceiver, PageViewer
from live.metrics import VIEWERS
from live.settings import Duration
from live.store.board.read.reader import BoardReader
from live.web import app
from live.web.reads.long_polling import Waiting
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.sse import PATIENCE, streaming
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually
from tests.harness.wire import connected, request, statuses
from tests.web.reads.test_boards import at, hours, server

BOARD = "/v1/boards/posts"
WAYS = pytest.mark.parametrize("plain", [False, True], ids=["ours", "plain"])
QUICK: dict[str, Any] = {"conflation_interval": Duration(0.01)}


async def ask(client: httpx.AsyncClient, tag: str = "", query: str = "wait=30s", board: str = BOARD) -> httpx.Response:
    """Send a request that waits."""
    return await client.get(f"{board}?{query}", headers={"If-None-Match": tag} if tag else {}, timeout=PATIENCE)


@pytest.fixture(autouse=True)
def _no_viewers_of_other_tests() -> None:
    """Forget the viewers that servers of earlier tests in this process have counted."""
    VIEWERS.clear()


def watched(count: int, board: str = "posts") -> Callable[[], Any]:
    """Return a function that tells whether a board has `count` viewers."""

    async def are_there() -> bool:
        return bool(VIEWERS.labels(board)._value.get() == count)

    return are_there


async def test_news_is_answered_immediately(valkey_url: str) -> None:
    """The client has no tag, an old tag or an invalid tag. The answer is the same page as without `wait`."""
    async with server(valkey_url, {"key": "a"}, **QUICK) as client:
        plain = await client.get(BOARD)
        epoch = plain.json()["epoch"]
        for tag in ("", f'"{epoch}:0"', '"other:1"', '"x"', "", f'"{epoch}:99"', f'"x", W/"{epoch}:0"'):
            news = await ask(client, tag)
            assert (news.status_code, news.headers["etag"]) == (200, plain.headers["etag"])
            assert {**news.json(), "viewer_count": 0} == plain.json()
        assert (await ask(client, "*")).status_code == 304


@pytest.mark.slow
async def test_a_change_ends_a_wait(valkey_url: str) -> None:
    """The answer is the new top, with the tag for the next wait. A waiting client is a viewer."""
    async with server(valkey_url, {"key": "a"}, **QUICK) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        for number in range(5):
            waiting = asyncio.create_task(ask(client, tag if number % 2 else f"W/{tag}"))
            await eventually(watched(1))
            assert not waiting.done()
            await post(client, {"key": f"k{number}", "amount": 10 + number})
            news = await waiting
            assert (news.status_code, news.json()["records"][0]["key"]) == (200, f"k{number}")
            assert news.headers["etag"] != tag
            tag = news.headers["etag"]
            await eventually(watched(0))


@pytest.mark.slow
async def test_a_wait_without_a_change_is_304(valkey_url: str) -> None:
    """The answer has the client's tag."""
    async with server(valkey_url, {"key": "a"}, **QUICK) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        clock = asyncio.get_running_loop().time
        began = clock()
        same = await ask(client, f'"x", {tag}', "wait=300ms")
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        assert clock() - began >= 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        *(f"wait={wait}" for wait in ("", "0s", "30", "61s", "-1s", "x", "1h")),
        *(f"wait=1s&{other}" for other in ("cursor=x", "period=current", "period=previous", "score=1", "start=1")),
        *(f"wait=1s&limit={limit}" for limit in ("0", "101", "x")),
    ],
)
async def test_an_invalid_wait_is_refused(valkey_url: str, query: str) -> None:
    """The length of the wait is invalid, or the wait is not for the top of the board, or for too many records."""
    async with server(valkey_url) as client:
        refused = await ask(client, query=query)
        assert (refused.status_code, refused.json()["code"]) == (400, "parameter_invalid")
        assert (await ask(client, board="/v1/boards/none")).status_code == 404


@pytest.mark.slow
async def test_waiting_clients_share_reads(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighty clients cause few reads when they arrive, and at most three when the board changes."""
    reads = 0
    read = BoardReader.read

    async def counted(reader: BoardReader, limit: int, **where: Any) -> Page:
        nonlocal reads
        reads += 1
        return await read(reader, limit, **where)

    async with server(valkey_url, {"key": "a"}, conflation_interval=Duration(0.1)) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        monkeypatch.setattr(BoardReader, "read", counted)
        waiting = [asyncio.create_task(ask(client, tag)) for _ in range(80)]
        await eventually(watched(80))
        first_reads = reads
        await post(client, {"key": "b"})
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
        assert first_reads <= 20  # at most one read for each tick
        assert reads <= first_reads + 3


async def test_each_client_gets_its_own_limit(valkey_url: str) -> None:
    """The page may have been read for a larger limit. A walk continues after the records of the client's own limit."""
    board = rolling_board(ties="first")
    events = [{"key": f"k{number}", "amount": 1 + number // 3} for number in range(9)]
    async with server(valkey_url, *events, boards=[board], **QUICK) as client, streaming(client, "?limit=50") as other:
        await other.until("sync")
        whole = (await client.get(BOARD)).json()["records"]
        for limit in (1, 2, 4, 9, 20):
            page = (await ask(client, query=f"wait=1s&limit={limit}")).json()
            assert page["records"] == whole[:limit]
            walked = page["records"]
            while page["next_cursor"]:
                page = (await client.get(f"{BOARD}?limit={limit}&cursor={page['next_cursor']}")).json()
                walked += page["records"]
            assert walked == whole


@pytest.mark.slow
async def test_tags_and_event_ids_are_the_same_position(valkey_url: str) -> None:
    """A tag can resume a stream, and the last event id of a stream can be the tag of a wait."""
    async with server(valkey_url, {"key": "a"}, **QUICK) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        async with streaming(client) as stream:
            await stream.until("sync")
            assert f'"{stream.last_id}"' == tag
            old_model = copy.deepcopy(stream.model)
            await post(client, {"key": "b"})
            await stream.follow(2)
            assert (await ask(client, f'"{stream.last_id}"', "wait=100ms")).status_code == 304
            async with streaming(client, model=old_model, Last_Event_ID=tag.strip('"')) as back:
                assert (await back.until("sync", "update"))["id"] == stream.last_id
                assert back.model.recovered


@pytest.mark.slow
async def test_a_period_is_part_of_the_tag(valkey_url: str) -> None:
    """The tag of a board with periods names the period, so the next period is news."""
    async with server(valkey_url, at(5, "a"), boards=[hours()], **QUICK) as client:
        page = await client.get("/v1/boards/hours")
        tag = page.headers["etag"]
        assert tag.count(":") == 2
        assert (await ask(client, tag, "wait=200ms", "/v1/boards/hours")).status_code == 304
        waiting = asyncio.create_task(ask(client, tag, board="/v1/boards/hours"))
        await eventually(watched(1, "hours"))
        await post(client, at(6, "b"))
        news = await waiting
        assert (news.status_code, news.json()["period"]) == (200, "2026-01-01T06")
        assert news.headers["etag"].count(":") == 2


@WAYS
@pytest.mark.parametrize("limit", ["max_viewers", "max_board_viewers", "max_address_viewers"])
async def test_a_waiting_client_is_a_viewer(valkey_url: str, limit: str, *, plain: bool) -> None:
    """The limits of viewers apply. Pages without `wait` are served all the same."""
    changes: dict[str, Any] = {limit: 1, **QUICK}
    async with server(valkey_url, plain=plain, **changes) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        waiting = asyncio.create_task(ask(client, tag))
        await eventually(watched(1))
        refused = await ask(client, tag)
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_viewers")
        assert limit in refused.json()["detail"]
        assert (await client.get(BOARD)).status_code == 200
        await post(client, {"key": "a"})
        assert (await waiting).status_code == 200


@pytest.mark.slow
async def test_a_waiting_client_takes_no_producer_place(valkey_url: str) -> None:
    """Once the client has its answer, its connection takes a place again, and the idle timeout applies."""
    async with server(valkey_url, max_connections=2, idle_timeout=Duration(1), **QUICK) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        url = str(client.base_url)
        message = request("GET", f"{BOARD}?wait=300ms", ("If-None-Match", tag))
        async with AsyncExitStack() as stack:
            viewers = []
            for number in range(6):
                viewers.append(await stack.enter_async_context(connected(url)))
                await viewers[-1].send(message if number else message.replace(b"300ms", b"2s"))
                await eventually(watched(number + 1))
            producers = [await stack.enter_async_context(connected(url)) for _ in range(2)]
            for producer in producers:
                await producer.send(request("GET", "/healthz"))
                assert statuses([await producer.answer()]) == [200]
            for viewer in viewers[1:]:
                # No place is free for these connections, so the server closes them, and no other connections.
                assert b" 304 " in await viewer.rest()
            for producer in producers:
                await producer.send(request("GET", "/healthz"))
                assert statuses([await producer.answer()]) == [200]
            for producer in producers:
                await producer.rest()  # the server closes these connections after the idle timeout
            assert b" 304 " in await viewers[0].reader.readuntil(b"\r\n\r\n")
            await viewers[0].send(request("GET", "/healthz"))
            assert statuses([await viewers[0].answer()]) == [200]
            assert await viewers[0].rest() == b""


@WAYS
async def test_a_client_that_disconnects_stops_waiting(valkey_url: str, *, plain: bool) -> None:
    """The client's place is free at once."""
    async with server(valkey_url, plain=plain, **QUICK) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        async with connected(str(client.base_url)) as wire:
            await wire.send(request("GET", f"{BOARD}?wait=60s", ("If-None-Match", tag)))
            await eventually(watched(1))
        await eventually(watched(0))


@WAYS
async def test_a_deleted_board_ends_waits(valkey_url: str, *, plain: bool) -> None:
    """The answer to the waiting client is 404."""
    async with server(valkey_url, plain=plain, **QUICK, anonymous_admin=True) as client:
        await client.put("/v1/boards/june", json={})
        tag = (await client.get("/v1/boards/june")).headers["etag"]
        waiting = asyncio.create_task(ask(client, tag, board="/v1/boards/june"))
        await eventually(watched(1, "june"))
        await client.delete("/v1/boards/june")
        gone = await waiting
        assert (gone.status_code, gone.json()["code"]) == (404, "board_not_found")


@WAYS
async def test_a_client_that_cannot_be_answered_harms_no_other(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    """This client gets 500. Another client gets the page, and the hub goes on."""
    take, failures = Waiting.take, [RuntimeError("broken")]

    def take_or_fail(waiting: Waiting, page: Page) -> None:
        if failures:
            raise failures.pop()
        take(waiting, page)

    monkeypatch.setattr(Waiting, "take", take_or_fail)
    async with server(valkey_url, plain=plain, **QUICK) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        for number, statuses_of_both in enumerate(([200, 500], [200, 200])):
            waiting = [asyncio.create_task(ask(client, tag)) for _ in range(2)]
            await eventually(watched(2))
            await post(client, {"key": f"k{number}"})
            done, _ = await asyncio.wait(waiting, timeout=10)
            assert sorted(answer.result().status_code for answer in done) == statuses_of_both
            await eventually(watched(0))
            tag = (await client.get(BOARD)).headers["etag"]


@pytest.mark.mutant
async def test_a_failed_answer_that_ends_the_hub_is_detected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mutant, the error of one client reaches the hub."""

    def notify(viewer: PageViewer, tell: Callable[[PageReceiver], None]) -> None:
        receiver, viewer._receiver = viewer._receiver, None
        if receiver is not None:
            tell(receiver)

    monkeypatch.setattr(app, "_report", lambda _work: None)  # the real function would end the process of the test
    with must_be_caught("an error of one client ends the hub"), replaced(PageViewer, "_notify", notify):
        await test_a_client_that_cannot_be_answered_harms_no_other(valkey_url, monkeypatch, plain=False)


async def test_a_stopping_server_ends_waits(valkey_url: str) -> None:
    """The answer is 503 with Retry-After."""
    async with httpx.AsyncClient() as client:
        async with run_server(fresh_settings(valkey_url, **QUICK), [rolling_board()]) as url:
            tag = (await client.get(url + BOARD)).headers["etag"]
            waiting = asyncio.create_task(ask(client, tag, board=url + BOARD))
            await eventually(watched(1))
        stopped = await waiting
    assert (stopped.status_code, stopped.json()["code"]) == (503, "stopping")
    assert int(stopped.headers["retry-after"]) >= 1


@pytest.mark.slow
@WAYS
async def test_an_unavailable_store_ends_waits(own_store: StoreProcess, *, plain: bool) -> None:
    """The answer is the problem of a page without `wait`, not 304."""
    async with server(own_store.url, {"key": "a"}, plain=plain, **QUICK) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        own_store.kill()
        for known in (tag, ""):
            unavailable = await ask(client, known, "wait=2s")
            assert (unavailable.status_code, unavailable.json()["code"]) == (503, "store_unavailable")


@pytest.mark.slow
@WAYS
async def test_a_page_that_is_known_to_be_stale_is_not_an_answer(own_store: StoreProcess, *, plain: bool) -> None:
    """The process still has the page, because another viewer watches the board."""
    async with (
        server(own_store.url, {"key": "a"}, plain=plain, **QUICK) as client,
        streaming(client) as other,
    ):
        await other.until("sync")
        own_store.kill()
        await other.until("status")
        unavailable = await ask(client, '"x:1"', "wait=2s")
        assert (unavailable.status_code, unavailable.json()["code"]) == (503, "store_unavailable")


@WAYS
async def test_a_short_wait_sees_the_last_event(valkey_url: str, *, plain: bool) -> None:
    """The wait is over before the board is read for the first time."""
    async with server(valkey_url, {"key": "a"}, plain=plain, **QUICK) as client:
        tag = (await client.get(BOARD)).headers["etag"]
        for number in range(10):
            await post(client, {"key": f"k{number}"})
            news = await ask(client, tag, "wait=1ms")
            assert news.status_code == 200
            tag = news.headers["etag"]
            assert (await ask(client, tag, "wait=1ms")).status_code == 304
