"""Viewers with a delay receive what viewers of the board received earlier, and nothing else."""

import asyncio
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed

from live.domain.event import make_entry
from live.domain.reader import SERVER
from live.errors import BOARD_DELETED, FAILED
from live.fanout import delays, subscription
from live.fanout.cohort import ViewerPosition
from live.fanout.delays import Chapter, DelayedViewers, Recording, _Recorded
from live.metrics import VIEWERS
from live.system import resources
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.producer import post
from tests.harness.sse import streaming
from tests.harness.tapes import Tape, taping
from tests.harness.waiting import DEADLINE, eventually
from tests.harness.watching import Served, served

DELAY = 1  # seconds
QUERY = f"?delay={DELAY}s"
SLOWLY: dict[str, Any] = {"conflation_interval": 0.05}


@pytest.fixture(autouse=True)
def _short_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let viewers ask for a delay of a second."""
    monkeypatch.setattr(subscription, "_LEAST_DELAY", DELAY)


async def like(here: Served, live: Tape, count: int) -> int:
    """Post likes, and wait after each one until `live` has received it; returns the last offset."""
    offset = 0
    for number in range(count):
        offset = await here.post({"key": f"k{number % 3}", "amount": number + 1})
        await live.until_offset(offset)
    return offset


async def check_the_delay(store: str) -> None:
    """Compare the messages of a delayed viewer with those of a live viewer, byte for byte, and their times."""
    async with served(store, **SLOWLY) as here, taping(here) as live, taping(here, QUERY) as late:
        offset = await like(here, live, 20)
        await late.until_offset(offset)
        assert b'"type":"sync"' in late.messages[0]
        texts = [text for text in late.messages[1:] if b'"type":"update"' in text]
        assert len(texts) >= 10
        begin = live.messages.index(texts[0])
        assert texts == [text for text in live.messages[begin:] if b'"type":"update"' in text]
        sent = dict(zip(live.messages, live.times, strict=True))
        got = dict(zip(late.messages, late.times, strict=True))
        # The live viewer itself may have read its message late, but only by a moment.
        assert min(got[text] - sent[text] for text in texts) > DELAY - 0.5


async def test_a_delayed_viewer_receives_what_a_live_viewer_received(valkey_url: str) -> None:
    """The first message is a sync. No message comes early, and none is missing."""
    await check_the_delay(valkey_url)


@pytest.mark.mutant
async def test_a_message_that_comes_at_once_is_caught(valkey_url: str) -> None:
    """The mutant sends each message without a delay."""

    def early(group: DelayedViewers, delay: int, chapters: deque[Chapter]) -> None:
        init(group, 0 * delay, chapters)

    init = DelayedViewers.__init__
    with replaced(DelayedViewers, "__init__", early), must_be_caught("early"):
        await check_the_delay(valkey_url)


async def test_an_event_stream_can_have_a_delay(valkey_url: str) -> None:
    """It receives the same messages as a WebSocket. A second viewer with the same delay begins with a sync too."""
    async with served(valkey_url, **SLOWLY) as here, taping(here) as live, streaming(here.client, QUERY) as stream:
        offset = await like(here, live, 5)
        await stream.follow(offset)
        async with streaming(here.client, QUERY) as other:
            assert (await other.until("sync", "update"))["event"] == "sync"
            await other.follow(offset)
            assert stream.model.records == other.model.records
        assert len(here.live.hub._recordings) == 1


async def test_a_board_that_is_created_again_has_delayed_viewers_again(valkey_url: str) -> None:
    """Viewers of the deleted board may still be closing their connections. New viewers see only the new board."""
    async with served(valkey_url, anonymous_admin=True, **SLOWLY) as here:
        await here.client.put("/v1/boards/june", json={"types": ["june"]})
        async with taping(here, board="june") as live, taping(here, QUERY, "june") as late:
            await post(here.client, {"key": "old", "type": "june"})
            await live.until(lambda message: message.get("rank_count") == 1)
            await late.until(lambda message: message["type"] == "sync")
            recording = here.live.hub._recordings[here.live.hub.channels["june"]]
            # This viewer does not answer the close frame yet, so it stays in the hub.
            late.socket.transport.pause_reading()
            assert (await here.client.delete("/v1/boards/june")).status_code == 204
            assert recording.ended == BOARD_DELETED
            await here.client.put("/v1/boards/june", json={"types": ["june"]})
            await post(here.client, {"key": "new", "type": "june"})
            for _ in range(2):
                async with taping(here, QUERY, "june") as again:
                    await again.until(lambda message: message["type"] == "sync" and message["rank_count"] == 1)
                    assert b"old" not in b"".join(again.messages)
                    assert b"new" in again.messages[-1]
            late.socket.transport.resume_reading()
            with pytest.raises(ConnectionClosed) as closed:
                await late.until(lambda _: False)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == BOARD_DELETED


async def check_a_private_time(store: str) -> None:
    """Make a board private and public again. A viewer who comes then must not see what it showed meanwhile."""
    async with served(store, anonymous_admin=True, **SLOWLY) as here:
        await here.client.put("/v1/boards/june", json={"types": ["june"]})
        async with taping(here, "?delay=2s", "june") as late:
            await late.until(lambda message: message["type"] == "sync")
            channel = here.live.hub.channels["june"]
            await here.client.patch("/v1/boards/june", json={"visibility": "private"})
            with pytest.raises(ConnectionClosed):
                await late.until(lambda _: False)
            # The recording goes on for a moment, because viewers may reconnect.
            (recording,) = here.live.hub._recordings.values()
            ledger = here.live.registry.ledgers.find("june", SERVER)
            assert ledger is not None
            await ledger.writer.add([make_entry("secret", 1, None)])

            async def is_recorded() -> bool:
                frames = [frame for chapter in recording._chapters for frame in chapter.frames]
                return any(b"secret" in frame.payload for frame in frames)

            await eventually(is_recorded)
            await ledger.writer.add([make_entry("secret", -1, None)])
            await here.client.patch("/v1/boards/june", json={"visibility": "public"})
            async with taping(here, "?delay=2s", "june") as again:
                assert here.live.hub._recordings[channel] is recording
                await again.until(lambda message: message["type"] == "sync")
                await post(here.client, {"key": "open", "type": "june"})
                await again.until(lambda message: message.get("rank_count") == 1)
                assert b"secret" not in b"".join(again.messages)


async def test_what_a_private_board_showed_stays_private(valkey_url: str) -> None:
    """The recording goes on while the board is private, and forgets this time when the board becomes public."""
    await check_a_private_time(valkey_url)


@pytest.mark.mutant
async def test_a_recording_that_forgets_nothing_is_caught(valkey_url: str) -> None:
    """The mutant keeps the frames of the private time."""
    with replaced(Recording, "renew", lambda *_: None), must_be_caught("a private time is shown"):
        await check_a_private_time(valkey_url)


async def test_a_process_records_a_few_boards(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further boards are refused, for everybody and earlier for the same address. A recorded board takes more viewers.

    When nobody watches any more, the recording ends.
    """
    monkeypatch.setattr(resources, "_RECORDINGS", 2)
    monkeypatch.setattr(delays, "_LINGER", 0.0)
    async with served(valkey_url, anonymous_admin=True) as here:
        await here.client.put("/v1/boards/june", json={"types": ["june"]})
        async with streaming(here.client, QUERY) as stream, streaming(here.client, QUERY):
            refused = await here.client.get(f"/v1/boards/june/stream{QUERY}")
            assert (refused.status_code, refused.json()["code"]) == (503, "too_many_viewers")
            await stream.until("sync")
            assert (here.watching, VIEWERS.labels("posts")._value.get()) == (2, 2)
        hub_ = here.live.hub

        async def is_over() -> bool:
            return not hub_._recordings and not hub_.channels["posts"]._viewers

        await eventually(is_over)
        assert (here.watching, VIEWERS.labels("posts")._value.get()) == (0, 0)
        hub_._resources.recordings.most = 0
        assert (await here.client.get(f"/v1/boards/june/stream{QUERY}")).status_code == 503


async def test_a_recording_that_fails_ends_its_viewers(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may come back, and then begin a new recording."""
    async with served(valkey_url, **SLOWLY) as here:
        async with taping(here, QUERY) as late:
            await late.until(lambda message: message["type"] == "sync")
            with monkeypatch.context() as patch, capture_logs() as logs:
                patch.setattr(DelayedViewers, "next_due", lambda _: 1 / 0)
                with pytest.raises(ConnectionClosed) as closed:
                    await late.until(lambda _: False)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == FAILED
            assert [log["event"] for log in logs if log["log_level"] == "error"] == ["a delay failed"]
        async with taping(here, QUERY) as late:
            await late.until(lambda message: message["type"] == "sync")


async def test_a_recording_has_a_bounded_size(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that sends too much is recorded less often. The viewers still see its last state."""
    most = 40_000
    monkeypatch.setattr(delays, "_MOST_BYTES", most)
    monkeypatch.setattr(delays, "_BURST", 0.1)
    monkeypatch.setattr(delays, "_CHAPTER", 0.5)
    async with served(valkey_url) as here, taping(here) as live, taping(here, QUERY) as late:
        began, largest, offset = time.monotonic(), 0, 0
        (recording,) = here.live.hub._recordings.values()
        while time.monotonic() < began + 2 * DELAY:
            likes = [{"key": f"{number}-{'x' * 200}", "amount": number + 1} for number in range(30)]
            offset = await here.post(*likes)
            await live.until_offset(offset)
            frames = [frame for chapter in recording._chapters for frame in chapter.frames]
            largest = max(largest, sum(len(frame.payload) for frame in frames))
        await late.until_offset(offset)
        one = max(len(text) for text in live.messages)
        assert largest <= 1.2 * most + 3 * one
        assert len(late.messages) < len(live.messages)


def frame(at: float, text: str) -> _Recorded:
    """A recorded frame."""
    return _Recorded(at, "update", text.encode(), "")


def test_viewers_go_from_chapter_to_chapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new viewer begins with the whole top of the last chapter that is due. A viewer that follows skips it.

    A viewer whose chapter is gone begins again with the whole top.
    """
    now = 0.0
    monkeypatch.setattr(delays, "time", SimpleNamespace(monotonic=lambda: now))
    first_frames = [frame(0.0, "whole 0"), frame(0.0, "count 0"), frame(1.0, "one"), frame(5.0, "two")]
    chapters = deque([Chapter(0, 0.0, 2, first_frames)])
    chapters.append(Chapter(1, 5.0, 1, [frame(5.0, "whole 1"), frame(6.0, "three")]))
    group = DelayedViewers(10, chapters)

    def read(position: ViewerPosition) -> list[str]:
        found = []
        while (made := group.next_frame(position)) is not None:
            found.append(made.payload.decode())
        return found

    first, second = ViewerPosition(), ViewerPosition()
    assert (read(first), group.next_due()) == ([], 10.0)
    now = 10.9
    assert (read(first), first.returns, group.next_due()) == (["whole 0", "count 0"], False, 11.0)
    now = 15.0
    assert (read(first), group.next_due()) == (["one", "two"], 16.0)
    assert read(second) == ["whole 1"]
    now = 16.0
    assert (read(first), read(second), group.next_due()) == (["three"], ["three"], None)
    slow = ViewerPosition("0", 3)
    chapters.popleft()
    assert read(slow) == ["whole 1", "three"]
    assert read(slow) == []
    chapters.clear()
    assert read(slow) == []
    assert group.next_frame(ViewerPosition("1", 2)) is None


async def test_a_delay_that_nobody_watches_costs_nothing(valkey_url: str) -> None:
    """The recording keeps no more than the longest delay that somebody watches now needs."""
    async with served(valkey_url, **SLOWLY) as here:
        async with taping(here, "?delay=60s"):
            await eventually_recorded(here, 60)
        async with taping(here, QUERY):
            await eventually_recorded(here, DELAY)


async def eventually_recorded(here: Served, longest: int) -> None:
    """Wait until the only recording keeps what a delay of this many seconds needs."""

    async def is_longest() -> bool:
        return [recording._longest for recording in here.live.hub._recordings.values()] == [longest]

    await eventually(is_longest)


async def test_a_quiet_viewer_receives_alive_messages(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It receives them even before its first records. Their times are as late as all other messages."""
    monkeypatch.setattr("live.fanout.cohort.SILENCE", 0.1)
    monkeypatch.setattr(delays, "_BEAT", 0.05)
    async with served(valkey_url) as here, taping(here, "?delay=60s") as late, asyncio.timeout(DEADLINE):
        for _ in range(3):
            message = msgspec.json.decode(await late.socket.recv())
            assert message["type"] == "alive"
            assert datetime.fromisoformat(message["time"]) <= datetime.now(UTC) - timedelta(seconds=60)
