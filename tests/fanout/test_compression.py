"""Compressed frames with shared history: each viewer reads exactly what a viewer of plain frames reads."""

import asyncio
import gc
import random
import weakref
import zlib
from typing import Final

import msgspec
import pytest

from live.domain.ranking import Page, Record
from live.domain.views import Around
from live.fanout import cohort
from live.fanout.channel import Channel
from live.fanout.cohort import Encoding, Outbox, Viewer, collect
from live.fanout.frames import Frame, SharedText, TextHistory, deflate, following, frame_of
from live.fanout.intervals import TickSchedule
from live.fanout.subscription import Subscription
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.boards import built
from tests.harness.settings import fresh_settings

BOARD: Final = built(id="posts", title="Posts")
MEMBERS: Final = [f"https://example.org/posts/{number}" for number in range(30)]
STEPS: Final = 60
RUNS: Final = 60


class Client:
    """A connection that takes frames, or lets them wait, and reads them as RFC 6455 and RFC 7692 say."""

    fd = -1

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.waiting = False
        self.blocked_since: float | None = None
        self.messages: list[bytes] = []
        self.compressed = 0
        self._window = zlib.decompressobj(-15)

    def write(self, data: bytes | memoryview) -> bool:
        self._read(bytes(data))
        return not self.waiting

    def abort(self) -> None:
        raise AssertionError

    def end(self, code: int) -> None:
        raise AssertionError(code)

    def _read(self, frames: bytes) -> None:
        while frames:
            size, start = frames[1], 2
            if size >= 126:
                start = 4 if size == 126 else 10
                size = int.from_bytes(frames[2:start])
            self._read_frame(frames[0], frames[start : start + size])
            frames = frames[start + size :]

    def _read_frame(self, head: int, payload: bytes) -> None:
        if head & 0x40:
            assert self.encoding == "deflated", "a viewer that did not ask for compression got a compressed frame"
            self.compressed += 1
            try:
                payload = self._window.decompress(payload + b"\x00\x00\xff\xff")
            except zlib.error as error:
                raise AssertionError(f"the client can't decompress a frame: {error}") from None
        self.messages.append(payload)


class Pair:
    """Two viewers with the same subscription: one takes compressed frames, and the other plain frames."""

    def __init__(self, channel: Channel, subscription: Subscription) -> None:
        self.subscription = subscription
        self.clients = Client("deflated"), Client("plain")
        self.viewers = [Viewer(channel, *channel.place_of(subscription), client) for client in self.clients]
        for viewer in self.viewers:
            channel.enter(viewer)

    def set_waiting(self, *, waiting: bool) -> None:
        for client, viewer in zip(self.clients, self.viewers, strict=True):
            client.waiting = waiting
            if not waiting:
                viewer.wake()

    def leave(self, channel: Channel) -> None:
        for viewer in self.viewers:
            channel.leave(viewer)


class Run:
    """A channel with viewers, and a board that changes at random."""

    def __init__(self, channel: Channel, chance: random.Random) -> None:
        self.channel = channel
        self.chance = chance
        self.here: list[Pair] = []
        self.all: list[Pair] = []
        self.scores = {member: chance.randrange(1, 100) for member in MEMBERS}
        self.offset = 0

    async def step(self) -> None:
        """Let one random thing happen, and often change the board too."""
        steps = [self.join, self.join, self.leave, self.stall, self.go_on, self.look_up, self.count]
        self.chance.choice(steps)()
        if self.chance.random() < 0.6:
            await self.tick()

    def join(self) -> None:
        member = self.chance.choice(MEMBERS) if self.chance.random() < 0.2 else None
        subscription = Subscription(size=self.chance.choice((5, 20)), member=member)
        if self.chance.random() < 0.3:  # this viewer reconnects with a position
            subscription = msgspec.structs.replace(
                subscription, epoch="e", offset=self.chance.randrange(self.offset + 1)
            )
        self.here.append(Pair(self.channel, subscription))
        self.all.append(self.here[-1])

    def leave(self) -> None:
        if self.here:
            self.here.pop(self.chance.randrange(len(self.here))).leave(self.channel)

    def stall(self) -> None:
        if self.here:
            self.chance.choice(self.here).set_waiting(waiting=True)

    def go_on(self) -> None:
        for pair in self.here:
            if self.chance.random() < 0.5:
                pair.set_waiting(waiting=False)

    def look_up(self) -> None:
        """Change the rank of a member that a viewer asked for."""
        for pair in self.here:
            if pair.subscription.member is not None and self.chance.random() < 0.5:
                around = Around(
                    epoch="e", offset=self.offset, member=pair.subscription.member, rank_count=self.chance.randrange(99)
                )
                for viewer in pair.viewers:
                    assert viewer.position.lookup is not None
                    viewer.position.lookup.frame = frame_of(around)
                for viewer in pair.viewers:
                    viewer.wake()

    def count(self) -> None:
        self.channel.set_viewer_count(self.chance.randrange(1000))

    async def tick(self) -> None:
        """Change the board, and bring every viewer up to date."""
        self.offset += 1
        for member in self.chance.sample(MEMBERS, self.chance.randrange(1, 8)):
            self.scores[member] += self.chance.randrange(100)
        rows = sorted(self.scores.items(), key=lambda row: (-row[1], row[0]))
        records = tuple(Record(member, score, rank) for rank, (member, score) in enumerate(rows, 1))
        page = Page(
            epoch="e", offset=self.offset, rank_count=len(rows), total_score=sum(self.scores.values()), start=0,
            records=records,
        )  # fmt: skip
        self.channel.read_again()
        tick = self.channel.begin(1 << 60)
        assert tick is not None
        self.channel.take(tick, page)
        outbox = Outbox()
        await collect(tick.variants, outbox)
        outbox.flush()
        await self.channel.finish(tick)


def compare(seed: int, store: str) -> int:
    """Check in one schedule that the viewers of each pair read the same; returns the number of compressed frames."""

    async def run() -> int:
        settings = fresh_settings(store)
        channel = Channel(
            Ledger(connect(store, settings), BOARD, settings).reader, settings, TickSchedule(lambda *_: None)
        )
        course = Run(channel, random.Random(seed))
        try:
            for _ in range(STEPS):
                await course.step()
            for here in course.here:
                here.set_waiting(waiting=False)
                here.leave(channel)
        finally:  # all tests of this process share the gauge, so the viewers of a failed run must leave it
            for viewer in list(channel._viewers):
                channel.leave(viewer)
        for deflated, plain in (each.clients for each in course.all):
            assert deflated.messages == plain.messages
        return sum(each.clients[0].compressed for each in course.all)

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def small_cohorts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make cohorts small, so that several have the same state."""
    monkeypatch.setattr(cohort, "MOST", 6)


@pytest.mark.slow
def test_compressed_viewers_read_what_plain_viewers_read(valkey_url: str) -> None:
    """Viewers join, leave, are slow, ask for a rank and reconnect, in any order."""
    assert sum(compare(seed, valkey_url) for seed in range(RUNS)) > 20 * RUNS


def test_a_text_is_compressed_for_a_bounded_number_of_histories() -> None:
    """A text is compressed with at most eight different histories. Viewers with other histories get it without one."""
    text, made = SharedText(b"0123456789" * 50, deflate), []
    histories = [SharedText(b"%d" % number * 50, deflate) for number in range(100)]
    for history in histories:
        data = text.after((history,))
        reader = zlib.decompressobj(-15, zdict=history.text)
        assert reader.decompress(data) == text.text
        made.append(data)
    assert [data == text.after(()) for data in made] == [False] * 8 + [True] * 92
    assert made[:3] == [text.after((history,)) for history in histories[:3]]


def test_cohorts_that_come_to_the_same_state_become_one(valkey_url: str) -> None:
    """Viewers that joined at different times are in different cohorts. In the same state, cohorts are merged."""

    async def run() -> int:
        settings = fresh_settings(valkey_url)
        channel = Channel(
            Ledger(connect(valkey_url, settings), BOARD, settings).reader, settings, TickSchedule(lambda *_: None)
        )
        course = Run(channel, random.Random(1))
        pairs = []
        for _ in range(3):
            pairs.append(Pair(channel, Subscription(size=20)))
            await course.tick()
        for _ in range(3):
            await course.tick()
        found = {viewer.cohort for pair in pairs for viewer in pair.viewers}
        for pair in pairs:
            pair.leave(channel)
        assert None not in found
        return len(found)

    assert asyncio.run(run()) == 2  # one cohort with compression, one without


def test_a_message_that_does_not_shrink_is_sent_plain() -> None:
    """A small message is sent plain too, because compression would save nothing."""
    noise = random.Random(1).randbytes(500)
    for payload in (b'{"type":"alive"}', noise):
        frame = Frame("update", payload)
        assert frame.message.after(()) is frame.wire
        assert frame.message.after((SharedText(b"x" * 500, deflate),)) is frame.wire


@pytest.mark.slow
def test_a_frame_does_not_keep_the_frames_before_it() -> None:
    """Compressing a frame with the frames before it must not hold them all in memory."""
    history: TextHistory = ()
    first = None
    for number in range(50):
        frame = Frame("update", b"%d" % number * 500)
        frame.message.after(history)
        history = following(history, frame.message)
        first = first or weakref.ref(frame.message)
    gc.collect()
    assert first is not None
    assert first() is None
