"""A thousand pollers behind a real nginx that keeps reads of boards for a second (`LIVE_CACHE`)."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
from websockets.asyncio.client import connect

from live.protocols.exchange import Exchange
from live.web.api.fast import FastReads
from tests.harness.nginx import NGINX, behind_nginx
from tests.harness.producer import post
from tests.harness.sse import streaming
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually
from tests.harness.wire import connected, request

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]

CONNECTIONS: Final = 50
POLLERS: Final = 1000
ROUNDS: Final = 4
BOARD: Final = "/v1/boards/posts"


class Edge(NamedTuple):
    """A server behind nginx: both URLs, and how often each query reached the server."""

    url: str
    server: str
    asked: Counter[Any]


@asynccontextmanager
async def edge(
    store: str, folder: Path, monkeypatch: pytest.MonkeyPatch, zone: str = "$live_cache"
) -> AsyncIterator[Edge]:
    """Start a server behind an nginx that keeps board reads, and count the reads that reach the server."""
    asked: Counter[Any] = Counter()
    begin = FastReads._begin

    def counted(self: FastReads, read: Any, exchange: Exchange) -> None:
        asked[read.query.what] += 1
        begin(self, read, exchange)

    monkeypatch.setattr(FastReads, "_begin", counted)
    switch = ("proxy_cache off;", f"proxy_cache {zone};")
    async with behind_nginx(store, folder, switch, cache=1) as (url, server):
        yield Edge(url, server, asked)


async def poll(url: str) -> None:
    """Let a thousand pollers ask once. Each gets a page."""

    async def some() -> None:
        async with connected(url) as wire:
            count = POLLERS // CONNECTIONS
            await wire.send(request("GET", BOARD) * count)
            for answer in await wire.answers(count):
                assert answer.startswith(b"HTTP/1.1 200 "), answer
                assert b'"board":"posts"' in answer

    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))


async def check_polling(at: Edge) -> None:
    """Check that the server answers one request a second, and one more at the beginning, however many pollers ask."""
    begun = time.monotonic()
    for _ in range(ROUNDS):
        await poll(at.url)
        await asyncio.sleep(0.6)
    assert 1 <= at.asked.total() <= 2 + (time.monotonic() - begun)


async def test_a_thousand_pollers_are_a_request_a_second(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pollers see a change soon after it happens."""
    async with edge(valkey_url, tmp_path, monkeypatch) as at, httpx.AsyncClient(base_url=at.url) as client:
        await check_polling(at)
        await post(client, {"key": "a", "amount": 7})

        async def changed() -> bool:
            return bool((await client.get(BOARD)).json()["total_score"] == 7)

        await eventually(changed)


async def test_each_page_is_kept_by_itself(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nginx keeps an answer for each URL, host name and encoding. A client that sends the answer's tag gets 304."""
    async with edge(valkey_url, tmp_path, monkeypatch) as at, httpx.AsyncClient(base_url=at.url) as client:
        await post(client, *({"key": f"a rather long name of a member, number {number}"} for number in range(50)))
        for _ in range(2):
            for limit in (1, 2, 3):
                page = (await client.get(f"{BOARD}?limit={limit}")).json()
                assert len(page["records"]) == limit
            for encoding in ("gzip", "identity"):
                answer = await client.get(BOARD, headers={"Accept-Encoding": encoding})
                assert answer.headers.get("content-encoding", "identity") == encoding
                assert len(answer.json()["records"]) == 50
                known = {"Accept-Encoding": encoding, "If-None-Match": answer.headers["etag"]}
                assert (await client.get(BOARD, headers=known)).status_code == 304
        refused = await client.get(BOARD, headers={"Host": "evil.example"})
        assert refused.status_code == 421
        assert (await client.get("/v1/boards/none")).status_code == 404
        assert (await client.put("/v1/boards/none", json={})).status_code in {401, 403, 404}


async def test_what_stays_open_passes_the_cache(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WebSockets and event streams, several at once, see each change when it happens."""
    async with edge(valkey_url, tmp_path, monkeypatch) as at, httpx.AsyncClient(base_url=at.url) as client:
        live = f"{at.url.replace('http', 'ws')}{BOARD}/live"
        async with connect(live) as viewer, streaming(client) as stream, streaming(client) as other:
            model = ModelViewer()
            model.receive(await viewer.recv())
            await asyncio.gather(stream.until("sync"), other.until("sync"))
            await post(client, {"key": "a"})
            while not model.records:
                model.receive(await viewer.recv())
            await asyncio.gather(stream.follow(model.offset), other.follow(model.offset))
            assert stream.model.records == other.model.records == model.records
