"""While a connection is used by a viewer, its place for producers is free."""

from contextlib import AsyncExitStack

import pytest

from tests.harness.server import server
from tests.harness.wire import connected, request, statuses

STREAM = request("GET", "/v1/boards/posts/stream")
HEALTH = request("GET", "/healthz")


async def test_a_stream_takes_no_producer_place(valkey_url: str) -> None:
    """All producer places are free while there is the maximum number of viewers."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(server(valkey_url, max_connections=4, max_viewers=12))
        url = str(client.base_url)
        for _ in range(6):
            wire = await stack.enter_async_context(connected(url))
            await wire.send(STREAM)
            await wire.reader.readuntil(b"event: sync")
        producers = [await stack.enter_async_context(connected(url)) for _ in range(2)]
        for _ in range(2):
            for producer in producers:
                await producer.send(HEALTH)
                assert statuses([await producer.answer()]) == [200]


@pytest.mark.slow
async def test_a_connection_takes_a_place_after_its_stream(valkey_url: str) -> None:
    """After the stream, the idle timeout applies to the connection again."""
    async with server(valkey_url, max_connections=1, idle_timeout=0.5) as client:
        url = str(client.base_url)
        async with connected(url) as viewer:
            await viewer.send(request("HEAD", "/v1/boards/posts/stream"))
            assert b" 200 " in await viewer.reader.readuntil(b"\r\n\r\n")
            async with connected(url) as other:
                await other.send(HEALTH)
                assert statuses([await other.answer()]) == [200]
                assert await viewer.rest() == b""  # the other connection took the place of this idle connection
                assert await other.rest() == b""  # the server closes this connection after the idle timeout


@pytest.mark.slow
async def test_a_connection_after_its_stream_closes_no_other(valkey_url: str) -> None:
    """If no place is free after the stream, the connection of the stream is closed, and no idle connection."""
    async with server(valkey_url, max_connections=4, anonymous_admin=True) as client:
        url = str(client.base_url)
        await client.put("/v1/boards/june", json={})
        async with connected(url) as viewer, connected(url) as other:
            await viewer.send(request("GET", "/v1/boards/june/stream"))
            await viewer.reader.readuntil(b"event: sync")
            await other.send(HEALTH)
            assert statuses([await other.answer()]) == [200]
            assert (await client.delete("/v1/boards/june")).status_code == 204
            assert (await viewer.rest()).endswith(b"\r\n0\r\n\r\n")
            await other.send(HEALTH)
            assert statuses([await other.answer()]) == [200]
