"""Replays and delays: the bytes that a live viewer received, some time later."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from live.fanout import frames, playback
from live.journal.recordings import RecordingWriter
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.replays import DELAY, gone, play, recording, text_of, until_kept, watching
from tests.harness.waiting import eventually
from tests.harness.watching import Served

QUIET = ("alive", "replay")


pytestmark = pytest.mark.usefixtures("short_times")


async def test_a_delayed_viewer_receives_the_bytes_of_a_live_one(valkey_url: str) -> None:
    """They come in the same order, and not before the delay is over."""
    async with recording(valkey_url) as server, watching(server) as live:
        await live.until(lambda message: message["type"] == "sync")
        started = time.time()
        first = await server.post({"key": "mark"})
        await live.until_offset(first)
        async with watching(server, f"?delay={DELAY}s") as delayed:
            last = await play(server, live, 8)
            await delayed.until_offset(first)
            assert time.time() - started >= DELAY
            await delayed.until_offset(last)
        expected, received = live.after(first), delayed.after(first)
        assert len(received) >= 8
        assert received == expected[: len(received)]


async def test_a_replay_sends_the_original_bytes_and_becomes_live(valkey_url: str) -> None:
    """It first names its time, begins with the state of that time, and continues after the last kept message."""
    async with recording(valkey_url) as server, watching(server) as live:
        first = await server.post({"key": "mark"})
        await live.until_offset(first)
        began = time.time()
        last = await play(server, live, 8)
        await until_played(server, last)
        async with watching(server, f"?at={text_of(began)}&speed=8") as again:
            begins = await again.until(lambda message: message["type"] == "replay")
            assert begins["speed"] == 8
            assert len(again.messages) == 1
            sync = await again.until(lambda message: message["type"] == "sync")
            assert len(again.messages) == 2
            assert sync["offset"] <= first
            ends = await again.until(lambda message: message["type"] == "replay")
            assert ends["at"] is None
            past = [text for text in again.after(first) if b'"replay"' not in text]
            assert past == live.after(first)[: len(past)]
            assert msgspec.json.decode(past[-1])["offset"] == last or b"viewers" in past[-1]
            new = await server.post({"key": "new"})
            await again.until_offset(new)
            assert msgspec.json.decode(again.messages[-1])["type"] == "update"


async def until_played(server: Served, offset: int) -> None:
    """Wait until SQL has the frame at an offset."""
    recordings, epoch = server.live.recordings, server.live.ledgers["posts"].state.epoch
    assert recordings is not None

    async def kept() -> bool:
        return bool(await recordings.until("posts", epoch or "", offset))

    await eventually(kept)


async def test_viewers_with_one_delay_share_every_frame(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept frames are never encoded again, and all viewers share a frame object."""
    made: list[bytes] = []
    encoded: list[bytes] = []
    make, encode = playback.frame_of, frames._encode

    def count_made(kept: Any) -> Any:
        made.append(kept.payload)
        return make(kept)

    def count_encoded(message: Any) -> bytes:
        encoded.append(encode(message))
        return encoded[-1]

    async with recording(valkey_url) as server, watching(server) as live:
        await live.until(lambda message: message["type"] == "sync")
        viewers = [watching(server, f"?delay={DELAY}s") for _ in range(20)]
        tapes = await asyncio.gather(*(viewer.__aenter__() for viewer in viewers))
        first = await server.post({"key": "mark"})
        await asyncio.gather(*(tape.until_offset(first) for tape in tapes))
        monkeypatch.setattr(playback, "frame_of", count_made)
        monkeypatch.setattr(frames, "_encode", count_encoded)
        last = await play(server, live, 5)
        await asyncio.gather(*(tape.until_offset(last) for tape in tapes))
        assert len({tuple(tape.after(first)) for tape in tapes}) == 1
        assert all(made.count(text) == 1 for text in tapes[0].after(first) if b'"update"' in text)
        assert sum(b'"update"' in text for text in encoded) == 5
        assert len(server.live.hub._replays._all) == 1
        assert server.watching == 21
        await asyncio.gather(*(viewer.__aexit__(None, None, None) for viewer in viewers))
        await eventually(lambda: gone(server))


@pytest.mark.mutant
async def test_a_missing_delay_is_detected(valkey_url: str) -> None:
    """The mutant sends each piece immediately."""

    def at_once(*_: object) -> float:
        return 0

    with must_be_caught("messages are sent before they are due"), replaced(playback.Pace, "due", at_once):
        await test_a_delayed_viewer_receives_the_bytes_of_a_live_one(valkey_url)


@pytest.mark.mutant
async def test_a_message_that_is_encoded_again_is_detected(valkey_url: str) -> None:
    """The mutant decodes kept messages."""

    def again(kept: Any) -> frames.Frame:
        text = msgspec.json.format(kept.payload, indent=0) if kept.type == "update" else kept.payload
        return frames.Frame(kept.type, text.replace(b",", b", "), kept.position)

    with must_be_caught("other bytes than those of then"), replaced(playback, "frame_of", again):
        await test_a_delayed_viewer_receives_the_bytes_of_a_live_one(valkey_url)


async def test_old_frames_are_deleted(valkey_url: str) -> None:
    """Frames of a board that no longer keeps any are deleted immediately, those of unknown boards later."""
    async with recording(valkey_url) as server:
        assert server.live.journal is not None
        writer = RecordingWriter(server.live.journal)
        await writer.forget({"posts": 3600})
        await writer.forget({"other": 0})
        await until_kept(server)
        epoch, recordings = server.live.ledgers["posts"].state.epoch or "", server.live.recordings
        assert recordings is not None
        assert await recordings.start("posts", epoch, 0) is not None
        await writer.forget({"posts": 0})
        assert await recordings.start("posts", epoch, 2**50) is None


async def test_event_streams_play_too(valkey_url: str) -> None:
    """They receive the same messages."""
    async with recording(valkey_url) as server, watching(server) as live:
        began = text_of(time.time())
        last = await play(server, live, 3)
        await until_played(server, last)
        payloads: list[bytes] = []
        async with server.client.stream(
            "GET", f"/v1/boards/posts/stream?at={began}&speed=10", headers={"Accept-Encoding": "identity"}
        ) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and "alive" not in line:
                    payloads.append(line.removeprefix("data: ").encode())
                if '"at":null' in line:
                    break
        updates = [text for text in payloads if b'"update"' in text]
        assert updates == [text for text in live.messages if b'"update"' in text][-len(updates) :]
        assert len(updates) >= 3
        assert payloads[0].startswith(b'{"type":"replay"')


async def test_a_fast_replay_sends_only_whole_tops(valkey_url: str) -> None:
    """Otherwise one viewer would receive thousands of messages a second."""
    async with recording(valkey_url) as server, watching(server) as live:
        began = text_of(time.time())
        last = 0
        for _ in range(4):
            last = await play(server, live, 4)
            await until_played(server, last)
        async with watching(server, f"?at={began}&speed=20") as fast:
            await fast.until(lambda message: message["type"] == "replay" and message["at"] is None)
            kinds = [msgspec.json.decode(text)["type"] for text in fast.messages]
            assert "update" not in kinds
            assert kinds.count("sync") >= 2
