"""Plain reads of a board take a direct path: it gives the same answers as the routes, byte for byte."""

import asyncio
import gzip
import random
import re
from typing import Any

import httpx
import pytest

from live.web.api.fast import FastReads
from tests.harness.both_paths import FIELDS, Both, both_servers, read, tag_in
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.store import StoreProcess
from tests.harness.wire import connected, request

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDS = [
    "posts", "large", "dense", "weeks", "contest", "empty", "none", "po%73ts", "POSTS", "", "a%2Fb", "%ff", "posts%00",
]  # fmt: skip
PATHS = ["", "/", "%2F", "//", "/records/a", "/live", "/nothing", "?", "%3Flimit=2"]
QUERIES = [
    "", "limit=1", "limit=3", "limit=1000", "limit=0", "limit=1001", "limit=x", "limit=", "limit", "limit=%31",
    "%6cimit=2", "limit=1&limit=2", "start=2", "start=2&limit=2", "start=-1", "start=1e3", "score=2",
    "score=-2&limit=3", "score=x",
    "period=current", "period=previous", "period=2026-W02", "period=2026-W03&limit=1", "period=1999-W01", "period=x",
    "cursor=x", "cursor=", "around=0", "around=2", "around=101", "around=x", "key=a", "lmit=1", "&",
    "limit=2&", "a=b&c=d", "limit=+5", "around=1&period=previous", "epoch=1",
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
async def test_both_paths_answer_every_query_alike(both: Both, query: str) -> None:
    """Every kind of board is read."""
    for board in ("posts", "dense", "weeks", "contest", "empty", "none"):
        await both.same(read(f"/v1/boards/{board}?{query}"))


@pytest.mark.parametrize("path", PATHS)
async def test_both_paths_answer_every_target_alike(both: Both, path: str) -> None:
    """Some targets only look like a board or a record."""
    targets = [*(f"/v1/boards/{board}{path}" for board in IDS), f"http://localhost/v1/boards/posts{path}?limit=2"]
    await both.same(*(request("GET", target) for target in targets), read(f"/v1/%62oards/posts{path}"))


@pytest.mark.parametrize("fields", FIELDS)
async def test_both_paths_answer_all_header_fields_alike(both: Both, fields: tuple[tuple[str, str], ...]) -> None:
    """The fields belong to conditional requests, origins and proxies. `Host` is right or wrong."""
    for target in ("v1/boards/posts", "v1/boards/large", "v1/boards/none", "v1/boards/weeks?period=previous"):
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            sent = read(f"/{target}", *fields, method=method)
            await both.same(sent)
            await both.same(sent.replace(b"Host: localhost", b"Host: evil.example"))


@pytest.mark.parametrize("seed", range(20))
async def test_both_paths_answer_pipelined_requests_alike(both: Both, seed: int) -> None:
    """The requests are of any kind. They are sent twice."""
    chosen = random.Random(seed)
    sent = []
    for _ in range(40):
        target = f"/v1/boards/{chosen.choice(IDS[:8])}{chosen.choice(PATHS)}?{chosen.choice(QUERIES)}"
        sent.append(request("GET", target, *chosen.choice(FIELDS)))
    for _ in range(2):
        await both.same(*sent, read("/v1/boards/posts"))


async def test_both_paths_walk_a_board_alike(both: Both) -> None:
    """Each path accepts the cursors and tags of the other path."""
    for board in ("posts", "weeks?period=previous", "dense"):
        url: str | None = f"/v1/boards/{board}{'&' if '?' in board else '?'}limit=1"
        while url is not None:
            answer = await both.same(read(url))
            tag = re.search(rb"etag: (.*)\r", answer)
            assert tag is not None
            known = ("If-None-Match", tag[1].decode())
            assert b" 304 " in await both.same(read(url, known))
            assert b" 304 " in await both.same(read(url, ("If-None-Match", f'"x", W/{tag[1].decode()}')))
            following = re.search(rb'"next_cursor":"(.*?)"', answer)
            url = f"/v1/boards/{board.partition('?')[0]}?limit=1&cursor={following[1].decode()}" if following else None


async def test_both_paths_compress_alike(both: Both) -> None:
    """A kept compressed form is used again, and has the content of the plain response."""
    target = "/v1/boards/large"
    for _ in range(2):
        plain = await both.same(read(target))
        packed = await both.same(read(target, ("Accept-Encoding", "gzip")))
        (head, body), (plain_head, plain_body) = (answer.split(b"\r\n\r\n", 1) for answer in (packed, plain))
        assert gzip.decompress(body) == plain_body
        assert len(body) < len(plain_body) / 2
        assert b"content-encoding: gzip\r\n" in head
        assert b"content-encoding" not in plain_head
        assert b"content-length: %d\r\n" % len(body) in head
        for each in (head, plain_head):
            assert re.search(rb"^vary: (?:.*, )?Accept-Encoding", each, re.MULTILINE)


async def test_each_form_of_a_page_has_a_tag_that_names_both(both: Both) -> None:
    """The compressed form has a weak tag. A 304 repeats the tag in the form that the client has."""
    target, gzipped = "/v1/boards/large", ("Accept-Encoding", "gzip")
    tags = []
    for fields in ((), (gzipped,)):
        found = re.search(rb"etag: (.*)\r", await both.same(read(target, *fields)))
        assert found is not None
        tags.append(found[1].decode())
    assert tags[1] == f"W/{tags[0]}"
    for fields in ((), (gzipped,)):
        for tag in tags:
            answer = await both.same(read(target, *fields, ("If-None-Match", tag)))
            assert answer.startswith(b"HTTP/1.1 304 ")
            assert f"\netag: {tag}\r\n".encode() in answer
            assert b"\nvary: Accept-Encoding" in answer


async def test_a_pipelined_read_sees_the_event_before_it(both: Both) -> None:
    """The read begins when the earlier requests are answered."""
    async with connected(both.ours) as wire:
        for number in range(1, 20):
            body = b'{"key":"pipelined","type":"score","amount":1}'
            sent = request("POST", "/v1/events", ("Content-Type", "application/json"),
                           ("Content-Length", str(len(body))), body=body)  # fmt: skip
            await wire.send(sent + request("GET", "/v1/boards/dense"))
            answer = (await wire.answers(2))[1]
            assert b'"key":"pipelined","score":%d,' % number in answer


@pytest.mark.slow
async def test_both_paths_answer_without_a_store_alike(own_store: StoreProcess) -> None:
    """Both paths answer 503 without the store, and 200 once it is back."""
    async with both_servers(own_store.url) as both:
        own_store.kill()
        await both.same_soon(read("/v1/boards/none"))
        targets = ("/v1/boards/posts", "/v1/boards/weeks?period=previous")
        for target in targets:
            assert b" 503 " in await both.same(read(target))
        own_store.start()
        for target in targets:
            assert b" 200 " in await both.same(read(target))


async def test_the_direct_path_is_taken(both: Both) -> None:
    """A mutant of the direct path answers plain reads wrongly, and the comparison with the routes notices it."""
    right = FastReads._completed

    def wrong(self: FastReads, asked: Any, reply: Any) -> Any:
        answer = right(self, asked, reply)
        return type(answer)(answer.status, answer.media_type, answer.body, answer.extra, b"max-age=1")

    with replaced(FastReads, "_completed", wrong):
        for target in ("v1/boards/posts?limit=3", "v1/boards/weeks?period=previous"):
            with must_be_caught(target):
                await both.same(read(f"/{target}"))


async def test_both_paths_find_the_tag_of_a_client(both: Both) -> None:
    """The header `If-None-Match` varies: its tags, its spelling, how often it appears, and its place."""
    for target in ("/v1/boards/large", "/v1/boards/large?limit=2"):
        tag = tag_in(await both.same(read(target)))
        named, other = f"If-None-Match: {tag}\r\n", 'If-None-Match: "x"\r\n'
        for lines in (
            named, other, "", named.lower(), named.upper().replace(tag.upper(), tag), f"If-None-Match:{tag}\r\n",
            f"If-None-Match: \t{tag} \r\n", other + named, named + other, other.lower() + named, named.lower() + other,
            "If-None-Match:\r\n", f"If-None-Match: {other[15:-2]}, {tag}\r\n", f"X: If-None-Match: {tag}\r\n", named,
        ):  # fmt: skip
            head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{lines}Connection: close\r\n\r\n"
            await both.same(head.encode())
            await both.same(head.replace(f"Host: localhost\r\n{lines}", f"{lines}Host: localhost\r\n").encode())


async def test_many_clients_read_at_once(both: Both) -> None:
    """Each client gets the answer to its own request."""
    async with httpx.AsyncClient(base_url=both.ours) as client:
        pages = await asyncio.gather(*(client.get(f"/v1/boards/posts?limit={1 + number % 5}") for number in range(60)))
        for number, page in enumerate(pages):
            assert len(page.json()["records"]) == 1 + number % 5
