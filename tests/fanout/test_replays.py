"""Replays and delays: the bytes that a live viewer received, some time later."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from live.errors import SetupError
from live.fanout import frames, playback, recalls, recorder, subscription
from live.journal.database import JournalError
from live.journal.footage import FootageWriter
from live.serve import serve
from live.settings import Duration, Settings
from tests.harness.boards import rolling_board
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import server as server_of
from tests.harness.server import until_ready
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually
from tests.harness.watching import Served, served

BOARD = msgspec.structs.replace(rolling_board(), replay=3600)
DELAY = 2  # seconds
QUIET = ("alive", "replay")


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pieces and delays short, so that tests need not wait for them."""
    monkeypatch.setattr(subscription, "_LEAST_DELAY", 1)
    monkeypatch.setattr(recorder, "_INTERVAL", 0.2)
    monkeypatch.setattr(recorder, "_SNAPSHOT", 0.5)
    monkeypatch.setattr(playback, "_POLL", 0.1)
    monkeypatch.setattr(playback, "_PRESENT", 1000)


@asynccontextmanager
async def recording(store: str, **changes: Any) -> AsyncIterator[Served]:
    """A server that keeps the frames of its board, and has already kept some."""
    usual: dict[str, Any] = {"journal": "sqlite", "conflation_interval": Duration(0.05)}
    async with served(store, BOARD, **(usual | changes)) as server:
        await until_ready(server.client)
        await server.post({"key": "first"})
        await until_kept(server)
        yield server


async def until_kept(server: Served) -> None:
    """Wait until SQL has frames of the board."""
    footage = server.live.footage
    assert footage is not None

    async def kept() -> bool:
        state = server.live.ledgers["posts"].state
        try:
            return await footage.start("posts", state.epoch or "", 2**50) is not None
        except JournalError:  # its tables are not there yet
            return False

    await eventually(kept)


class Recorder:
    """A viewer that keeps everything that it receives."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.messages: list[bytes] = []

    async def until(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Receive messages until one passes a test."""
        async with asyncio.timeout(30):
            while True:
                text = await self.socket.recv(decode=False)
                message: dict[str, Any] = msgspec.json.decode(text)
                if message["type"] != "alive":
                    self.messages.append(text)
                if found(message):
                    return message

    async def until_offset(self, offset: int) -> None:
        """Receive messages up to an offset."""
        await self.until(lambda message: message.get("offset", -1) >= offset)

    def after(self, offset: int) -> list[bytes]:
        """Everything that it received after a position."""
        found = [msgspec.json.decode(text).get("offset", -1) for text in self.messages]
        return self.messages[found.index(offset) + 1 :]


@asynccontextmanager
async def watching(server: Served, query: str = "", board: str = "posts") -> AsyncIterator[Recorder]:
    """A viewer that does not take compressed messages."""
    url = f"{server.url.replace('http', 'ws')}/v1/boards/{board}/live{query}"
    async with connect(url, compression=None) as socket:
        yield Recorder(socket)


def text_of(seconds: float) -> str:
    """A time in the form of requests."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


async def play(server: Served, live: Recorder, count: int) -> int:
    """Post likes, each of which viewers receive before the next one; returns the last offset."""
    offset = 0
    for number in range(count):
        offset = await server.post({"key": f"k{number % 3}", "amount": number + 1})
        await live.until_offset(offset)
    return offset


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
    footage, epoch = server.live.footage, server.live.ledgers["posts"].state.epoch
    assert footage is not None

    async def kept() -> bool:
        return bool(await footage.until("posts", epoch or "", offset))

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


async def gone(server: Served) -> bool:
    """Whether no replay runs."""
    replays = server.live.hub._replays
    return not (replays._all or replays._delayed or replays._addresses)


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


REFUSED = [
    ("delay=0s", "parameter_invalid"),
    ("delay=1.5s", "parameter_invalid"),
    ("delay=61m", "parameter_invalid"),
    ("delay=soon", "parameter_invalid"),
    ("at=noon", "parameter_invalid"),
    ("at=2026-11-22T12:00:00", "parameter_invalid"),
    ("at=2100-01-01T00:00:00Z", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z", "past_unavailable"),
    ("at=2001-01-01T00:00:00Z&speed=0", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z&speed=101", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z&speed=nan", "parameter_invalid"),
    ("at=2001-01-01T00:00:00Z&delay=5s", "parameter_invalid"),
    ("speed=2", "parameter_invalid"),
    ("delay=5s&speed=2", "parameter_invalid"),
    ("delay=5s&limit=10", "parameter_invalid"),
    ("delay=5s&interval=1s", "parameter_invalid"),
    ("delay=5s&key=a", "parameter_invalid"),
]


async def test_an_invalid_replay_is_refused(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The WebSocket and the stream give the reason."""
    monkeypatch.undo()
    async with server_of(valkey_url, BOARD, journal="sqlite") as client:
        for query, code in REFUSED:
            answer = await client.get(f"/v1/boards/posts/stream?{query}")
            assert answer.json()["code"] == code, answer.text
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"{client.base_url}/v1/boards/posts/live?{query}".replace("http", "ws"))
            assert msgspec.json.decode(refused.value.response.body or b"")["code"] == code


async def test_a_board_without_replay_refuses_replays(valkey_url: str) -> None:
    """The server keeps a journal anyway."""
    async with server_of(valkey_url, rolling_board(), journal="sqlite") as client:
        answer = await client.get("/v1/boards/posts/stream?delay=5s")
        assert answer.json()["code"] == "past_unavailable"


async def test_replays_are_limited(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a limit in total and for each address. Viewers that share a running delay do not count."""
    monkeypatch.setattr(playback, "_PRESENT", -(10**9))  # none becomes live
    async with recording(valkey_url, max_replays=2, max_address_replays=2) as server:
        now = f"at={text_of(time.time())}&speed=0.1"
        async with watching(server, f"?{now}"), watching(server, "?delay=30s"), watching(server, "?delay=30s"):
            with pytest.raises(InvalidStatus):
                await connect(f"{server.url.replace('http', 'ws')}/v1/boards/posts/live?delay=31s")
            answer = await server.client.get(f"/v1/boards/posts/stream?{now}")
            assert answer.json()["code"] == "too_many_viewers"
        await eventually(lambda: gone(server))
        async with watching(server, "?delay=31s"):
            assert len(server.live.hub._replays._all) == 1


async def test_old_frames_are_deleted(valkey_url: str) -> None:
    """Frames of a board that no longer keeps any are deleted immediately, those of unknown boards later."""
    async with recording(valkey_url) as server:
        assert server.live.journal is not None
        writer = FootageWriter(server.live.journal)
        await writer.forget({"posts": 3600})
        await writer.forget({"other": 0})
        await until_kept(server)
        epoch, footage = server.live.ledgers["posts"].state.epoch or "", server.live.footage
        assert footage is not None
        assert await footage.start("posts", epoch, 0) is not None
        await writer.forget({"posts": 0})
        assert await footage.start("posts", epoch, 2**50) is None


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


async def test_a_run_time_board_needs_a_journal(valkey_url: str) -> None:
    """The database of the journal keeps the frames."""
    for journal, status in (("off", 422), ("sqlite", 201)):
        async with server_of(valkey_url, rolling_board(), journal=journal, anonymous_admin=True) as client:
            answer = await client.put("/v1/boards/other", json={"source": ["other"], "replay": "7d"})
            assert answer.status_code == status, answer.text
            if journal == "off":
                assert "LIVE_JOURNAL is off" in answer.json()["detail"]
            else:
                assert answer.json()["replay"] == 604_800


def test_a_boards_file_with_replay_needs_a_journal(tmp_path: Path) -> None:
    """The server does not start without one."""
    boards = tmp_path / "boards.toml"
    boards.write_text('[[board]]\nid = "b"\nreplay = "1h"\n')
    with pytest.raises(SetupError, match="`replay` needs a journal"):
        serve(Settings(port=0, boards=boards, journal="off", data_dir=tmp_path))


async def test_viewers_recover_after_a_restart(valkey_url: str) -> None:
    """They recover from kept messages, although the new process has seen none of them."""
    model = ModelViewer()
    names = [f"a-rather-long-name-{number}" for number in range(30)]
    async with recording(valkey_url) as server, connect(live_url(server)) as socket:
        await apply_until(model, socket, await server.post(*({"key": name} for name in names)))
        offset = await server.post({"key": "first", "amount": 4})
        await apply_until(model, socket, offset)
        place = f"epoch={model.epoch}&offset={offset}"
        same: dict[str, Any] = {
            "key_prefix": server.live.settings.key_prefix,
            "data_dir": server.live.settings.data_dir,
        }
    async with served(valkey_url, BOARD, journal="sqlite", **same) as server:
        last = await server.post({"key": names[7], "amount": 5}, {"key": "first", "amount": -4})
        url = live_url(server)
        async with connect(f"{url}?{place}") as socket, connect(f"{url}?{place}") as other:
            await apply_until(model, socket, last)
            assert (model.recovered, model.updates > 0) == (True, True)
            assert [(record.key, record.score) for record in model.records[:1]] == [(names[7], 6)]
            assert {record.score for record in model.records[1:]} == {1}
            assert msgspec.json.decode(await other.recv())["recovered"] is True
            assert len(model.records) == 31
        async with connect(f"{url}?epoch={model.epoch}&offset=1000000") as socket:
            assert msgspec.json.decode(await socket.recv())["type"] == "sync"


@pytest.mark.mutant
async def test_a_recovery_from_another_state_is_detected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant finds the kept state before the one that the viewer had."""
    monkeypatch.setattr(recorder, "_SNAPSHOT", 3600)

    def before(pieces: Any, epoch: str, offset: int) -> Any:
        frames_of = [frame for piece in pieces for frame in piece.frames]
        offsets = [int(frame.position.partition(":")[2]) for frame in frames_of if frame.position]
        earlier = max((one for one in offsets if one < offset), default=offset)
        found = page_at(pieces, epoch, earlier)
        return found and msgspec.structs.replace(found, offset=offset)

    page_at = recalls.page_at
    with must_be_caught("changes since another state"), replaced(recalls, "page_at", before):
        await test_viewers_recover_after_a_restart(valkey_url)


def live_url(server: Served) -> str:
    """The address of the board's live route."""
    return f"{server.url}/v1/boards/posts/live".replace("http", "ws", 1)


async def apply_until(model: ModelViewer, socket: ClientConnection, offset: int) -> None:
    """Apply messages up to a position."""
    async with asyncio.timeout(30):
        while model.offset < offset:
            model.receive(await socket.recv())


async def test_another_process_plays_what_one_has_recorded(valkey_url: str) -> None:
    """The bytes of the process that records."""
    async with recording(valkey_url) as server, watching(server) as live:
        own = server.live.settings
        first = await server.post({"key": "mark"})
        await live.until_offset(first)
        same: dict[str, Any] = {"key_prefix": own.key_prefix, "data_dir": own.data_dir}
        async with served(valkey_url, BOARD, journal="sqlite", **same) as second:
            async with watching(second, f"?delay={DELAY}s") as delayed:
                last = await play(server, live, 5)
                await delayed.until_offset(last)
            assert not second.live.hub.channels["posts"]._viewers, "one process records"
        received = [text for text in delayed.after(first) if b'"update"' in text]
        assert received == [text for text in live.after(first) if b'"update"' in text]
