"""What viewers are told of a key: one frame for all who ask for it, another only when it says another thing."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from live.domain.board import DEFAULT_BOARD
from live.domain.event import make_entry
from live.domain.ranking import Page, Record
from live.errors import ProblemError, StoreUnavailableError
from live.fanout import lookups
from live.fanout.cohort import Cohort, Member
from live.fanout.frames import Around, Frame
from live.fanout.hub import Hub
from live.fanout.lookup import RankLookup
from live.fanout.position import Position
from live.fanout.schedule import Schedule
from live.fanout.subscription import Subscription
from live.fanout.viewer import PullViewer, PushViewer
from live.settings import Duration
from live.store.board.reader import BoardReader, Spot
from tests.fanout.test_hub import follow, running_hub
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually

FAST = {"conflation_interval": Duration(0.01)}


def wish(key: str | None = "a", around: int = 1, **more: Any) -> Subscription:
    """A wish for the first few, and a key."""
    return Subscription(size=5, key=key, around=around, **more)


def read(frame: Frame | None) -> Around:
    """What an around frame says."""
    assert frame is not None
    return msgspec.json.decode(frame.payload, type=Around)


async def told(viewer: PullViewer) -> Frame:
    """The next that is said of the key."""
    async with asyncio.timeout(10):
        while (frame := await viewer.next_frame()).type != "around":
            pass
    return frame


def rows(around: Around) -> list[tuple[str, int, int]]:
    """Key, score and rank of each record."""
    return [(record.key, record.score, record.rank) for record in around.records]


class Sink:
    """A connection that takes what it is given, or lets it wait."""

    fd = -1

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
        """What kind of messages came, and forget them."""
        found = [str(msgspec.json.decode(data[data.index(b"{") :])["type"]) for data in self.taken]
        self.taken.clear()
        return [kind for kind in found if kind != "viewers"]


class Board:
    """What a lookup reads."""

    def __init__(self) -> None:
        self.offset = 0

    def take(self, lookup: RankLookup, count: int, *records: tuple[str, int], epoch: str = "one") -> bool:
        """Read the lookup anew, at a later offset."""
        self.offset += 1
        found = tuple(Record(key, score, rank) for rank, (key, score) in enumerate(records, 1))
        head = [epoch, self.offset, count]
        page = Page(epoch=epoch, offset=self.offset, rank_count=count, total_score=None, start=0, records=found)
        return lookup.take(Spot(head, list(records), DEFAULT_BOARD, None), lambda _: page)


def test_a_frame_is_another_only_when_it_says_another_thing() -> None:
    """The key, its neighbours, the number of records and the epoch matter; the offset does not."""
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
    for news, count, records, epoch in steps:
        before = lookup.frame
        assert board.take(lookup, count, *records, epoch=epoch) is news
        assert (lookup.frame is not before) is news
    assert read(lookup.frame) == Around(epoch="two", offset=board.offset, key="b", rank_count=2, records=[])


def test_the_gap_is_known_without_neighbours() -> None:
    """And what changes of a neighbour that is not shown is nothing to tell, unless the gap is another."""
    lookup, board = RankLookup("b", 0), Board()
    assert lookup.wanted == ("b", 1)
    assert board.take(lookup, 3, ("a", 9), ("b", 7), ("c", 6))
    around = read(lookup.frame)
    assert (around.gap, rows(around)) == (2, [("b", 7, 2)])
    assert not board.take(lookup, 3, ("z", 9), ("b", 7), ("c", 1))
    assert board.take(lookup, 3, ("z", 8), ("b", 7), ("c", 1))


def test_what_was_read_is_looked_at_again_when_the_board_is_another() -> None:
    """The same rows may mean another thing, or not."""
    lookup, board = RankLookup("a", 0), Board()
    assert board.take(lookup, 1, ("a", 1))
    frame = lookup.frame
    lookup.forget()
    assert not board.take(lookup, 1, ("a", 1))
    assert lookup.frame is frame


def test_the_records_come_first() -> None:
    """A lookup is not told to a viewer that has seen no records."""
    lookup = RankLookup("a", 0)
    Board().take(lookup, 1, ("a", 1))
    position = Position(lookup=lookup)
    assert position.next_around() is None
    position.epoch = "one"
    assert position.next_around() is lookup.frame
    assert position.next_around() is None


async def test_all_who_ask_for_a_key_share_what_they_are_told(valkey_url: str) -> None:
    """One object for a key and number of neighbours, one read for all keys; who leaves is forgotten."""
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry(key, amount) for key, amount in zip("abcd", (9, 7, 5, 3), strict=True)])
        channel = hub.channels["posts"]
        with hub.watch("posts", wish("b")) as one, hub.watch("posts", wish("b")) as two:
            with hub.watch("posts", wish("b", 2)) as wide, hub.watch("posts", wish("none")) as none:
                frame = await told(one)
                assert await told(two) is frame
                assert rows(read(frame)) == [("a", 9, 1), ("b", 7, 2), ("c", 5, 3)]
                assert len(read(await told(wide)).records) == 4
                assert read(await told(none)).rank is None
                assert len(channel._lookups._lookups) == 3
                await ledger.writer.add([make_entry("c", 1)])  # a neighbour
                frame = await told(one)
                assert await told(two) is frame
                assert rows(read(frame)) == [("a", 9, 1), ("b", 7, 2), ("c", 6, 3)]
            assert len(channel._lookups._lookups) == 1
        assert not channel._lookups._lookups
        assert not channel._lookups.are_waiting


async def test_a_hidden_key_has_no_place(valkey_url: str) -> None:
    """Who follows it is told when it is hidden, and when it is shown again."""
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 9), make_entry("b", 7)])
        with hub.watch("posts", wish("a")) as viewer:
            assert read(await told(viewer)).rank == 1
            await ledger.moderation.hide("a", hidden=True)
            hidden = read(await told(viewer))
            assert (hidden.rank, hidden.score, hidden.gap, hidden.rank_count, rows(hidden)) == (None, None, None, 1, [])
            await ledger.moderation.hide("a", hidden=False)
            assert rows(read(await told(viewer))) == [("a", 9, 1), ("b", 7, 2)]


async def test_a_slow_pace_holds_for_places_too(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes is told at once; then it waits for its turn, as for the records."""
    monkeypatch.setattr(Schedule, "after", lambda _, now, interval: now + interval)  # no turn comes by chance
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1)])
        with (
            hub.watch("posts", wish(None, interval=60_000)),
            hub.watch("posts", wish(interval=60_000)) as slow,
            hub.watch("posts", wish()) as fast,
        ):
            assert read(await told(slow)).score == read(await told(fast)).score == 1
            await ledger.writer.add([make_entry("a", 1)])
            assert read(await told(fast)).score == 2
            with hub.watch("posts", wish("b", interval=60_000)) as late:
                assert read(await told(late)).rank_count == 1
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(told(slow), 0.1)


def sit(hub: Hub, asked: Subscription) -> tuple[PushViewer, Sink]:
    """A viewer that is written to."""
    sink = Sink()
    return hub.add_push_viewer(hub.admit("posts", asked, ""), asked, "", sink), sink


async def arrived(sink: Sink, *types: str) -> None:
    """Wait until messages of these types have come."""
    found: list[str] = []

    async def came() -> bool:
        found.extend(sink.types())
        return len(found) >= len(types)

    await eventually(came)
    assert found == list(types)


async def test_a_seat_with_a_key_stands_alone(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never joins a cohort; while something waits it gets nothing, and then the latest of both."""
    joined: list[Member] = []
    add = Cohort.add

    def noted(self: Cohort, member: Member) -> None:
        joined.append(member)
        add(self, member)

    monkeypatch.setattr(Cohort, "add", noted)
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1)])
        (viewer, sink), (other, plain) = sit(hub, wish()), sit(hub, wish(None))
        await arrived(sink, "sync", "around")
        await arrived(plain, "sync")
        sink.waiting = True
        for _ in range(3):
            await ledger.writer.add([make_entry("a", 1)])
            await arrived(plain, "update")
        lookup = viewer.position.lookup
        assert lookup is not None

        async def read_too() -> bool:
            return read(lookup.frame).score == 4

        await eventually(read_too)
        assert sink.types() == []
        sink.waiting = False
        viewer.wake()
        await arrived(sink, "sync", "around")
        await ledger.writer.add([make_entry("a", 1)])
        await arrived(sink, "update", "around")
        assert set(joined) == {other}
        hub.leave(viewer, "")
        hub.leave(other, "")


async def test_nobody_waits_for_the_keys_of_others(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While keys are looked up the records go on; what became due meanwhile is looked up once, after that."""
    places_of, has_read, may_answer, calls = BoardReader.places, asyncio.Event(), asyncio.Event(), 0

    async def slow(self: BoardReader, wanted: Sequence[tuple[str, int]]) -> list[Spot]:
        nonlocal calls
        calls += 1
        found = await places_of(self, wanted)
        has_read.set()
        await may_answer.wait()
        return found

    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1)])
        monkeypatch.setattr(BoardReader, "places", slow)
        with hub.watch("posts", wish()) as viewer, hub.watch("posts", wish(None)) as other:
            model = ModelViewer()
            await has_read.wait()
            await follow(other, model, 1)
            for offset in range(2, 6):
                await ledger.writer.add([make_entry("a", 1)])
                await follow(other, model, offset)
            assert calls == 1
            may_answer.set()
            while (around := read(await told(viewer))).score != 5:
                assert around.score == 1
            assert calls == 2


async def test_a_read_that_fails_is_made_good(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who came, and those who were there, are told when the store answers again."""
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1)])
        failed: list[int] = []

        async def fail(_: BoardReader, wanted: Sequence[tuple[str, int]]) -> list[Spot]:
            failed.append(len(wanted))
            raise StoreUnavailableError("away")

        lookups = hub.channels["posts"]._lookups

        async def at_rest() -> bool:
            return not lookups._reading and not lookups._due

        with hub.watch("posts", wish()) as old:
            assert read(await told(old)).score == 1
            await eventually(at_rest)
            with monkeypatch.context() as patch:
                patch.setattr(BoardReader, "places", fail)
                await ledger.writer.add([make_entry("a", 1)])
                with hub.watch("posts", wish("b")) as new:
                    while (await old.next_frame()).type != "update":
                        pass

                    async def tried() -> bool:
                        return 2 in failed

                    await eventually(tried)
                    patch.undo()
                    assert read(await told(old)).score == 2
                    assert read(await told(new)).rank is None


async def test_a_board_that_is_defined_anew_has_other_places(valkey_url: str) -> None:
    """The order of now, though no record has changed."""
    async with running_hub(valkey_url, **FAST) as (hub, ledger):
        await ledger.writer.add([make_entry("a", 1), make_entry("b", 2)])
        with hub.watch("posts", wish()) as viewer:
            assert read(await told(viewer)).rank == 2
            ledger.state.board = msgspec.structs.replace(ledger.state.board, sort_order="asc")
            hub.add(ledger.reader)
            assert rows(read(await told(viewer))) == [("a", 1, 1), ("b", 2, 2)]


async def test_keys_are_bounded(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than are looked up is refused; not one that is looked up anyway, nor a viewer without a key."""
    monkeypatch.setattr(lookups, "_MOST", 2)
    async with running_hub(valkey_url, **FAST) as (hub, _):
        channel = hub.channels["posts"]
        with hub.watch("posts", wish("a")), hub.watch("posts", wish("b")):
            channel.require_room(wish("a"))
            channel.require_room(wish(None))
            for other in (wish("c"), wish("a", 2), wish("a", interval=1000)):
                with pytest.raises(ProblemError, match="too_many_viewers"):
                    channel.require_room(other)
        channel.require_room(wish("c"))
