"""Compressed responses: their content equals that of plain responses, and kept responses count as memory."""

import gzip
import re

import httpx
import pytest

from tests.harness.producer import post
from tests.harness.server import server
from tests.harness.watching import served

MEMBERS = [{"key": f"https://example.org/posts/{number}", "amount": 100 - number} for number in range(60)]
PATHS = [
    "/", "/boards/posts", "/boards/posts?lang=zh&theme=dark", "/boards/posts?key=https://example.org/posts/3",
    "/embed/posts", "/overlay/posts?limit=50", "/boards/posts/records/https%3A%2F%2Fexample.org%2Fposts%2F5",
    "/v1/boards/posts", "/v1/boards/posts?start=10",
    "/v1/boards/posts/records/https%3A%2F%2Fexample.org%2Fposts%2F5?around=40", "/v1/boards/posts/slots",
    "/openapi.json", "/asyncapi.json",
]  # fmt: skip
SMALL = ["/v1/boards/posts?limit=1", "/v1/boards/none", "/v1/boards/posts?limit=0", "/healthz"]


def stable(response: httpx.Response) -> str:
    """A text without the times in it."""
    return re.sub(r"\d\d:\d\d:\d\d(\.\d+)?", "", response.text)


async def test_large_responses_are_compressed(valkey_url: str) -> None:
    """Caches keep compressed and plain responses apart."""
    async with server(valkey_url) as client:
        await post(client, *MEMBERS)
        for path in PATHS:
            plain = await client.get(path, headers={"Accept-Encoding": "gzip;q=0"})
            packed = await client.get(path, headers={"Accept-Encoding": "gzip"})
            assert (plain.status_code, packed.status_code) == (200, 200), path
            encodings = [each.headers.get("content-encoding") for each in (plain, packed)]
            assert encodings == [None, "gzip"], path
            assert "Accept-Encoding" in plain.headers["vary"].split(", "), path
            assert plain.headers["vary"] == packed.headers["vary"], path
            # The process may have read a new baseline meanwhile.
            after = await client.get(path, headers={"Accept-Encoding": "gzip;q=0"})
            assert stable(packed) in {stable(plain), stable(after)}, path
            assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2, path


async def test_small_responses_and_refusals_are_plain(valkey_url: str) -> None:
    """These responses are sent plain, because compression would save no packet."""
    async with server(valkey_url) as client:
        await post(client, *MEMBERS)
        for path in SMALL:
            response = await client.get(path, headers={"Accept-Encoding": "gzip"})
            assert "content-encoding" not in response.headers, path


async def test_a_kept_response_is_compressed_once(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response is compressed once, however many clients ask for it."""
    made = []
    compress = gzip.compress

    def counted(data: bytes, level: int, *, mtime: int) -> bytes:
        made.append(data)
        return compress(data, level, mtime=mtime)

    async with server(valkey_url) as client:
        await post(client, *MEMBERS)
        monkeypatch.setattr(gzip, "compress", counted)
        for path in ("/v1/boards/posts", "/v1/boards/posts/slots"):
            made.clear()
            for _ in range(5):
                await client.get(path, headers={"Accept-Encoding": "gzip"})
            assert len(made) == 1, path


async def test_kept_pages_count_as_memory(valkey_url: str) -> None:
    """A page is cached in each language and theme, plain and compressed."""
    async with served(valkey_url) as here:
        await here.post(*MEMBERS)
        await here.client.get("/v1/boards/posts?limit=50")
        before, sizes = here.live.drawings._size, []
        for query in ("", "?lang=zh", "?theme=dark"):
            response = await here.client.get(f"/boards/posts{query}", headers={"Accept-Encoding": "gzip"})
            sizes.append(len(response.content))
            assert here.live.drawings._size >= before + 2 * sum(sizes)
