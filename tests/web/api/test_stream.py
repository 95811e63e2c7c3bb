"""Server-sent events: the messages of the live route, for clients without WebSocket."""

import asyncio
import copy
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from live.boards import admin
from live.fanout import channel, cohort, hub
from live.metrics import DROPPED_VIEWERS, VIEWERS
from live.process.serve import bound_socket
from live.store.board.manage.lifecycle import delete_keys
from live.store.connection.notices import Missed, Notice
from tests.harness.producer import post
from tests.harness.server import ServerProcess, server, serving
from tests.harness.settings import fresh_settings
from tests.harness.sse import streaming
from tests.harness.waiting import eventually
from tests.harness.watching import served, until
from tests.harness.wire import connected, request
from tests.web.test_live import agree, random_likes, watch

QUICK: dict[str, Any] = {"conflation_interval": 0.01}


@pytest.mark.slow
async def test_a_stream_sends_the_same_as_a_socket(valkey_url: str) -> None:
    """While random likes arrive, stream and socket give the same top.

    The stream has one sync, and then only updates.
    """
    chance = random.Random(3)
    async with server(valkey_url, **QUICK) as client, streaming(client, "?limit=5") as stream:
        watcher = await watch(client, 5)
        for _ in range(20):
            answer = await post(client, *random_likes(chance))
            await stream.follow(answer["offsets"]["posts"])
            await agree(client, [watcher])
            assert stream.model.records == watcher.model.records
            assert stream.model.rank_count == watcher.model.rank_count
        assert stream.model.syncs == 1
        assert stream.model.updates > 0
        await watcher.close()


async def test_a_stream_begins_with_retry_and_the_top(valkey_url: str) -> None:
    """After its header fields come `retry` and then the top. Only positions are event ids."""
    async with server(valkey_url, **QUICK) as client, streaming(client) as stream:
        headers = stream.response.headers
        assert headers["content-type"].partition(";")[0] == "text/event-stream"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        assert headers["x-content-type-options"] == "nosniff"
        first = await stream.next()
        assert first is not None
        assert [name for name, _ in first.lines] == ["retry"]
        assert 100 <= int(first["retry"] or "") <= 31_000
        sync = await stream.until("sync")
        assert sync["id"] == f"{sync.message['epoch']}:{sync.message['offset']}"
        await post(client, {"key": "a"})
        while (event := await stream.until("update", "viewers"))["event"] != "update":
            assert event["id"] is None
        assert event["id"] == f"{event.message['epoch']}:1"


@pytest.mark.slow
async def test_a_reconnecting_client_receives_what_it_missed(valkey_url: str) -> None:
    """The client sends the id of its last event, or its position in the query. The id has precedence."""
    async with server(valkey_url, **QUICK) as client:
        await post(client, *({"key": f"k{number}", "amount": number} for number in range(1, 30)))
        async with streaming(client) as other, streaming(client) as stream:
            await other.follow(1)
            await stream.follow(1)
            answer = await post(client, {"key": "k1", "amount": 100})
            await other.follow(answer["offsets"]["posts"])
            epoch, last = stream.model.epoch, stream.last_id or ""
            for query, headers in (
                ("", {"Last_Event_ID": last}),
                (f"?epoch={epoch}&offset=1", {}),
                # The id has the form of a period's ETag.
                (f"?epoch={epoch}&offset=0", {"Last_Event_ID": f"{last}:1767225600"}),
            ):
                async with streaming(client, query, copy.deepcopy(stream.model), **headers) as back:
                    event = await back.until("sync", "update")
                    assert (event["event"], back.model.recovered) == ("update", True)
                    assert [record["key"] for record in event.message["changed"]] == ["k1"]
                    assert back.model.records == other.model.records


@pytest.mark.slow
@pytest.mark.parametrize(
    "last",
    ["", "x", ":", ":1", "1", "x:", "x:-1", "x:1.5", "x:1", "x:99999999999999999999", f"{'e' * 65}:1"],
)
async def test_a_client_with_an_invalid_position_receives_the_top(valkey_url: str, last: str) -> None:
    """The server ignores anything that is no position of this board."""
    async with server(valkey_url, **QUICK) as client:
        await post(client, {"key": "a"})
        async with streaming(client, Last_Event_ID=last) as stream:
            sync = await stream.until("sync", "update")
            assert (sync["event"], sync.message["recovered"]) == ("sync", False)
            assert stream.model.offset == 1


@pytest.mark.slow
async def test_a_quiet_stream_sends_alive_messages(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without such messages, the client or a proxy could take the stream for dead."""
    for module in (channel, cohort):
        monkeypatch.setattr(module, "SILENCE", 0.05)
    monkeypatch.setattr(hub, "_KEEP_ALIVE_INTERVAL", 0.05)
    async with server(valkey_url, **QUICK) as client, streaming(client) as stream:
        await stream.until("sync")
        for _ in range(3):
            event = await stream.next()
            while event is not None and event["event"] == "viewers":
                event = await stream.next()
            assert event is not None
            assert [name for name, _ in event.lines] == ["event", "data"]
            assert event["event"] == event.message["type"] == "alive"
            assert event.message.keys() == {"type", "time"}
        answer = await post(client, {"key": "a"})
        await stream.follow(answer["offsets"]["posts"])


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("none/stream", 404, "board_not_found"),
        ("posts/stream?limit=0", 400, "parameter_invalid"),
        ("posts/stream?limit=101", 400, "parameter_invalid"),
        ("posts/stream?interval=0s", 400, "parameter_invalid"),
        ("posts/stream?interval=61s", 400, "parameter_invalid"),
    ],
)
async def test_an_invalid_request_is_refused(valkey_url: str, path: str, status: int, code: str) -> None:
    """The refusals are the same as on the live route. EventSource does not reconnect after a refusal."""
    async with server(valkey_url) as client:
        response = await client.get(f"/v1/boards/{path}")
        assert (response.status_code, response.json()["code"]) == (status, code)


async def test_pages_of_other_origins_may_not_watch(valkey_url: str) -> None:
    """Pages of `allowed_origins` may watch, and get the CORS header."""
    friend = "https://friend.example"
    async with server(valkey_url, allowed_origins=(friend,)) as client:
        response = await client.get("/v1/boards/posts/stream", headers={"Origin": "https://evil.example"})
        assert (response.status_code, response.json()["code"]) == (403, "origin_forbidden")
        # The page can read the answer, and show what to change.
        assert response.headers["access-control-allow-origin"] == "*"
        assert "pages of https://evil.example watch boards or vote" in response.json()["detail"]
        assert "LIVE_ALLOWED_ORIGINS" in response.json()["detail"]
        async with streaming(client, Origin=friend) as stream:
            assert stream.response.headers["access-control-allow-origin"] == friend
            assert stream.response.headers["vary"] == "Origin"
        async with streaming(client, Origin=str(client.base_url).rstrip("/")) as stream:
            assert "access-control-allow-origin" not in stream.response.headers


async def test_a_head_request_is_not_a_viewer(valkey_url: str) -> None:
    """The server answers the request at once, with the header fields of a stream and without a body."""
    async with server(valkey_url, max_viewers=1) as client:
        for _ in range(3):
            response = await client.head("/v1/boards/posts/stream")
            assert (response.status_code, response.content) == (200, b"")
            assert response.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("limit", ["max_viewers", "max_board_viewers"])
async def test_more_viewers_than_the_limit_are_refused(valkey_url: str, limit: str) -> None:
    """Each of the limits refuses a second viewer. When a viewer leaves, there is room again."""
    async with serving(fresh_settings(valkey_url, **{limit: 1})) as client:
        async with streaming(client) as stream:
            await stream.until("sync")
            response = await client.get("/v1/boards/posts/stream")
            assert (response.status_code, response.json()["code"]) == (503, "too_many_viewers")
            assert response.headers["retry-after"] == "5"

        async def has_room() -> bool:
            async with client.stream("GET", "/v1/boards/posts/stream") as response:
                return response.status_code == 200

        await eventually(has_room)


STREAM = request("GET", "/v1/boards/posts/stream")


@pytest.mark.slow
async def test_a_slow_reader_has_no_backlog(valkey_url: str) -> None:
    """After a pause, a reader receives what was in flight, and then the latest state."""
    async with (
        server(valkey_url, slow_timeout=600, **QUICK) as client,
        connected(str(client.base_url), window=4096) as wire,
    ):
        await wire.send(STREAM)
        await wire.reader.readuntil(b"event: sync")
        async with streaming(client) as quick:
            for number in range(400):
                answer = await post(client, *large(number))
                await quick.follow(answer["offsets"]["posts"])
            latest = f'"offset":{quick.model.offset},'.encode()
            received = b""
            async with asyncio.timeout(60):
                while latest not in received:
                    received += await wire.reader.read(65536)
            assert received.count(b"event: update") + received.count(b"event: sync") < 350


def large(number: int) -> list[dict[str, Any]]:
    """Likes that change the order of twenty members with long names."""
    return [{"key": f"{key:02}{'x' * 1000}", "amount": 1 + (key * number) % 7} for key in range(20)]


@pytest.mark.slow
async def test_a_client_without_progress_is_disconnected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server disconnects the client after `slow_timeout`. The kernel would do the same, but waits longer here."""
    patient = partial(msgspec.structs.replace, slow_timeout=15)
    monkeypatch.setattr("tests.harness.server.bound_socket", lambda settings: bound_socket(patient(settings)))
    before = DROPPED_VIEWERS.labels("slow")._value.get()
    async with (
        server(valkey_url, slow_timeout=0.5, **QUICK) as client,
        connected(str(client.base_url), window=4096) as wire,
    ):
        await wire.send(STREAM)
        await wire.reader.readuntil(b"event: sync")
        numbers = itertools.count()

        async def is_disconnected() -> bool:
            await post(client, *large(next(numbers)))
            return bool(DROPPED_VIEWERS.labels("slow")._value.get() > before)

        async def has_left() -> bool:
            return bool(VIEWERS.labels("posts")._value.get() == 0)

        await eventually(is_disconnected)
        await eventually(has_left)


async def hear_nothing(*_: object) -> AsyncIterator[Notice]:
    """Receive no notice."""
    await asyncio.Event().wait()
    yield Missed([])


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_deleted_board_ends_its_streams(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, *, is_read: bool
) -> None:
    """The streams receive the reason, even if the board is read during its deletion. Reconnecting gets 404."""
    if is_read:  # only a read finds the deletion, because its notice is lost
        monkeypatch.setattr("live.boards.registry.listen", hear_nothing)
    async with served(valkey_url, anonymous_admin=True) as here:
        client = here.client

        async def delete_and_read(*given: Any) -> None:
            await delete_keys(*given)
            before = june._reads
            june.read_again()
            await until(lambda: june.ended is not None or (june._reads > before and june._tick is None))

        await client.put("/v1/boards/june", json={})
        async with streaming(client, board="june") as stream:
            await stream.until("sync")
            june = here.live.hub.channels["june"]
            if is_read:
                monkeypatch.setattr(admin, "delete_keys", delete_and_read)
            assert (await client.delete("/v1/boards/june")).status_code == 204
            status = await stream.until("status")
            assert status.message == {"type": "status", "stale": True, "reason": "board deleted"}
            assert await stream.next() is None
        assert (await client.get("/v1/boards/june/stream")).status_code == 404


@pytest.mark.slow
async def test_a_stopping_server_ends_its_streams(valkey_url: str, tmp_path: Path) -> None:
    """On SIGTERM, each stream gets a jittered `retry`. The process ends in time, although one viewer reads nothing."""
    process = ServerProcess(fresh_settings(valkey_url), tmp_path)
    process.start()
    async with (
        httpx.AsyncClient(base_url=process.url) as client,
        connected(process.url, window=4096) as deaf,
        AsyncExitStack() as several,
    ):
        await deaf.send(STREAM)
        streams = [await several.enter_async_context(streaming(client)) for _ in range(4)]
        for stream in streams:
            await stream.until("sync")
        for number in range(100):
            await post(client, *large(number))
        stopping = asyncio.create_task(asyncio.to_thread(process.stop))
        times = []
        for stream in streams:
            while (event := await stream.next()) is not None:
                if event["retry"] is not None:
                    retry = int(event["retry"])
                elif event["event"] == "status":
                    status = event.message
            assert (status["stale"], status["reason"]) == (True, "the server is shutting down")
            assert retry == round(status["retry_after"] * 1000)
            times.append(retry)
        assert len(set(times)) > 1
        assert await stopping == 0
