"""Viewers in no cohort, and the turns that other tasks get while the hub sends to many viewers."""

import asyncio
from typing import Any, cast

import pytest

from live.domain.ranking import Page
from live.fanout.cohort import (
    Cohort,
    Encoding,
    Outbox,
    Viewer,
    ViewerPosition,
    collect,
    count_frames,
    wake,
)
from live.fanout.frames import Frame
from live.fanout.lookups import RankLookup
from live.fanout.variant import Variant
from live.metrics import REGISTRY
from tests.harness.pulling import variants_of


def page(offset: int, epoch: str = "one") -> Page:
    """An empty board at an offset."""
    return Page(epoch=epoch, offset=offset, rank_count=0, total_score=offset, start=0, records=())


def at_first_page() -> Variant:
    """A variant with one page."""
    variant = Variant(variants_of(), 5, 100)
    variant.advance(page(1))
    return variant


class Sink:
    """A connection that sends `room` frames at once, and queues the next frame."""

    fd = -1
    encoding: Encoding = "plain"
    blocked_since: float | None = None

    def __init__(self, room: int) -> None:
        self.room, self.sent, self.ended = room, 0, 0

    @property
    def waiting(self) -> bool:
        return self.room < 0

    def write(self, data: bytes | memoryview) -> bool:
        self.sent += len(data)
        self.room -= 1
        return not self.waiting

    def abort(self) -> None:
        """Do nothing: no test gets here."""

    def end(self, code: int) -> None:
        self.ended = code


def sent(kind: str = "sync") -> tuple[float, float]:
    """Return two metrics: the number of sent frames of this kind, and the number of all sent bytes."""
    frames = REGISTRY.get_sample_value("live_frames_sent_total", {"type": kind})
    return frames or 0.0, REGISTRY.get_sample_value("live_bytes_sent_total") or 0.0


def test_a_viewer_that_takes_a_whole_frame_joins_a_cohort() -> None:
    """A viewer whose queue has data joins no cohort, and gets nothing until the queue is empty.

    Metrics count each frame.
    """
    variant, before = at_first_page(), sent()
    quick, slow = (Viewer(cast("Any", None), variant, ViewerPosition(), Sink(room)) for room in (1, 0))
    for viewer in (quick, slow):
        variant.loose.add(viewer)
        viewer.wake()
    assert (quick.cohort in variant.cohorts, slow.cohort, variant.loose) == (True, None, {slow})
    size = cast("Sink", quick.sink).sent
    assert size > 0
    assert [after - earlier for after, earlier in zip(sent(), before, strict=True)] == [2, 2 * size]
    variant.advance(page(2))
    slow.wake()
    assert cast("Sink", slow.sink).sent == size
    quick.end(4000)
    assert cast("Sink", quick.sink).ended == 4000
    quick.leave_cohort()
    assert (quick.cohort, variant.loose, quick.position.offset) == (None, {quick, slow}, 1)


def test_a_viewer_that_can_not_take_a_frame_leaves_its_cohort() -> None:
    """The viewer then has its own position, which includes the queued frame."""
    variant = at_first_page()
    slow = Viewer(cast("Any", None), variant, ViewerPosition(), Sink(0))
    slow.join(cohort := variant.cohort_at(ViewerPosition("one", 1)))
    outbox = Outbox()
    outbox.add(cohort, b"frame")
    outbox.flush()
    assert (slow.cohort, variant.loose, len(cohort), outbox._size) == (None, {slow}, 0, 0)
    assert slow.position is not cohort.position
    assert slow.position.state() == cohort.position.state()


class Silent:
    """A viewer that only counts how often it is woken."""

    def __init__(self) -> None:
        self.position = ViewerPosition()
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


async def turns_during(work: Any) -> int:
    """Return how many turns of the event loop other tasks get while work runs."""
    turns = 0
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


@pytest.mark.parametrize(("viewers", "turns"), [(255, 0), (256, 1), (511, 1), (512, 2)])
async def test_others_have_a_turn_after_some_hundred_frames(viewers: int, turns: int) -> None:
    """Other tasks get turns between frames, for single viewers and for cohorts.

    Before such a turn, the frames in the outbox are sent: a viewer that joined a cohort in the turn must not get them.
    """
    variant = at_first_page()
    variant.loose.update(alone := [cast("Any", Silent()) for _ in range(viewers)])
    assert await turns_during(wake([variant])) == turns
    assert [viewer.woken for viewer in alone] == [1] * viewers
    assert await turns_during(wake([variant], -1)) == 0
    assert sum(viewer.woken for viewer in alone) == viewers
    alone[0].position.sent_at = -1
    await wake([variant], -1)
    assert [viewer.woken for viewer in alone] == [2] + [1] * (viewers - 1)

    lookup = RankLookup("a", 0)
    lookup.viewers.update(asked := [cast("Any", Silent()) for _ in range(viewers)])
    assert await turns_during(lookup.wake_viewers()) == turns
    assert [viewer.woken for viewer in asked] == [1] * viewers

    variant, outbox = at_first_page(), Outbox()
    variant.cohorts += [cohort := Cohort(ViewerPosition()), Cohort(position := ViewerPosition())]
    position.sent_at = float("inf")
    members = [Viewer(cast("Any", None), variant, ViewerPosition(), Sink(1)) for _ in range(viewers)]
    for member in members:
        member.join(cohort)
    before = sent()
    cohort.position.sent_at = 1e18
    assert await turns_during(collect([variant], outbox, 1e18)) == (turns > 0)
    assert position.epoch is None
    assert [cast("Sink", member.sink).sent > 0 for member in members] == [turns > 0] * viewers
    outbox.flush()
    size = cast("Sink", members[0].sink).sent
    assert {cast("Sink", member.sink).sent for member in members} == {size}
    assert [after - earlier for after, earlier in zip(sent(), before, strict=True)] == [viewers, viewers * size]


def test_a_frame_is_counted_for_each_of_its_viewers() -> None:
    """The bytes of the frame are also counted for each viewer."""
    before = sent("viewers")
    count_frames(Frame("viewers", b"{}"), 3, 10)
    assert [after - earlier for after, earlier in zip(sent("viewers"), before, strict=True)] == [3, 30]
