"""The channel of a board, tick by tick, with pages that a test gives it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from live.domain.ranking import Page
from live.errors import StoreUnavailableError
from live.fanout import channel as module
from live.fanout import cohort
from live.fanout.channel import Channel, Tick
from live.fanout.cohort import BoardStatus, Subscribers, Viewer, ViewerPosition
from live.fanout.frames import Frame
from live.fanout.intervals import TickSchedule
from live.fanout.subscription import Subscription
from live.metrics import REGISTRY, VIEWERS
from live.store.board.ledger import Ledger
from tests.fanout.test_lookups import Sink
from tests.fanout.test_variant import page, types
from tests.harness.boards import rolling_board
from tests.harness.pulling import PullViewer
from tests.harness.settings import fresh_settings

INTERVAL = 100  # milliseconds


@pytest.fixture(autouse=True)
def _viewers_leave() -> Iterator[None]:
    """Take the viewers of a test out of the metric. Tests of servers in the same process wait until it is zero."""
    yield
    VIEWERS.labels("posts").set(0)


class Steps:
    """A channel whose ticks a test makes, with one viewer."""

    def __init__(self) -> None:
        settings = fresh_settings("", conflation_interval=INTERVAL / 1000)
        self.schedule: TickSchedule[Channel] = TickSchedule(lambda *_: None)
        self.channel = Channel(Ledger(cast("Any", None), rolling_board(), settings).reader, settings, self.schedule)
        self.channel._variants.totals_interval = 0
        self.viewer = self.enter()

    def enter(self, **position: Any) -> PullViewer:
        """Add a viewer."""
        viewer = PullViewer(self.channel, *self.channel.place_of(Subscription(size=5, **position)))
        self.channel.enter(viewer)
        return viewer

    def begin(self) -> Tick:
        """Begin a tick at a time at which everything is due."""
        tick = self.channel.begin(self.schedule.now() + 10_000)
        assert tick is not None
        return tick

    async def end(self, tick: Tick, found: Page | Exception | None, stale: str | None = None) -> list[str | None]:
        """End a tick, and return the types of what the viewer receives."""
        self.channel.take(tick, found, stale)
        assert not await self.channel.finish(tick)
        return types(*taken(self.viewer))

    async def read(self, found: Page | Exception, stale: str | None = None) -> list[str | None]:
        """Read a page after a change."""
        self.channel.changed()
        tick = self.begin()
        assert tick.size == 5
        return await self.end(tick, found, stale)


def taken(viewer: PullViewer) -> list[Frame]:
    """All frames that are due for a viewer."""
    return list(iter(viewer.due_frame, None))


def viewers() -> float:
    """The number of viewers of the board, from the metrics."""
    return REGISTRY.get_sample_value("live_viewers", {"board": "posts"}) or 0


def full(offset: int, epoch: str = "one") -> Page:
    """A page with many records. Only the score of `last` depends on the offset."""
    return page(offset, epoch, **{f"a-rather-long-name-{number}": 90 - number for number in range(20)}, last=offset)


async def test_viewers_follow_what_is_read() -> None:
    """A read that finds nothing new sends nothing.

    After a new epoch, or when the store went back, all viewers get a sync.
    """
    steps = Steps()
    for found, received in (
        (full(5), ["sync"]), (full(6), ["update"]), (full(6), []), (full(9), ["update"]), (full(3), ["sync"]),
        (full(4), ["update"]), (full(4, "two"), ["sync"]), (full(3, "one"), ["sync"]),
    ):  # fmt: skip
        assert await steps.read(found) == received, found.offset
        assert steps.channel.position == (found.epoch, found.offset)
        assert steps.channel.is_settled


async def test_viewers_that_return_receive_what_they_missed() -> None:
    """Metrics count viewers that recovered, and viewers that did not. Changes that the store lost are not recovered."""

    def recoveries() -> list[float]:
        return [
            REGISTRY.get_sample_value("live_recoveries_total", {"recovered": how}) or 0 for how in ("true", "false")
        ]

    steps = Steps()
    for offset in (5, 6, 7):
        await steps.read(full(offset))
    assert types(*taken(steps.enter(epoch="one", offset=7))) == ["update"], (
        "a viewer that missed nothing got no update, or something else"
    )
    before = recoveries()
    back = [steps.enter(epoch="one", offset=offset) for offset in (5, 6, 4)]
    assert not taken(steps.enter(epoch="one", offset=8))
    assert [types(*taken(viewer)) for viewer in back] == [["update"], ["update"], ["sync"]]
    assert [after - earlier for after, earlier in zip(recoveries(), before, strict=True)] == [2, 1]
    await steps.read(full(2))
    assert types(*taken(steps.enter(epoch="one", offset=5))) == []
    await steps.read(full(3))
    assert types(*taken(steps.enter(epoch="one", offset=2))) == ["update"]


async def test_a_failed_read_is_told_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Viewers are also told of a page that may be out of date. A tick for the number of viewers alone reads no page."""
    steps = Steps()
    channel, now = steps.channel, 10**9
    monkeypatch.setattr(steps.schedule, "now", lambda: now)
    await steps.read(full(1))
    assert await steps.read(StoreUnavailableError("away")) == ["status"]
    assert channel.status.stale == "store unreachable"
    assert (channel._variants.next_due, channel.is_settled) == (now + module._RETRY, False)
    assert now + module._RETRY in steps.schedule._due
    assert await steps.read(full(1), "away") == ["status"]
    assert await steps.read(full(2)) == ["update", "status"]
    channel.set_viewer_count(3)
    assert channel.begin(now + 10_000) is not None
    assert channel.begin(now + 10_000) is None
    tick = cast("Tick", channel._tick)
    assert (tick.size, tick.variants) == (0, [])
    assert await steps.end(tick, None) == ["viewers"]
    channel.ended = 4000
    assert channel.begin(now) is None


async def test_ranks_that_could_not_be_looked_up_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try needs no change of the board."""
    steps, now = Steps(), 10**9
    monkeypatch.setattr(steps.schedule, "now", lambda: now)
    for works, due in ((True, []), (False, [now + module._RETRY])):

        async def look_up(_reader_of: object, *, works: bool = works) -> bool:
            return works

        monkeypatch.setattr(steps.channel._lookups, "look_up", look_up)
        steps.schedule._due.clear()
        await steps.channel.look_up()
        assert list(steps.schedule._due) == due


async def test_a_board_that_is_redefined_during_a_read_is_read_again() -> None:
    """The records that were read belong to the old definition."""
    steps = Steps()
    await steps.read(full(1))
    steps.channel.changed()
    tick = steps.begin()
    steps.channel.renew(steps.channel.reader)
    assert await steps.end(tick, full(2)) == []
    assert steps.channel.position == ("one", 1)
    assert await steps.end(steps.begin(), full(2)) == ["sync"]


async def test_a_change_during_a_read_waits_for_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next frame is due at the first multiple of the interval after the end of the read."""
    steps, now = Steps(), 10**9
    monkeypatch.setattr(steps.schedule, "now", lambda: now)
    await steps.read(full(1))
    steps.channel.changed()
    assert steps.channel._variants.next_due == now + INTERVAL
    tick = steps.begin()
    steps.channel.changed()
    now += 2 * INTERVAL + 1
    await steps.end(tick, full(2))
    assert steps.channel._variants.next_due == now - 1 + INTERVAL


async def test_a_viewer_that_has_left_is_gone_everywhere() -> None:
    """The channel removes the viewer from the counts, from its cohort, and from the viewers in no cohort.

    The variant is removed with its last viewer.
    """
    before, steps = viewers(), Steps()
    channel = steps.channel
    pushed = Viewer(channel, *channel.place_of(Subscription(size=5)), Sink())
    channel.enter(pushed)
    await steps.read(full(1))
    (variant,) = channel._variants
    assert (viewers() - before, channel.viewers, variant.viewers) == (2, 2, 2)
    assert (variant.loose, variant.cohorts) == ({steps.viewer}, [pushed.cohort])
    channel.leave(pushed)
    assert (viewers() - before, channel.watchers, variant.viewers) == (1, [steps.viewer], 1)
    assert list(channel._variants) == [variant]
    assert (variant.loose, [len(cohort) for cohort in variant.cohorts]) == ({steps.viewer}, [0])
    channel.leave(steps.viewer)
    assert (viewers() - before, channel.viewers, variant.loose, list(channel._variants)) == (0, 0, set(), [])


async def test_changes_are_counted_until_viewers_receive_them() -> None:
    """The metrics count changes that share a frame, and how late frames are. Without viewers, nothing is late."""

    def figures() -> list[float]:
        names = ("live_conflated_total", "live_send_lag_seconds_count")
        return [REGISTRY.get_sample_value(name) or 0 for name in names]

    def new() -> list[float]:
        return [after - earlier for after, earlier in zip(figures(), before, strict=True)]

    before, steps = figures(), Steps()
    assert await steps.end(steps.begin(), full(1)) == ["sync"]
    assert new() == [0, 0]
    for _ in range(3):
        steps.channel.changed()
    assert new() == [2, 0]
    assert await steps.end(steps.begin(), full(2)) == ["update"]
    assert new() == [2, 1]
    steps.channel.leave(steps.viewer)
    for _ in range(2):
        steps.channel.changed()
    assert new() == [2, 1]


async def test_a_status_that_comes_while_frames_are_sent_is_sent_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without viewers, or without news, there is no tick."""
    steps, now = Steps(), 10**9
    monkeypatch.setattr(steps.schedule, "now", lambda: now)
    for news, leaves, due in ((True, False, [now]), (False, False, []), (True, True, [])):
        tick = steps.begin()
        steps.channel.take(tick, full(1))
        if news:
            steps.channel.set_stale(f"away {leaves}")
        if leaves:
            steps.channel.leave(steps.viewer)
        steps.schedule._due.clear()
        await steps.channel.finish(tick)
        assert list(steps.schedule._due) == due
        steps.channel.status.is_due = False


async def test_the_first_viewer_waits_for_a_read_to_learn_the_status() -> None:
    """Without viewers, nobody notices that the store answers again, so the status may be out of date.

    A viewer that joins other viewers gets the status at once.
    """
    steps = Steps()
    await steps.read(full(1), "away")
    assert types(*taken(steps.enter())) == ["sync", "status"]
    for viewer in steps.channel.watchers:
        steps.channel.leave(viewer)
    assert types(*taken(steps.enter())) == []


async def test_a_viewer_that_received_nothing_for_five_seconds_gets_a_sign_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every message restarts the five seconds."""
    clock = SimpleNamespace(now=100.0)
    for each in (module, cohort):
        monkeypatch.setattr(each, "time", SimpleNamespace(monotonic=lambda: clock.now, time=lambda: clock.now))
    position, update, received = ViewerPosition(), Frame("update", b"{}"), []
    group = Subscribers(BoardStatus())
    position.sent_at = 100.0
    for now, frame in ((104.9, None), (105.0, None), (109.9, update), (114.8, None), (114.9, None)):
        clock.now = now
        monkeypatch.setattr(Subscribers, "next_frame", lambda *_, frame=frame: frame)
        received.append(group.due_frame(position))
    assert types(*received) == [None, "alive", "update", None, "alive"]
    steps = Steps()
    steps.viewer.position.sent_at = clock.now
    for now, is_woken in ((clock.now, False), (clock.now + 4.9, False), (clock.now + 5, True)):
        steps.viewer._woken.clear()
        clock.now = now
        await steps.channel.keep_alive()
        assert steps.viewer._woken.is_set() is is_woken


async def test_a_new_status_is_sent_soon() -> None:
    """The same status again causes no tick. Without viewers, not even a new status causes a tick."""
    steps = Steps()
    await steps.read(full(1))
    for tell, news in (
        (steps.channel.set_stale, "away"), (steps.channel.set_viewer_count, 2),
    ):  # fmt: skip
        for due in (1, 0):
            steps.schedule._due.clear()
            cast("Any", tell)(news)
            assert len(steps.schedule) == due
    steps.channel.leave(steps.viewer)
    steps.channel.set_stale("gone")
    assert len(steps.schedule) == 0


def test_a_status_comes_before_the_number_of_viewers() -> None:
    """A viewer without records needs no number of viewers. Each message is sent once for each change."""
    status, position = BoardStatus(), ViewerPosition()

    def received() -> list[str | None]:
        return types(*iter(lambda: status.next_frame(position), None))

    assert (received(), status.take_due()) == ([], False)
    status.viewer_count, status.is_due = 3, True
    assert [status.take_due(), status.take_due()] == [True, False]
    status.stale = "away"
    assert [status.take_due(), status.take_due()] == [True, True]
    assert received() == ["status"]
    position.epoch = "one"
    assert (received(), received()) == (["viewers"], [])
    status.stale, status.viewer_count = None, 4
    assert (received(), received()) == (["status", "viewers"], [])
