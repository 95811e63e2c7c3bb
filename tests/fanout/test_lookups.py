"""Rank lookups: viewers of the same member share one frame, which changes only with its content."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pytest

from live.domain.board import DEFAULT_BOARD
from live.domain.event import make_entry
from live.domain.ranking import Page, Record
from live.domain.views import Around
from live.errors import ProblemError, StoreUnavailableError
from live.fanout import lookups as rank_lookups
from live.fanout.channel import Channel, Tick
from live.fanout.cohort import Cohort, Encoding, Viewer, ViewerPosition
from live.fanout.frames import Frame
from live.fanout.hub import Hub
from live.fanout.intervals import TickSchedule
from live.fanout.lookups import RankLookup, RankLookups
from live.fanout.subscription import Subscription
from live.store.board.ledger import Ledger
from live.store.board.read.reader import BoardReader, EncodedPage
from tests.fanout.test_hub import follow, running_hub
from tests.harness.boards import rolling_board
from tests.harness.pulling import PullViewer, pulling
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually

FAST = {"conflation_interval": 0.01}


def subscription(member: str | None = "a", around: int = 1, **more: Any) -> Subscription:
    """A subscription to the first few records and a member."""
    return Subscription(size=5, member=member, around=around, **more)


def read(frame: Frame | None) -> Around:
    """The content of an around frame."""
    assert frame is not None
    return msgspec.json.decode(frame.payload, type=Around)


async def next_around(viewer: PullViewer) -> Frame:
    """The next around frame."""
    async with asyncio.timeout(60):
        while (frame := await viewer.next_frame()).type != "around":
            pass
    return frame


def rows(around: Around) -> list[tuple[str, int, int]]:
    """Key, score and rank of each record."""
    return [(record.member, record.score, record.rank) for record in around.records]


class Sink:
    """A connection that accepts data, or lets it wait."""

    fd = -1
    encoding: Encoding = "plain"
    blocked_since: float | None = None

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.waiting = False

    def write(self, data: bytes | memoryview) -> bool:
        self.taken.append(bytes(data))
        return not self.waiting

    def abort(self) -> None:
        raise AssertionError

    def end(self, code: int) -> None:
        raise AssertionError(code)

    def types(self) -> list[str]:
        """The types of the received messages except `viewers`. The messages are then forgotten."""
        found = [str(msgspec.json.decode(data[data.index(b"{") :])["type"]) for data in self.taken]
        self.taken.clear()
        return [kind for kind in found if kind != "viewers"]


class Board:
    """The board that a lookup reads."""

    def __init__(self) -> None:
        self.offset = 0

    def take(self, lookup: RankLookup, count: int, *records: tuple[str, int], epoch: str = "one") -> bool:
        """Let the lookup take these records, at the next offset; returns whether its frame has changed."""
        self.offset += 1
        found = tuple(Record(member, score, rank) for rank, (member, score) in enumerate(records, 1))
        head = [epoch.encode(), self.offset, count]
        page = Page(epoch=epoch, offset=self.offset, rank_count=count, total_score=None, start=0, records=found)
        return lookup.take(EncodedPage(head, list(records), DEFAULT_BOARD, None), lambda _: page)


def test_a_frame_changes_only_with_its_content() -> None:
    """The content is the member, its neighbours, the number of records and the epoch, but not the offset."""
    lookup, board = RankLookup("b", 1), Board()
    assert lookup.frame is None
    steps: Sequence[tuple[bool, int, list[tuple[str, int]], str]] = [
        (True, 0, [], "one"),
        (False, 0, [], "one"),
        (True, 1, [], "one"),
        (True, 2, [("a", 9), ("b", 7)], "one"),
        (False, 2, [("a", 9), ("b", 7)], "one"),
        (True, 2, [("a", 8), ("b", 7)], "one"),
        (True, 3, [("a", 8), ("b", 7)], "one"),
        (True, 3, [("a", 8), ("b", 7), ("c", 1)], "one"),
        (True, 3, [("a", 8), ("b", 7), ("c", 1)], "two"),
        (True, 2, [], "two"),
    ]
    for changed, count, records, epoch in steps:
        before = lookup.frame
        assert board.take(lookup, count, *records, epoch=epoch) is changed
        assert (lookup.frame is not before) is changed
    assert read(lookup.frame) == Around(epoch="two", offset=board.offset, member="b", rank_count=2, records=[])


def test_the_gap_is_known_without_neighbours() -> None:
    """Changes of neighbours that are not shown do not count, unless they change the gap."""
    lookup, board = RankLookup("b", 0), Board()
    assert lookup.wanted == ("b", 1)
    assert board.take(lookup, 3, ("a", 9), ("b", 7), ("c", 6))
    around = read(lookup.frame)
    assert (around.gap, rows(around)) == (2, [("b", 7, 2)])
    assert not board.take(lookup, 3, ("z", 9), ("b", 7), ("c", 1))
    assert board.take(lookup, 3, ("z", 8), ("b", 7), ("c", 1))


def test_a_redefined_board_is_compared_again() -> None:
    """After a redefinition, the same rows may mean something else, so they are compared again."""
    lookup, board = RankLookup("a", 0), Board()
    assert board.take(lookup, 1, ("a", 1))
    frame = lookup.frame
    lookup.forget()
    assert not board.take(lookup, 1, ("a", 1))
    assert lookup.frame is frame


def test_records_come_before_lookups() -> None:
    """A viewer without records receives no around message."""
    lookup = RankLookup("a", 0)
    Board().take(lookup, 1, ("a", 1))
    position = ViewerPosition(lookup=lookup)
    assert position.next_around() is None
    position.epoch = "one"
    assert position.next_around() is lookup.frame
    assert position.next_around() is None


async def test_viewers_of_a_member_share_frames(valkey_url: str) -> None:
    """Viewers of one member that want equally many neighbours share a frame.

    One read serves all members. A lookup without viewers is removed.
    """
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add(
            [make_entry(member, amount) for member, amount in zip("abcd", (9, 7, 5, 3), strict=True)]
        )
        channel = hub.channels["posts"]
        with pulling(hub, "posts", subscription("b")) as one, pulling(hub, "posts", subscription("b")) as two:
            with (
                pulling(hub, "posts", subscription("b", 2)) as wide,
                pulling(hub, "posts", subscription("none")) as none,
            ):
                frame = await next_around(one)
                assert await next_around(two) is frame
                assert rows(read(frame)) == [("a", 9, 1), ("b", 7, 2), ("c", 5, 3)]
                assert len(read(await next_around(wide)).records) == 4
                assert read(await next_around(none)).rank is None
                assert len(channel._lookups._lookups) == 3
                await ledger.writer.add([make_entry("c", 1)])  # a neighbour
                frame = await next_around(one)
                assert await next_around(two) is frame
                assert rows(read(frame)) == [("a", 9, 1), ("b", 7, 2), ("c", 6, 3)]
            assert len(channel._lookups._lookups) == 1
        assert not channel._lookups._lookups
        assert not channel._lookups.are_waiting


async def test_a_hidden_member_has_no_rank(valkey_url: str) -> None:
    """The member's viewers receive a message when it is hidden, and when it is shown again."""
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 9), make_entry("b", 7)])
        with pulling(hub, "posts", subscription("a")) as viewer:
            assert read(await next_around(viewer)).rank == 1
            await ledger.moderation.hide("a", hidden=True)
            hidden = read(await next_around(viewer))
            assert (hidden.rank, hidden.score, hidden.gap, hidden.rank_count, rows(hidden)) == (None, None, None, 1, [])
            await ledger.moderation.hide("a", hidden=False)
            assert rows(read(await next_around(viewer))) == [("a", 9, 1), ("b", 7, 2)]


class Reads:
    """A reader that notes what it reads, and calls `during` meanwhile."""

    def __init__(self) -> None:
        self.wanted: list[list[str]] = []
        self.during: Callable[[], object] = lambda: None
        self.offset = 0

    async def places(self, wanted: Sequence[tuple[str, int]]) -> list[EncodedPage]:
        self.wanted.append([member for member, _ in wanted])
        self.during()
        return [EncodedPage([b"one", self.offset, self.offset], [], DEFAULT_BOARD, None) for _ in wanted]

    def page(self, encoded: EncodedPage) -> Page:
        epoch, offset = encoded.position
        return Page(epoch=epoch, offset=offset, rank_count=offset, total_score=None, start=0, records=())


async def test_lookups_are_read_when_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lookups are read at a time. A lookup is not read again for a position that its last read has reached."""
    monkeypatch.setattr(rank_lookups, "_BATCH", 2)
    lookups, reads = RankLookups(), Reads()
    viewers = []
    for name in "abc":
        lookup = lookups.find("variant", subscription(name))
        assert lookup is not None
        viewers.append(PullViewer(cast("Any", None), cast("Any", "variant"), ViewerPosition(lookup=lookup)))
        assert lookups.enter(viewers[-1], lookup)

    async def read_by(due: Sequence[str] = ("variant",), epoch: str = "one", offset: int = 1) -> list[list[str]]:
        before = len(reads.wanted)
        lookups.mark(due, epoch, offset)
        assert lookups.are_waiting is bool(due)
        assert await lookups.look_up(lambda: cast("BoardReader", reads))
        assert not lookups.are_waiting
        return reads.wanted[before:]

    reads.offset = 1
    assert await read_by() == [["a", "b"], ["c"]]
    for lookup in lookups._lookups.values():
        assert not lookups.enter(viewers[0], lookup)
    assert await read_by() == await read_by(()) == []
    reads.offset = 2
    assert await read_by(offset=2) == await read_by(epoch="two") == [["a", "b"], ["c"]]

    def leave_and_forget() -> None:
        reads.during = lambda: None
        reads.offset = 3
        lookups.forget()
        own = viewers[1].position.lookup
        assert own is not None
        lookups.leave(viewers[0], own)
        lookups.leave(viewers[1], own)

    reads.during = leave_and_forget
    assert await read_by(offset=3) == [["a", "b"], ["c", "a"]]
    assert [read(lookup.frame).rank_count for lookup in lookups._lookups.values()] == [3, 3]
    lookups.mark(("variant",), "one", 4)
    for lookup in list(lookups._lookups.values()):
        for viewer in list(lookup.viewers):
            lookups.leave(viewer, lookup)
    assert (lookups._lookups, lookups.are_waiting) == ({}, False)


async def test_a_slow_interval_applies_to_lookups(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new viewer receives its rank immediately, and later changes at its interval, like the records."""
    # The next tick comes after a whole interval, and never by chance soon after an event.
    monkeypatch.setattr(TickSchedule, "after", lambda _, now, interval: now + interval)
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1)])
        with (
            pulling(hub, "posts", subscription(None, interval=60_000)),
            pulling(hub, "posts", subscription(interval=60_000)) as slow,
            pulling(hub, "posts", subscription()) as fast,
        ):
            assert read(await next_around(slow)).score == read(await next_around(fast)).score == 1
            await ledger.writer.add([make_entry("a", 1)])
            assert read(await next_around(fast)).score == 2
            with pulling(hub, "posts", subscription("b", interval=60_000)) as late:
                assert read(await next_around(late)).rank_count == 1
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(next_around(slow), 0.1)


def add_viewer(hub: Hub, subscription: Subscription) -> tuple[Viewer, Sink]:
    """Add a push viewer."""
    sink = Sink()
    return hub.add_viewer(hub.admit("posts", subscription), subscription, sink), sink


async def arrived(sink: Sink, *types: str) -> None:
    """Wait until messages of these types have arrived."""
    found: list[str] = []

    async def have_arrived() -> bool:
        found.extend(sink.types())
        return len(found) >= len(types)

    await eventually(have_arrived)
    assert found == list(types)


async def test_a_push_viewer_with_a_member_joins_no_cohort(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While data waits to be sent, the viewer gets nothing new. Then it gets the latest records and rank."""
    joined: list[Viewer] = []
    add = Cohort.add

    def record(self: Cohort, member: Viewer) -> None:
        joined.append(member)
        add(self, member)

    monkeypatch.setattr(Cohort, "add", record)
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1)])
        (viewer, sink), (other, plain) = add_viewer(hub, subscription()), add_viewer(hub, subscription(None))
        await arrived(sink, "sync", "around")
        await arrived(plain, "sync")
        sink.waiting = True
        for _ in range(3):
            await ledger.writer.add([make_entry("a", 1)])
            await arrived(plain, "update")
        lookup = viewer.position.lookup
        assert lookup is not None

        async def is_read() -> bool:
            return read(lookup.frame).score == 4

        await eventually(is_read)
        assert sink.types() == []
        sink.waiting = False
        viewer.wake()
        await arrived(sink, "sync", "around")
        await ledger.writer.add([make_entry("a", 1)])
        await arrived(sink, "update", "around")
        assert set(joined) == {other}
        hub.leave(viewer)
        hub.leave(other)


async def test_lookups_do_not_delay_records(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates continue while ranks are read. Lookups that become due meanwhile are read once afterwards."""
    places_of, has_read, may_answer, calls = BoardReader.places, asyncio.Event(), asyncio.Event(), 0

    async def slow(self: BoardReader, wanted: Sequence[tuple[str, int]]) -> list[EncodedPage]:
        nonlocal calls
        calls += 1
        found = await places_of(self, wanted)
        has_read.set()
        await may_answer.wait()
        return found

    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1)])
        monkeypatch.setattr(BoardReader, "places", slow)
        with pulling(hub, "posts", subscription()) as viewer, pulling(hub, "posts", subscription(None)) as other:
            model = ModelViewer()
            await has_read.wait()
            await follow(other, model, 1)
            for offset in range(2, 6):
                await ledger.writer.add([make_entry("a", 1)])
                await follow(other, model, offset)
            assert calls == 1
            may_answer.set()
            while (around := read(await next_around(viewer))).score != 5:
                assert around.score == 1
            assert calls == 2


async def test_ranks_wait_for_records_that_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is away, or before the first read, no rank is looked up."""
    marked: list[tuple[str, int]] = []
    monkeypatch.setattr(RankLookups, "mark", lambda _lookups, _variants, *position: marked.append(position))
    settings = fresh_settings("")
    reader = Ledger(cast("Any", None), rolling_board(), settings).reader
    for position, stale in ((None, None), (("e", 1), "away"), (("e", 2), None)):
        channel = Channel(reader, settings, cast("Any", None))
        channel.position, channel.status.stale = position, stale
        await channel.finish(Tick([], 0, 1, None))
    assert marked == [("e", 2)]


@pytest.mark.slow
async def test_a_failed_read_is_retried(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """New and old viewers receive their ranks when the store answers again."""
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1)])
        failed: list[int] = []

        async def fail(_: BoardReader, wanted: Sequence[tuple[str, int]]) -> list[EncodedPage]:
            failed.append(len(wanted))
            raise StoreUnavailableError("away")

        lookups = hub.channels["posts"]._lookups

        async def is_idle() -> bool:
            return not lookups._reading and not lookups._due

        with pulling(hub, "posts", subscription()) as old:
            assert read(await next_around(old)).score == 1
            await eventually(is_idle)
            with monkeypatch.context() as patch:
                patch.setattr(BoardReader, "places", fail)
                await ledger.writer.add([make_entry("a", 1)])
                with pulling(hub, "posts", subscription("b")) as new:
                    while (await old.next_frame()).type != "update":
                        pass

                    async def tried() -> bool:
                        return 2 in failed

                    await eventually(tried)
                    patch.undo()
                    assert read(await next_around(old)).score == 2
                    assert read(await next_around(new)).rank is None


async def test_a_redefined_board_has_new_ranks(valkey_url: str) -> None:
    """Ranks follow the new order, although no record has changed."""
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1), make_entry("b", 2)])
        with pulling(hub, "posts", subscription()) as viewer:
            assert read(await next_around(viewer)).rank == 2
            ledger.state.board = msgspec.structs.replace(ledger.state.board, sort_order="asc")
            hub.add(ledger.reader)
            assert rows(read(await next_around(viewer))) == [("a", 1, 1), ("b", 2, 2)]


async def test_lookups_are_limited(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, a new lookup is refused. A shared lookup and a viewer without a member are still accepted."""
    monkeypatch.setattr(rank_lookups, "_MOST", 2)
    async with running_hub(valkey_url, **FAST) as (hub, _):
        with pulling(hub, "posts", subscription("a")), pulling(hub, "posts", subscription("b")):
            hub.admit("posts", subscription("a"))
            hub.admit("posts", subscription(None))
            for other in (subscription("c"), subscription("a", 2), subscription("a", interval=1000)):
                with pytest.raises(ProblemError, match="too_many_viewers") as caught:
                    hub.admit("posts", other)
                assert caught.value.retry_after == 5
        hub.admit("posts", subscription("c"))
