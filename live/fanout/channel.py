"""The channel of one board in one process: it reads the top once per tick, and sends the changes to every viewer."""

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from live.domain.ranking import Page
from live.errors import EpochLostError
from live.fanout.cohort import SILENCE, BoardStatus, Subscribers, Viewer, ViewerPosition, deliver, wake
from live.fanout.intervals import TickSchedule
from live.fanout.lookups import RankLookups
from live.fanout.subscription import Subscription
from live.fanout.variant import Variant, Variants
from live.metrics import CONFLATED, SEND_LAG_SECONDS, VIEWERS
from live.settings import Settings
from live.store.board.read.reader import BoardReader

_RETRY: Final = 500  # milliseconds between a failed read and the next try


class Tick(msgspec.Struct, eq=False):
    """A refresh in progress. The caller reads `size` records, and passes them to `Channel.take`.

    If only the status is due, `size` is 0: the caller then reads nothing, and passes None. `number` counts the reads of
    the channel. `reported_at` is when the first change in this tick was reported, or None. `is_outdated` is set if the
    board is redefined during the tick, because the records that the tick reads belong to the old definition.
    """

    variants: Sequence[Variant]
    size: int
    number: int
    reported_at: float | None
    is_outdated: bool = False


class Channel:
    """One board in this process.

    `status` is the state that viewers receive besides records. `ended` is the close code of a channel that has ended.
    `position` is the epoch and offset of the last page that was read, None before the first read.
    """

    def __init__(self, reader: BoardReader, settings: Settings, schedule: "TickSchedule[Channel]") -> None:
        self.reader = reader
        self.status = BoardStatus()
        self.ended: int | None = None
        self.position: tuple[str, int] | None = None
        self._schedule = schedule
        self._variants = Variants(reader.state.board, settings.conflation_interval, self.status)
        self._viewers: set[Viewer] = set()
        self._delayed = 0  # viewers with a delay
        self._lookups = RankLookups()
        self._reads = 0
        self._tick: Tick | None = None  # the refresh in progress
        # When the first change that viewers have not received yet was reported or suspected.
        self._reported_at: float | None = None
        self._changed = False  # whether a change was reported that viewers have not received yet
        self._silent_from = 0.0  # before this time, no viewer has to receive `alive`
        self._gauge = VIEWERS.labels(reader.state.board.id)

    @property
    def viewers(self) -> int:
        """The number of viewers in this process, including the viewers with a delay."""
        return len(self._viewers) + self._delayed

    @property
    def watchers(self) -> list[Viewer]:
        """The viewers without a delay in this process."""
        return list(self._viewers)

    @property
    def interval(self) -> int:
        """The minimum time between two frames, in milliseconds."""
        return self._variants.interval

    @property
    def is_settled(self) -> bool:
        """Whether the board was read, and no tick is in progress or due."""
        return self.position is not None and self._tick is None and self._variants.are_settled

    # Viewers

    def require_room(self, subscription: Subscription) -> None:
        """Check that one more rank lookup is possible, if the subscription needs one."""
        self._lookups.require_room(self._variants.find(subscription), subscription)

    def place_of(self, subscription: Subscription) -> tuple[Variant, ViewerPosition]:
        """Find the variant and the position of a viewer that connects or reconnects."""
        variant = self._variants.find_or_add(subscription)
        lookup = self._lookups.find(variant, subscription)
        return variant, ViewerPosition(subscription.epoch, subscription.offset, self._reads, lookup)

    def enter(self, viewer: Viewer) -> None:
        """Add a viewer, and wake it. Mark its variant as due if the viewer still needs records."""
        variant = _variant(viewer.group)
        if not self._viewers:
            self.status.stale = self._reported_at = None  # without viewers, these are not kept up to date
            self._changed = False
        self._viewers.add(viewer)
        self._gauge.inc()
        variant.viewers += 1
        variant.loose.add(viewer)
        lookup = viewer.position.lookup
        is_new = lookup is not None and self._lookups.enter(viewer, lookup)
        viewer.wake()
        if viewer.position.epoch is None or viewer.position.returns:  # the viewer still needs records
            self._mark(variant)
        if is_new:
            self._tick_soon()

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer."""
        self._viewers.remove(viewer)
        self._gauge.dec()
        variant = _variant(viewer.group)
        viewer.leave_cohort()
        variant.loose.discard(viewer)
        variant.viewers -= 1
        if viewer.position.lookup is not None:
            self._lookups.leave(viewer, viewer.position.lookup)
        if not variant.viewers:
            self._variants.remove(variant)

    def count_delayed(self, step: int) -> None:
        """Count more or fewer viewers with a delay."""
        self._delayed += step
        self._gauge.inc(step)

    def renew(self, reader: BoardReader) -> None:
        """Replace the reader, because the board has a new definition or a new epoch. Every viewer receives a sync."""
        self.reader = reader
        if self._tick is not None:
            self._tick.is_outdated = True
        self._variants.renew(reader.state.board)
        self._lookups.forget()
        self.read_again()

    def end(self, code: int) -> None:
        """Disconnect all viewers with one of `CLOSE_CODES`."""
        self.ended = code
        for viewer in list(self._viewers):
            viewer.end(code)

    # Notices from the hub

    def changed(self) -> None:
        """Handle a notice that the board changed."""
        if self._viewers and self._changed:
            CONFLATED.inc()
        self._changed = True
        self.read_again()

    def read_again(self) -> None:
        """Mark every variant as due at its next tick, because the board may have changed."""
        if not self._viewers:
            return  # the next viewer causes a read
        if self._reported_at is None:
            self._reported_at = time.monotonic()
        for variant in self._variants:
            self._mark(variant)

    def set_stale(self, reason: str | None) -> None:
        """Set why the records are stale, and tell the viewers. None means that the records are up to date."""
        if reason != self.status.stale:
            self.status.stale, self.status.is_due = reason, True
            self._tick_soon()

    def set_viewer_count(self, count: int) -> None:
        """Set the number of viewers in all processes, and send it to the viewers."""
        if count != self.status.viewer_count:
            self.status.viewer_count, self.status.is_due = count, True
            self._tick_soon()

    async def keep_alive(self) -> None:
        """Send `alive` to viewers that received nothing for a while."""
        now = time.monotonic()
        if now < self._silent_from:
            return
        await deliver(list(self._variants), now - SILENCE)
        sent = (position.sent_at for variant in self._variants for position in variant.positions)
        self._silent_from = min([now, *sent]) + SILENCE  # a viewer that joins later is due later

    # Ticks

    def begin(self, now: int) -> Tick | None:
        """Begin a tick. Return None after `end`, and during another tick: its `finish` schedules this one."""
        if self._tick is not None or self.ended is not None:
            return None
        variants = self._variants.take_due(now)
        reported_at = None
        if variants:
            self._reads += 1
            reported_at, self._reported_at, self._changed = self._reported_at, None, False
        size = max((variant.size for variant in variants), default=0)
        self._tick = Tick(variants, size, self._reads, reported_at)
        return self._tick

    def take(self, tick: Tick, page: Page | Exception | None, stale: str | None = None) -> None:
        """Take the page that a tick has read, or the error if the read failed. Then call `collect` and `finish`.

        `stale` is the reason why the page may be out of date although the read succeeded.
        """
        if isinstance(page, Exception):
            for variant in tick.variants:
                variant.due = self._schedule.now() + _RETRY
            self.set_stale(reason_of(page))
            tick.reported_at = None
        # Ignore the page of an outdated tick: `renew` has already scheduled another read.
        elif page is not None and not tick.is_outdated:
            if self.position is not None and page.epoch == self.position[0] and page.offset < self.position[1]:
                # The store went back, so the state that viewers have seen no longer exists: every viewer gets a sync.
                self._variants.forget()
                self._lookups.forget()
            self.position = (page.epoch, page.offset)
            self._variants.history.add(page)
            self.set_stale(stale)
            now = self._schedule.now()
            for variant in tick.variants:
                if not variant.hold(page, now):
                    variant.advance(page, tick.number)
                    # If the board has changed meanwhile, the next frame waits for the interval.
                    if variant.due is not None:
                        variant.due = max(variant.due, self._schedule.after(now, variant.interval))
        if self.status.take_due():
            tick.variants = list(self._variants)

    async def finish(self, tick: Tick) -> bool:
        """Send changes to the viewers in no cohort, after the outbox was flushed. Return whether to call `look_up`."""
        await wake(tick.variants)
        if tick.reported_at is not None:
            SEND_LAG_SECONDS.observe(time.monotonic() - tick.reported_at)
        self._tick = None
        if self.status.stale is None and self.position is not None:
            self._lookups.mark(tick.variants, *self.position)
        due = self._variants.next_due
        if self.status.is_due and self._viewers:
            due = min(self._schedule.now(), due or self._schedule.now())
        if due is not None:
            self._schedule.add(due, self)
        return self._lookups.are_waiting

    async def look_up(self) -> None:
        """Do the rank lookups that are due. They run in parallel to the ticks, so that other viewers do not wait."""
        if not await self._lookups.look_up(lambda: self.reader):
            self._schedule.add(self._schedule.now() + _RETRY, self)

    def _mark(self, variant: Variant) -> None:
        now = self._schedule.now()
        if variant.due is None or variant.are_totals_held:
            variant.are_totals_held = False
            variant.due = now if variant.is_empty else self._schedule.after(now, variant.interval)
        if self._tick is None:
            self._schedule.add(variant.due, self)

    def _tick_soon(self) -> None:
        if self._viewers and self._tick is None:
            self._schedule.add(self._schedule.now(), self)


def _variant(group: Subscribers) -> Variant:
    assert isinstance(group, Variant), "a channel has no other groups"  # noqa: S101
    return group


def reason_of(error: Exception) -> str:
    """Return the reason that viewers receive for an error: without details, which are not for everybody."""
    return "the store lost the board's data" if isinstance(error, EpochLostError) else "store unreachable"
