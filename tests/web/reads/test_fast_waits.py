"""Long polls take the fast path of reads: it gives the same answers as the routes."""

import asyncio
import re

import httpx
import pytest

from tests.harness.both_paths import FIELDS, FRIEND, Both, answered, read, tag_in, without_viewers
from tests.harness.producer import post

pytestmark = pytest.mark.asyncio(loop_scope="module")

MISTAKES = [
    "wait=0s", "wait=61s", "wait=1ms&start=0", "wait=1ms&cursor=x", "wait=1ms&period=current", "wait=1ms&score=1",
    "wait=1ms&as_of=x", "wait=1ms&limit=101", "wait=1ms&x=1", "wait=1ms&wait=x",
]  # fmt: skip


@pytest.mark.parametrize("board", ["posts", "large", "dense", "weeks", "contest", "empty", "fleeting", "none"])
async def test_both_paths_answer_waits_alike(both: Both, board: str) -> None:
    """A wait has the current tag, an old tag, a foreign tag, several tags or no tag. Other waits have mistakes."""
    target = f"/v1/boards/{board}?limit=20"
    first = await both.same(read(target))
    tag = tag_in(first) if board != "none" else '"x:1"'
    old = re.sub(r":\d+", ":0", tag, count=1)
    old = '"other:1"' if old == tag else old  # an empty board has offset 0
    current = (tag, f"W/{tag}", f'"x", {tag}', f"{old}, {tag}")
    other = (old, f"{tag}, {old}", f'"{"e" * 65}:1"', "*", "")
    for length, tags in (("5ms", current), ("20s", other)):
        for known in tags:
            waits = (read(f"{target}&wait={length}", ("If-None-Match", known), *fields) for fields in FIELDS)
            await asyncio.gather(*map(both.same_wait, waits))
    for query in MISTAKES:
        await both.same(read(f"/v1/boards/{board}?{query}", ("If-None-Match", tag)))


@pytest.mark.parametrize("fields", [(), (("Accept-Encoding", "gzip"),), (("Origin", FRIEND),)])
async def test_both_paths_answer_with_a_change_alike(both: Both, fields: tuple[tuple[str, str], ...]) -> None:
    """The change comes while the client waits."""
    for known in ("{}", "W/{}", '"x", {}'):
        tag = tag_in(await both.same(read("/v1/boards/large?limit=50")))
        sent = read("/v1/boards/large?limit=50&wait=20s", ("If-None-Match", known.format(tag)), *fields)
        waiting = [asyncio.create_task(answered(url, sent)) for url in both]
        await both.same(read("/v1/boards/none"))  # when this request is answered, both servers have received the waits
        assert not any(task.done() for task in waiting)
        async with httpx.AsyncClient(base_url=both.ours) as client:
            await post(client, {"key": "book-1", "type": "shelf"})
        ours, plain = await asyncio.gather(*waiting)
        assert without_viewers(ours) == without_viewers(plain)
        assert ours.startswith(b"HTTP/1.1 200 ")
        assert tag_in(ours) != tag
