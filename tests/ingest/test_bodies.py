"""How a body may be sent: its content type, its encoding, its size, and the pieces in which it comes."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio

from live.errors import PROBLEMS, RETRYABLE
from live.metrics import REGISTRY
from tests.harness.boards import rolling_board
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")  # one server for all tests of this file

MOST = 50_000
EVENT = b'{"key":"a"}'
JSON = {"Content-Type": "application/json"}
GZIP = {**JSON, "Content-Encoding": "gzip"}
TOO_LARGE = f"the setting max_body allows {MOST} bytes after decompression"
TYPES = "application/json, application/x-ndjson, application/cloudevents+json, application/cloudevents-batch+json"
MEDIA = f"send one of {TYPES} in UTF-8, and name it in Content-Type"
ENCODING = "send the body as it is, or with Content-Encoding: gzip"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that accepts only small bodies."""
    async with server(valkey_url, max_body=MOST) as client:
        yield client


async def offset(client: httpx.AsyncClient) -> int:
    """The offset of the board."""
    value: int = (await client.get("/v1/boards/posts?limit=1")).json()["offset"]
    return value


async def post(client: httpx.AsyncClient, body: Any, headers: dict[str, str]) -> httpx.Response:
    """Post a body; an iterator is sent in chunks, without Content-Length."""
    return await client.post("/v1/events", content=body, headers=headers)


async def expect_refused(client: httpx.AsyncClient, body: Any, headers: dict[str, str], code: str, detail: str) -> None:
    """Check the exact problem, that a metric counts it, and that the board has counted no event."""
    before, problems = await offset(client), REGISTRY.get_sample_value("live_problems_total", {"code": code}) or 0
    response = await post(client, body, headers)
    status, title = PROBLEMS[code]
    assert response.json() == {
        "type": f"/docs#{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
        "retryable": code in RETRYABLE,
    }
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    assert REGISTRY.get_sample_value("live_problems_total", {"code": code}) == problems + 1
    assert await offset(client) == before


async def expect_counted(client: httpx.AsyncClient, body: Any, headers: dict[str, str], events: int = 1) -> None:
    """Check that the board `posts` counts all events of a body."""
    response = await post(client, body, headers)
    assert response.json() == {
        "accepted": events, "duplicate": 0, "rejected": [], "offsets": {"posts": await offset(client)}
    }  # fmt: skip


async def chunks(body: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    """A body in pieces."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


def padded(size: int) -> bytes:
    """An event padded to `size` bytes."""
    return EVENT + b" " * (size - len(EVENT))


@pytest.mark.parametrize(
    "media_type",
    ["application/json", "Application/JSON", "application/json;charset=utf-8", 'application/json; charset="UTF-8"',
     "application/json ; charset=utf8", "application/json;", "application/x-ndjson",
     "application/x-ndjson; charset=utf-8"],
)  # fmt: skip
async def test_json_and_lines_in_utf_8_are_read(client: httpx.AsyncClient, media_type: str) -> None:
    """The type may be in upper or lower case, with or without a charset."""
    await expect_counted(client, EVENT, {"Content-Type": media_type})


@pytest.mark.parametrize(
    "media_type",
    ["", "text/plain", "text/json", "application/jsonx", "application/x-www-form-urlencoded", "multipart/form-data",
     "application/json; charset=latin-1", "application/json; charset=utf-16", "application/x-ndjson; charset=ascii"],
)  # fmt: skip
async def test_any_other_type_is_refused(client: httpx.AsyncClient, media_type: str) -> None:
    """The server reads no text/plain and no forms: a page of another site can send them without a preflight request."""
    await expect_refused(client, EVENT, {"Content-Type": media_type}, "unsupported_media_type", MEDIA)


async def test_a_missing_type_is_refused(client: httpx.AsyncClient) -> None:
    """The server does not guess the type."""
    await expect_refused(client, EVENT, {}, "unsupported_media_type", MEDIA)


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "compress", "gzip, gzip", "gzip,identity", "x"])
async def test_an_unknown_encoding_is_refused(client: httpx.AsyncClient, encoding: str) -> None:
    """The server decompresses only gzip, and only once."""
    await expect_refused(client, EVENT, {**JSON, "Content-Encoding": encoding}, "unsupported_media_type", ENCODING)


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "gZip"])
async def test_gzip_is_decompressed(client: httpx.AsyncClient, encoding: str) -> None:
    """The compressed body may come in one piece, in chunks, or as several gzip members in a row."""
    headers = {**JSON, "Content-Encoding": encoding}
    await expect_counted(client, gzip.compress(EVENT), headers)
    await expect_counted(client, chunks(gzip.compress(EVENT), 3), headers)
    await expect_counted(
        client, gzip.compress(b"[" + EVENT) + gzip.compress(b",") + gzip.compress(EVENT + b"]"), headers, 2
    )


async def test_identity_is_accepted(client: httpx.AsyncClient) -> None:
    """`Content-Encoding: identity` says that the body is not compressed."""
    await expect_counted(client, EVENT, {**JSON, "Content-Encoding": "identity"})


async def test_truncated_or_invalid_gzip_is_refused(client: httpx.AsyncClient) -> None:
    """The first or second gzip member is cut short, the checksum is wrong, or there are bytes that are not gzip."""
    compressed = gzip.compress(EVENT)
    for end in range(1, len(compressed)):
        await expect_refused(client, compressed[:end], GZIP, "malformed_body", "the gzip body is cut short")
    await expect_refused(client, compressed + compressed[:9], GZIP, "malformed_body", "the gzip body is cut short")
    for body in (EVENT, compressed[:-8] + b"x" * 8, compressed + b"more", zlib.compress(EVENT)):
        response = await post(client, body, GZIP)
        assert (response.status_code, response.json()["code"]) == (400, "malformed_body")
        assert response.json()["detail"].startswith("not gzip: ")


async def test_a_compressed_body_is_validated_like_any_other(client: httpx.AsyncClient) -> None:
    """An empty body in gzip is empty; invalid JSON in gzip is invalid JSON."""
    await expect_refused(client, gzip.compress(b""), GZIP, "malformed_body", "the body is empty")
    await expect_refused(client, b"", GZIP, "malformed_body", "the body is empty")
    fault = "JSON is malformed: it is cut short"
    await expect_refused(client, gzip.compress(b'{"key":'), GZIP, "malformed_body", fault)


async def test_a_body_of_exactly_the_limit_is_accepted(client: httpx.AsyncClient) -> None:
    """The body may have a Content-Length, come in chunks, or be compressed."""
    await expect_counted(client, padded(MOST), JSON)
    await expect_counted(client, chunks(padded(MOST)), JSON)
    await expect_counted(client, gzip.compress(padded(MOST)), GZIP)
    over_asgi = await client.post("/v1/%65vents", content=padded(MOST), headers=JSON)
    assert over_asgi.status_code == 200


async def test_a_body_one_byte_over_the_limit_is_refused(client: httpx.AsyncClient) -> None:
    """The body is refused with a Content-Length, in chunks, and compressed.

    A client that is still sending is answered too.
    """
    compressed = gzip.compress(padded(MOST)) + gzip.compress(b" ")
    for body, headers in (
        (padded(MOST + 1), JSON),
        (chunks(padded(MOST + 1)), JSON),
        (gzip.compress(padded(MOST + 1)), GZIP),
        (compressed, GZIP),
        (chunks(compressed), GZIP),
    ):
        await expect_refused(client, body, headers, "body_too_large", TOO_LARGE)
    await expect_refused(client, padded(100 * MOST), JSON, "body_too_large", TOO_LARGE)
    await expect_refused(client, chunks(padded(100 * MOST)), JSON, "body_too_large", TOO_LARGE)


async def test_a_declared_length_over_the_limit_is_refused_immediately(client: httpx.AsyncClient) -> None:
    """The client does not need to send the body."""
    address = urlsplit(str(client.base_url))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
    writer.write(b"Content-Length: 1099511627776\r\n\r\n")
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readuntil(b"}")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"body_too_large"' in body
    writer.close()
    await writer.wait_closed()


@pytest.mark.slow
async def test_a_gzip_bomb_is_refused(valkey_url: str) -> None:
    """A body of 200 KB that unpacks to 200 MB of zeros takes less memory than six bodies of the largest size."""
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1024 * 1024)) for _ in range(200)) + packer.flush()
    settings = fresh_settings(valkey_url)
    assert len(bomb) < settings.max_body
    tracemalloc.start()
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        response = await post(client, bomb, GZIP)
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (response.status_code, response.json()["code"]) == (413, "body_too_large")
    assert peak - before < 6 * settings.max_body
