"""`LIVE_CACHE`: which reads of boards caches may answer, and that the fast path and the routes agree about this."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from live.fanout.cohort import SILENCE
from tests.harness.both_paths import FRIEND, Both, both_servers, read, tag_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

CACHED = f"public, max-age=1, stale-while-revalidate={SILENCE:.0f}"
EVERYBODY = [
    "/v1/boards", "/v1/boards/posts", "/v1/boards/large?limit=3&start=2", "/v1/boards/weeks?period=previous",
    "/v1/boards/posts/records/a", "/v1/boards/contest/records/Bo", "/v1/boards/posts/records?key=a&key=b",
    "/v1/records/a", "/v1/boards/posts/slots", "/v1/boards/posts/slots?key=a", "/v1/boards/posts/records/a/slots",
    "/v1/boards/posts/baseline", "/v1/boards/empty", "/v1/boards/fleeting",
]  # fmt: skip
UNCACHED = {
    "/v1/boards/none": "no-store",
    "/v1/boards/posts?limit=0": "no-store",
    "/v1/boards/posts/records/nobody": "no-store",
    "/v1/items?key=a": "no-cache",
    "/v1/trail": "no-store",
    "/boards/posts": "no-cache",
    "/healthz": "no-store",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cached(valkey_url: str) -> AsyncIterator[Both]:
    """Yield both servers with `LIVE_CACHE`."""
    async with both_servers(valkey_url, cache=1, allowed_origins=(FRIEND,)) as both:
        yield both


def fields_of(answer: bytes, name: str) -> list[str]:
    """The values of a header field."""
    return [value.decode() for value in re.findall(rb"\r\n%s: ([^\r]*)" % name.encode(), answer.split(b"\r\n\r\n")[0])]


@pytest.mark.parametrize("target", EVERYBODY)
async def test_what_everybody_may_see_is_cacheable(cached: Both, target: str) -> None:
    """`Vary` names the header fields that change an answer."""
    for fields in ((), (("Accept-Encoding", "gzip"),), (("Origin", FRIEND),), (("Authorization", "Bearer x.y"),)):
        answer = await cached.same(read(target, *fields))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert fields_of(answer, "cache-control") == [CACHED]
        (varies,) = fields_of(answer, "vary")
        assert "Origin" in varies
        assert ("Accept-Encoding" in varies) or b"etag" not in answer


@pytest.mark.parametrize(
    "target", ["/v1/boards/large", "/v1/boards/large/records/book-1", "/v1/boards/weeks?period=previous"]
)
async def test_a_304_renews_what_a_cache_has(cached: Both, target: str) -> None:
    """A 304 works with both forms of a tag, and has the same `Cache-Control`, `Vary` and `ETag` as the 200."""
    for fields in ((), (("Accept-Encoding", "gzip"),)):
        full = await cached.same(read(target, *fields))
        known = ("If-None-Match", tag_in(full))
        answer = await cached.same(read(target, *fields, known))
        assert answer.startswith(b"HTTP/1.1 304 ")
        for name in ("cache-control", "vary", "etag"):
            assert fields_of(answer, name) == fields_of(full, name)


@pytest.mark.parametrize(("target", "cache"), UNCACHED.items())
async def test_everything_else_is_not_kept(cached: Both, target: str, cache: str) -> None:
    """Caches keep no errors, pages for people or titles, and nothing that only administrators see."""
    for answer in await cached.answers(read(target)):
        assert fields_of(answer, "cache-control") == [cache]


async def test_without_the_setting_every_reader_asks(both: Both) -> None:
    """The setting is off by default."""
    for target in EVERYBODY:
        assert fields_of(await both.same(read(target)), "cache-control") == ["no-cache"]
