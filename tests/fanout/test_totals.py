"""While nothing in a viewer's top changes, the viewer receives new totals at most once per interval."""

import asyncio
import random
import time

import pytest

from live.domain.event import make_entry
from live.domain.ranking import Page, Record
from live.fanout.cohort import ViewerPosition
from live.fanout.variant import PageHistory, Variant
from tests.fanout.test_hub import follow, running_hub, top
from tests.harness.pulling import pulling, variants_of
from tests.harness.viewer import ModelViewer

SIZE = 3
TOTALS = 1000  # milliseconds
TICK = 100


def test_totals_are_held_until_they_may_be_sent() -> None:
    """A page that the viewers have already is not held, and neither is a page of another epoch."""
    variant, now = Variant(variants_of(totals_interval=TOTALS), SIZE, TICK), 10 * TOTALS + 1

    def is_held(offset: int, at: int, epoch: str = "e") -> bool:
        page = Page(epoch=epoch, offset=offset, rank_count=0, total_score=offset, start=0, records=())
        if variant.hold(page, at):
            return True
        variant.advance(page)
        return False

    assert [is_held(offset, now) for offset in (5, 5, 4)] == [False] * 3
    assert [is_held(offset, now + 1) for offset in (5, 4)] == [False] * 2
    assert (variant.due, variant.are_totals_held) == (None, False)
    assert is_held(6, now + TOTALS - 1)
    assert (variant.due, variant.are_totals_held) == (11 * TOTALS + TICK, True)
    assert not is_held(6, now + TOTALS)
    assert is_held(7, now + TOTALS)
    assert not is_held(1, now + TOTALS, "f")


class Simulation:
    """A variant on ticks of a simulated clock. The board changes often, and its top seldom.

    Viewers take every frame at once. Some reconnect from another process, which may have sent newer totals.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.variant = Variant(variants_of(PageHistory(50), totals_interval=TOTALS), SIZE, TICK)
        self.page = Page(epoch="e", offset=0, rank_count=9, total_score=0, start=0, records=self._records())
        self.now = 10 * TOTALS
        self.reads = 0
        self.viewers: list[tuple[ViewerPosition, ModelViewer]] = []
        self.sent_alone: list[int] = []  # the times at which the first viewer received totals without records

    def run(self, ticks: int) -> None:
        """Run random ticks, and then ticks without changes until totals are due."""
        self._read()
        self._join(ViewerPosition())
        for _ in range(ticks):
            self.now += TICK
            is_changed = self.chance.random() < 0.7
            if is_changed:
                self._change()
            if self.chance.random() < 0.1:
                self._join(
                    ViewerPosition("e", self.page.offset, self.reads)
                    if self.chance.random() < 0.5
                    else ViewerPosition()
                )
                is_changed = True  # a viewer that joins causes a read
            self._tick(is_changed=is_changed)
        for _ in range(TOTALS // TICK + 1):
            self.now += TICK
            self._tick(is_changed=False)
        for _, model in self.viewers:
            assert (model.offset, model.total_score) == (self.page.offset, self.page.offset), "totals never arrived"

    def _change(self) -> None:
        offset = self.page.offset + self.chance.randint(1, 3)
        records = self._records() if self.chance.random() < 0.1 else self.page.records
        self.page = Page(epoch="e", offset=offset, rank_count=9, total_score=offset, start=0, records=records)

    def _records(self) -> tuple[Record, ...]:
        return tuple(Record(f"k{rank}", self.chance.randint(0, 999), rank) for rank in range(1, 6))

    def _read(self) -> None:
        self.reads += 1
        self.variant.due = None
        if not self.variant.hold(self.page, self.now):
            self.variant.advance(self.page, self.reads)

    def _join(self, position: ViewerPosition) -> None:
        model = ModelViewer()
        if position.epoch is not None:  # the viewer comes from another process, which has sent it this state
            model.epoch, model.offset, model.records = "e", position.offset, list(self.page.records[:SIZE])
            model.total_score = position.offset
        self.viewers.append((position, model))

    def _tick(self, *, is_changed: bool) -> None:
        if is_changed or (self.variant.due is not None and self.variant.due <= self.now):
            self._read()
        first = self.viewers[0][1]
        records, offset = first.records, first.offset
        for position, model in self.viewers:
            before = model.offset
            while (frame := self.variant.next_frame(position)) is not None:
                model.receive(frame.payload)
            assert model.offset >= before, "a viewer went back to an earlier offset"
            assert model.records == list(self.page.records[:SIZE]), "a change of the top was held back"
        if records == first.records and offset != first.offset and records:
            assert not self.sent_alone or self.now - self.sent_alone[-1] >= TOTALS, "totals came too soon"
            self.sent_alone.append(self.now)


def test_totals_wait_and_records_do_not() -> None:
    """In random schedules, every change of the top is sent at its tick, and totals alone follow once per interval."""
    for seed in range(50):
        simulation = Simulation(seed)
        simulation.run(200)
        assert simulation.sent_alone, seed


@pytest.mark.slow
async def test_a_viewer_of_a_busy_board_receives_few_frames(valkey_url: str) -> None:
    """Likes below the top change the totals many times. In the end the viewer's totals are right."""
    async with running_hub(valkey_url, conflation_interval=0.05) as (hub, ledger):
        await ledger.writer.add([make_entry("first", 1000, None)])
        model = ModelViewer()
        with pulling(hub, "posts", top(1)) as viewer:
            await follow(viewer, model, 1)
            started = time.monotonic()
            for number in range(60):
                added = await ledger.writer.add([make_entry(f"k{number}", 1, None)])
                await asyncio.sleep(0.01)
            await follow(viewer, model, added.offset or 0)
            most = (time.monotonic() - started) / 0.5 + 1
            assert model.updates <= most  # on a busy machine, the viewer may receive a sync instead
            assert (model.rank_count, model.total_score) == (61, 1060)


async def test_a_change_of_the_top_does_not_wait(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change arrives at once, even if totals wait for a minute.

    The update's `since` is the offset that the viewer has, not that of the totals which were not sent.
    """
    monkeypatch.setattr("live.fanout.variant._TOTALS", 3000)
    async with running_hub(valkey_url, conflation_interval=0.02) as (hub, ledger):
        await ledger.writer.add([make_entry("first", 1000, None)])
        model = ModelViewer()
        with pulling(hub, "posts", top(1)) as viewer:
            await follow(viewer, model, 1)
            for number in range(10):
                await ledger.writer.add([make_entry(f"k{number}", 1, None)])
            added = await ledger.writer.add([make_entry("first", 1, None)])
            await follow(viewer, model, added.offset or 0)
            assert model.records[0].score == 1001
            assert model.updates <= 2
