"""Compressed event streams: what is sent, and what real clients read."""

import asyncio
import json
import shutil
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.harness.browser import CHROMIUM, launched
from tests.harness.producer import post
from tests.harness.server import server
from tests.harness.sse import streaming
from tests.harness.viewer import ModelViewer
from tests.harness.watching import Served, served
from tests.web.reads.test_stream import QUICK

NODE: Final = shutil.which("node")
PATH: Final = "/v1/boards/posts/stream"
MEMBERS: Final = [f"https://example.org/posts/{number}" for number in range(50)]
SCRIPT: Final = """
const response = await fetch(process.argv[1]);
const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
let text = "";
for (;;) {
  const { value, done } = await reader.read();
  if (done) break;
  text += value;
  const events = text.split("\\n\\n");
  text = events.pop();
  for (const event of events) {
    const data = event.split("\\n").find(line => line.startsWith("data: "));
    if (data !== undefined) console.log(data.slice(6));
  }
}
console.log(JSON.stringify(response.headers.get("content-encoding")));
"""


async def fill(client: httpx.AsyncClient) -> None:
    """Give fifty members different scores."""
    await post(client, *({"key": key, "amount": 100 - place} for place, key in enumerate(MEMBERS)))


async def like(client: httpx.AsyncClient, number: int) -> int:
    """Change the scores of some members; returns the offset."""
    offset: int = (await post(client, *({"key": key} for key in MEMBERS[number::2])))["offsets"]["posts"]
    return offset


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("gzip;q=0", None),
        ("identity", None),
        ("br", None),
        ("*", "gzip"),
        ("gzip;q=0.5, identity", None),
    ],
)
async def test_a_stream_has_the_encoding_that_the_client_accepts(
    valkey_url: str, accepted: str, encoding: str | None
) -> None:
    """The answer to HEAD has the encoding too. `Vary` tells caches that there are two forms."""
    async with server(valkey_url, **QUICK) as client:
        async with streaming(client, Accept_Encoding=accepted) as stream:
            await stream.until("sync")
            assert stream.response.headers.get("content-encoding") == encoding
            assert stream.response.headers["vary"] == "Accept-Encoding"
        head = await client.head(PATH, headers={"Accept-Encoding": accepted})
        assert (head.headers.get("content-encoding"), head.content) == (encoding, b"")


async def test_a_stream_is_one_gzip_member_of_shared_blocks(valkey_url: str) -> None:
    """Each event can be read at once, and is small, because it refers to the event before it. The checksum is right."""
    async with served(valkey_url) as here:
        await fill(here.client)
        raw, text, reader = b"", b"", zlib.decompressobj(31)
        async with (
            here.client.stream("GET", PATH, headers={"Accept-Encoding": "gzip"}) as response,
            streaming(here.client, Accept_Encoding="identity") as plain,
        ):
            chunks = response.aiter_raw()
            for number in range(20):
                await plain.follow(await like(here.client, number))
                async with asyncio.timeout(20):
                    while f'"offset":{plain.model.offset},'.encode() not in text:
                        raw += (chunk := await anext(chunks))
                        text += reader.decompress(chunk)
            assert len(raw) < len(text) / 5
            here.live.hub.drain()
            async for chunk in chunks:
                text += reader.decompress(chunk)
        assert b'"reason":"the server is shutting down"' in text[-200:]
        assert (reader.eof, reader.unused_data) == (True, b"")


@pytest.mark.slow
async def test_a_compressed_stream_with_a_rank_agrees_with_a_plain_one(valkey_url: str) -> None:
    """The rank of one member comes between the events that all streams share."""
    async with server(valkey_url, **QUICK) as client:
        await fill(client)
        query = f"?limit=20&key={MEMBERS[30]}&around=2"
        async with (
            streaming(client, query, Accept_Encoding="gzip") as stream,
            streaming(client, query, Accept_Encoding="identity") as plain,
        ):
            for number in range(20):
                offset = await like(client, number)
                for each in (stream, plain):
                    # The message of a rank that is read late may come before the change with the same offset.
                    around = 0
                    while min(each.model.offset, around) < offset:
                        event = await each.until("sync", "update", "around")
                        around = max(around, event.message["offset"] if event["event"] == "around" else 0)
            assert stream.model.records == plain.model.records


async def agree(here: Served, model: ModelViewer, following: Callable[[], Awaitable[list[str]]]) -> None:
    """Like twenty times.

    A client must read each change before the next change, and finally have the order of the board.
    """
    for number in range(20):
        offset = await like(here.client, number)
        async with asyncio.timeout(20):
            while model.offset < offset:
                for text in await following():
                    model.receive(text)
    found = (await here.client.get("/v1/boards/posts?limit=50")).json()
    assert [record.member for record in model.records] == [record["key"] for record in found["records"]]


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
async def test_node_reads_a_compressed_stream(valkey_url: str, tmp_path: Path) -> None:
    """`fetch` shows each event when it comes, and ends without an error."""
    script = tmp_path / "read.mjs"
    script.write_text(SCRIPT.replace("process.argv[1]", "process.argv[2]"))
    async with served(valkey_url) as here:
        await fill(here.client)
        node = await asyncio.create_subprocess_exec(str(NODE), script, here.url + PATH, stdout=asyncio.subprocess.PIPE)
        assert node.stdout is not None
        lines = node.stdout

        async def following() -> list[str]:
            return [(await lines.readline()).decode()]

        await agree(here, ModelViewer(), following)
        here.live.hub.drain()
        *_, encoding = (await node.stdout.read()).splitlines()
        assert (json.loads(encoding), await node.wait()) == ("gzip", 0)


@pytest.mark.browser
async def test_chromium_reads_a_compressed_stream(valkey_url: str) -> None:
    """`EventSource` shows each event when it comes, and reconnects after the end."""
    assert CHROMIUM is not None, "Chromium is not installed"
    async with served(valkey_url) as here, launched() as chromium:
        await fill(here.client)
        page = await chromium.new_page()
        encodings: list[str | None] = []
        page.on("response", lambda response: encodings.append(response.headers.get("content-encoding")))
        await page.goto(f"{here.url}/healthz")
        encodings.clear()
        await page.evaluate(
            """path => {
                window.texts = [];
                window.source = new EventSource(path);
                window.errors = 0;
                source.onerror = () => { errors += 1; };
                for (const name of ["sync", "update"]) {
                    source.addEventListener(name, event => texts.push(event.data));
                }
            }""",
            PATH,
        )
        done = 0

        async def following() -> list[str]:
            nonlocal done
            texts: list[str] = await page.evaluate("first => texts.slice(first)", done)
            done += len(texts)
            return texts

        await agree(here, ModelViewer(), following)
        assert (encodings, await page.evaluate("() => errors")) == (["gzip"], 0)
